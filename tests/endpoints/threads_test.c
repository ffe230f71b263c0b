/* Other threads submit; a worker has a thread of its own. */
#include "two.h"
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

enum { ID = 7, ECHO = 8, SENDERS = 4 };

/* a is driven by the test's thread; b is of mode multiple, and by default driven by a thread of its own. */
struct pair {
    weft_context_t *context;
    weft_worker_t *a, *b;
    weft_ep_t *to_b, *to_a;
    atomic_int ready, accepted, arrived, errors;
    weft_status_t error;
    pthread_t main;
    atomic_int elsewhere; /* callbacks of b on the test's thread, or of a on another */
    unsigned next[SENDERS];
    int disorder;
    weft_rkey_t *key;
};

static void on_ready(weft_ep_t *ep, void *arg) {
    ((struct pair *)arg)->ready++;
}
static void on_endpoint(weft_ep_t *ep, void *arg) {
    struct pair *p = arg;
    p->to_a = ep;
    p->accepted++;
}
static void on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    struct pair *p = arg;
    p->error = status;
    p->errors++;
}

static void drive(struct pair *p) {
    weft_worker_progress(p->a, 0);
    if (p->b) weft_worker_progress(p->b, 0);
}
#define UNTIL_PAIR(p, cond)                                \
    do {                                                   \
        double until_end = two_now() + 60;                 \
        while (!(cond) && two_now() < until_end) drive(p); \
        CHECK(cond);                                       \
    } while (0)

static void pair_make(struct pair *p, const char *transports, const weft_setting_t *settings, size_t n) {
    *p = (struct pair){.main = pthread_self()};
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = n}, &p->context), 0);
    weft_worker_params_t params = {.transports = transports,
                                   .thread_mode = WEFT_THREAD_MULTIPLE,
                                   .on_endpoint = on_endpoint,
                                   .on_error = on_error,
                                   .arg = p};
    CHECK_EQ(weft_worker_create(p->context, &(weft_worker_params_t){.transports = transports}, &p->a), 0);
    CHECK_EQ(weft_worker_create(p->context, &params, &p->b), 0);
    char address[256];
    size_t len = sizeof address;
    CHECK_EQ(weft_worker_address(p->b, address, &len), 0);
    weft_ep_params_t ep = {.on_ready = on_ready, .on_error = on_error, .arg = p};
    CHECK_EQ(weft_connect_address(p->a, address, len, &ep, &p->to_b), 0);
    UNTIL_PAIR(p, p->ready && p->accepted);
}

static void pair_end(struct pair *p) {
    weft_worker_destroy(p->b);
    weft_worker_destroy(p->a);
    CHECK_EQ(weft_context_destroy(p->context), 0);
}

/* ---- submissions */

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
        weft_iov_t iov[] = {{big, 100}, {big + 100, 100}, {big + 200, 100}, {big + 300, 100}, {big + 400, 200}};
        weft_status_t st = s->tagged
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
    if (header[1] != p->next[header[0]]++ || am->len != 600 || !is_pattern(am->data, 600, header[0])) p->disorder++;
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
                weft_status_t st =
                    weft_tag_recv(p.a, i, UINT64_MAX, &(weft_iov_t){got, sizeof got}, 1, NULL, OP(&t));
                while (st == WEFT_IN_PROGRESS && !t.calls)
                    weft_worker_progress(p.a, 0), thread ? 0 : weft_worker_progress(p.b, 0);
                CHECK(got[0] == i && got[1] == k);
            }
    } else if (thread) {
        double end = two_now() + 60;
        while (p.arrived < (int)(SENDERS * n) && two_now() < end) weft_worker_progress(p.a, 0);
    } else {
        UNTIL_PAIR(&p, p.arrived == (int)(SENDERS * n));
    }
    for (unsigned i = 0; i < SENDERS; i++) {
        void *why;
        pthread_join(s[i].thread, &why);
        CHECK(!why);
    }
    if (!tagged) CHECK(p.arrived == (int)(SENDERS * n) && p.disorder == 0);
    double end = two_now() + 60;
    for (unsigned i = 0; i < SENDERS; i++)
        while (s[i].completed < n && two_now() < end) thread ? weft_worker_progress(p.a, 0) : (drive(&p), 0);
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

