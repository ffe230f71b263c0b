/* Tagged messages find their receives, in the order sent and posted, early or late. */
#include <base/alloc.h>
#include <endpoints/core/endpoint.h>
#include <tests/support/worker_pair.h>

static weft_status_t send(struct two *t, uint64_t tag, const void *data, size_t len,
                          struct tally *c) {
    return weft_tag_send(t->ep, tag, &(weft_iov_t){(void *)(uintptr_t)data, len}, 1, OP(c));
}
static weft_status_t receive(struct two *t, uint64_t tag, uint64_t mask, void *data, size_t len,
                             weft_tag_info_t *info, struct tally *c) {
    return weft_tag_recv(two_b(t), tag, mask, &(weft_iov_t){data, len}, 1, info, OP(c));
}
static bool settled(weft_status_t st, const struct tally *c) {
    return st == WEFT_OK || c->calls > 0;
}

static const size_t sizes[] = {0, 1, 8, 64, 1000, 8192, 8193, 65536, 65537, 1 << 20};

static void sweep(const char *transport, bool expected) {
    struct two t;
    two_up(&t, transport);
    unsigned char *out = malloc(1 << 20), *in = malloc(1 << 20);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct tally s = {0}, r = {0};
        weft_tag_info_t info = {0};
        weft_status_t rs = WEFT_IN_PROGRESS;
        pattern(out, sizes[i], (unsigned)i);
        memset(in, 0, 1 << 20);
        if (expected) rs = receive(&t, i, UINT64_MAX, in, 1 << 20, &info, &r);
        weft_status_t ss = send(&t, i, out, sizes[i], &s);
        CHECK(ss >= 0);
        if (!expected) {
            UNTIL(&t, weft_tag_probe(two_b(&t), i, UINT64_MAX, &info) == WEFT_OK);
            CHECK_EQ(info.len, sizes[i]);
            rs = receive(&t, i, UINT64_MAX, in, 1 << 20, &info, &r);
        }
        UNTIL(&t, settled(rs, &r) && settled(ss, &s));
        CHECK_EQ(r.status, 0);
        CHECK_EQ(s.status, 0);
        CHECK_EQ(info.len, sizes[i]);
        CHECK_EQ(info.tag, i);
        CHECK(info.ep == t.back);
        CHECK(is_pattern(in, sizes[i], (unsigned)i));
    }
    two_down(&t);
    free(out);
    free(in);
}

TEST_EACH(receives_posted_first_get_every_size) {
    sweep(transport, true);
}
TEST_EACH(messages_that_came_first_wait_whatever_their_size) {
    sweep(transport, false);
}

TEST_EACH(wildcards_match_in_the_order_of_posting) {
    struct two t;
    struct tally c[4] = {{0}}, s = {0};
    char in[4][8] = {{0}};
    weft_tag_info_t info[4];
    two_up(&t, transport);
    CHECK_EQ(receive(&t, 0x10, 0xf0, in[0], 8, &info[0], &c[0]), WEFT_IN_PROGRESS);
    CHECK_EQ(receive(&t, 0x12, UINT64_MAX, in[1], 8, &info[1], &c[1]), WEFT_IN_PROGRESS);
    CHECK_EQ(receive(&t, 0, 0, in[2], 8, &info[2], &c[2]), WEFT_IN_PROGRESS);
    CHECK(send(&t, 0x12, "first", 6, &s) >= 0);
    CHECK(send(&t, 0x12, "second", 7, &s) >= 0);
    CHECK(send(&t, 0x99, "third", 6, &s) >= 0);
    UNTIL(&t, c[0].calls && c[1].calls && c[2].calls);
    CHECK(!strcmp(in[0], "first") && !strcmp(in[1], "second") && !strcmp(in[2], "third"));
    CHECK_EQ(info[2].tag, 0x99);
    two_down(&t);
}

