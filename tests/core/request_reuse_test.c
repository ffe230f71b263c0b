/* A request that has ended is used again by the next operation: nothing of the one before
 * reaches that. */
#include <tests/support/threads.h>

/* ---- a deadline */

static void drive_for(struct two *t, double seconds) {
    for (double end = test_now() + seconds; test_now() < end;) two_turn(t);
}

/* Both have a deadline, so that neither is a plain receive: these keep no timer. */
TEST_EACH(the_deadline_of_a_receive_that_was_taken_in_place_ends_with_it) {
    struct two t;
    two_up(&t, transport);
    for (int i = 0; i < 2; i++) {
        struct tally first = {0}, second = {0};
        weft_op_t soon = {.done = tally, .arg = &first, .deadline_ms = 400};
        weft_op_t later = {.done = tally, .arg = &second, .deadline_ms = 60000};
        weft_iov_t in = {buffer, sizeof buffer};
        CHECK_EQ(weft_tag_recv(two_b(&t), 1, UINT64_MAX, &in, 1, NULL, &soon), WEFT_IN_PROGRESS);
        CHECK(weft_tag_send(t.ep, 1, &(weft_iov_t){"first", 6}, 1, NULL) >= 0);
        UNTIL(&t, first.calls);
        CHECK_EQ(first.status, WEFT_OK);
        CHECK_EQ(weft_tag_recv(two_b(&t), 1, UINT64_MAX, &in, 1, NULL, &later), WEFT_IN_PROGRESS);
        drive_for(&t, 0.6);
        CHECK_EQ(second.calls, 0);
        CHECK(weft_tag_send(t.ep, 1, &(weft_iov_t){"second", 7}, 1, NULL) >= 0);
        UNTIL(&t, second.calls);
        CHECK_EQ(second.status, WEFT_OK);
        CHECK_EQ(first.calls, 1);
    }
    two_down(&t);
}

/* ---- a cancel of another thread */

static weft_request_t *handle, *next_handle;
static atomic_int ended;

static weft_status_t receive_on(struct pair *p, weft_done_fn done, void *arg,
                                weft_request_t **handle_p) {
    weft_op_t op = {.done = done, .arg = arg, .request_p = handle_p};
    return weft_tag_recv(p->b, 1, UINT64_MAX, &(weft_iov_t){buffer, sizeof buffer}, 1, NULL, &op);
}

static void *submit_next(void *arg) {
    if (receive_on(arg, tally, &posted, &next_handle) != WEFT_IN_PROGRESS) posted.calls = 99;
    return NULL;
}
static void first_ended(weft_status_t status, void *arg) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, submit_next, arg) == 0) pthread_join(thread, NULL);
    ended++;
}
static void submit_first(struct pair *p) {
    if (receive_on(p, first_ended, p, &handle) != WEFT_IN_PROGRESS) posted.calls = 99;
}
static void *cancel_first(void *arg) {
    weft_request_cancel(handle);
    return NULL;
}

/* The cancel is on its way when the first submission ends, and its block is the next one's when
 * the cancel comes. */
static void cancel_of_the_first(const char *transport) {
    struct pair p;
    pair_make(&p, transport, NULL, 0);
    for (int i = 0; i < 20; i++) {
        posted = (struct tally){0};
        ended = 0;
        elsewhere(&p, submit_first);
        for (int k = 0; k < 10; k++) drive(&p);
        CHECK(weft_tag_send(p.to_b, 1, &(weft_iov_t){buffer, 4}, 1, NULL) >= 0);
        for (int k = 0; k < 3; k++) weft_worker_progress(p.a, 0);
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, NULL, cancel_first, NULL), 0);
        pthread_join(thread, NULL);
        UNTIL_PAIR(&p, ended);
        CHECK(next_handle == handle);
        for (int k = 0; k < 10; k++) drive(&p);
        CHECK_EQ(posted.calls, 0);
        CHECK(weft_tag_send(p.to_b, 1, &(weft_iov_t){buffer, 4}, 1, NULL) >= 0);
        UNTIL_PAIR(&p, posted.calls);
        CHECK_EQ(posted.calls, 1);
        CHECK_EQ(posted.status, WEFT_OK);
    }
    pair_end(&p);
}
TEST(a_cancel_of_a_submission_that_ended_does_not_end_the_next_shm) {
    cancel_of_the_first("shm");
}
