/* Memory that runs out while a link looks for another connection: it survives, or its endpoints
 * are lost; nothing else. */
#include <endpoints/core/worker.h>
#include <endpoints/failover/retain.h>
#include <reactor/reactor.h>
#include <tests/support/kill_child.h>
#include <transports/tcp/tcp.h>

enum { N = 40, BYTES = 20000 };

static const weft_setting_t settings[] = {{"failover.timeout", "200ms"},
                                          {"close.timeout", "100ms"}};
static int came, wrong;
static char bytes[N][BYTES];

static void on_am(weft_ep_t *ep, weft_am_t *am, void *arg) {
    int number;
    memcpy(&number, am->header, sizeof number);
    wrong += number != came++;
}

static bool over(const struct two *t) {
    return t->errors || t->back_errors;
}

/* What is accepted ends once; what was refused does not come. True: no allocation was left to
 * fail. */
static bool survives_failure_at(uint64_t k) {
    struct two t;
    struct tally done = {0};
    int accepted = 0, waiting = 0;
    came = wrong = 0;
    surviving(&t, settings, sizeof settings / sizeof *settings);
    CHECK_EQ(weft_am_handler_set(t.b, 1, on_am, NULL), 0);
    (void)weft__alloc_fail_at(k);
    for (int i = 0; i < N && !over(&t); i++) {
        weft_iov_t iov = {bytes[i], i % 2 ? BYTES : 100};
        weft_status_t st = weft_am_send(t.ep, 1, &accepted, sizeof accepted, &iov, 1, OP(&done));
        accepted += st >= 0;
        waiting += st == WEFT_IN_PROGRESS;
        if (i % 10 == 5) kill_all();
        two_turn(&t);
    }
    UNTIL(&t, over(&t) || (came == accepted && done.calls == waiting));
    bool all_made = weft__alloc_fail_at(0) < k;
    CHECK_EQ(wrong, 0);
    CHECK(came <= accepted);
    if (over(&t)) UNTIL(&t, done.calls == waiting && (t.errors || t.back_errors));
    two_down(&t);
    CHECK_EQ(done.calls, waiting);
    return all_made;
}

TEST(any_allocation_on_the_way_to_another_connection_may_fail) {
    uint64_t k = 1;
    while (k < 400 && !survives_failure_at(k)) k++;
    printf("  %llu allocations\n", (unsigned long long)k);
    CHECK(k > 5 && k < 400);
}

/* ---- memory for what is to be sent again ----------------------------------------------------- */

static struct lane_ops poor_ops;
static int n_refused, n_to_refuse;

static weft_status_t am_zcopy_poor(struct lane *lane, uint8_t id, const struct lane_zcopy *msg,
                                   struct completion *completion) {
    if (n_refused == n_to_refuse) return weft__tcp_ops_open.am_zcopy(lane, id, msg, completion);
    n_refused++;
    return WEFT_ERR_NO_MEMORY;
}

/* A turn of both sides. New lanes of the dialer's refuse the first large messages. */
static void turn_poor(struct two *t) {
    weft_worker_progress(t->a, 0);
    struct lane *fresh = t->ep && t->ep->link ? t->ep->link->more->retain->fresh : NULL;
    if (fresh && fresh->ops == &weft__tcp_ops_open) fresh->ops = &poor_ops;
    weft_worker_progress(t->b, 0);
}

/* A large message is under way when the lane is lost. */
static void begin_poor(struct two *t, struct tally *sent, int to_refuse, const char *timeout) {
    const weft_setting_t poor[] = {{"failover.timeout", timeout}, {"close.timeout", "100ms"}};
    static char large[200000];
    came = wrong = n_refused = 0;
    n_to_refuse = to_refuse;
    poor_ops = weft__tcp_ops_open;
    poor_ops.am_zcopy = am_zcopy_poor;
    surviving(t, poor, sizeof poor / sizeof *poor);
    CHECK_EQ(weft_am_handler_set(t->b, 1, on_am, NULL), 0);
    weft_op_t op = {.done = tally, .arg = sent, .flags = WEFT_AM_EAGER};
    weft_iov_t iov = {large, sizeof large};
    CHECK_EQ(weft_am_send(t->ep, 1, &came, sizeof came, &iov, 1, &op), WEFT_IN_PROGRESS);
    kill_all();
}

/* The lane is good: closed for that, it would be the end of the link for the peer. */
TEST(a_link_waits_for_memory_to_send_again) {
    struct tally sent = {0};
    struct two t;
    begin_poor(&t, &sent, 3, "60s");
    double end = test_now() + test_timeout(60);
    while (!(came && sent.calls) && !over(&t) && test_now() < end) turn_poor(&t);
    CHECK_EQ(n_refused, 3);
    CHECK_EQ(t.errors + t.back_errors, 0);
    CHECK_EQ(came, 1);
    CHECK_EQ(sent.status, WEFT_OK);
    CHECK_EQ(weft_worker_count(t.a, "lanes.resumed"), 1);
    two_down(&t);
}

TEST(a_link_that_gets_no_memory_to_send_again_ends_after_its_timeout) {
    struct tally sent = {0};
    struct two t;
    begin_poor(&t, &sent, -1, "2s");
    double end = test_now() + test_timeout(60);
    while (!t.errors && test_now() < end) turn_poor(&t);
    CHECK(n_refused > 1);
    CHECK(n_refused < 200); /* each try waits longer than the one before */
    CHECK_EQ(t.error, WEFT_ERR_PEER_FAILED);
    UNTIL(&t, sent.calls == 1 && t.back_errors == 1);
    CHECK_EQ(sent.status, WEFT_ERR_PEER_FAILED);
    CHECK_EQ(came, 0);
    two_down(&t);
}