TEST_EACH(a_long_message_is_cut_and_reports_it) {
    struct two t;
    unsigned char out[100], in[10], *big = calloc(1, 200000);
    two_up(&t, transport);
    pattern(out, sizeof out, 1);
    struct tally s = {0}, r = {0};
    CHECK_EQ(receive(&t, 1, UINT64_MAX, in, sizeof in, NULL, &r), WEFT_IN_PROGRESS);
    CHECK(send(&t, 1, out, sizeof out, &s) >= 0);
    UNTIL(&t, r.calls);
    CHECK_EQ(r.status, WEFT_ERR_TRUNCATED);
    CHECK(is_pattern(in, sizeof in, 1));

    s = r = (struct tally){0};
    weft_tag_info_t info;
    CHECK_EQ(receive(&t, 2, UINT64_MAX, in, sizeof in, &info, &r), WEFT_IN_PROGRESS);
    CHECK_EQ(send(&t, 2, big, 200000, &s), WEFT_IN_PROGRESS);
    UNTIL(&t, r.calls && s.calls);
    CHECK_EQ(r.status, WEFT_ERR_TRUNCATED);
    CHECK_EQ(info.len, 200000);
    CHECK_EQ(s.status, WEFT_OK);
    two_down(&t);
    free(big);
}

TEST_EACH(a_taken_message_matches_no_one_else) {
    struct two t;
    struct tally s = {0}, r = {0};
    char in[16] = {0};
    weft_tag_info_t info;
    weft_tag_message_t *message;
    two_up(&t, transport);
    CHECK(send(&t, 3, "mine", 5, &s) >= 0);
    CHECK(send(&t, 3, "yours", 6, &s) >= 0);
    UNTIL(&t, weft_tag_probe(two_b(&t), 3, UINT64_MAX, &info) == WEFT_OK);
    CHECK_EQ(weft_tag_take(two_b(&t), 3, UINT64_MAX, &info, &message), WEFT_OK);
    weft_status_t st = WEFT_IN_PROGRESS;
    st = receive(&t, 3, UINT64_MAX, in, sizeof in, NULL, &r);
    UNTIL(&t, settled(st, &r));
    CHECK(!strcmp(in, "yours"));
    CHECK_EQ(weft_tag_message_recv(two_b(&t), message, &(weft_iov_t){in, sizeof in}, 1, NULL),
             WEFT_OK);
    CHECK(!strcmp(in, "mine"));
    CHECK_EQ(weft_tag_probe(two_b(&t), 0, 0, &info), WEFT_ERR_NOT_FOUND);
    two_down(&t);
}

/* Credits: what is unexpected stays below the limit at the receiver, and nothing is lost or
 * swapped. */
TEST_EACH(unexpected_messages_stay_within_the_credit) {
    enum { MOST = 2000 };
    const int n = 400 + test_fewer(MOST - 400); /* the credit is for 256 */
    struct two t;
    two_workers(&t, transport, (weft_setting_t[]){{"tag.unexpected_bytes", "16k"}}, 1);
    two_dial(&t);
    UNTIL(&t, t.ready && t.back);
    static unsigned char out[MOST][100], in[100];
    struct tally s = {0};
    int waiting = 0;
    for (int i = 0; i < n; i++) {
        pattern(out[i], 100, (unsigned)i);
        weft_status_t st = send(&t, 7, out[i], 100, &s);
        CHECK(st >= 0);
        waiting += st == WEFT_IN_PROGRESS;
    }
    for (int i = 0; i < 1000; i++) two_turn(&t);
    CHECK(weft_worker_count(two_b(&t), "tag.unexpected") <= 16384 / 64);
    for (int i = 0; i < n; i++) {
        struct tally r = {0};
        weft_status_t st = receive(&t, 7, UINT64_MAX, in, sizeof in, NULL, &r);
        UNTIL(&t, settled(st, &r));
        CHECK(is_pattern(in, 100, (unsigned)i));
    }
    UNTIL(&t, s.calls == waiting);
    CHECK_EQ(t.errors + t.back_errors, 0);
    two_down(&t);
}

/* `n` messages of up to 130 bytes wait all at the same time, and are received last first. */
static void wait_together(struct two *t, int n) {
    static unsigned char out[200], in[200];
    for (int i = 0; i < n; i++) {
        struct tally s = {0};
        pattern(out, (size_t)i % 130, (unsigned)i);
        weft_status_t st = send(t, (uint64_t)i, out, (size_t)i % 130, &s);
        UNTIL(t, settled(st, &s) &&
                     weft_tag_probe(two_b(t), (uint64_t)i, UINT64_MAX, NULL) == WEFT_OK);
    }
    for (int i = n; i-- > 0;) {
        struct tally r = {0};
        weft_tag_info_t info;
        weft_status_t st = receive(t, (uint64_t)i, UINT64_MAX, in, sizeof in, &info, &r);
        UNTIL(t, settled(st, &r));
        CHECK_EQ(info.len, (size_t)i % 130);
        CHECK(is_pattern(in, info.len, (unsigned)i));
    }
}