/* Runs `fn` on another thread while the test's thread drives both workers. */
struct elsewhere {
    void (*fn)(struct pair *p);
    struct pair *p;
    atomic_bool over;
};
static void *run_elsewhere(void *arg) {
    struct elsewhere *e = arg;
    e->fn(e->p);
    e->over = true;
    return NULL;
}
static void elsewhere(struct pair *p, void (*fn)(struct pair *p)) {
    struct elsewhere e = {.fn = fn, .p = p};
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, run_elsewhere, &e), 0);
    while (!e.over) drive(p);
    pthread_join(thread, NULL);
}

static _Thread_local weft_status_t got_status;
static struct tally posted;
static bool got_elsewhere;
static weft_request_t *to_cancel;
static _Alignas(8) char buffer[64];

static void post_receive(struct pair *p) {
    weft_op_t op = {.done = tally, .arg = &posted, .request_p = &to_cancel};
    got_status = weft_tag_recv(p->b, 1, UINT64_MAX, &(weft_iov_t){buffer, sizeof buffer}, 1, NULL, &op);
    if (got_status != WEFT_IN_PROGRESS || !to_cancel) posted.calls = 99;
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
    if (weft_am_send(p->to_a, ID, NULL, 0, NULL, 0, OP(&posted)) != WEFT_IN_PROGRESS) posted.calls = 99;
}

TEST(an_endpoint_that_is_gone_when_the_owner_comes_to_it_answers_closed) {
    struct pair p;
    pthread_t thread;
    pair_make(&p, "shm", NULL, 0);
    posted = (struct tally){0};
    struct elsewhere e = {.fn = send_on_b, .p = &p};
    /* Nobody drives b while the other thread submits; then b closes the endpoint first. */
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
    got_status = weft_tag_recv_wait(p->b, 5, UINT64_MAX, &(weft_iov_t){buffer, sizeof buffer}, 1, NULL);
    posted = (struct tally){1, got_status};
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

/* ---- a thread of its own */

static void on_echo(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct pair *p = arg;
    if (pthread_equal(pthread_self(), p->main)) p->elsewhere++;
    static char answer[8]; /* borrowed while the ring is full */
    (void)weft_am_send(ep, ID, NULL, 0, &(weft_iov_t){answer, sizeof answer}, 1, NULL);
}
static void on_back(weft_ep_t *ep, weft_am_t *am, void *arg) {
    ((struct pair *)arg)->arrived++;
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
        double end = two_now() + 60;
        while (p.arrived < i && two_now() < end) weft_worker_wait(p.a, 100);
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

TEST(a_thread_may_come_and_go_under_traffic) {
    static char number[4]; /* a send that must wait lets it go later */
    struct pair p;
    int sent = 0;
    pair_make(&p, "shm", NULL, 0);
    CHECK_EQ(weft_am_handler_set(p.b, ECHO, on_echo, &p), 0);
    CHECK_EQ(weft_am_handler_set(p.a, ID, on_back, &p), 0);
    for (int round = 0; round < 40; round++) {
        weft_thread_params_t params = {.callbacks = round % 2 ? WEFT_CALLBACKS_POLLED : WEFT_CALLBACKS_ON_THREAD};
        CHECK_EQ(weft_worker_start_thread(p.b, &params), 0);
        for (int i = 0; i < 20; i++, sent++)
            CHECK(weft_am_send(p.to_b, ECHO, NULL, 0, &(weft_iov_t){number, sizeof number}, 1, NULL) >= 0);
        CHECK_EQ(weft_worker_stop_thread(p.b), 0);
    }
    UNTIL_PAIR(&p, p.arrived == sent);
    pair_end(&p);
}

/* ---- polled callbacks */

static void on_held(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct pair *p = arg;
    unsigned i;
    if (!pthread_equal(pthread_self(), p->main)) p->elsewhere++;
    memcpy(&i, am->header, sizeof i);
    if (i != p->next[0]++ || am->len != i % 500 || !is_pattern(am->data, am->len, i)) p->disorder++;
    p->arrived++;
    if (i % 10 == 0) (void)weft_am_send(ep, ID, NULL, 0, NULL, 0, NULL);
}

static weft_status_t send_numbered(struct pair *p, unsigned i) {
    static char bytes[20000][500];
    pattern(bytes[i], i % 500, i);
    return weft_am_send(p->to_b, ECHO, &i, sizeof i, &(weft_iov_t){bytes[i], i % 500}, 1, NULL);
}

static void pause_a_moment(struct pair *p) {
    double end = two_now() + 0.02;
    while (two_now() < end) weft_worker_progress(p->a, 0);
}

static void polled_callbacks(const char *transport) {
    struct pair p;
    pair_make(&p, transport, NULL, 0);
    CHECK_EQ(weft_am_handler_set(p.b, ECHO, on_held, &p), 0);
    CHECK_EQ(weft_am_handler_set(p.a, ID, on_back, &p), 0);
    CHECK_EQ(weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}), 0);
    struct pollfd fd = {.fd = weft_worker_fd(p.b), .events = POLLIN};
    CHECK(fd.fd >= 0);
    CHECK_EQ(weft_worker_progress(p.b, 0), 0);
    for (unsigned i = 0; i < 1000; i++) CHECK(send_numbered(&p, i) >= 0);
    pause_a_moment(&p);
    CHECK_EQ(p.arrived, 0); /* nothing came without us */
    CHECK_EQ(poll(&fd, 1, 5000), 1);
    double end = two_now() + 60;
    while (p.arrived < 1000 + 100 && two_now() < end) {
        CHECK(weft_worker_wait(p.b, 10) >= WEFT_ERR_TIMED_OUT);
        weft_worker_progress(p.a, 0);
    }
    CHECK_EQ(p.arrived, 1100);
    CHECK_EQ(p.disorder, 0);
    CHECK_EQ(p.elsewhere, 0);
    pair_end(&p);
}

