/* A flush ends with WEFT_OK or an error, whenever it is asked for. */
#include <tests/support/worker_pair.h>

#include <talloc.h>

static void flush_at_once(const char *transport, unsigned flags, bool closes) {
    struct two t;
    struct tally flushed = {0}, all = {0}, closed = {0};
    weft_op_t op = {.done = tally, .arg = &flushed, .flags = flags};
    two_workers(&t, transport, NULL, 0);
    two_dial(&t);
    CHECK_EQ(weft_ep_flush(t.ep, &op), WEFT_IN_PROGRESS);
    op.arg = &all;
    CHECK_EQ(weft_worker_flush(t.a, &op), WEFT_IN_PROGRESS);
    if (closes)
        CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_FLUSH, CLOSE_OP(&closed)), WEFT_IN_PROGRESS);
    UNTIL(&t, flushed.calls && all.calls && (closed.calls || !closes));
    CHECK(flushed.calls == 1 && flushed.status == WEFT_OK);
    CHECK(all.calls == 1 && all.status == WEFT_OK);
    two_down(&t);
}

TEST_EACH(a_flush_before_the_connection_stands_waits_for_it) {
    for (unsigned flags = 0; flags <= WEFT_FLUSH_REMOTE; flags++)
        for (int closes = 0; closes < 2; closes++) flush_at_once(transport, flags, closes);
}

static weft_ep_t *dial_from(weft_worker_t *from, weft_worker_t *to) {
    char address[256];
    size_t len = sizeof address;
    weft_ep_t *ep;
    CHECK_EQ(weft_worker_address(to, address, &len), 0);
    CHECK_EQ(weft_connect_address(from, address, len, NULL, &ep), 0);
    return ep;
}

/* The peer has dialed as well, and is so many turns ahead: one of the two connections goes, and
 * endpoints do not notice. */
static void flush_while_both_dial(const char *transport, int turns, bool from_a, unsigned flags) {
    struct two t;
    struct tally flushed = {0};
    two_workers(&t, transport, NULL, 0);
    weft_worker_t *from = from_a ? t.a : t.b, *to = from_a ? t.b : t.a;
    dial_from(to, from);
    for (int i = 0; i < turns; i++) two_turn(&t);
    weft_op_t op = {.done = tally, .arg = &flushed, .flags = flags};
    weft_status_t st = weft_ep_flush(dial_from(from, to), &op);
    if (st == WEFT_IN_PROGRESS) UNTIL(&t, flushed.calls == 1);
    CHECK_EQ(flushed.status, WEFT_OK);
    two_down(&t);
}

static void flush_at_each_turn(const char *transport) {
    for (int turns = 0; turns < 12; turns++)
        for (unsigned i = 0; i < 4; i++) flush_while_both_dial(transport, turns, i & 1, i / 2);
}

TEST(a_flush_while_both_sides_dial_is_done) {
    flush_at_each_turn("shm");
    flush_at_each_turn("tcp");
}

/* Or it was done by then: nothing is before it. */
TEST_EACH(a_flush_before_the_connection_stands_can_be_cancelled) {
    struct two t;
    struct tally flushed = {0}, late = {0};
    weft_request_t *request;
    two_workers(&t, transport, NULL, 0);
    two_dial(&t);
    weft_op_t op = {.done = tally, .arg = &flushed, .request_p = &request};
    CHECK_EQ(weft_ep_flush(t.ep, &op), WEFT_IN_PROGRESS);
    weft_request_cancel(request);
    CHECK_EQ(weft_ep_flush(t.ep, OP(&late)), WEFT_IN_PROGRESS);
    CHECK_EQ(flushed.calls, 0);
    UNTIL(&t, flushed.calls && late.calls);
    CHECK(flushed.calls == 1 &&
          (flushed.status == WEFT_ERR_CANCELLED || flushed.status == WEFT_OK));
    CHECK(late.calls == 1 && late.status == WEFT_OK);
    two_down(&t);
}