/* The worker keeps blocks of short messages, but not of all that ever waited. */
TEST_EACH(unexpected_messages_use_the_memory_of_earlier_ones) {
    struct two t;
    two_up(&t, transport);
    wait_together(&t, 50);
    size_t blocks = talloc_total_blocks(two_b(&t));
    uint64_t made = weft_worker_count(two_b(&t), "worker.allocations");
    for (int i = 0; i < 20; i++) wait_together(&t, 50);
    /* Of 1,000 messages. A link may switch to a ring during them, which allocates 20 blocks. */
    CHECK(weft_worker_count(two_b(&t), "worker.allocations") < made + 100);
    wait_together(&t, 260);
    CHECK(talloc_total_blocks(two_b(&t)) < blocks + 50);
    two_down(&t);
}

TEST_EACH(a_receive_can_be_cancelled_and_times_out) {
    struct two t;
    char in[8];
    weft_request_t *request;
    struct tally r = {0}, late = {0};
    two_up(&t, transport);
    weft_iov_t iov = {in, sizeof in};
    weft_op_t op = {.done = tally, .arg = &r, .request_p = &request};
    CHECK_EQ(weft_tag_recv(two_b(&t), 1, UINT64_MAX, &iov, 1, NULL, &op), WEFT_IN_PROGRESS);
    weft_request_cancel(request);
    CHECK_EQ(r.calls, 0); /* never inside the call */
    UNTIL(&t, r.calls);
    CHECK_EQ(r.status, WEFT_ERR_CANCELLED);
    op = (weft_op_t){.done = tally, .arg = &late, .deadline_ms = 20};
    double before = test_now();
    CHECK_EQ(weft_tag_recv(two_b(&t), 1, UINT64_MAX, &iov, 1, NULL, &op), WEFT_IN_PROGRESS);
    UNTIL(&t, late.calls);
    CHECK_EQ(late.status, WEFT_ERR_TIMED_OUT);
    CHECK(test_now() - before >= 0.019);
    CHECK_EQ(r.calls, 1);
    two_down(&t);
}

/* Two workers number their first offers alike. */
static void withdraws_one(const char *transport) {
    static unsigned char out[100000], in[100000];
    struct two t;
    struct tally mine = {0}, other = {0}, r = {0};
    char address[256];
    size_t len = sizeof address;
    weft_worker_t *c;
    weft_ep_t *ep;
    weft_request_t *request;
    two_up(&t, transport);
    CHECK_EQ(weft_worker_create(t.context, &(weft_worker_params_t){.transports = transport}, &c),
             0);
    CHECK_EQ(weft_worker_address(t.b, address, &len), 0);
    CHECK_EQ(weft_connect_address(c, address, len, NULL, &ep), 0);
    pattern(out, sizeof out, 3);
    weft_iov_t iov = {out, sizeof out};
    CHECK_EQ(weft_tag_send(ep, 2, &iov, 1, OP(&other)), WEFT_IN_PROGRESS);
    UNTIL(&t, (weft_worker_progress(c, 0), weft_tag_probe(t.b, 2, UINT64_MAX, NULL) == WEFT_OK));
    weft_op_t op = {.done = tally, .arg = &mine, .request_p = &request};
    CHECK_EQ(weft_tag_send(t.ep, 1, &iov, 1, &op), WEFT_IN_PROGRESS);
    UNTIL(&t, weft_tag_probe(t.b, 1, UINT64_MAX, NULL) == WEFT_OK);
    weft_request_cancel(request);
    UNTIL(&t, mine.calls && weft_tag_probe(t.b, 1, UINT64_MAX, NULL) == WEFT_ERR_NOT_FOUND);
    CHECK_EQ(mine.status, WEFT_ERR_CANCELLED);
    CHECK_EQ(receive(&t, 2, UINT64_MAX, in, sizeof in, NULL, &r), WEFT_IN_PROGRESS);
    UNTIL(&t, (weft_worker_progress(c, 0), r.calls && other.calls));
    CHECK(r.status == WEFT_OK && other.status == WEFT_OK && is_pattern(in, sizeof in, 3));
    CHECK_EQ(weft_worker_close(c, &(weft_op_t){.done = two_gone, .arg = &c}), WEFT_IN_PROGRESS);
    UNTIL(&t, (c ? weft_worker_progress(c, 0) : 0, !c));
    two_down(&t);
}
TEST(an_offer_is_withdrawn_by_its_sender_alone_shm) {
    withdraws_one("shm");
}
TEST(an_offer_is_withdrawn_by_its_sender_alone_tcp) {
    withdraws_one(test_network());
}

