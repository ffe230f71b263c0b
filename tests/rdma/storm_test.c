/* A wire that loses, doubles and overtakes: everything arrives, once, in order and whole. */
#include "bed.h"

enum { LONGEST = 9000 };
static char sent[LONGEST + 256];

/* Message number i: which bytes, and how many. Most are small; some take several datagrams. */
static size_t length_of(uint32_t i) {
    uint32_t x = i * 2654435761u;
    return i % 16 == 15 ? x % LONGEST : x % 600;
}

struct storm {
    uint32_t next, wrong;
};
static void on_message(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct storm *s = arg;
    uint32_t i;
    memcpy(&i, am->header, sizeof i);
    if (i != s->next || am->len != length_of(i) || memcmp(am->data, sent + i % 256, am->len))
        s->wrong++;
    s->next = i + 1;
}

static void storm(const char *transport, uint32_t messages, const char *weather) {
    struct bed b;
    struct storm there = {0}, back = {0};
    struct tally ended = {0};
    uint32_t accepted[2] = {0}, waiting = 0;
    pattern(sent, sizeof sent, 3);
    bed_up(&b, transport, "rxe1", (weft_setting_t){"rendezvous.threshold", "64k"});
    CHECK_EQ(weft_am_handler_set(b.t.b, 1, on_message, &there), 0);
    CHECK_EQ(weft_am_handler_set(b.t.a, 1, on_message, &back), 0);
    CHECK(bed_run("tc qdisc add dev v0 root netem %s", weather));
    CHECK(bed_run("tc qdisc add dev v1 root netem %s", weather));
    double begin = test_now(), moved = begin;
    uint32_t seen = 0;
    while (there.next < messages || back.next < messages / 10) {
        for (int end = 0; end < 2; end++)
            for (int n = 0; n < 16; n++) {
                uint32_t *i = &accepted[end], most = end ? messages / 10 : messages;
                if (*i == most || waiting - (uint32_t)ended.calls > 200) break;
                weft_iov_t iov = {sent + *i % 256, length_of(*i)};
                weft_status_t st =
                    weft_am_send(end ? b.t.back : b.t.ep, 1, i, sizeof *i, &iov, 1, OP(&ended));
                CHECK(st >= 0);
                waiting += st == WEFT_IN_PROGRESS;
                ++*i;
            }
        two_turn(&b.t);
        if (there.next + back.next != seen) moved = test_now();
        seen = there.next + back.next;
        CHECK(b.t.errors + b.t.back_errors == 0);
        CHECK(test_now() - moved < test_timeout(10));
    }
    printf("  %s, %s: %u messages in %.1f s\n", transport, weather, messages, test_now() - begin);
    CHECK_EQ(there.wrong + back.wrong, 0);
    UNTIL(&b.t, (uint32_t)ended.calls == waiting);
    CHECK_EQ(ended.status, WEFT_OK);
    CHECK(bed_run("tc -s qdisc show dev v0 | grep dropped"));
    CHECK(bed_run("tc qdisc del dev v0 root && tc qdisc del dev v1 root"));
    bed_down(&b);
}

/* Each is emulated; tests/rdma/inside with RDMA_ALL sends a hundred thousand. */
static uint32_t storm_messages(void) {
    const char *set = getenv("STORM_MESSAGES");
    return set && *set ? (uint32_t)atoi(set) : 25000;
}

TEST(rdma_ud_messages_survive_loss_reorder_and_duplication) {
    storm("rdma_ud", storm_messages(), "delay 300us loss 5% duplicate 3% reorder 25%");
}