TEST(polled_callbacks_come_to_the_programs_thread_alone_shm) {
    polled_callbacks("shm");
}
TEST(polled_callbacks_come_to_the_programs_thread_alone_tcp) {
    polled_callbacks("tcp");
}

static const void *kept[20];
static void on_held_kept(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct pair *p = arg;
    CHECK_EQ(weft_am_keep(am, &kept[p->arrived]), 0);
    p->disorder += kept[p->arrived] != am->data;
    p->arrived++;
}

TEST(a_message_that_was_held_for_the_program_is_kept_where_it_is) {
    struct pair p;
    double end = two_now() + 60;
    pair_make(&p, "shm", NULL, 0);
    CHECK_EQ(weft_am_handler_set(p.b, ECHO, on_held_kept, &p), 0);
    CHECK_EQ(weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}), 0);
    for (unsigned i = 0; i < 20; i++) CHECK(send_numbered(&p, 480 + i) >= 0);
    while (p.arrived < 20 && two_now() < end) {
        CHECK(weft_worker_wait(p.b, 10) >= WEFT_ERR_TIMED_OUT);
        weft_worker_progress(p.a, 0);
    }
    CHECK_EQ(p.arrived, 20);
    CHECK_EQ(p.disorder, 0);
    for (unsigned i = 0; i < 20; i++) CHECK(is_pattern(kept[i], 480 + i, 480 + i));
    CHECK_EQ(weft_worker_stop_thread(p.b), 0);
    for (unsigned i = 0; i < 20; i++) weft_am_release(p.b, kept[i]);
    pair_end(&p);
}

static struct tally done_at;
static pthread_t done_on;
static void done_here(weft_status_t status, void *arg) {
    done_on = pthread_self();
    tally(status, arg);
}