TEST_EACH(a_completion_counts_receives_that_are_notified_and_those_that_are_cancelled) {
    struct two t;
    char in[3][8];
    weft_request_t *request[3];
    struct tally all = {0}, s = {0};
    weft_completion_t completion = {.count = 1, .done = tally, .arg = &all};
    two_up(&t, transport);
    for (int i = 0; i < 3; i++) {
        weft_op_t op = {.completion = &completion, .request_p = &request[i]};
        weft_iov_t iov = {in[i], sizeof in[i]};
        CHECK_EQ(weft_tag_recv(two_b(&t), (uint64_t)i, UINT64_MAX, &iov, 1, NULL, &op),
                 WEFT_IN_PROGRESS);
    }
    CHECK_EQ(completion.count, 4);
    for (unsigned i = 0; i < 2; i++) {
        CHECK(send(&t, i, "hello", 6, &s) >= 0);
        UNTIL(&t, completion.count == 3 - i);
    }
    weft_request_cancel(request[2]);
    UNTIL(&t, completion.count == 1);
    CHECK_EQ(all.calls, 0);
    weft_completion_release(&completion);
    CHECK_EQ(all.calls, 1);
    CHECK_EQ(all.status, WEFT_ERR_CANCELLED);
    two_down(&t);
}

/* A request that has ended may be another operation's by now: the program's name for it is gone. */
TEST_EACH(what_counts_for_a_completion_is_cancelled_safely_at_any_moment) {
    enum { N = 20 };
    struct two t;
    char in[N][8];
    weft_request_t *request[N];
    struct tally all = {0}, mine = {0}, s = {0};
    weft_completion_t completion = {.count = 1, .done = tally, .arg = &all};
    static const weft_layout_t blocks = {
        .kind = WEFT_LAYOUT_STRIDED, .block = 2, .stride = 2, .count = 4};
    two_up(&t, transport);
    for (int round = 0; round < 3; round++) {
        completion.status = WEFT_OK;
        for (unsigned i = 0; i < N; i++) { /* plain ones, and others */
            weft_op_t op = {.completion = &completion,
                            .request_p = &request[i],
                            .layout = i % 2 ? &blocks : NULL};
            weft_iov_t iov = {in[i], sizeof in[i]};
            CHECK_EQ(weft_tag_recv(two_b(&t), i, UINT64_MAX, &iov, 1, NULL, &op), WEFT_IN_PROGRESS);
            CHECK(request[i] != NULL);
        }
        for (unsigned i = 0; i < N / 2; i++) CHECK(send(&t, i, "hello", 6, &s) >= 0);
        UNTIL(&t, completion.count == 1 + N / 2);
        /* These take the places of those that have ended. */
        mine = (struct tally){0};
        for (unsigned i = 0; i < N; i++) {
            weft_op_t op = {.done = tally, .arg = &mine, .layout = i % 2 ? &blocks : NULL};
            weft_iov_t iov = {in[i % (N / 2)], 8};
            CHECK_EQ(weft_tag_recv(two_b(&t), 100 + i, UINT64_MAX, &iov, 1, NULL, &op),
                     WEFT_IN_PROGRESS);
        }
        for (unsigned i = 0; i < N; i++) {
            CHECK(!request[i] == (i < N / 2));
            weft_request_cancel(request[i]);
        }
        UNTIL(&t, completion.count == 1);
        CHECK_EQ(completion.status, WEFT_ERR_CANCELLED);
        for (unsigned i = 0; i < N; i++) CHECK(!request[i]);
        CHECK_EQ(mine.calls, 0);
        for (unsigned i = 0; i < N; i++) CHECK(send(&t, 100 + i, "hello", 6, &s) >= 0);
        UNTIL(&t, mine.calls == N);
        CHECK_EQ(mine.status, WEFT_OK);
    }
    weft_completion_release(&completion);
    CHECK_EQ(all.calls, 1);
    two_down(&t);
}

