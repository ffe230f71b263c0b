/* Active messages arrive whole, in order, at their handler, whatever their size. */
#include <base/alloc.h>
#include <inttypes.h>
#include <tests/support/worker_pair.h>

struct inbox {
    int n;
    int bad;
    size_t len;
    weft_ep_t *ep;
    unsigned char *buf; /* rendezvous: where the payload goes */
    int fetched;
    weft_status_t fetch_status;
    int order_errors;
    uint32_t next;
};

static void fetched(weft_status_t status, void *arg) {
    struct inbox *in = arg;
    in->fetched++;
    in->fetch_status = status;
    if (!is_pattern(in->buf, in->len, (unsigned)in->len)) in->bad++;
}

static void on_message(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct inbox *in = arg;
    in->n++;
    in->ep = ep;
    in->len = am->len;
    if (am->header_len != 7 || memcmp(am->header, "header", 7) != 0) in->bad++;
    if (am->data) {
        if (!is_pattern(am->data, am->len, (unsigned)am->len)) in->bad++;
        return;
    }
    weft_status_t st = weft_am_recv(am, &(weft_iov_t){in->buf, am->len}, 1,
                                    &(weft_op_t){.done = fetched, .arg = in});
    if (st != WEFT_IN_PROGRESS) fetched(st, in);
}

static const size_t sizes[] = {0,     1,     7,     8,      40,      41,     63,   64,
                               100,   500,   1000,  4096,   8191,    8192,   8193, 20000,
                               65535, 65536, 65537, 300000, 1 << 20, 5 << 20};

TEST_EACH(every_size_arrives_whole) {
    struct two t;
    two_up(&t, transport);
    struct inbox in = {.buf = malloc(6 << 20)};
    unsigned char *out = malloc(6 << 20);
    CHECK_EQ(weft_am_handler_set(two_b(&t), 5, on_message, &in), 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct tally c = {0};
        int n = in.n, fetches = in.fetched;
        size_t len = sizes[i];
        pattern(out, len, (unsigned)len);
        /* In three pieces, one of them empty. */
        weft_iov_t iov[3] = {{out, len / 3}, {NULL, 0}, {out + len / 3, len - len / 3}};
        weft_status_t st = weft_am_send(t.ep, 5, "header", 7, iov, 3, OP(&c));
        CHECK(st == WEFT_OK || st == WEFT_IN_PROGRESS);
        UNTIL(&t, in.n == n + 1 && (len <= 65536 || in.fetched == fetches + 1));
        if (st == WEFT_IN_PROGRESS) UNTIL(&t, c.calls == 1);
        for (int turn = 0; turn < 20; turn++) two_turn(&t);
        CHECK_EQ(c.calls, st == WEFT_IN_PROGRESS);
        CHECK_EQ(c.status, 0);
        CHECK_EQ(in.len, len);
        CHECK_EQ(in.bad, 0);
        CHECK_EQ(in.fetch_status, 0);
    }
    two_down(&t);
    free(in.buf);
    free(out);
}

static void on_numbered(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct inbox *in = arg;
    uint32_t number;
    memcpy(&number, am->header, sizeof number);
    if (number != in->next++) in->order_errors++;
    in->n++;
}

TEST_EACH(order_holds_while_the_lane_is_full) {
    const uint32_t N = (uint32_t)test_fewer(20000);
    struct two t;
    two_workers(&t, transport, (weft_setting_t[]){{"window.bytes", "128k"}}, 1);
    two_dial(&t);
    UNTIL(&t, t.ready && t.back);
    struct inbox in = {0};
    struct tally c = {0};
    int waiting = 0;
    static char bytes[3000];
    CHECK_EQ(weft_am_handler_set(two_b(&t), 5, on_numbered, &in), 0);
    for (uint32_t i = 0; i < N; i++) {
        weft_status_t st = weft_am_send(t.ep, 5, &i, sizeof i,
                                        &(weft_iov_t){bytes, i % 7 ? i % 50 : 3000}, 1, OP(&c));
        CHECK(st >= 0);
        waiting += st == WEFT_IN_PROGRESS;
    }
    CHECK(waiting > 0); /* no reader meanwhile: the lane had to run full */
    UNTIL(&t, in.n == (int)N && c.calls == waiting);
    CHECK_EQ(in.order_errors, 0);
    two_down(&t);
}

static void on_reply(weft_ep_t *ep, weft_am_t *am, void *arg) {
    weft_status_t st =
        weft_am_send(ep, 6, NULL, 0, &(weft_iov_t){(void *)(uintptr_t)am->data, am->len}, 1, NULL);
    if (st < 0) ((struct inbox *)arg)->bad++;
}
static void on_count(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct inbox *in = arg;
    in->n++;
    in->len = am->len;
}