TEST(polled_completions_and_errors_come_to_the_programs_thread) {
    struct pair p;
    pair_make(&p, "tcp", NULL, 0);
    CHECK_EQ(weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}), 0);
    done_at = (struct tally){0};
    weft_op_t op = {.done = done_here, .arg = &done_at};
    CHECK_EQ(weft_tag_recv(p.b, 3, UINT64_MAX, &(weft_iov_t){buffer, 4}, 1, NULL, &op), WEFT_IN_PROGRESS);
    CHECK(weft_tag_send(p.to_b, 3, &(weft_iov_t){"abc", 4}, 1, NULL) >= 0);
    pause_a_moment(&p);
    CHECK_EQ(done_at.calls, 0);
    UNTIL_PAIR(&p, done_at.calls);
    CHECK_EQ(done_at.status, WEFT_OK);
    CHECK(pthread_equal(done_on, p.main));
    /* The peer goes. */
    struct tally closed = {0};
    CHECK_EQ(weft_ep_close(p.to_b, WEFT_CLOSE_ABORT, OP(&closed)), WEFT_IN_PROGRESS);
    pause_a_moment(&p);
    CHECK_EQ(p.errors, 0);
    UNTIL_PAIR(&p, p.errors && closed.calls);
    CHECK_EQ(p.error, WEFT_ERR_PEER_CLOSED);
    pair_end(&p);
}

static void on_invalid(weft_mem_t *mem, void *arg) {
    done_on = pthread_self();
    posted.calls++;
}
static void invalidate(void *arg) {
    struct pair *p = arg;
    posted.status = weft_mem_invalidate(p->b, buffer, sizeof buffer, NULL);
    p->arrived = 1;
}

TEST(polled_news_of_memory_that_went_come_to_the_programs_thread) {
    struct pair p;
    weft_mem_t *mem;
    for (int released = 0; released < 2; released++) {
        pair_make(&p, "shm", NULL, 0);
        CHECK_EQ(weft_mem_register(p.b, buffer, sizeof buffer,
                                   &(weft_mem_params_t){.rights = WEFT_MEM_READ, .on_invalid = on_invalid}, &mem),
                 0);
        CHECK_EQ(weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}), 0);
        posted = (struct tally){0};
        CHECK_EQ(weft_worker_post(p.b, invalidate, &p), 0);
        while (!p.arrived) sched_yield();
        pause_a_moment(&p);
        CHECK_EQ(posted.status, WEFT_OK);
        CHECK_EQ(posted.calls, 0);
        if (!released) {
            UNTIL_PAIR(&p, posted.calls);
            CHECK(pthread_equal(done_on, p.main));
        }
        /* Untold yet, the region may go: then nobody is told of it. */
        CHECK_EQ(weft_worker_stop_thread(p.b), 0);
        CHECK_EQ(weft_mem_release(mem, NULL), WEFT_OK);
        drive(&p);
        CHECK_EQ(posted.calls, !released);
        pair_end(&p);
    }
}

static void on_offer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct pair *p = arg;
    static char large[300000];
    p->arrived++;
    if (p->arrived == 1) return; /* refused */
    weft_op_t op = {.done = done_here, .arg = &done_at};
    weft_status_t st = weft_am_recv(am, &(weft_iov_t){large, sizeof large}, 1, &op);
    if (st == WEFT_OK) done_here(st, &done_at);
    if (am->data || st < 0) p->disorder++;
}

TEST(offers_wait_for_polled_callbacks) {
    struct pair p;
    static char large[300000];
    struct tally refused = {0}, taken = {0};
    pair_make(&p, "tcp", NULL, 0);
    CHECK_EQ(weft_am_handler_set(p.b, ECHO, on_offer, &p), 0);
    CHECK_EQ(weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}), 0);
    done_at = (struct tally){0};
    weft_iov_t iov = {large, sizeof large};
    CHECK_EQ(weft_am_send(p.to_b, ECHO, NULL, 0, &iov, 1, OP(&refused)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_am_send(p.to_b, ECHO, NULL, 0, &iov, 1, OP(&taken)), WEFT_IN_PROGRESS);
    pause_a_moment(&p);
    CHECK_EQ(refused.calls + taken.calls + p.arrived, 0);
    UNTIL_PAIR(&p, refused.calls && taken.calls && done_at.calls);
    CHECK_EQ(p.disorder, 0);
    CHECK_EQ(done_at.status, WEFT_OK);
    pair_end(&p);
}