/* What the call itself has ended is nothing to cancel. */
TEST_EACH(a_receive_that_its_call_ends_leaves_no_request) {
    struct two t;
    char in[8];
    weft_request_t *request = NULL;
    struct tally s = {0};
    weft_tag_info_t info;
    two_up(&t, transport);
    CHECK(send(&t, 7, "hello", 6, &s) >= 0);
    UNTIL(&t, weft_tag_probe(two_b(&t), 7, UINT64_MAX, &info) == WEFT_OK);
    weft_op_t op = {.request_p = &request};
    CHECK_EQ(weft_tag_recv(two_b(&t), 7, UINT64_MAX, &(weft_iov_t){in, 8}, 1, NULL, &op), WEFT_OK);
    CHECK(!request);
    two_down(&t);
}

/* An offered message whose sender gives up leaves no trace. */
TEST_EACH(a_send_that_no_one_receives_can_be_cancelled) {
    struct two t;
    weft_request_t *request;
    struct tally s = {0};
    weft_tag_info_t info;
    static char big[300000];
    two_up(&t, transport);
    weft_op_t op = {.done = tally, .arg = &s, .request_p = &request};
    CHECK_EQ(weft_tag_send(t.ep, 9, &(weft_iov_t){big, sizeof big}, 1, &op), WEFT_IN_PROGRESS);
    UNTIL(&t, weft_tag_probe(two_b(&t), 9, UINT64_MAX, &info) == WEFT_OK);
    weft_request_cancel(request);
    UNTIL(&t, s.calls);
    CHECK_EQ(s.status, WEFT_ERR_CANCELLED);
    UNTIL(&t, weft_tag_probe(two_b(&t), 9, UINT64_MAX, &info) == WEFT_ERR_NOT_FOUND);
    CHECK_EQ(t.errors + t.back_errors, 0);
    two_down(&t);
}

/* The receiver may be reading there, whatever made the sender fail. Its message may be asked for
 * before or after that is known: not as lost, for no peer is. */
static void fail_with_an_offer(bool closes) {
    struct two t;
    struct tally sent = {0}, closed = {0}, got = {0};
    weft_setting_t how = {"shm.copy", "vm"};
    weft_tag_message_t *message;
    static char large[300000], in[sizeof large];
    weft_iov_t iov = {in, sizeof in};
    two_workers(&t, "shm", &how, 1);
    two_dial(&t);
    UNTIL(&t, t.ready && t.back);
    CHECK_EQ(send(&t, 9, large, sizeof large, &sent), WEFT_IN_PROGRESS);
    UNTIL(&t, weft_tag_probe(t.b, 9, UINT64_MAX, NULL) == WEFT_OK);
    CHECK_EQ(weft_tag_take(t.b, 9, UINT64_MAX, NULL, &message), WEFT_OK);
    if (closes)
        CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_FLUSH, CLOSE_OP(&closed)), WEFT_IN_PROGRESS);
    weft__ep_violation(t.ep, WEFT_ERR_NO_MEMORY, "test");
    for (int i = 0; i < 100; i++) weft_worker_progress(t.a, 0);
    CHECK_EQ(sent.calls + closed.calls, 0);
    CHECK_EQ(t.errors, !closes);
    UNTIL(&t, sent.calls == 1 && t.back_errors == 1 && closed.calls == closes);
    CHECK_EQ(sent.status, WEFT_ERR_NO_MEMORY);
    CHECK_EQ(closed.status, closes ? WEFT_ERR_NO_MEMORY : 0);
    CHECK_EQ(weft_tag_message_recv(t.b, message, &iov, 1, OP(&got)), WEFT_ERR_CANCELLED);
    two_down(&t);
}
TEST(a_sender_that_fails_has_its_memory_back_when_the_peer_reads_it_no_more) {
    fail_with_an_offer(false);
}
TEST(a_sender_that_fails_while_it_closes_has_its_memory_back_when_the_peer_reads_it_no_more) {
    fail_with_an_offer(true);
}