TEST(a_flush_to_an_address_without_a_listener_reports_it) {
    struct two t;
    struct tally sent = {0}, flushed = {0};
    two_workers(&t, "tcp", NULL, 0);
    weft_ep_params_t params = {.on_error = two_on_error, .arg = &t};
    CHECK_EQ(weft_connect(t.a, "tcp://127.0.0.1:1", &params, &t.ep), 0);
    CHECK_EQ(weft_tag_send(t.ep, 1, &(weft_iov_t){"word", 4}, 1, OP(&sent)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_ep_flush(t.ep, OP(&flushed)), WEFT_IN_PROGRESS);
    UNTIL(&t, sent.calls && flushed.calls && t.errors);
    CHECK(sent.status == t.error && flushed.status == t.error);
    CHECK(t.error < 0);
    two_down(&t);
}

struct ends {
    int calls, well;
};
static void count_end(weft_status_t status, void *arg) {
    struct ends *ends = arg;
    ends->calls++;
    ends->well += status == WEFT_OK;
}

/* Of what the lane reads in the peer's memory there may be only so much at a time, and a flush
 * takes a place among it. */
TEST(a_flush_among_many_reads_of_the_peers_memory_waits_for_a_place) {
    enum { READS = 12, LARGE = 2 << 20 };
    struct two t;
    struct tally received = {0};
    struct ends flushed = {0};
    weft_setting_t settings[] = {{"shm.copy", "vm"}};
    char *out = malloc(LARGE), *in = malloc((size_t)READS * LARGE);
    pattern(out, LARGE, 1);
    two_workers(&t, "shm", settings, 1);
    two_dial(&t);
    UNTIL(&t, t.ready && t.back);
    weft_ep_t *quiet = t.ep;
    two_dial(&t); /* another over the same link, and its half is t.back now */
    UNTIL(&t, t.ready == 2 && t.endpoints == 2);
    for (int i = 0; i < READS; i++) {
        CHECK_EQ(weft_tag_send(t.back, 1, &(weft_iov_t){out, LARGE}, 1, NULL), WEFT_IN_PROGRESS);
        CHECK_EQ(weft_tag_recv(t.a, 1, UINT64_MAX, &(weft_iov_t){in + (size_t)i * LARGE, LARGE}, 1,
                               NULL, OP(&received)),
                 WEFT_IN_PROGRESS);
    }
    weft_op_t op = {.done = count_end, .arg = &flushed};
    int posted = 0;
    for (; received.calls < READS; two_turn(&t))
        posted += weft_ep_flush(quiet, &op) == WEFT_IN_PROGRESS;
    UNTIL(&t, flushed.calls == posted);
    CHECK_EQ(flushed.well, posted);
    CHECK(posted > 0 && weft_worker_count(t.a, "protocol.get") > 0);
    for (int i = 0; i < READS; i++) CHECK(memcmp(in + (size_t)i * LARGE, out, LARGE) == 0);
    two_down(&t);
    free(out);
    free(in);
}

/* A large message is in progress until its receiver wants it; a short one behind it has ended by
 * then. A flush ends behind both. */
TEST_WIRES(an_operation_may_end_before_an_earlier_one_and_a_flush_ends_after_both) {
    enum { LARGE = 2 << 20 };
    struct two t;
    struct tally large = {0}, small = {0}, flushed = {0}, received = {0}, first = {0};
    char *out = malloc(LARGE), *in = malloc(LARGE), word[4];
    pattern(out, LARGE, 1);
    two_up(&t, transport);
    CHECK_EQ(weft_tag_send(t.ep, 1, &(weft_iov_t){out, LARGE}, 1, OP(&large)), WEFT_IN_PROGRESS);
    weft_status_t st = weft_tag_send(t.ep, 2, &(weft_iov_t){"word", 4}, 1, OP(&small));
    CHECK_EQ(weft_ep_flush(t.ep, OP(&flushed)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_recv(t.b, 2, UINT64_MAX, &(weft_iov_t){word, 4}, 1, NULL, OP(&received)),
             WEFT_IN_PROGRESS);
    UNTIL(&t, received.calls && (small.calls || st == WEFT_OK));
    CHECK(!large.calls && !flushed.calls);
    st = weft_tag_recv(t.b, 1, UINT64_MAX, &(weft_iov_t){in, LARGE}, 1, NULL, OP(&first));
    UNTIL(&t, large.calls && flushed.calls && (first.calls || st == WEFT_OK));
    CHECK(large.status == WEFT_OK && flushed.status == WEFT_OK && !memcmp(in, out, LARGE));
    two_down(&t);
    free(out);
    free(in);
}

/* ---- one that is cancelled as its last part ends */

static int log_errors;
static void count_errors(weft_log_level_t level, const char *room, const char *line, void *arg) {
    log_errors += level == WEFT_LOG_ERROR;
}
static void cancel(weft_status_t status, void *arg) {
    weft_request_t **request_p = arg;
    if (*request_p) weft_request_cancel(*request_p);
}

TEST_EACH(a_worker_flush_that_is_cancelled_while_its_last_part_ends_is_notified_once) {
    struct two t = {0};
    struct tally all = {0}, closed = {0};
    weft_request_t *flush = NULL;
    weft_worker_params_t params = {
        .transports = transport, .on_endpoint = two_on_endpoint, .arg = &t};
    log_errors = 0;
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.log = count_errors}, &t.context), 0);
    CHECK_EQ(weft_worker_create(t.context, &params, &t.a), 0);
    if (strcmp(transport, "self") != 0) CHECK_EQ(weft_worker_create(t.context, &params, &t.b), 0);
    two_dial(&t);
    CHECK_EQ(weft_tag_send(t.ep, 1, &(weft_iov_t){"word", 4}, 1,
                           &(weft_op_t){.done = cancel, .arg = &flush}),
             WEFT_IN_PROGRESS);
    weft_op_t op = {.done = tally, .arg = &all, .request_p = &flush};
    CHECK_EQ(weft_worker_flush(t.a, &op), WEFT_IN_PROGRESS);
    /* The send ends before the flush of its endpoint does, and both in one turn. */
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_ABORT, OP(&closed)), WEFT_IN_PROGRESS);
    UNTIL(&t, all.calls && closed.calls);
    CHECK(all.calls == 1 && all.status == WEFT_ERR_CANCELLED);
    CHECK_EQ(log_errors, 0);
    two_down(&t);
}