TEST_EACH(a_handler_replies_on_its_endpoint) {
    struct two t;
    two_up(&t, transport);
    struct inbox in = {0};
    CHECK_EQ(weft_am_handler_set(two_b(&t), 5, on_reply, &in), 0);
    CHECK_EQ(weft_am_handler_set(t.a, 6, on_count, &in), 0);
    for (int i = 0; i < 100; i++) {
        CHECK(weft_am_send(t.ep, 5, NULL, 0, &(weft_iov_t){"ping", 4}, 1, NULL) >= 0);
        UNTIL(&t, in.n == i + 1);
        CHECK_EQ(in.len, 4);
    }
    CHECK_EQ(in.bad, 0);
    two_down(&t);
}

TEST_EACH(messages_sent_before_the_peer_answers_arrive_in_order) {
    struct two t;
    struct inbox in = {0};
    two_workers(&t, transport, NULL, 0);
    CHECK_EQ(weft_am_handler_set(two_b(&t), 5, on_numbered, &in), 0);
    two_dial(&t);
    for (uint32_t i = 0; i < 100; i++)
        CHECK_EQ(weft_am_send(t.ep, 5, &i, sizeof i, NULL, 0, NULL), WEFT_IN_PROGRESS);
    UNTIL(&t, in.n == 100);
    CHECK_EQ(in.order_errors, 0);
    two_down(&t);
}

static void on_refuse(weft_ep_t *ep, weft_am_t *am, void *arg) {
    ((struct inbox *)arg)->n++;
}

static void describe(weft_status_t status, void *arg) {
    weft_status_describe(status, arg, 512);
}

static uint64_t counted(weft_worker_t *worker, const char *name) {
    const char *is;
    uint64_t value;
    for (size_t i = 0; weft_worker_counter(worker, i, &is, &value) == WEFT_OK; i++)
        if (strcmp(is, name) == 0) return value;
    return UINT64_MAX;
}

/* Its sender has its memory again, and learns that the message was not taken; the receiver counts
 * it. */
TEST_EACH(a_payload_that_the_handler_does_not_take_is_rejected) {
    struct two t;
    struct inbox in = {0};
    struct tally c = {0};
    char why[512] = "";
    static char big[200000];
    weft_iov_t iov = {big, sizeof big};
    two_up(&t, transport);
    CHECK_EQ(weft_am_handler_set(two_b(&t), 5, on_refuse, &in), 0);
    CHECK_EQ(weft_am_send(t.ep, 5, NULL, 0, &iov, 1, OP(&c)), WEFT_IN_PROGRESS);
    UNTIL(&t, c.calls == 1);
    CHECK_EQ(in.n, 1);
    CHECK_EQ(c.status, WEFT_ERR_REJECTED);
    CHECK_EQ(counted(two_b(&t), "am.refused"), 1);
    /* Without a handler it is the same. */
    weft_op_t op = {.done = describe, .arg = why};
    CHECK_EQ(weft_am_send(t.ep, 6, NULL, 0, &iov, 1, &op), WEFT_IN_PROGRESS);
    UNTIL(&t, *why);
    CHECK(strstr(why, "WEFT_ERR_REJECTED") && strstr(why, "did not take the payload"));
    CHECK_EQ(counted(two_b(&t), "am.refused"), 2);
    two_down(&t);
}

struct warnings {
    int n;
    char last[512];
};
static void keep_warning(weft_log_level_t level, const char *room, const char *line, void *arg) {
    struct warnings *w = arg;
    if (level != WEFT_LOG_WARN || !strstr(line, "refused an active message")) return;
    w->n++;
    snprintf(w->last, sizeof w->last, "%s", line);
}

struct scarce {
    char into[100000];
    int refused;
    struct tally done;
};
static void on_scarce(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct scarce *c = arg;
    weft_iov_t in = {c->into, sizeof c->into};
    weft_status_t st = WEFT_ERR_NO_MEMORY;
    for (uint64_t k = 1; st == WEFT_ERR_NO_MEMORY; k++) {
        weft__alloc_fail_at(k);
        st = weft_am_recv(am, &in, 1, OP(&c->done));
        weft__alloc_fail_at(0);
        c->refused += st == WEFT_ERR_NO_MEMORY;
    }
    if (st != WEFT_IN_PROGRESS) tally(st, &c->done);
}

