/* Tagged messages find their receives, in the order sent and posted, early or late. */
#include "two.h"

static weft_status_t send(struct two *t, uint64_t tag, const void *data, size_t len, struct tally *c) {
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

TEST_EACH(a_long_message_is_cut_and_says_so) {
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

TEST_EACH(a_taken_message_matches_nobody_else) {
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
    CHECK_EQ(weft_tag_message_recv(two_b(&t), message, &(weft_iov_t){in, sizeof in}, 1, NULL), WEFT_OK);
    CHECK(!strcmp(in, "mine"));
    CHECK_EQ(weft_tag_probe(two_b(&t), 0, 0, &info), WEFT_ERR_NOT_FOUND);
    two_down(&t);
}

/* Credits: what is unexpected stays below the limit at the receiver, and nothing is lost or swapped. */
TEST_EACH(unexpected_messages_stay_within_the_credit) {
    enum { N = 2000 };
    struct two t;
    two_workers(&t, transport, (weft_setting_t[]){{"tag.unexpected_bytes", "16k"}}, 1);
    two_dial(&t);
    UNTIL(&t, t.ready && t.back);
    static unsigned char out[N][100], in[100];
    struct tally s = {0};
    int waiting = 0;
    for (int i = 0; i < N; i++) {
        pattern(out[i], 100, (unsigned)i);
        weft_status_t st = send(&t, 7, out[i], 100, &s);
        CHECK(st >= 0);
        waiting += st == WEFT_IN_PROGRESS;
    }
    for (int i = 0; i < 1000; i++) two_turn(&t);
    CHECK(weft_worker_count(two_b(&t), "tag.unexpected") <= 16384 / 64);
    for (int i = 0; i < N; i++) {
        struct tally r = {0};
        weft_status_t st = receive(&t, 7, UINT64_MAX, in, sizeof in, NULL, &r);
        UNTIL(&t, settled(st, &r));
        CHECK(is_pattern(in, 100, (unsigned)i));
    }
    UNTIL(&t, s.calls == waiting);
    CHECK_EQ(t.errors + t.back_errors, 0);
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
    CHECK_EQ(weft_tag_recv(two_b(&t), 1, UINT64_MAX, &iov, 1, NULL, &op), WEFT_IN_PROGRESS);
    double before = two_now();
    UNTIL(&t, late.calls);
    CHECK_EQ(late.status, WEFT_ERR_TIMED_OUT);
    CHECK(two_now() - before >= 0.019);
    CHECK_EQ(r.calls, 1);
    two_down(&t);
}

/* An offered message whose sender gives up leaves no trace. */
TEST_EACH(a_send_that_nobody_receives_can_be_cancelled) {
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

/* Those that wait for credit are older than those that wait for the lane. */
TEST_EACH(credit_that_comes_while_the_lane_is_full_keeps_the_order) {
    enum { BEFORE = 200, ALL = 260 };
    static weft_tag_info_t info[ALL];
    static struct tally got[ALL];
    static char big[8000];
    weft_setting_t quota = {"tag.unexpected_bytes", "4096"};
    struct two t;
    memset(got, 0, sizeof got);
    two_workers(&t, transport, &quota, 1);
    two_dial(&t);
    UNTIL(&t, t.ready && t.back);
    for (uint64_t i = 0; i < BEFORE; i++) CHECK(weft_tag_send(t.ep, i, &(weft_iov_t){big, 8}, 1, NULL) >= 0);
    for (int i = 0; i < 3000; i++)
        CHECK(weft_am_send(t.ep, 9, NULL, 0, &(weft_iov_t){big, sizeof big}, 1, NULL) >= 0);
    for (uint64_t i = BEFORE; i < ALL; i++) CHECK(weft_tag_send(t.ep, i, &(weft_iov_t){big, 8}, 1, NULL) >= 0);
    for (int i = 0; i < ALL; i++)
        got[i].calls = weft_tag_recv(two_b(&t), 0, 0, &(weft_iov_t){big, 8}, 1, &info[i], OP(&got[i])) == WEFT_OK;
    for (int i = 0; i < ALL; i++) {
        UNTIL(&t, got[i].calls == 1);
        CHECK_EQ(info[i].tag, i);
    }
    two_down(&t);
}