TEST(beyond_what_may_be_held_the_thread_takes_nothing_more) {
    struct pair p;
    weft_setting_t most = {"thread.held_bytes", "64k"};
    pair_make(&p, "tcp", &most, 1);
    CHECK_EQ(weft_am_handler_set(p.b, ECHO, on_held, &p), 0);
    CHECK_EQ(weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}), 0);
    for (unsigned i = 0; i < 20000; i++) CHECK(send_numbered(&p, i) >= 0);
    pause_a_moment(&p);
    /* It has taken a bound and what one turn brings, and neither lost nor reordered anything. */
    while (p.arrived == 0) CHECK(weft_worker_wait(p.b, 5000) == WEFT_OK);
    CHECK(p.arrived < 20000);
    UNTIL_PAIR(&p, p.arrived == 20000);
    CHECK_EQ(p.disorder, 0);
    pair_end(&p);
}

TEST(only_mode_multiple_may_have_a_thread) {
    struct pair p;
    pair_make(&p, "shm", NULL, 0);
    CHECK_EQ(weft_worker_start_thread(p.a, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = 9}), WEFT_ERR_INVALID_PARAM);
    pair_end(&p);
}

/* ---- one-sided operations at a target whose program computes */

static uint64_t served[512];

/* b's program never calls the library in here; a's operations complete all the same. */
static void serve_while_computing(const char *transport, weft_callbacks_t callbacks) {
    struct pair p;
    weft_mem_t *mem;
    weft_rkey_t *key;
    char packed[WEFT_RKEY_MAX];
    size_t len = sizeof packed;
    uint64_t old = 0, back[512], out[512];
    pair_make(&p, transport, NULL, 0);
    memset(served, 0, sizeof served);
    CHECK_EQ(weft_mem_register(p.b, served, sizeof served, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &mem), 0);
    CHECK_EQ(weft_mem_pack(mem, packed, &len), 0);
    CHECK_EQ(weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = callbacks}), 0);
    CHECK_EQ(weft_rkey_unpack(p.to_b, packed, len, &key), 0);
    uint64_t at = (uint64_t)(uintptr_t)served;
    for (uint64_t i = 0; i < 200; i++) {
        pattern(out, sizeof out, (unsigned)i);
        out[0] = i;
        CHECK_EQ(weft_put_wait(p.to_b, out, sizeof out, at, key), 0);
        CHECK_EQ(weft_ep_fence(p.to_b), 0);
        CHECK_EQ(weft_atomic_fetch_wait(p.to_b, WEFT_ATOMIC_ADD, 8, 1, 0, &old, at, key), 0);
        CHECK_EQ(old, i);
        CHECK_EQ(weft_get_wait(p.to_b, back, sizeof back, at, key), 0);
        CHECK_EQ(back[0], i + 1);
        CHECK(memcmp(back + 1, out + 1, sizeof out - 8) == 0);
    }
    weft_rkey_release(key);
    CHECK_EQ(weft_worker_stop_thread(p.b), 0);
    struct tally gone = {0};
    weft_status_t st = weft_mem_release(mem, OP(&gone));
    if (st == WEFT_IN_PROGRESS) UNTIL_PAIR(&p, gone.calls);
    pair_end(&p);
}

TEST(one_sided_operations_are_served_while_the_program_computes_shm) {
    serve_while_computing("shm", WEFT_CALLBACKS_ON_THREAD);
}
TEST(one_sided_operations_are_served_while_the_program_computes_tcp) {
    serve_while_computing("tcp", WEFT_CALLBACKS_ON_THREAD);
}
TEST(one_sided_operations_are_served_although_callbacks_are_polled) {
    serve_while_computing("tcp", WEFT_CALLBACKS_POLLED);
}