TEST_EACH(a_taken_message_that_its_sender_takes_back_is_cancelled) {
    static char big[300000];
    struct two t;
    struct tally s = {0}, r = {0};
    weft_tag_info_t info;
    weft_tag_message_t *message;
    weft_request_t *request;
    weft_iov_t iov = {big, sizeof big};
    two_up(&t, transport);
    weft_op_t op = {.done = tally, .arg = &s, .request_p = &request};
    CHECK_EQ(weft_tag_send(t.ep, 9, &iov, 1, &op), WEFT_IN_PROGRESS);
    UNTIL(&t, weft_tag_probe(two_b(&t), 9, UINT64_MAX, &info) == WEFT_OK);
    CHECK_EQ(weft_tag_take(two_b(&t), 9, UINT64_MAX, &info, &message), WEFT_OK);
    weft_request_cancel(request);
    UNTIL(&t, s.calls);
    CHECK_EQ(s.status, WEFT_ERR_CANCELLED);
    weft_status_t st = weft_tag_message_recv(two_b(&t), message, &iov, 1, OP(&r));
    UNTIL(&t, st < 0 || r.calls);
    CHECK_EQ(st < 0 ? st : r.status, WEFT_ERR_CANCELLED);
    CHECK_EQ(t.errors + t.back_errors, 0);
    two_down(&t);
}

/* A call that is refused for lack of memory leaves the message, and its sender, as they are. */
TEST_EACH(a_receive_that_is_refused_for_lack_of_memory_takes_nothing) {
    static char big[100000], into[100000];
    for (int taken = 0; taken < 2; taken++) {
        struct two t;
        struct tally s = {0}, r = {0};
        weft_iov_t out = {big, sizeof big}, in = {into, sizeof into};
        weft_tag_message_t *message = NULL;
        weft_status_t st = WEFT_ERR_NO_MEMORY;
        weft_op_t op = {.done = tally, .arg = &s, .flags = WEFT_AM_RENDEZVOUS};
        two_up(&t, transport);
        pattern(big, sizeof big, 5);
        memset(into, 0, sizeof into);
        CHECK_EQ(weft_tag_send(t.ep, 9, &out, 1, &op), WEFT_IN_PROGRESS);
        UNTIL(&t, weft_tag_probe(two_b(&t), 9, UINT64_MAX, NULL) == WEFT_OK);
        if (taken) CHECK_EQ(weft_tag_take(two_b(&t), 9, UINT64_MAX, NULL, &message), WEFT_OK);
        uint64_t k = 0;
        while (st == WEFT_ERR_NO_MEMORY) {
            weft__alloc_fail_at(++k);
            st = taken ? weft_tag_message_recv(two_b(&t), message, &in, 1, OP(&r))
                       : weft_tag_recv(two_b(&t), 9, UINT64_MAX, &in, 1, NULL, OP(&r));
            weft__alloc_fail_at(0);
            for (int i = 0; i < 20; i++) two_turn(&t);
            if (st == WEFT_ERR_NO_MEMORY) CHECK_EQ(s.calls + r.calls, 0);
        }
        CHECK(k > 1);
        CHECK(st == WEFT_OK || st == WEFT_IN_PROGRESS);
        UNTIL(&t, s.calls && (st == WEFT_OK || r.calls));
        CHECK(s.status == WEFT_OK && r.status == WEFT_OK);
        CHECK(is_pattern(into, sizeof into, 5));
        two_down(&t);
    }
}

