/* A worker with a thread of its own, whose callbacks wait until the program polls for them. */
#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <tests/support/threads.h>

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
    double end = test_now() + 0.02;
    while (test_now() < end) weft_worker_progress(p->a, 0);
}

static void polled_callbacks(const char *transport) {
    struct pair p;
    pair_make(&p, transport, NULL, 0);
    CHECK_EQ(weft_am_handler_set(p.b, ECHO, on_held, &p), 0);
    CHECK_EQ(weft_am_handler_set(p.a, ID, on_back, &p), 0);
    CHECK_EQ(
        weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
        0);
    struct pollfd fd = {.fd = weft_worker_fd(p.b), .events = POLLIN};
    CHECK(fd.fd >= 0);
    CHECK_EQ(weft_worker_progress(p.b, 0), 0);
    for (unsigned i = 0; i < 1000; i++) CHECK(send_numbered(&p, i) >= 0);
    pause_a_moment(&p);
    CHECK_EQ(p.arrived, 0); /* nothing came without us */
    CHECK_EQ(poll(&fd, 1, (int)test_timeout(20000)), 1);
    double end = test_now() + test_timeout(60);
    while (p.arrived < 1000 + 100 && test_now() < end) {
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

/* Numbered by this side, whichever thread hands them over. */
static unsigned n_answers;
static void answer(struct pair *p) {
    CHECK(weft_am_send(p->to_a, ID, &n_answers, sizeof n_answers, NULL, 0, NULL) >= 0);
    n_answers++;
}
static void on_question(weft_ep_t *ep, weft_am_t *am, void *arg) {
    answer(arg);
    ((struct pair *)arg)->arrived++;
}
static void on_answer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct pair *p = arg;
    unsigned i;
    memcpy(&i, am->header, sizeof i);
    if (i != p->next[0]++) p->disorder++;
}

/* The one thread owns the worker within a callback, and not before. */
TEST(what_is_sent_from_a_polled_callback_comes_behind_what_was_handed_over) {
    struct pair p;
    pair_make(&p, "shm", NULL, 0);
    n_answers = 0;
    CHECK_EQ(weft_am_handler_set(p.b, ECHO, on_question, &p), 0);
    CHECK_EQ(weft_am_handler_set(p.a, ID, on_answer, &p), 0);
    CHECK_EQ(
        weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
        0);
    struct pollfd fd = {.fd = weft_worker_fd(p.b), .events = POLLIN};
    for (int n = 1; n <= 100; n++) {
        CHECK(weft_am_send(p.to_b, ECHO, NULL, 0, NULL, 0, NULL) >= 0);
        CHECK_EQ(poll(&fd, 1, (int)test_timeout(20000)), 1);
        for (int i = 0; i < 8; i++) answer(&p);
        while (p.arrived < n) CHECK(weft_worker_progress(p.b, 0) >= 0);
    }
    CHECK_EQ(weft_worker_stop_thread(p.b), 0); /* and from now on it always owns it */
    answer(&p);
    UNTIL_PAIR(&p, p.next[0] == n_answers);
    CHECK_EQ(p.disorder, 0);
    pair_end(&p);
}

TEST(what_the_owner_sends_comes_behind_what_it_had_handed_over) {
    for (int n = 0; n < 30; n++) {
        struct pair p;
        pair_make(&p, "shm", NULL, 0);
        n_answers = 0;
        CHECK_EQ(weft_am_handler_set(p.a, ID, on_answer, &p), 0);
        CHECK_EQ(weft_worker_start_thread(p.b, NULL), 0);
        for (int i = 0; i < 8; i++) answer(&p);
        CHECK_EQ(weft_worker_stop_thread(p.b), 0);
        answer(&p);
        UNTIL_PAIR(&p, p.next[0] == n_answers);
        CHECK_EQ(p.disorder, 0);
        pair_end(&p);
    }
}

static const void *kept[20];
static void on_held_kept(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct pair *p = arg;
    CHECK_EQ(weft_am_retain(am, &kept[p->arrived]), 0);
    p->disorder += kept[p->arrived] != am->data;
    p->arrived++;
}

TEST(a_message_that_was_held_for_the_program_is_kept_where_it_is) {
    struct pair p;
    double end = test_now() + test_timeout(60);
    pair_make(&p, "shm", NULL, 0);
    CHECK_EQ(weft_am_handler_set(p.b, ECHO, on_held_kept, &p), 0);
    CHECK_EQ(
        weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
        0);
    for (unsigned i = 0; i < 20; i++) CHECK(send_numbered(&p, 480 + i) >= 0);
    while (p.arrived < 20 && test_now() < end) {
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

/* The header is the handler's to its end, and what is kept once more is a copy, as elsewhere. */
static void on_held_let_go(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct pair *p = arg;
    const void *data, *again;
    unsigned i;
    CHECK_EQ(weft_am_retain(am, &data), 0);
    weft_am_release(p->b, data);
    memcpy(&i, am->header, sizeof i);
    CHECK_EQ(i, 480 + (unsigned)p->arrived);
    CHECK_EQ(weft_am_retain(am, &again), 0);
    CHECK(is_pattern(again, i, i));
    if (i % 2)
        kept[p->arrived] = again;
    else
        weft_am_release(p->b, again);
    p->arrived++;
}

TEST(a_message_that_was_held_is_kept_and_let_go_within_its_handler) {
    struct pair p;
    pair_make(&p, "shm", NULL, 0);
    CHECK_EQ(weft_am_handler_set(p.b, ECHO, on_held_let_go, &p), 0);
    CHECK_EQ(
        weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
        0);
    for (unsigned i = 0; i < 20; i++) CHECK(send_numbered(&p, 480 + i) >= 0);
    UNTIL_PAIR(&p, p.arrived == 20);
    CHECK_EQ(weft_worker_stop_thread(p.b), 0);
    for (unsigned i = 1; i < 20; i += 2) {
        CHECK(is_pattern(kept[i], 480 + i, 480 + i));
        weft_am_release(p.b, kept[i]);
    }
    pair_end(&p);
}

/* A layout takes what is here, as often as the handler likes. */
static void on_held_taken_apart(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct pair *p = arg;
    char bytes[600];
    weft_layout_t layout = {.kind = WEFT_LAYOUT_STRIDED, .block = 100, .stride = 120, .count = 5};
    weft_op_t op = {.layout = &layout};
    const void *data;
    CHECK_EQ(weft_am_recv(am, &(weft_iov_t){bytes, sizeof bytes}, 1, &op), 0);
    CHECK_EQ(weft_am_retain(am, &data), 0);
    CHECK_EQ(weft_am_recv(am, &(weft_iov_t){bytes, sizeof bytes}, 1, &op), 0);
    weft_am_release(p->b, data);
    p->arrived++;
}

TEST(a_message_that_was_held_and_is_kept_can_be_received_too) {
    struct pair p;
    pair_make(&p, "shm", NULL, 0);
    CHECK_EQ(weft_am_handler_set(p.b, ECHO, on_held_taken_apart, &p), 0);
    CHECK_EQ(
        weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
        0);
    CHECK(send_numbered(&p, 499) >= 0);
    UNTIL_PAIR(&p, p.arrived == 1);
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
    CHECK_EQ(
        weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
        0);
    done_at = (struct tally){0};
    weft_op_t op = {.done = done_here, .arg = &done_at};
    CHECK_EQ(weft_tag_recv(p.b, 3, UINT64_MAX, &(weft_iov_t){buffer, 4}, 1, NULL, &op),
             WEFT_IN_PROGRESS);
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

/* It was sent, and waits for the program that wants to cancel it. */
TEST(a_cancel_that_comes_after_the_end_and_before_the_callback_is_too_late) {
    struct pair p;
    weft_request_t *req = NULL;
    char in[4] = "";
    struct tally received = {0};
    pair_make(&p, "tcp", NULL, 0);
    CHECK_EQ(
        weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
        0);
    CHECK_EQ(weft_tag_recv(p.a, 3, UINT64_MAX, &(weft_iov_t){in, 4}, 1, NULL, OP(&received)),
             WEFT_IN_PROGRESS);
    done_at = (struct tally){0};
    weft_op_t op = {.done = done_here, .arg = &done_at, .request_p = &req};
    CHECK_EQ(weft_tag_send(p.to_a, 3, &(weft_iov_t){"abc", 4}, 1, &op), WEFT_IN_PROGRESS);
    for (double end = test_now() + test_timeout(60); !received.calls && test_now() < end;)
        weft_worker_progress(p.a, 0);
    weft_request_cancel(req);
    pause_a_moment(&p);
    UNTIL_PAIR(&p, done_at.calls);
    CHECK_EQ(done_at.status, WEFT_OK);
    pair_end(&p);
}

/* The message was here already; the next receive has what the first one was made with. */
TEST(a_cancel_of_what_ended_at_once_and_waits_to_be_notified_ends_nothing_else) {
    struct pair p;
    weft_request_t *req = NULL;
    char in[2][4] = {""};
    struct tally next = {0};
    pair_make(&p, "shm", NULL, 0);
    CHECK_EQ(
        weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
        0);
    CHECK(weft_tag_send(p.to_b, 3, &(weft_iov_t){"abc", 4}, 1, NULL) >= 0);
    pause_a_moment(&p);
    done_at = (struct tally){0};
    weft_op_t op = {.done = done_here, .arg = &done_at, .request_p = &req};
    CHECK_EQ(weft_tag_recv(p.b, 3, UINT64_MAX, &(weft_iov_t){in[0], 4}, 1, NULL, &op),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_recv(p.b, 3, UINT64_MAX, &(weft_iov_t){in[1], 4}, 1, NULL, OP(&next)),
             WEFT_IN_PROGRESS);
    pause_a_moment(&p);
    weft_request_cancel(req);
    pause_a_moment(&p);
    UNTIL_PAIR(&p, done_at.calls);
    CHECK_EQ(done_at.status, WEFT_OK);
    CHECK_EQ(next.calls, 0);
    CHECK(weft_tag_send(p.to_b, 3, &(weft_iov_t){"def", 4}, 1, NULL) >= 0);
    UNTIL_PAIR(&p, next.calls);
    CHECK_EQ(next.status, WEFT_OK);
    CHECK(strcmp(in[0], "abc") == 0 && strcmp(in[1], "def") == 0);
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
        CHECK_EQ(weft_mem_register(
                     p.b, buffer, sizeof buffer,
                     &(weft_mem_params_t){.rights = WEFT_MEM_READ, .on_invalid = on_invalid}, &mem),
                 0);
        CHECK_EQ(weft_worker_start_thread(
                     p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
                 0);
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
        /* The region may go before the report: then no report comes. */
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
    CHECK_EQ(
        weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
        0);
    done_at = (struct tally){0};
    weft_iov_t iov = {large, sizeof large};
    CHECK_EQ(weft_am_send(p.to_b, ECHO, NULL, 0, &iov, 1, OP(&refused)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_am_send(p.to_b, ECHO, NULL, 0, &iov, 1, OP(&taken)), WEFT_IN_PROGRESS);
    pause_a_moment(&p);
    CHECK_EQ(refused.calls + taken.calls + p.arrived, 0);
    UNTIL_PAIR(&p, refused.calls && taken.calls && done_at.calls);
    CHECK_EQ(p.disorder, 0);
    CHECK_EQ(done_at.status, WEFT_OK);
    CHECK_EQ(refused.status, WEFT_ERR_REJECTED);
    pair_end(&p);
}

static void on_taken_back(weft_ep_t *ep, weft_am_t *am, void *arg) {
    static char large[300000];
    weft_op_t op = {.done = tally, .arg = &posted};
    weft_status_t st = weft_am_recv(am, &(weft_iov_t){large, sizeof large}, 1, &op);
    if (st != WEFT_IN_PROGRESS) tally(st, &posted);
    ((struct pair *)arg)->arrived++;
}

/* Its sender has its memory again: no reader there takes for a message what it is used
 * for now. */
static void an_offer_is_taken_back(const char *copy) {
    struct pair p;
    static char large[300000];
    struct tally sent = {0};
    weft_request_t *request;
    weft_setting_t how = {"shm.copy", copy};
    pair_make(&p, "shm", &how, 1);
    CHECK_EQ(weft_am_handler_set(p.b, ECHO, on_taken_back, &p), 0);
    CHECK_EQ(weft_am_handler_set(p.b, ID, on_back, &p), 0);
    CHECK_EQ(
        weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
        0);
    posted = (struct tally){0};
    weft_iov_t iov = {large, sizeof large};
    weft_op_t op = {.done = tally, .arg = &sent, .request_p = &request};
    CHECK_EQ(weft_am_send(p.to_b, ECHO, NULL, 0, &iov, 1, &op), WEFT_IN_PROGRESS);
    CHECK(weft_am_send(p.to_b, ID, NULL, 0, NULL, 0, NULL) >= 0);
    pause_a_moment(&p);
    weft_request_cancel(request);
    for (double end = test_now() + test_timeout(60); !sent.calls && test_now() < end;)
        weft_worker_progress(p.a, 0);
    CHECK_EQ(sent.calls, 1);
    CHECK_EQ(sent.status, WEFT_ERR_CANCELLED);
    CHECK_EQ(p.arrived, 0);
    UNTIL_PAIR(&p, p.arrived == 1);
    for (int i = 0; i < 100; i++) drive(&p);
    CHECK_EQ(p.arrived, 1);
    CHECK_EQ(posted.calls, 0);
    pair_end(&p);
}
TEST(an_offer_that_is_taken_back_while_it_is_held_is_not_notified_staged) {
    an_offer_is_taken_back("staged");
}
TEST(an_offer_that_is_taken_back_while_it_is_held_is_not_notified_vm) {
    an_offer_is_taken_back("vm");
}

TEST(beyond_what_may_be_held_the_thread_takes_nothing_more) {
    struct pair p;
    weft_setting_t most = {"thread.max_pending_bytes", "64k"};
    pair_make(&p, "tcp", &most, 1);
    CHECK_EQ(weft_am_handler_set(p.b, ECHO, on_held, &p), 0);
    CHECK_EQ(
        weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
        0);
    for (unsigned i = 0; i < 20000; i++) CHECK(send_numbered(&p, i) >= 0);
    pause_a_moment(&p);
    /* It has taken a bound and what one turn brings, and neither lost nor reordered anything. */
    while (p.arrived == 0) CHECK(weft_worker_wait(p.b, 5000) == WEFT_OK);
    CHECK(p.arrived < 20000);
    UNTIL_PAIR(&p, p.arrived == 20000);
    CHECK_EQ(p.disorder, 0);
    pair_end(&p);
}

/* That one does not wait: the program does not come any more. */
TEST(beyond_what_may_be_held_a_thread_that_has_the_callbacks_notifies_all) {
    struct pair p;
    weft_setting_t most = {"thread.max_pending_bytes", "4k"};
    pair_make(&p, "tcp", &most, 1);
    CHECK_EQ(weft_am_handler_set(p.b, ECHO, on_held, &p), 0);
    CHECK_EQ(
        weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
        0);
    for (unsigned i = 0; i < 1000; i++) CHECK(send_numbered(&p, i) >= 0);
    pause_a_moment(&p);
    CHECK_EQ(weft_worker_stop_thread(p.b), 0);
    CHECK_EQ(p.arrived, 0);
    p.main = (pthread_t)0;
    CHECK_EQ(weft_worker_start_thread(p.b, NULL), 0);
    for (double end = test_now() + test_timeout(60); p.arrived < 1000 && test_now() < end;)
        pause_a_moment(&p);
    CHECK_EQ(weft_worker_stop_thread(p.b), 0);
    CHECK_EQ(p.arrived, 1000);
    CHECK_EQ(p.disorder, 0);
    pair_end(&p);
}

/* Messages, completions and word of endpoints alike, in their order; the fd shows that there are
 * more. */
TEST(polled_callbacks_keep_to_the_budget) {
    struct pair p;
    weft_ep_t *second;
    char address[256], in[10][8];
    size_t len = sizeof address;
    struct tally done = {0};
    pair_make(&p, "shm", NULL, 0);
    CHECK_EQ(weft_am_handler_set(p.b, ECHO, on_held, &p), 0);
    CHECK_EQ(weft_worker_address(p.b, address, &len), 0);
    for (int i = 0; i < 10; i++)
        CHECK_EQ(weft_tag_recv(p.b, 3, UINT64_MAX, &(weft_iov_t){in[i], 8}, 1, NULL, OP(&done)),
                 WEFT_IN_PROGRESS);
    CHECK_EQ(
        weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
        0);
    struct pollfd fd = {.fd = weft_worker_fd(p.b), .events = POLLIN};
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_connect_address(p.a, address, len, NULL, &second), 0);
    for (unsigned i = 0; i < 10; i++) CHECK(send_numbered(&p, i) >= 0);
    for (int i = 0; i < 10; i++)
        CHECK(weft_tag_send(p.to_b, 3, &(weft_iov_t){buffer, 8}, 1, NULL) >= 0);
    pause_a_moment(&p);
    for (int notified = 0; notified < 22;) {
        CHECK_EQ(poll(&fd, 1, (int)test_timeout(20000)), 1);
        int n = weft_worker_progress(p.b, 1);
        CHECK(n == 0 || n == 1);
        notified += n;
        CHECK_EQ(p.accepted - 1 + p.arrived + done.calls, notified);
        CHECK(p.accepted == 3 || !p.arrived);
        CHECK(p.arrived == 10 || !done.calls);
    }
    CHECK_EQ(weft_worker_progress(p.b, 1), 0);
    CHECK_EQ(poll(&fd, 1, 0), 0);
    CHECK_EQ(p.disorder, 0);
    pair_end(&p);
}

/* ---- one fd, whichever thread drives the worker */

/* A host that asked once, and learns of changes alone. */
struct edge_host {
    int fd, epoll;
};

static void watch_b(struct edge_host *host, struct pair *p) {
    struct epoll_event event = {EPOLLIN | EPOLLET, {0}};
    host->fd = weft_worker_fd(p->b);
    host->epoll = epoll_create1(EPOLL_CLOEXEC);
    CHECK_EQ(epoll_ctl(host->epoll, EPOLL_CTL_ADD, host->fd, &event), 0);
}

/* A process that was stopped in it, and goes on, waits again. */
static bool is_notified(struct edge_host *host, int ms) {
    struct epoll_event event;
    int n;
    do n = epoll_wait(host->epoll, &event, 1, ms);
    while (n < 0 && errno == EINTR);
    return n == 1;
}

/* Each turn of one event is called for. */
static void notified_of(struct edge_host *host, struct pair *p, int arrived) {
    while (p->arrived < arrived) {
        CHECK(is_notified(host, 20000));
        CHECK(weft_worker_progress(p->b, 1) >= 0);
    }
}

static bool is_readable(struct edge_host *host) {
    return poll(&(struct pollfd){.fd = host->fd, .events = POLLIN}, 1, 0) == 1;
}

/* Then nothing more is. What comes after the wait, while the process stands still, is called
 * for. */
static void fall_silent(struct edge_host *host, struct pair *p) {
    bool silent;
    do {
        while (is_notified(host, 20)) CHECK(weft_worker_progress(p->b, 0) >= 0);
        silent = !is_readable(host);
    } while (!silent && is_notified(host, 20000) && weft_worker_progress(p->b, 0) >= 0);
    CHECK(silent);
}

static void send_some(struct pair *p, unsigned *sent) {
    for (unsigned i = 0; i < 5; i++) CHECK(send_numbered(p, (*sent)++) >= 0);
    pause_a_moment(p);
}

/* Before the thread, with it, between two, and after them, whenever it was first asked for. */
static void one_fd(const char *transport, bool before) {
    struct pair p;
    struct edge_host host;
    unsigned sent = 0;
    weft_thread_params_t polled = {.callbacks = WEFT_CALLBACKS_POLLED};
    pair_make(&p, transport, NULL, 0);
    CHECK_EQ(weft_am_handler_set(p.b, ECHO, on_held, &p), 0);
    if (before) watch_b(&host, &p);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(weft_worker_start_thread(p.b, &polled), 0);
        if (i == 0 && !before) watch_b(&host, &p);
        fall_silent(&host, &p);
        send_some(&p, &sent);
        notified_of(&host, &p, (int)sent);
        fall_silent(&host, &p);
        send_some(&p,
                  &sent); /* held by one, and reported by the next or by the program's own turns */
        CHECK_EQ(weft_worker_stop_thread(p.b), 0);
        if (i % 2) CHECK_EQ(weft_worker_start_thread(p.b, &polled), 0);
        CHECK_EQ(weft_worker_fd(p.b), host.fd);
        notified_of(&host, &p, (int)sent);
        if (i % 2) CHECK_EQ(weft_worker_stop_thread(p.b), 0);
        fall_silent(&host, &p);
        send_some(&p, &sent);
        notified_of(&host, &p, (int)sent);
        CHECK_EQ(weft_worker_fd(p.b), host.fd);
        /* the thread's turns report what came for the program's */
        if (i == 2) send_some(&p, &sent);
    }
    notified_of(&host, &p, (int)sent);
    CHECK_EQ(p.disorder + p.elsewhere, 0);
    close(host.epoll);
    pair_end(&p);
}

TEST(the_fd_is_one_number_before_a_thread_and_with_it_and_after_it_shm) {
    one_fd("shm", true);
}
TEST(the_fd_is_one_number_before_a_thread_and_with_it_and_after_it_tcp) {
    one_fd("tcp", true);
}
TEST(the_fd_that_was_first_asked_for_of_a_thread_stays_when_that_has_ended_shm) {
    one_fd("shm", false);
}
TEST(the_fd_that_was_first_asked_for_of_a_thread_stays_when_that_has_ended_tcp) {
    one_fd("tcp", false);
}

/* A watcher of it would otherwise be called again and again, and refused. */
TEST(the_fd_is_silent_while_a_thread_has_the_callbacks) {
    struct pair p;
    struct edge_host host;
    unsigned sent = 0;
    weft_thread_params_t polled = {.callbacks = WEFT_CALLBACKS_POLLED};
    pair_make(&p, "tcp", NULL, 0);
    CHECK_EQ(weft_am_handler_set(p.b, ECHO, on_held, &p), 0);
    watch_b(&host, &p);
    for (int i = 0; i < 4; i++) {
        fall_silent(&host, &p);
        if (i % 2) { /* with news of the one before, which it reports now */
            CHECK_EQ(weft_worker_start_thread(p.b, &polled), 0);
            send_some(&p, &sent);
            CHECK_EQ(weft_worker_stop_thread(p.b), 0);
        }
        p.main = (pthread_t)0;
        CHECK_EQ(weft_worker_start_thread(p.b, NULL), 0);
        send_some(&p, &sent);
        weft_worker_wake(p.b);
        for (double end = test_now() + test_timeout(60); p.arrived < (int)sent && test_now() < end;)
            pause_a_moment(&p);
        CHECK_EQ(p.arrived, sent);
        CHECK_EQ(poll(&(struct pollfd){.fd = host.fd, .events = POLLIN}, 1, 0), 0);
        CHECK_EQ(weft_worker_stop_thread(p.b), 0);
        send_some(&p, &sent);
        notified_of(&host, &p, (int)sent);
    }
    CHECK_EQ(p.disorder, 0);
    close(host.epoll);
    pair_end(&p);
}

/* A thread that is held up in its n-th write from now on, until it may go on. */
static _Thread_local int writes_to_stall;
static sem_t stalled, go_on;
__attribute__((visibility("default"))) ssize_t write(int fd, const void *bytes, size_t len) {
    if (writes_to_stall && --writes_to_stall == 0) {
        sem_post(&stalled);
        while (sem_wait(&go_on) < 0) continue;
    }
    return syscall(SYS_write, fd, bytes, len);
}

/* The sleeping thread is woken first, and then the program is notified. */
static void *wake_slowly(void *arg) {
    writes_to_stall = 2;
    weft_worker_wake(arg);
    if (writes_to_stall) sem_post(&stalled); /* it was up, and the program was notified at once */
    return NULL;
}

TEST(a_wake_that_comes_late_leaves_the_fd_silent_while_a_thread_has_the_callbacks) {
    struct pair p;
    pthread_t waker;
    pair_make(&p, "shm", NULL, 0);
    struct pollfd fd = {.fd = weft_worker_fd(p.b), .events = POLLIN};
    sem_init(&stalled, 0, 0);
    sem_init(&go_on, 0, 0);
    CHECK_EQ(
        weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
        0);
    while (weft_worker_progress(p.b, 0) > 0) continue;
    usleep(100000); /* it sleeps */
    CHECK_EQ(pthread_create(&waker, NULL, wake_slowly, p.b), 0);
    while (sem_wait(&stalled) < 0) continue;
    CHECK_EQ(weft_worker_stop_thread(p.b), 0);
    p.main = (pthread_t)0;
    CHECK_EQ(weft_worker_start_thread(p.b, NULL), 0);
    sem_post(&go_on);
    pthread_join(waker, NULL);
    CHECK_EQ(poll(&fd, 1, 0), 0);
    sem_destroy(&stalled);
    sem_destroy(&go_on);
    pair_end(&p);
}

/* With a thread that cannot have the descriptors it needs, and one that cannot be made, the fd
 * is as before. */
TEST(a_thread_that_could_not_begin_leaves_the_fd_as_it_is) {
    struct pair p;
    struct edge_host host;
    struct rlimit limit;
    unsigned sent = 0;
    pthread_attr_t before, huge;
    weft_thread_params_t polled = {.callbacks = WEFT_CALLBACKS_POLLED};
    pair_make(&p, "tcp", NULL, 0);
    CHECK_EQ(weft_am_handler_set(p.b, ECHO, on_held, &p), 0);
    CHECK_EQ(weft_worker_start_thread(p.b, &polled), 0);
    CHECK_EQ(weft_worker_stop_thread(p.b), 0);
    watch_b(&host, &p);
    fall_silent(&host, &p);

    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    int top = dup(0);
    close(top);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)top, limit.rlim_max}), 0);
    CHECK_EQ(weft_worker_start_thread(p.b, &polled), WEFT_ERR_NO_FDS);
    CHECK_EQ(weft_worker_start_thread(p.b, NULL), WEFT_ERR_NO_FDS);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    CHECK_EQ(weft_worker_fd(p.b), host.fd);
    fall_silent(&host, &p);
    send_some(&p, &sent);
    notified_of(&host, &p, (int)sent);

    CHECK_EQ(pthread_getattr_default_np(&before), 0);
    CHECK_EQ(pthread_getattr_default_np(&huge), 0);
    CHECK_EQ(pthread_attr_setstacksize(&huge, (size_t)1 << 50), 0);
    CHECK_EQ(pthread_setattr_default_np(&huge), 0);
    weft_status_t st = weft_worker_start_thread(p.b, &polled);
    CHECK_EQ(pthread_setattr_default_np(&before), 0);
    CHECK_EQ(st, WEFT_ERR_NO_MEMORY);
    CHECK_EQ(weft_worker_fd(p.b), host.fd);
    send_some(&p, &sent);
    notified_of(&host, &p, (int)sent);
    fall_silent(&host, &p);
    close(host.epoll);
    pair_end(&p);
}

