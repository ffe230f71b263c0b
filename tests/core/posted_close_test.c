/* What other threads have submitted on an endpoint before it is closed: a flushing close sends it,
 * an abort refuses it, and each callback comes before that of the close. */
#include <tests/support/threads.h>

enum { MANY = 300, NOTE = 9 }; /* more than the owner takes in a turn */

static int n_ended, n_sent, n_closed, n_ended_at_close;
static weft_status_t close_status;

static void note_ended(weft_status_t status, void *arg) {
    n_ended++;
    n_sent += status == WEFT_OK;
}
static void note_closed(weft_status_t status, void *arg) {
    n_closed++;
    n_ended_at_close = n_ended;
    close_status = status;
}

static void begin(struct pair *p) {
    n_ended = n_sent = n_closed = n_ended_at_close = 0;
    pair_make(p, "tcp", NULL, 0);
    CHECK_EQ(weft_am_handler_set(p->a, NOTE, on_back, p), 0);
}

static void submit(struct pair *p, weft_request_t **named_p) {
    weft_op_t op = {.done = note_ended, .request_p = named_p};
    for (int i = 0; i < MANY; i++)
        if (weft_am_send(p->to_a, NOTE, &i, sizeof i, NULL, 0, &op) != WEFT_IN_PROGRESS) abort();
}
static void *submit_many(void *arg) {
    weft_request_t *named;
    submit(arg, NULL);
    submit(arg, &named);
    return NULL;
}
static void close_as(struct pair *p, weft_close_mode_t mode) {
    if (weft_ep_close(p->to_a, mode,
                      &(weft_op_t){.done = note_closed,
                                   .deadline_ms = mode == WEFT_CLOSE_FLUSH ? 60000 : 0}) !=
        WEFT_IN_PROGRESS)
        abort();
}
static void *close_behind(void *arg) {
    close_as(arg, WEFT_CLOSE_FLUSH);
    return NULL;
}
static void *submit_many_and_close(void *arg) {
    submit_many(arg);
    return close_behind(arg);
}

/* To its end, while the owner does nothing. */
static void run_thread(struct pair *p, void *(*fn)(void *)) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, fn, p), 0);
    pthread_join(thread, NULL);
}

static void closes_behind_them(struct pair *p, int n_whole) {
    UNTIL_PAIR(p, n_closed);
    CHECK_EQ(n_ended_at_close, 2 * MANY);
    CHECK_EQ(n_sent, n_whole);
    CHECK_EQ(close_status, WEFT_OK);
    UNTIL_PAIR(p, p->arrived == n_whole);
    CHECK_EQ(n_ended, 2 * MANY);
    CHECK_EQ(n_closed, 1);
    pair_end(p);
}

TEST(what_another_thread_submitted_is_refused_before_an_abort_ends) {
    struct pair p;
    begin(&p);
    run_thread(&p, submit_many);
    close_as(&p, WEFT_CLOSE_ABORT);
    closes_behind_them(&p, 0);
}

TEST(what_another_thread_submitted_is_sent_before_a_flushing_close) {
    struct pair p;
    begin(&p);
    run_thread(&p, submit_many);
    close_as(&p, WEFT_CLOSE_FLUSH);
    CHECK_EQ(weft_ep_close(p.to_a, WEFT_CLOSE_FLUSH, NULL), WEFT_ERR_BUSY);
    closes_behind_them(&p, 2 * MANY);
}

TEST(what_a_thread_submitted_is_sent_before_its_own_close) {
    struct pair p;
    begin(&p);
    run_thread(&p, submit_many_and_close);
    closes_behind_them(&p, 2 * MANY);
}

/* It comes while that close waits for them, by the owner or by another thread. */
static void *abort_behind(void *arg) {
    if (weft_ep_close(((struct pair *)arg)->to_a, WEFT_CLOSE_ABORT,
                      &(weft_op_t){.done = note_closed}) != WEFT_IN_PROGRESS)
        abort();
    return NULL;
}
static void *submit_many_close_and_abort(void *arg) {
    submit_many_and_close(arg);
    return abort_behind(arg);
}
TEST(an_abort_shortens_a_close_that_waits_for_what_was_submitted) {
    for (int by_owner = 0; by_owner < 2; by_owner++) {
        struct pair p;
        begin(&p);
        run_thread(&p, by_owner ? submit_many : submit_many_close_and_abort);
        if (by_owner) {
            close_as(&p, WEFT_CLOSE_FLUSH);
            abort_behind(&p);
        }
        UNTIL_PAIR(&p, n_closed == 2);
        CHECK_EQ(n_ended_at_close, 2 * MANY);
        CHECK_EQ(close_status, WEFT_ERR_CLOSED);
        for (int i = 0; i < 100; i++) weft_worker_progress(p.b, 0);
        CHECK_EQ(n_ended, 2 * MANY);
        CHECK_EQ(n_closed, 2);
        pair_end(&p);
    }
}

/* The endpoint is lost while the close waits for them. */
TEST(a_flushing_close_of_a_lost_endpoint_waits_for_them_too) {
    struct pair p;
    begin(&p);
    run_thread(&p, submit_many);
    CHECK_EQ(weft_ep_close(p.to_b, WEFT_CLOSE_ABORT, NULL), WEFT_IN_PROGRESS);
    for (int i = 0; i < 100; i++) weft_worker_progress(p.a, 0);
    close_as(&p, WEFT_CLOSE_FLUSH);
    UNTIL_PAIR(&p, n_closed);
    CHECK_EQ(n_ended_at_close, 2 * MANY);
    pair_end(&p);
}

/* The program takes callbacks when it likes: refusals wait for it, and the close behind them. */
TEST(refusals_that_wait_for_the_program_come_before_the_close) {
    struct pair p;
    begin(&p);
    CHECK_EQ(
        weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
        0);
    submit_many(&p);
    close_as(&p, WEFT_CLOSE_ABORT);
    usleep(20000);
    UNTIL_PAIR(&p, n_closed);
    CHECK_EQ(n_ended_at_close, 2 * MANY);
    CHECK_EQ(n_ended, 2 * MANY);
    pair_end(&p);
}

static void note_worker_closed(weft_status_t status, void *arg) {
    ((struct pair *)arg)->b = NULL;
}

/* The peer may still read the message's memory, so its operation ends later than the close is
 * carried out. */
TEST(a_close_that_finds_its_worker_closing_completes_behind_the_operations) {
    static char big[4 << 20];
    const weft_iov_t whole = {big, sizeof big};
    struct pair p;
    begin(&p);
    CHECK_EQ(weft_am_send(p.to_a, NOTE, NULL, 0, &whole, 1, &(weft_op_t){.done = note_ended}),
             WEFT_IN_PROGRESS);
    for (int i = 0; i < 3; i++) weft_worker_progress(p.b, 0);
    run_thread(&p, close_behind);
    CHECK_EQ(weft_worker_close(p.b, &(weft_op_t){.done = note_worker_closed, .arg = &p}),
             WEFT_IN_PROGRESS);
    UNTIL_PAIR(&p, !p.b);
    CHECK_EQ(n_closed, 1);
    CHECK_EQ(n_ended_at_close, 1);
    pair_end(&p);
}