static void get_elsewhere(struct pair *p) {
    posted = (struct tally){0};
    posted.status = weft_get(p->to_a, buffer, 8, (uint64_t)(uintptr_t)served, p->key, OP(&posted));
}

static char large[4 << 20], landed[sizeof large + 8];

/* Pieces of the large one would let the small one pass. */
static void *put_elsewhere(void *arg) {
    struct pair *p = arg;
    uint64_t at = (uint64_t)(uintptr_t)landed;
    posted = (struct tally){0};
    weft_status_t first = weft_put(p->to_a, large, sizeof large, at, p->key, OP(&posted));
    weft_status_t fence = weft_ep_fence(p->to_a);
    weft_status_t second = weft_put(p->to_a, "arrived", 8, at + sizeof large, p->key, NULL);
    got_elsewhere = first == WEFT_IN_PROGRESS && fence == WEFT_OK && second == WEFT_IN_PROGRESS;
    return NULL;
}

TEST(a_fence_of_another_thread_stands_where_it_was_posted) {
    struct pair p;
    weft_mem_t *mem;
    char packed[WEFT_RKEY_MAX];
    size_t len = sizeof packed;
    weft_setting_t settings[] = {{"rma.max_keys", "0"}, {"shm.staging", "1m"}}; /* by messages; the lane fills up */
    pair_make(&p, "shm", settings, 2);
    memset(landed, 0, sizeof landed);
    pattern(large, sizeof large, 5);
    CHECK_EQ(weft_mem_register(p.a, landed, sizeof landed, &(weft_mem_params_t){.rights = WEFT_MEM_WRITE}, &mem),
             0);
    CHECK_EQ(weft_mem_pack(mem, packed, &len), 0);
    CHECK_EQ(weft_rkey_unpack(p.to_a, packed, len, &p.key), 0);
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, put_elsewhere, &p), 0);
    pthread_join(thread, NULL);
    CHECK(got_elsewhere);
    for (double end = two_now() + 60; !landed[sizeof large] && two_now() < end; weft_worker_progress(p.a, 1))
        weft_worker_progress(p.b, 1);
    CHECK(is_pattern(landed, sizeof large, 5));
    UNTIL_PAIR(&p, posted.calls);
    weft_rkey_release(p.key);
    struct tally gone = {0};
    if (weft_mem_release(mem, OP(&gone)) == WEFT_IN_PROGRESS) UNTIL_PAIR(&p, gone.calls);
    pair_end(&p);
}

TEST(other_threads_may_put_and_get) {
    struct pair p;
    weft_mem_t *mem;
    char packed[WEFT_RKEY_MAX];
    size_t len = sizeof packed;
    pair_make(&p, "tcp", NULL, 0);
    served[0] = 4711;
    CHECK_EQ(weft_mem_register(p.a, served, sizeof served, &(weft_mem_params_t){.rights = WEFT_MEM_READ}, &mem), 0);
    CHECK_EQ(weft_mem_pack(mem, packed, &len), 0);
    CHECK_EQ(weft_rkey_unpack(p.to_a, packed, len, &p.key), 0);
    elsewhere(&p, get_elsewhere);
    UNTIL_PAIR(&p, posted.calls);
    CHECK_EQ(posted.status, WEFT_OK);
    CHECK_EQ(*(uint64_t *)(void *)buffer, 4711);
    weft_rkey_release(p.key);
    struct tally gone = {0};
    if (weft_mem_release(mem, OP(&gone)) == WEFT_IN_PROGRESS) UNTIL_PAIR(&p, gone.calls);
    pair_end(&p);
}

/* ---- one-sided operations of several threads, by whatever way the key has gone meanwhile */

enum { WORDS = 64, ROUNDS = 200 };

struct one_sided {
    struct pair *p;
    pthread_t thread;
    unsigned index;
    uint64_t sum; /* of the old values that this thread was given */
};
static uint64_t *region_words;