/* Those that wait for credit are older than those that wait for the lane. */
TEST_EACH(credit_that_comes_while_the_lane_is_full_keeps_the_order) {
    enum { BEFORE = 200, ALL = 260 };
    static weft_tag_info_t info[ALL];
    static struct tally got[ALL];
    static char big[8000];
    weft_setting_t tight[] = {{"tag.unexpected_bytes", "4096"}, {"window.bytes", "128k"}};
    struct two t;
    memset(got, 0, sizeof got);
    two_workers(&t, transport, tight, 2);
    two_dial(&t);
    UNTIL(&t, t.ready && t.back);
    for (uint64_t i = 0; i < BEFORE; i++)
        CHECK(weft_tag_send(t.ep, i, &(weft_iov_t){big, 8}, 1, NULL) >= 0);
    for (int i = test_fewer(3000); i > 0; i--)
        CHECK(weft_am_send(t.ep, 9, NULL, 0, &(weft_iov_t){big, sizeof big}, 1, NULL) >= 0);
    for (uint64_t i = BEFORE; i < ALL; i++)
        CHECK(weft_tag_send(t.ep, i, &(weft_iov_t){big, 8}, 1, NULL) >= 0);
    for (int i = 0; i < ALL; i++)
        got[i].calls = weft_tag_recv(two_b(&t), 0, 0, &(weft_iov_t){big, 8}, 1, &info[i],
                                     OP(&got[i])) == WEFT_OK;
    for (int i = 0; i < ALL; i++) {
        UNTIL(&t, got[i].calls == 1);
        CHECK_EQ(info[i].tag, i);
    }
    two_down(&t);
}

/* ---- where a receive completes */

struct notified {
    char order[16];
    size_t n;
};
struct notifying {
    struct notified *notified;
    char name;
    bool *in_call; /* of a send or receive */
};
static void notify(weft_status_t status, void *arg) {
    struct notifying *t = arg;
    CHECK(!t->in_call || !*t->in_call);
    CHECK(t->notified->n < sizeof t->notified->order);
    t->notified->order[t->notified->n++] = t->name;
}

TEST_EACH(what_a_poll_finds_does_not_overtake_what_is_due) {
    struct two t;
    struct notified notified = {{0}, 0};
    struct notifying first = {&notified, '1', NULL}, second = {&notified, '2', NULL};
    weft_request_t *request;
    char in[2][8], out[8] = "message";
    two_up(&t, transport);
    weft_op_t op = {.done = notify, .arg = &first, .request_p = &request};
    CHECK_EQ(weft_tag_recv(two_b(&t), 1, UINT64_MAX, &(weft_iov_t){in[0], 8}, 1, NULL, &op),
             WEFT_IN_PROGRESS);
    op = (weft_op_t){.done = notify, .arg = &second};
    CHECK_EQ(weft_tag_recv(two_b(&t), 2, UINT64_MAX, &(weft_iov_t){in[1], 8}, 1, NULL, &op),
             WEFT_IN_PROGRESS);
    CHECK(weft_tag_send(t.ep, 2, &(weft_iov_t){out, 8}, 1, NULL) >= 0);
    weft_request_cancel(request);
    CHECK_EQ(notified.n, 0);
    UNTIL(&t, notified.n == 2);
    CHECK(memcmp(notified.order, "12", 2) == 0);
    two_down(&t);
}

TEST_EACH(no_receive_is_notified_in_a_call_that_posts) {
    struct two t;
    struct notified notified = {{0}, 0};
    bool in_call = true;
    struct notifying one = {&notified, '1', &in_call};
    char in[8], out[8] = "message";
    two_up(&t, transport);
    for (unsigned i = 0; i < 10; i++) {
        weft_op_t op = {.done = notify, .arg = &one};
        in_call = true;
        CHECK_EQ(weft_tag_recv(two_b(&t), 1, UINT64_MAX, &(weft_iov_t){in, 8}, 1, NULL, &op),
                 WEFT_IN_PROGRESS);
        CHECK(weft_tag_send(t.ep, 1, &(weft_iov_t){out, 8}, 1, NULL) >= 0);
        in_call = false;
        UNTIL(&t, notified.n == i + 1);
    }
    two_down(&t);
}

