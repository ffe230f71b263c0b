/*
 * Endpoints that survive their connection, over tcp: sockets are killed under traffic of all kinds,
 * and what arrives is compared with what was sent: nothing lost, nothing twice, nothing out of
 * order.
 */
#include <tests/support/failover_peers.h>
#include <tests/support/kill_child.h>

/* ---- the promise ----------------------------------------------------------------------------- */

static struct side sides[2];

static void done_with(struct two *t) {
    survive_end(&sides[0]);
    survive_end(&sides[1]);
    two_down(t);
    free(sides[0].in);
    free(sides[1].in);
}

static void messages_with_kills(unsigned seed, int kills, int between) {
    struct two t;
    unsigned random = seed;
    surviving(&t, NULL, 0);
    survive_pair(sides, &t, seed);
    int killed = 0;
    uint64_t came = 0;
    while (killed < kills) {
        for (unsigned i = 0; i < 2; i++)
            for (unsigned n = survive_draw(&sides[i]) % 4; n; n--) survive_send(&sides[i]);
        survive_turn(sides, &t);
        random = random * 1664525 + 1013904223;
        /* When something has come since the last; sometimes earlier, so that a link that goes on
         * is hit. */
        bool moved = came != sides[0].am_came + sides[1].am_came;
        if ((int)(random >> 16) % (moved ? between : 50 * between) || !kill_one(random >> 8))
            continue;
        came = sides[0].am_came + sides[1].am_came;
        killed++;
    }
    survive_settle(sides, &t);
    printf("  %d sockets killed; %llu + %llu messages, resumed %llu times, %llu bytes again\n",
           killed, (unsigned long long)(sides[0].am_sent + sides[0].tag_sent),
           (unsigned long long)(sides[1].am_sent + sides[1].tag_sent),
           (unsigned long long)weft_worker_count(t.a, "lanes.resumed"),
           (unsigned long long)(weft_worker_count(t.a, "lanes.resent_bytes") +
                                weft_worker_count(t.b, "lanes.resent_bytes")));
    done_with(&t);
}

TEST(without_a_kill_everything_arrives_once_and_in_order) {
    struct two t;
    surviving(&t, NULL, 0);
    survive_pair(sides, &t, 1);
    for (int i = 0; i < 3000; i++) {
        survive_send(&sides[i % 2]);
        survive_turn(sides, &t);
    }
    survive_settle(sides, &t);
    CHECK_EQ(weft_worker_count(t.a, "lanes.lost"), 0);
    done_with(&t);
}

TEST(one_killed_socket_is_not_noticed) {
    messages_with_kills(3, 1, 20);
}

TEST(a_thousand_killed_sockets_lose_nothing) {
    messages_with_kills(5, 1000, 12);
}