/* Everything to a word and a block of its own, except for a word that all add to. */
static void *use_one_sided(void *arg) {
    struct one_sided *o = arg;
    struct pair *p = o->p;
    uint64_t at = (uint64_t)(uintptr_t)region_words, own = at + 8 + 8 * o->index, old, got;
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        if (weft_atomic_fetch_wait(p->to_a, WEFT_ATOMIC_ADD, 8, 1, 0, &old, at, p->key) < 0) return "fetch";
        o->sum += old;
        /* Done here, and perhaps not yet there: the next one may go by another way. */
        if (weft_put_wait(p->to_a, &i, 8, own + 8 * SENDERS, p->key) < 0) return "put";
        if (weft_atomic_fetch_wait(p->to_a, WEFT_ATOMIC_SWAP, 8, i, 0, &old, own, p->key) < 0) return "swap";
        if (weft_atomic_fetch_wait(p->to_a, WEFT_ATOMIC_CSWAP, 8, ~i, i, &old, own, p->key) < 0) return "cswap";
        if (old != i) return "a compare of what was stored";
        if (weft_get_wait(p->to_a, &got, 8, own, p->key) < 0) return "get";
        if (got != ~i) return "a get of what was stored";
    }
    return NULL;
}

/* b's thread of its own, or the program's, drives b; the key is opened, mapped and used at the same time. */
static void from_several_threads(const char *transport, bool thread) {
    struct pair p;
    weft_mem_t *mem;
    char packed[WEFT_RKEY_MAX];
    size_t len = sizeof packed;
    weft_mem_info_t info;
    struct one_sided o[SENDERS];
    uint64_t sum = 0, n = SENDERS * ROUNDS;
    pair_make(&p, transport, NULL, 0);
    weft_mem_params_t params = {.rights = WEFT_MEM_ALL};
    CHECK_EQ(weft_mem_alloc(p.a, WORDS * sizeof(uint64_t), &params, &mem), 0);
    CHECK_EQ(weft_mem_describe(mem, &info), 0);
    CHECK_EQ(weft_mem_pack(mem, packed, &len), 0);
    CHECK_EQ(weft_rkey_unpack(p.to_a, packed, len, &p.key), 0);
    if (thread) CHECK_EQ(weft_worker_start_thread(p.b, NULL), 0);
    region_words = info.base;
    for (unsigned i = 0; i < SENDERS; i++) {
        o[i] = (struct one_sided){.p = &p, .index = i};
        CHECK_EQ(pthread_create(&o[i].thread, NULL, use_one_sided, &o[i]), 0);
    }
    for (unsigned i = 0; i < SENDERS; i++) {
        void *why;
        while (pthread_tryjoin_np(o[i].thread, &why) != 0) thread ? weft_worker_progress(p.a, 0) : (drive(&p), 0);
        if (why) fprintf(stderr, "  %s\n", (const char *)why);
        CHECK(!why);
        sum += o[i].sum;
    }
    CHECK_EQ(sum, n * (n - 1) / 2); /* each old value was given once */
    CHECK_EQ(__atomic_load_n(region_words, __ATOMIC_SEQ_CST), n);
    if (thread) CHECK_EQ(weft_worker_stop_thread(p.b), 0);
    posted = (struct tally){0};
    if (weft_ep_flush(p.to_a, &(weft_op_t){.done = tally, .arg = &posted, .flags = WEFT_FLUSH_REMOTE}) ==
        WEFT_IN_PROGRESS)
        UNTIL_PAIR(&p, posted.calls);
    CHECK_EQ(posted.status, WEFT_OK);
    for (unsigned i = 0; i < SENDERS; i++)
        CHECK(region_words[1 + i] == ~(uint64_t)ROUNDS && region_words[1 + SENDERS + i] > 0);
    weft_rkey_release(p.key);
    pair_end(&p);
}

TEST(one_sided_operations_of_several_threads_shm) {
    from_several_threads("shm", false);
}
TEST(one_sided_operations_of_several_threads_to_a_thread_shm) {
    from_several_threads("shm", true);
}
TEST(one_sided_operations_of_several_threads_to_a_thread_tcp) {
    from_several_threads("tcp", true);
}
