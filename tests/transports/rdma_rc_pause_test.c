/* Connected queue pairs that are paused, beyond what all transports promise: what a peer may
 * send meanwhile, and what becomes of it. */
#include "../harness.h"

#ifdef WEFT_HAVE_RDMA
#include "rdma_rc.h"

/* As much as a lane takes, and what is waited for by it leaves; how much that was. */
static uint64_t send_until_it_waits(struct pair *p, struct end *from) {
    uint64_t n = 0;
    for (int still = 0; still < 200; still++, pair_turns(p, 1))
        for (; send_msg(from, n) == WEFT_OK; n++) still = 0;
    return n;
}

static void in_order(const struct end *end, size_t n) {
    CHECK_EQ(end->n_messages, n);
    for (uint64_t i = 0; i < end->n_messages; i++)
        CHECK_EQ(memcmp(end->messages[i].data, &i, sizeof i), 0);
}

static weft_status_t pause_end(struct end *end, bool on) {
    return end->lane->ops->pause(end->lane, on);
}

/* They have one completion queue and one queue of receives, which has room for a quarter of what
 * three peers may send. */
TEST(others_are_served_while_three_wait) {
    struct pair p;
    static struct end a[4], b[4];
    WANTS_A_DEVICE();
    const weft_setting_t few[] = {insecure, {"rdma.receives", "64"}};
    begin_with(&p, few, 2);
    memset(a, 0, sizeof a), memset(b, 0, sizeof b);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(pair_dial(&p, &a[i], &b[i]), WEFT_OK);
        CHECK(pair_until(&p, a[i].n_open == 1 && b[i].n_open == 1));
        if (i == 3) break;
        CHECK_EQ(pause_end(&b[i], true), WEFT_OK);
        CHECK_EQ(send_until_it_waits(&p, &a[i]), RC_CREDITS);
    }
    for (uint64_t i = 0; i < 1000; i++) {
        while (send_msg(&a[3], i) == WEFT_NO_RESOURCE) pair_turn(&p);
        CHECK(b[0].n_messages + b[1].n_messages + b[2].n_messages == 0);
    }
    CHECK(pair_until(&p, b[3].n_messages == 1000));
    in_order(&b[3], 1000);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(pause_end(&b[i], false), WEFT_OK);
        CHECK(pair_until(&p, b[i].n_messages == RC_CREDITS));
        in_order(&b[i], RC_CREDITS);
    }
    for (int i = 0; i < 4; i++) {
        pair_forget(&b[i]);
        pair_end_close(&a[i], true);
        pair_end_close(&b[i], true);
    }
    end_of(&p);
}

/* A large one needs more of it. */
TEST(what_waits_is_bounded_in_bytes) {
    struct pair p;
    WANTS_A_DEVICE();
    begin_with(&p, &insecure, 1);
    pair_connect(&p);
    struct counted c = counted(1);
    size_t len = p.iface_a->attr.max_zcopy;
    weft_iov_t iov = {calloc(1, len), len};
    uint64_t n = 0;
    CHECK_EQ(pause_end(&p.b, true), WEFT_OK);
    for (int still = 0; still < 200; still++, pair_turns(&p, 1)) {
        while (p.a.lane->ops->am_zcopy(p.a.lane, 3, &(struct lane_zcopy){&n, sizeof n, &iov, 1},
                                       &c.completion) == WEFT_IN_PROGRESS) {
            c.completion.count++;
            n++;
            still = 0;
        }
    }
    CHECK(n > 0 && n * len <= RC_CREDITS * (uint64_t)RC_CREDIT_BYTES + len);
    CHECK_EQ(c.completion.count, 1); /* all have left */
    CHECK_EQ(pause_end(&p.b, false), WEFT_OK);
    CHECK(pair_until(&p, p.b.n_messages == n));
    in_order(&p.b, n);
    free(iov.base);
    end_of(&p);
}

/* Whatever a peer sends beyond it is not kept. */
TEST(one_that_sends_beyond_its_credit_is_lost) {
    struct pair p;
    WANTS_A_DEVICE();
    begin_with(&p, &insecure, 1);
    pair_connect(&p);
    CHECK_EQ(pause_end(&p.b, true), WEFT_OK);
    rc_lane(p.a.lane)->credit += 100;
    CHECK(send_until_it_waits(&p, &p.a) > RC_CREDITS);
    CHECK(pair_until(&p, p.a.n_down == 1 && p.b.n_down == 1));
    CHECK_EQ(p.b.down, WEFT_ERR_PROTOCOL);
    in_order(&p.b, RC_CREDITS);
    end_of(&p);
}

TEST(one_that_gives_more_credit_than_there_is_is_lost) {
    struct pair p;
    WANTS_A_DEVICE();
    begin_with(&p, &insecure, 1);
    pair_connect(&p);
    CHECK(weft__rc_post_word(rc_lane(p.a.lane), RC_CREDIT, NULL, 0, false, RC_PLAIN));
    CHECK(pair_until(&p, p.b.n_down == 1));
    CHECK_EQ(p.b.down, WEFT_ERR_PROTOCOL);
    end_of(&p);
}

/* What came before its end is received, and then its end. */
TEST(a_paused_lane_that_is_lost_is_received_to_the_end) {
    struct pair p;
    WANTS_A_DEVICE();
    begin_with(&p, &insecure, 1);
    pair_connect(&p);
    CHECK_EQ(pause_end(&p.b, true), WEFT_OK);
    uint64_t n = send_until_it_waits(&p, &p.a);
    CHECK_EQ(p.b.n_messages, 0);
    weft__rc_lane_break(rc_lane(p.b.lane), WEFT_ERR_PEER_FAILED);
    CHECK(pair_until(&p, p.a.n_down == 1 && p.b.n_down == 1));
    CHECK_EQ(p.b.down, WEFT_ERR_PEER_FAILED);
    in_order(&p.b, n);
    end_of(&p);
}

/* Without memory for what comes it ends, behind what there was memory for. */
TEST(nothing_is_left_out_of_what_waits) {
    struct pair p;
    WANTS_A_DEVICE();
    begin_with(&p, &insecure, 1);
    pair_connect(&p);
    CHECK_EQ(pause_end(&p.b, true), WEFT_OK);
    for (uint64_t i = 0; i < 20; i++) CHECK_EQ(send_msg(&p.a, i), WEFT_OK);
    weft__alloc_fail_at(10);
    CHECK(pair_until(&p, p.b.n_down == 1));
    weft__alloc_fail_at(0);
    CHECK_EQ(p.b.down, WEFT_ERR_NO_MEMORY);
    in_order(&p.b, 9);
    end_of(&p);
}

/* With what waits, which is not delivered. */
TEST(a_paused_lane_may_be_closed_or_its_interface) {
    struct pair p;
    WANTS_A_DEVICE();
    for (int how = 0; how < 3; how++) {
        begin_with(&p, &insecure, 1);
        pair_connect(&p);
        CHECK_EQ(pause_end(&p.b, true), WEFT_OK);
        (void)send_until_it_waits(&p, &p.a);
        if (how < 2) p.b.lane->ops->close(p.b.lane, how == 1);
        if (how < 2) CHECK(pair_until(&p, p.b.n_closed == 1 && p.a.n_down == 1));
        CHECK_EQ(p.b.n_messages, 0);
        end_of(&p);
    }
}

#else
TEST(others_are_served_while_three_wait) {
    SKIP("built without rdma");
}
#endif
