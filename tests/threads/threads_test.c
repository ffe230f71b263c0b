/* Other threads submit to a worker; a worker has a thread of its own. */
#include <tests/support/threads.h>

#include <endpoints/core/request.h>
#include <limits.h>

struct sender {
    struct pair *p;
    pthread_t thread;
    unsigned index, n;
    atomic_uint completed;
    bool tagged;
    char memory[600]; /* borrowed until its sends have completed */
};

static void sent(weft_status_t status, void *arg) {
    if (status == WEFT_OK) ((struct sender *)arg)->completed++;
}

static void *send_many(void *arg) {
    struct sender *s = arg;
    weft_op_t op = {.done = sent, .arg = s};
    char *big = s->memory;
    pattern(big, sizeof s->memory, s->index);
    for (unsigned i = 0; i < s->n; i++) {
        unsigned header[2] = {s->index, i};
        weft_iov_t iov[] = {
            {big, 100}, {big + 100, 100}, {big + 200, 100}, {big + 300, 100}, {big + 400, 200}};
        weft_status_t st =
            s->tagged
                ? weft_tag_send(s->p->to_a, s->index, &(weft_iov_t){header, sizeof header}, 1, &op)
                : weft_am_send(s->p->to_a, ID, header, sizeof header, iov, 5, &op);
        if (st != WEFT_IN_PROGRESS) return "refused";
        /* Tagged memory is borrowed; the header stands on this stack until it is back. */
        while (s->tagged && s->completed <= i) sched_yield();
    }
    return NULL;
}

static void on_numbered(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct pair *p = arg;
    unsigned header[2];
    memcpy(header, am->header, sizeof header);
    if (header[1] != p->next[header[0]]++ || am->len != 600 ||
        !is_pattern(am->data, 600, header[0]))
        p->disorder++;
    p->arrived++;
}

static void submit_from_threads(const char *transport, bool thread, bool tagged) {
    struct pair p;
    struct sender s[SENDERS];
    unsigned n = tagged ? 300 : 3000;
    pair_make(&p, transport, NULL, 0);
    CHECK_EQ(weft_am_handler_set(p.a, ID, on_numbered, &p), 0);
    if (thread) CHECK_EQ(weft_worker_start_thread(p.b, NULL), 0);
    for (unsigned i = 0; i < SENDERS; i++) {
        s[i] = (struct sender){.p = &p, .index = i, .n = n, .tagged = tagged};
        CHECK_EQ(pthread_create(&s[i].thread, NULL, send_many, &s[i]), 0);
    }
    if (tagged) {
        unsigned got[2];
        for (unsigned k = 0; k < n; k++)
            for (unsigned i = 0; i < SENDERS; i++) {
                struct tally t = {0};
                weft_status_t st = weft_tag_recv(p.a, i, UINT64_MAX, &(weft_iov_t){got, sizeof got},
                                                 1, NULL, OP(&t));
                while (st == WEFT_IN_PROGRESS && !t.calls)
                    weft_worker_progress(p.a, 0), thread ? 0 : weft_worker_progress(p.b, 0);
                CHECK(got[0] == i && got[1] == k);
            }
    } else if (thread) {
        double end = test_now() + test_timeout(60);
        while (p.arrived < (int)(SENDERS * n) && test_now() < end) weft_worker_progress(p.a, 0);
    } else {
        UNTIL_PAIR(&p, p.arrived == (int)(SENDERS * n));
    }
    for (unsigned i = 0; i < SENDERS; i++) {
        void *why;
        pthread_join(s[i].thread, &why);
        CHECK(!why);
    }
    if (!tagged) CHECK(p.arrived == (int)(SENDERS * n) && p.disorder == 0);
    double end = test_now() + test_timeout(60);
    for (unsigned i = 0; i < SENDERS; i++)
        while (s[i].completed < n && test_now() < end)
            thread ? weft_worker_progress(p.a, 0) : (drive(&p), 0);
    for (unsigned i = 0; i < SENDERS; i++) CHECK_EQ(s[i].completed, n);
    pair_end(&p);
}

TEST(messages_of_each_thread_arrive_in_its_order_shm) {
    submit_from_threads("shm", false, false);
}
TEST(messages_of_each_thread_arrive_in_its_order_tcp) {
    submit_from_threads("tcp", false, false);
}
TEST(messages_to_a_worker_with_a_thread_arrive_in_order_shm) {
    submit_from_threads("shm", true, false);
}
TEST(tagged_messages_of_threads_complete_once_each_tcp) {
    submit_from_threads("tcp", true, true);
}