struct closing {
    struct two *t;
    int calls;
};
static void close_all(weft_status_t status, void *arg) {
    struct closing *c = arg;
    c->calls++;
    weft_ep_close(c->t->back, WEFT_CLOSE_ABORT, NULL);
    weft_worker_close(two_b(c->t),
                      &(weft_op_t){.done = two_gone, .arg = c->t->b ? &c->t->b : &c->t->a});
}
TEST_EACH(a_receive_may_close_everything_when_it_is_notified) {
    struct two t;
    struct closing c = {&t, 0};
    char in[8], out[8] = "message";
    two_up(&t, transport);
    weft_op_t op = {.done = close_all, .arg = &c};
    CHECK_EQ(weft_tag_recv(two_b(&t), 1, UINT64_MAX, &(weft_iov_t){in, 8}, 1, NULL, &op),
             WEFT_IN_PROGRESS);
    CHECK(weft_tag_send(t.ep, 1, &(weft_iov_t){out, 8}, 1, NULL) >= 0);
    CHECK(weft_tag_send(t.ep, 1, &(weft_iov_t){out, 8}, 1, NULL) >= 0);
    UNTIL(&t, c.calls && !(strcmp(transport, "self") ? t.b : t.a));
    CHECK_EQ(c.calls, 1);
    two_down(&t);
}

/* One request after the other serves receives of every kind: nothing of one is left in the next. */
TEST_EACH(receives_of_all_kinds_take_turns) {
    struct two t;
    unsigned char *out = malloc(100000), *in = malloc(100000);
    two_up(&t, transport);
    for (unsigned i = 0; i < 240; i++) {
        struct tally s = {0}, r = {0};
        bool plain = i >= 200; /* all of the last are */
        size_t len = (plain ? i % 2 : i % 7 == 3) ? 100000 : 8 + i;
        weft_request_t *request;
        weft_iov_t iov[6];
        size_t n = plain ? 1 : i % 5 == 4 ? 6 : i % 5 == 2 ? 2 : 1;
        for (size_t k = 0; k < n; k++) iov[k] = (weft_iov_t){in + k, k + 1 < n ? 1 : len - n + 1};
        weft_op_t op = {.done = tally,
                        .arg = &r,
                        .request_p = &request,
                        .deadline_ms = !plain && i % 3 == 1 ? 10000 : 0};
        pattern(out, len, i);
        memset(in, 0, len);
        CHECK_EQ(weft_tag_recv(two_b(&t), 1, i % 4 == 1 ? 1 : UINT64_MAX, iov, n, NULL, &op),
                 WEFT_IN_PROGRESS);
        if (!plain && i % 11 == 5) {
            weft_request_cancel(request);
            UNTIL(&t, r.calls);
            CHECK_EQ(r.status, WEFT_ERR_CANCELLED);
            continue;
        }
        weft_status_t st = send(&t, 1, out, len, &s);
        CHECK(st >= 0);
        UNTIL(&t, r.calls && settled(st, &s));
        CHECK_EQ(r.status, 0);
        CHECK(is_pattern(in, len, i));
    }
    two_down(&t);
    free(out);
    free(in);
}

static int n_received;
static void in_order(weft_status_t status, void *arg) {
    CHECK_EQ(status, WEFT_OK);
    n_received++;
}

/* A few at a time have credit. None of the others begins to wait again for that. */
TEST_WIRES(many_that_wait_for_little_credit_go_in_order_and_wait_once) {
    enum { MANY = 8000, AT_ONCE = 16 };
    static unsigned out[MANY][300], in[MANY][300]; /* a hundredth of them is offered */
    weft_op_t op = {.done = in_order};
    struct two t;
    int posted = 0;
    two_workers(&t, transport, (weft_setting_t[]){{"tag.unexpected_bytes", "1k"}}, 1);
    two_dial(&t);
    UNTIL(&t, t.ready && t.back);
    n_received = 0;
    for (unsigned i = 0; i < MANY; i++) {
        out[i][0] = i;
        weft_iov_t iov = {out[i], i % 100 ? sizeof i : sizeof out[i]};
        CHECK(weft_tag_send(t.ep, 1, &iov, 1, NULL) >= 0);
    }
    for (double end = test_now() + test_timeout(60); n_received < MANY && test_now() < end;) {
        for (; posted < MANY && posted < n_received + AT_ONCE; posted++) {
            weft_iov_t iov = {in[posted], sizeof in[posted]};
            if (weft_tag_recv(t.b, 1, UINT64_MAX, &iov, 1, NULL, &op) == WEFT_OK) n_received++;
        }
        two_turn(&t);
    }
    CHECK_EQ(n_received, MANY);
    for (unsigned i = 0; i < MANY; i++) CHECK_EQ(in[i][0], i);
    CHECK(weft_worker_count(t.a, "tag.waits") <= MANY);
    two_down(&t);
}