/* A handler that was refused for lack of memory may try again. */
TEST_EACH(a_receive_that_is_refused_for_lack_of_memory_leaves_the_payload) {
    static struct scarce c;
    static char big[100000];
    struct two t;
    struct tally s = {0};
    weft_op_t op = {.done = tally, .arg = &s, .flags = WEFT_AM_RENDEZVOUS};
    memset(&c, 0, sizeof c);
    two_up(&t, transport);
    CHECK_EQ(weft_am_handler_set(two_b(&t), 1, on_scarce, &c), 0);
    pattern(big, sizeof big, 5);
    CHECK_EQ(weft_am_send(t.ep, 1, NULL, 0, &(weft_iov_t){big, sizeof big}, 1, &op),
             WEFT_IN_PROGRESS);
    UNTIL(&t, s.calls && c.done.calls);
    CHECK(c.refused > 0);
    CHECK_EQ(c.done.status, WEFT_OK);
    CHECK_EQ(s.status, WEFT_OK);
    CHECK(is_pattern(c.into, sizeof c.into, 5));
    two_down(&t);
}

/* Which message, whose, and why. */
TEST_EACH(a_refused_payload_is_a_warning_at_its_receiver) {
    struct two t;
    struct warnings w = {0};
    struct inbox in = {0};
    struct tally c = {0};
    char receiver[32];
    weft_ep_info_t info;
    static char big[200000];
    weft_iov_t iov = {big, sizeof big};
    setenv("WEFT_LOG_LEVEL", "warn", 1);
    two_workers_of(&t, transport, &(weft_context_params_t){.log = keep_warning, .log_arg = &w});
    two_dial(&t);
    CHECK_EQ(weft_am_send(t.ep, 6, NULL, 0, &iov, 1, OP(&c)), WEFT_IN_PROGRESS);
    UNTIL(&t, c.calls == 1);
    CHECK_EQ(w.n, 1);
    CHECK_EQ(weft_ep_describe(t.ep, &info), 0);
    snprintf(receiver, sizeof receiver, "worker %016" PRIx64, info.peer_worker);
    CHECK(strstr(w.last, receiver) && strstr(w.last, "id 6 and 200000 bytes from "));
    CHECK(strstr(w.last, "the id has no handler"));
    CHECK_EQ(weft_am_handler_set(two_b(&t), 5, on_refuse, &in), 0);
    CHECK_EQ(weft_am_send(t.ep, 5, NULL, 0, &iov, 1, OP(&c)), WEFT_IN_PROGRESS);
    UNTIL(&t, c.calls == 2);
    CHECK_EQ(w.n, 2);
    CHECK(strstr(w.last, "id 5 and 200000 bytes from ") && strstr(w.last, "weft_am_recv"));
    two_down(&t);
}

static const void *kept;
static void on_keep(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct inbox *in = arg;
    in->n++;
    in->len = am->len;
    if (weft_am_retain(am, &kept) != WEFT_OK) in->bad++;
}

TEST_EACH(a_kept_message_outlives_its_handler) {
    struct two t;
    struct inbox in = {0};
    unsigned char out[1000];
    two_up(&t, transport);
    pattern(out, sizeof out, 9);
    CHECK_EQ(weft_am_handler_set(two_b(&t), 5, on_keep, &in), 0);
    CHECK(weft_am_send(t.ep, 5, NULL, 0, &(weft_iov_t){out, sizeof out}, 1, NULL) >= 0);
    UNTIL(&t, in.n == 1);
    for (int i = 0; i < 50; i++) two_turn(&t);
    CHECK(is_pattern(kept, in.len, 9) && in.len == sizeof out && in.bad == 0);
    weft_am_release(two_b(&t), kept);
    two_down(&t);
}

TEST_EACH(messages_without_a_handler_are_counted_and_dropped) {
    struct two t;
    two_up(&t, transport);
    CHECK(weft_am_send(t.ep, 77, NULL, 0, NULL, 0, NULL) >= 0);
    UNTIL(&t, weft_worker_count(two_b(&t), "am.dropped") == 1);
    CHECK_EQ(t.errors + t.back_errors, 0);
    two_down(&t);
}

TEST(wrong_arguments_are_named) {
    struct two t;
    char text[512];
    two_up(&t, "self");
    CHECK_EQ(weft_am_send(NULL, 1, NULL, 0, NULL, 0, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_am_send(t.ep, 4000, NULL, 0, NULL, 0, NULL), WEFT_ERR_INVALID_PARAM);
    weft_status_describe(WEFT_ERR_INVALID_PARAM, text, sizeof text);
    CHECK(strstr(text, "id is 4000"));
    CHECK_EQ(weft_am_send(t.ep, 1, NULL, 8, NULL, 0, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_am_send(t.ep, 1, text, 257, NULL, 0, NULL), WEFT_ERR_TOO_BIG);
    CHECK_EQ(weft_am_send(t.ep, 1, NULL, 0, NULL, 3, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_am_handler_set(t.a, 1024, on_count, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_am_handler_set(NULL, 1, on_count, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(t.errors, 0);
    two_down(&t);
}