/* The fd was asked for first while the thread was there, and needs a descriptor more to report
 * timers. */
TEST(a_thread_that_could_not_end_goes_on) {
    struct pair p;
    struct edge_host host;
    struct rlimit limit;
    unsigned sent = 0;
    pair_make(&p, "tcp", NULL, 0);
    CHECK_EQ(weft_am_handler_set(p.b, ECHO, on_held, &p), 0);
    CHECK_EQ(
        weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
        0);
    watch_b(&host, &p);
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    int top = dup(0);
    close(top);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)top, limit.rlim_max}), 0);
    CHECK_EQ(weft_worker_stop_thread(p.b), WEFT_ERR_NO_FDS);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    send_some(&p, &sent);
    notified_of(&host, &p, (int)sent);
    CHECK_EQ(p.elsewhere, 0);
    CHECK_EQ(weft_worker_stop_thread(p.b), 0);
    send_some(&p, &sent);
    notified_of(&host, &p, (int)sent);
    fall_silent(&host, &p);
    close(host.epoll);
    pair_end(&p);
}

TEST(what_is_held_when_a_thread_ends_waits_for_the_program_when_another_begins) {
    struct pair p;
    pair_make(&p, "shm", NULL, 0);
    CHECK_EQ(weft_am_handler_set(p.b, ECHO, on_held, &p), 0);
    for (unsigned i = 0; i < 20; i++) {
        CHECK_EQ(weft_worker_start_thread(
                     p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
                 0);
        CHECK(send_numbered(&p, i) >= 0);
        pause_a_moment(&p);
        CHECK_EQ(p.arrived, 0);
        CHECK_EQ(weft_worker_stop_thread(p.b), 0);
    }
    UNTIL_PAIR(&p, p.arrived == 20);
    CHECK_EQ(p.disorder + p.elsewhere, 0);
    pair_end(&p);
}

/* ---- a wait ends with what it has reported, whatever that is */

static void on_piece(weft_ep_t *ep, void *arg) {
    const void *data;
    size_t len;
    struct pair *p = arg;
    while (weft_stream_take(ep, &data, &len) == WEFT_OK) {
        p->arrived++;
        weft_stream_release(p->b, data);
    }
}

/* What it is for is held by then, or comes meanwhile. */
static void wait_on_b(struct pair *p) {
    pause_a_moment(p);
    CHECK_EQ(weft_worker_wait(p->b, 60000), WEFT_OK);
}

TEST(a_wait_ends_when_it_reported_a_new_endpoint) {
    struct pair p;
    weft_ep_t *second;
    char address[256];
    size_t len = sizeof address;
    pair_make(&p, "tcp", NULL, 0);
    CHECK_EQ(weft_worker_address(p.b, address, &len), 0);
    CHECK_EQ(
        weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
        0);
    CHECK_EQ(weft_connect_address(p.a, address, len, NULL, &second), 0);
    wait_on_b(&p);
    CHECK_EQ(p.accepted, 2);
    CHECK_EQ(weft_connect_address(p.a, address, len, NULL, &second), 0);
    int n = 0;
    for (double end = test_now() + test_timeout(60); n == 0 && test_now() < end;
         weft_worker_progress(p.a, 0))
        n = weft_worker_progress(p.b, 0);
    CHECK_EQ(n, 1);
    CHECK_EQ(p.accepted, 3);
    pair_end(&p);
}

TEST(a_wait_ends_when_it_reported_bytes_of_a_stream) {
    struct pair p;
    pair_make(&p, "shm", NULL, 0);
    CHECK_EQ(weft_stream_on_data(p.to_a, on_piece, &p), 0);
    CHECK_EQ(
        weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
        0);
    CHECK(weft_stream_send(p.to_b, &(weft_iov_t){buffer, sizeof buffer}, 1, NULL) >= 0);
    wait_on_b(&p);
    CHECK(p.arrived > 0);
    pair_end(&p);
}

TEST(a_wait_ends_when_it_reported_a_loss) {
    struct pair p;
    pair_make(&p, "tcp", NULL, 0);
    CHECK_EQ(
        weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
        0);
    CHECK_EQ(weft_ep_close(p.to_b, WEFT_CLOSE_ABORT, NULL), WEFT_IN_PROGRESS);
    wait_on_b(&p);
    CHECK_EQ(p.errors, 1);
    pair_end(&p);
}

/* The news of another endpoint is held meanwhile. */
TEST(a_wait_ends_when_it_reported_a_close) {
    struct pair p;
    weft_ep_t *next;
    char address[256];
    size_t len = sizeof address;
    pair_make(&p, "shm", NULL, 0);
    CHECK_EQ(weft_worker_address(p.b, address, &len), 0);
    CHECK_EQ(
        weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
        0);
    for (int i = 0; i < 20; i++) {
        struct tally closed = {0};
        CHECK_EQ(weft_connect_address(p.a, address, len, NULL, &next), 0);
        pause_a_moment(&p);
        CHECK_EQ(weft_ep_close(p.to_a, WEFT_CLOSE_ABORT, OP(&closed)), WEFT_IN_PROGRESS);
        while (!closed.calls) CHECK_EQ(weft_worker_wait(p.b, 10000), WEFT_OK);
        while (p.accepted < i + 2) CHECK_EQ(weft_worker_wait(p.b, 10000), WEFT_OK);
    }
    CHECK_EQ(weft_ep_close_wait(p.to_a, WEFT_CLOSE_ABORT), WEFT_OK);
    pair_end(&p);
}

TEST(a_wake_before_a_wait_ends_it_although_callbacks_are_polled) {
    struct pair p;
    pair_make(&p, "shm", NULL, 0);
    CHECK_EQ(
        weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
        0);
    weft_worker_wake(p.b);
    CHECK_EQ(weft_worker_wait(p.b, 10000), WEFT_OK);
    CHECK_EQ(weft_worker_wait(p.b, 10), WEFT_ERR_TIMED_OUT); /* one wait, and no more */
    weft_worker_wake(p.b);
    CHECK_EQ(weft_worker_progress(p.b, 0), 0);
    CHECK_EQ(weft_worker_wait(p.b, 10), WEFT_ERR_TIMED_OUT); /* or one look */
    pair_end(&p);
}

enum { FLAGS = 20000 };
static atomic_uint flags_up, flags_seen;

static void *raise_flags(void *worker) {
    for (unsigned i = 1; i <= FLAGS; i++) {
        while (flags_seen != i - 1) sched_yield();
        flags_up = i;
        weft_worker_wake(worker);
    }
    return NULL;
}

TEST(no_wake_is_lost_to_a_wait_for_polled_callbacks) {
    struct pair p;
    pthread_t thread;
    flags_up = flags_seen = 0;
    pair_make(&p, "shm", NULL, 0);
    CHECK_EQ(
        weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
        0);
    CHECK_EQ(pthread_create(&thread, NULL, raise_flags, p.b), 0);
    for (unsigned i = 1; i <= FLAGS; i++) {
        while (flags_up != i)
            if (weft_worker_wait(p.b, 10000) == WEFT_ERR_TIMED_OUT) break;
        CHECK_EQ(flags_up, i);
        flags_seen = i;
    }
    pthread_join(thread, NULL);
    pair_end(&p);
}