static weft_request_t *to_cancel;

static void post_receive(struct pair *p) {
    weft_op_t op = {.done = tally, .arg = &posted, .request_p = &to_cancel};
    weft_status_t st =
        weft_tag_recv(p->b, 1, UINT64_MAX, &(weft_iov_t){buffer, sizeof buffer}, 1, NULL, &op);
    if (st != WEFT_IN_PROGRESS || !to_cancel) posted.calls = 99;
}
static void cancel_it(struct pair *p) {
    weft_request_cancel(to_cancel);
}

TEST(what_another_thread_posted_another_thread_may_cancel) {
    struct pair p;
    pair_make(&p, "shm", NULL, 0);
    posted = (struct tally){0};
    elsewhere(&p, post_receive);
    drive(&p);
    CHECK_EQ(posted.calls, 0);
    elsewhere(&p, cancel_it);
    UNTIL_PAIR(&p, posted.calls);
    CHECK_EQ(posted.calls, 1);
    CHECK_EQ(posted.status, WEFT_ERR_CANCELLED);
    pair_end(&p);
}

static void *cancel_late(void *arg) {
    weft_request_cancel(to_cancel);
    return NULL;
}
static int first_ended;
static void receive_again(weft_status_t status, void *arg) {
    pthread_t thread;
    first_ended++;
    if (pthread_create(&thread, NULL, cancel_late, NULL) == 0) pthread_join(thread, NULL);
    post_receive(arg);
}

/* The first receive's callback has begun; the second may be the same request. */
TEST(a_cancel_that_comes_too_late_does_not_end_the_next_receive) {
    struct pair p;
    pair_make(&p, "shm", NULL, 0);
    for (int i = 0; i < 50; i++) {
        posted = (struct tally){0};
        first_ended = 0;
        weft_op_t op = {.done = receive_again, .arg = &p, .request_p = &to_cancel};
        weft_iov_t in = {buffer, sizeof buffer}, out = {&i, sizeof i};
        CHECK_EQ(weft_tag_recv(p.b, 1, UINT64_MAX, &in, 1, NULL, &op), WEFT_IN_PROGRESS);
        CHECK(weft_tag_send(p.to_b, 1, &out, 1, NULL) >= 0);
        UNTIL_PAIR(&p, first_ended);
        for (int k = 0; k < 10; k++) drive(&p); /* the cancel is taken by now */
        CHECK_EQ(posted.calls, 0);
        CHECK(weft_tag_send(p.to_b, 1, &out, 1, NULL) >= 0);
        UNTIL_PAIR(&p, posted.calls);
        CHECK_EQ(posted.calls, 1);
        CHECK_EQ(posted.status, WEFT_OK);
    }
    pair_end(&p);
}

static atomic_int firsts;
static void *post_and_cancel_next(void *arg) {
    weft_request_t *before = to_cancel;
    post_receive(arg);
    if (to_cancel != before) posted.calls = 99;
    weft_request_cancel(to_cancel);
    return NULL;
}
static void first_is_over(weft_status_t status, void *arg) {
    pthread_t thread;
    firsts++;
    if (pthread_create(&thread, NULL, post_and_cancel_next, arg) == 0) pthread_join(thread, NULL);
}
static void post_first(struct pair *p) {
    weft_op_t op = {.done = first_is_over, .arg = p, .request_p = &to_cancel};
    weft_status_t st =
        weft_tag_recv(p->b, 1, UINT64_MAX, &(weft_iov_t){buffer, sizeof buffer}, 1, NULL, &op);
    if (st != WEFT_IN_PROGRESS) posted.calls = 99;
}

/* One that comes too late for the first receive is still on its way when the second, by the same
 * handle, is cancelled. */
TEST(a_cancel_is_received_although_one_of_the_operation_before_is_under_way) {
    struct pair p;
    pair_make(&p, "shm", NULL, 0);
    posted = (struct tally){0};
    firsts = 0;
    elsewhere(&p, post_first);
    for (int i = 0; i < 10; i++) drive(&p);
    CHECK(weft_tag_send(p.to_b, 1, &(weft_iov_t){buffer, 4}, 1, NULL) >= 0);
    weft_worker_progress(p.a, 0);
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, cancel_late, NULL), 0);
    pthread_join(thread, NULL);
    UNTIL_PAIR(&p, firsts && posted.calls);
    CHECK_EQ(posted.calls, 1);
    CHECK_EQ(posted.status, WEFT_ERR_CANCELLED);
    pair_end(&p);
}