/* The peer does not read: each flush waits for a lane that stays full, until its deadline. */
TEST(flushes_that_end_early_one_after_the_other_leave_no_memory) {
    enum { SENDS = 10000, EARLY = 400 };
    static char bytes[1000];
    weft_iov_t iov = {bytes, sizeof bytes};
    weft_setting_t queue = {"tcp.local_queue", "64k"};
    struct two t;
    struct tally flushed = {0}, last = {0}, sent = {0};
    weft_op_t send = {.done = tally, .arg = &sent, .flags = WEFT_AM_EAGER, .deadline_ms = 1};
    weft_op_t op = {.done = tally, .arg = &flushed, .deadline_ms = 1, .flags = WEFT_FLUSH_REMOTE};
    two_workers(&t, "tcp", &queue, 1);
    two_dial(&t);
    UNTIL(&t, t.ready && t.back);
    weft_status_t st = WEFT_OK;
    for (int i = 0; i < SENDS && st == WEFT_OK; i++) {
        st = weft_am_send(t.ep, 1, NULL, 0, &iov, 1, &send);
        if (i % 16 == 0) weft_worker_progress(t.a, 0);
    }
    CHECK_EQ(st, WEFT_IN_PROGRESS); /* the lane is full; this one leaves by its deadline */
    double until = test_now() + test_timeout(60);
    while (!sent.calls && test_now() < until) weft_worker_progress(t.a, 0);
    CHECK_EQ(sent.status, WEFT_ERR_TIMED_OUT);
    size_t before = 0;
    for (int i = 0; i < EARLY; i++) {
        CHECK_EQ(weft_ep_flush(t.ep, &op), WEFT_IN_PROGRESS);
        double end = test_now() + test_timeout(60);
        while (flushed.calls <= i && test_now() < end) weft_worker_progress(t.a, 0);
        CHECK_EQ(flushed.calls, i + 1);
        CHECK_EQ(flushed.status, WEFT_ERR_TIMED_OUT);
        if (i == 20) before = talloc_total_blocks(t.a);
    }
    CHECK(talloc_total_blocks(t.a) <= before + 4);

    /* The next flush is behind all that was sent, whatever was asked of the lane before. */
    CHECK_EQ(weft_ep_flush(t.ep, OP(&last)), WEFT_IN_PROGRESS);
    UNTIL(&t, last.calls == 1);
    CHECK_EQ(last.status, WEFT_OK);
    two_down(&t);
}