/* A handle that is in use again and again has a large serial number at the first query. */
TEST(a_cancel_is_received_however_many_operations_had_the_handle_before) {
    static const unsigned before[] = {0, INT_MAX, UINT_MAX / 4 * 3, UINT_MAX};
    struct pair p;
    pair_make(&p, "shm", NULL, 0);
    for (unsigned i = 0; i < sizeof before / sizeof *before; i++) {
        posted = (struct tally){0};
        post_receive(&p);
        atomic_fetch_add(&to_cancel->cancel.serial, before[i] - before[i ? i - 1 : 0]);
        elsewhere(&p, cancel_it);
        UNTIL_PAIR(&p, posted.calls);
        CHECK_EQ(posted.calls, 1);
        CHECK_EQ(posted.status, WEFT_ERR_CANCELLED);
    }
    pair_end(&p);
}

static void post_and_cancel(struct pair *p) {
    post_receive(p);
    weft_request_cancel(to_cancel);
    weft_request_cancel(to_cancel);
}

TEST(a_cancel_may_come_before_the_owner_saw_the_operation) {
    struct pair p;
    pair_make(&p, "shm", NULL, 0);
    for (int i = 0; i < 50; i++) {
        posted = (struct tally){0};
        elsewhere(&p, post_and_cancel);
        UNTIL_PAIR(&p, posted.calls);
        drive(&p);
        CHECK_EQ(posted.calls, 1);
        CHECK_EQ(posted.status, WEFT_ERR_CANCELLED);
    }
    pair_end(&p);
}

static void send_on_b(struct pair *p) {
    if (weft_am_send(p->to_a, ID, NULL, 0, NULL, 0, OP(&posted)) != WEFT_IN_PROGRESS)
        posted.calls = 99;
}

TEST(an_endpoint_that_is_gone_when_the_owner_comes_to_it_answers_closed) {
    struct pair p;
    pthread_t thread;
    pair_make(&p, "shm", NULL, 0);
    posted = (struct tally){0};
    struct elsewhere e = {.fn = send_on_b, .p = &p};
    /* b is not driven while the other thread submits; then b closes the endpoint first. */
    struct tally closed = {0};
    CHECK_EQ(weft_ep_close(p.to_a, WEFT_CLOSE_ABORT, OP(&closed)), WEFT_IN_PROGRESS);
    CHECK_EQ(pthread_create(&thread, NULL, run_elsewhere, &e), 0);
    pthread_join(thread, NULL);
    UNTIL_PAIR(&p, posted.calls && closed.calls);
    CHECK_EQ(posted.status, WEFT_ERR_CLOSED);
    CHECK_EQ(posted.calls, 1);
    pair_end(&p);
}

static void receive_and_wait(struct pair *p) {
    weft_status_t st =
        weft_tag_recv_wait(p->b, 5, UINT64_MAX, &(weft_iov_t){buffer, sizeof buffer}, 1, NULL);
    posted = (struct tally){1, st};
}

TEST(the_waiting_forms_wait_on_another_thread_too) {
    struct pair p;
    pair_make(&p, "tcp", NULL, 0);
    strcpy(buffer, "no");
    CHECK(weft_tag_send(p.to_b, 5, &(weft_iov_t){"yes", 4}, 1, NULL) >= 0);
    elsewhere(&p, receive_and_wait);
    CHECK_EQ(posted.status, WEFT_OK);
    CHECK(strcmp(buffer, "yes") == 0);
    pair_end(&p);
}

static void use_what_is_the_owners(struct pair *p) {
    char address[256];
    size_t len = sizeof address;
    posted.status = weft_worker_address(p->b, address, &len);
}

TEST(what_only_the_owner_may_do_is_refused_elsewhere) {
    struct pair p;
    pair_make(&p, "shm", NULL, 0);
    elsewhere(&p, use_what_is_the_owners);
    CHECK_EQ(posted.status, WEFT_ERR_WRONG_THREAD);
    pair_end(&p);
}

/* It is copied before the owner looks at it. */
static void name_what_is_not_there(struct pair *p) {
    weft_status_t st[] = {
        weft_tag_send(p->to_a, 1, NULL, 1, NULL), weft_am_send(p->to_a, 1, NULL, 0, NULL, 1, NULL),
        weft_stream_send(p->to_a, NULL, 1, NULL), weft_tag_recv(p->b, 1, 0, NULL, 1, NULL, NULL)};
    posted.status = WEFT_ERR_INVALID_PARAM;
    for (int i = 0; i < 4; i++)
        if (st[i] != WEFT_ERR_INVALID_PARAM) posted.status = st[i];
}

TEST(an_iov_that_is_not_there_is_refused_elsewhere) {
    struct pair p;
    pair_make(&p, "shm", NULL, 0);
    elsewhere(&p, name_what_is_not_there);
    CHECK_EQ(posted.status, WEFT_ERR_INVALID_PARAM);
    pair_end(&p);
}

/* ---- a thread of its own */

static void on_echo(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct pair *p = arg;
    if (pthread_equal(pthread_self(), p->main)) p->elsewhere++;
    static char answer[8]; /* borrowed while the ring is full */
    (void)weft_am_send(ep, ID, NULL, 0, &(weft_iov_t){answer, sizeof answer}, 1, NULL);
}

static void echo_by_thread(const char *transport) {
    struct pair p;
    pair_make(&p, transport, NULL, 0);
    CHECK_EQ(weft_am_handler_set(p.b, ECHO, on_echo, &p), 0);
    CHECK_EQ(weft_am_handler_set(p.a, ID, on_back, &p), 0);
    CHECK_EQ(weft_worker_start_thread(p.b, NULL), 0);
    CHECK_EQ(weft_worker_start_thread(p.b, NULL), WEFT_ERR_BUSY);
    CHECK_EQ(weft_worker_progress(p.b, 0), WEFT_ERR_WRONG_THREAD);
    CHECK_EQ(weft_worker_close(p.b, NULL), WEFT_ERR_WRONG_THREAD);
    for (int i = 1; i <= 200; i++) {
        CHECK(weft_am_send(p.to_b, ECHO, NULL, 0, &(weft_iov_t){&i, sizeof i}, 1, NULL) >= 0);
        double end = test_now() + test_timeout(60);
        while (p.arrived < i && test_now() < end) weft_worker_wait(p.a, 100);
        CHECK_EQ(p.arrived, i);
    }
    CHECK_EQ(p.elsewhere, 0);
    CHECK_EQ(weft_worker_stop_thread(p.b), 0);
    CHECK_EQ(weft_worker_stop_thread(p.b), WEFT_ERR_NOT_FOUND);
    /* The caller is the owner again. */
    CHECK(weft_am_send(p.to_b, ECHO, NULL, 0, &(weft_iov_t){&p, 8}, 1, NULL) >= 0);
    UNTIL_PAIR(&p, p.arrived == 201);
    CHECK_EQ(p.elsewhere, 1);
    pair_end(&p);
}

TEST(a_thread_answers_while_the_program_never_calls_shm) {
    echo_by_thread("shm");
}
TEST(a_thread_answers_while_the_program_never_calls_tcp) {
    echo_by_thread("tcp");
}

/* A signal that was not taken would end each of its sleeps at once. */
TEST(a_thread_that_was_woken_sleeps_again) {
    struct pair p;
    pair_make(&p, "shm", &(weft_setting_t){"worker.spin", "0"}, 1);
    CHECK_EQ(weft_am_handler_set(p.b, ECHO, on_echo, &p), 0);
    CHECK_EQ(weft_am_handler_set(p.a, ID, on_back, &p), 0);
    CHECK_EQ(weft_worker_start_thread(p.b, NULL), 0);
    for (int i = 1; i <= 20; i++) {
        CHECK(weft_am_send(p.to_b, ECHO, NULL, 0, &(weft_iov_t){&i, sizeof i}, 1, NULL) >= 0);
        while (p.arrived < i) weft_worker_wait(p.a, 100);
    }
    CHECK_EQ(weft_worker_wait(p.a, 200), WEFT_ERR_TIMED_OUT);
    CHECK_EQ(weft_worker_stop_thread(p.b), 0);
    CHECK(weft_worker_count(p.b, "worker.sleeps") > 0);
    CHECK(weft_worker_count(p.a, "worker.sleeps") < 1000);
    CHECK(weft_worker_count(p.b, "worker.sleeps") < 1000);
    pair_end(&p);
}

TEST(a_thread_may_come_and_go_under_traffic) {
    static char number[4]; /* a send that must wait lets it go later */
    struct pair p;
    int sent = 0;
    pair_make(&p, "shm", NULL, 0);
    CHECK_EQ(weft_am_handler_set(p.b, ECHO, on_echo, &p), 0);
    CHECK_EQ(weft_am_handler_set(p.a, ID, on_back, &p), 0);
    for (int round = 0; round < 40; round++) {
        weft_thread_params_t params = {.callbacks = round % 2 ? WEFT_CALLBACKS_POLLED
                                                              : WEFT_CALLBACKS_ON_THREAD};
        CHECK_EQ(weft_worker_start_thread(p.b, &params), 0);
        for (int i = 0; i < 20; i++, sent++)
            CHECK(weft_am_send(p.to_b, ECHO, NULL, 0, &(weft_iov_t){number, sizeof number}, 1,
                               NULL) >= 0);
        CHECK_EQ(weft_worker_stop_thread(p.b), 0);
    }
    UNTIL_PAIR(&p, p.arrived == sent);
    pair_end(&p);
}

static atomic_bool wake_no_more;
static void *wake_often(void *worker) {
    while (!wake_no_more) weft_worker_wake(worker);
    return NULL;
}
static void close_worker(void *arg) {
    struct pair *p = arg;
    posted.status = weft_worker_close(p->b, NULL);
    p->arrived++;
}

TEST(a_worker_is_destroyed_with_its_thread) {
    struct pair p;
    pair_make(&p, "shm", NULL, 0);
    CHECK_EQ(weft_worker_start_thread(p.b, NULL), 0);
    CHECK(weft_am_send(p.to_b, ID, NULL, 0, NULL, 0, NULL) >= 0);
    weft_worker_destroy(p.b);
    p.b = NULL;
    UNTIL_PAIR(&p, p.errors);
    pair_end(&p);
}

TEST(a_wake_or_a_callback_may_come_while_the_thread_begins_or_ends) {
    struct pair p;
    pthread_t waker;
    wake_no_more = false;
    pair_make(&p, "shm", NULL, 0);
    CHECK_EQ(pthread_create(&waker, NULL, wake_often, p.b), 0);
    for (int round = 0; round < 100; round++) {
        weft_thread_params_t params = {.callbacks = round % 2 ? WEFT_CALLBACKS_POLLED
                                                              : WEFT_CALLBACKS_ON_THREAD};
        CHECK_EQ(weft_worker_post(p.b, close_worker, &p), 0);
        CHECK_EQ(weft_worker_start_thread(p.b, &params), 0);
        while (p.arrived <= round) sched_yield();
        CHECK_EQ(posted.status, WEFT_ERR_BUSY);
        CHECK_EQ(weft_worker_stop_thread(p.b), 0);
    }
    wake_no_more = true;
    pthread_join(waker, NULL);
    pair_end(&p);
}

/* No machine has the memory for its stack. */
TEST(a_thread_that_could_not_begin_changes_nothing) {
    pthread_attr_t before, huge;
    struct pair p;
    pair_make(&p, "shm", NULL, 0);
    CHECK_EQ(weft_am_handler_set(p.b, ECHO, on_back, &p), 0);
    CHECK_EQ(pthread_getattr_default_np(&before), 0);
    CHECK_EQ(pthread_getattr_default_np(&huge), 0);
    CHECK_EQ(pthread_attr_setstacksize(&huge, (size_t)1 << 50), 0);
    for (int polled = 0; polled < 2; polled++) {
        weft_thread_params_t params = {.callbacks = polled ? WEFT_CALLBACKS_POLLED
                                                           : WEFT_CALLBACKS_ON_THREAD};
        CHECK_EQ(pthread_setattr_default_np(&huge), 0);
        weft_status_t st = weft_worker_start_thread(p.b, &params);
        CHECK_EQ(pthread_setattr_default_np(&before), 0);
        CHECK_EQ(st, WEFT_ERR_NO_MEMORY);
        CHECK(weft_am_send(p.to_b, ECHO, NULL, 0, NULL, 0, NULL) >= 0);
        UNTIL_PAIR(&p, p.arrived == 1 + polled);
        CHECK_EQ(weft_worker_count(p.b, "am.dropped"), 0);
    }
    pair_end(&p);
}

TEST(only_mode_multiple_may_have_a_thread) {
    struct pair p;
    pair_make(&p, "shm", NULL, 0);
    CHECK_EQ(weft_worker_start_thread(p.a, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = 9}),
             WEFT_ERR_INVALID_PARAM);
    pair_end(&p);
}
