/* A loop that the program runs within a callback: the worker's fd is silent there, and reports
 * what is left afterwards. */
#include <tests/support/worker_pair.h>

#include <ev.h>
#include <poll.h>
#include <sys/epoll.h>

static bool is_readable(int fd, int ms) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, ms) > 0;
}

/* Serves both fds as a host would, until `cond`. */
#define SERVE(t, cond)                                                                   \
    do {                                                                                 \
        struct pollfd fds[2] = {{weft_worker_fd((t)->a), POLLIN, 0},                     \
                                {weft_worker_fd((t)->b), POLLIN, 0}};                    \
        for (double end = test_now() + test_timeout(60); !(cond) && test_now() < end;) { \
            if (poll(fds, 2, 100) <= 0) continue;                                        \
            if (fds[0].revents) weft_worker_progress((t)->a, 0);                         \
            if (fds[1].revents) weft_worker_progress((t)->b, 1);                         \
        }                                                                                \
        CHECK(cond);                                                                     \
    } while (0)

enum { PLAIN = 1, INNER = 2, QUIET_MS = 30 };

static int came, inner, spins, fd_of_b;
static bool silent;
static weft_worker_t *worker_of_b;

static void on_plain(weft_ep_t *ep, weft_am_t *am, void *arg) {
    came++;
}

/* What such a loop does: while the fd is readable, it calls progress. Others send meanwhile. */
static void on_inner(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct two *t = arg;
    inner++;
    for (int i = 0; i < 20; i++) CHECK(weft_am_send(t->ep, PLAIN, NULL, 0, NULL, 0, NULL) >= 0);
    for (int i = 0; i < 5; i++) weft_worker_progress(t->a, 0);
    for (spins = 0; spins < 100 && is_readable(fd_of_b, QUIET_MS); spins++)
        CHECK_EQ(weft_worker_progress(worker_of_b, 0), WEFT_ERR_BUSY);
    silent = !is_readable(fd_of_b, 0);
    for (int i = 0; i < 20; i++) CHECK(weft_am_send(t->ep, PLAIN, NULL, 0, NULL, 0, NULL) >= 0);
    for (int i = 0; i < 5; i++) weft_worker_progress(t->a, 0);
    silent &= !is_readable(fd_of_b, QUIET_MS); /* nor does what is new wake it */
}

static void up(struct two *t, const char *transport) {
    came = inner = spins = 0;
    two_up(t, transport);
    CHECK_EQ(weft_am_handler_set(t->b, PLAIN, on_plain, NULL), 0);
    CHECK_EQ(weft_am_handler_set(t->b, INNER, on_inner, t), 0);
    worker_of_b = t->b;
    fd_of_b = weft_worker_fd(t->b);
    CHECK(fd_of_b >= 0);
    CHECK(weft_worker_fd(t->a) >= 0);
}

static void inner_loop(const char *transport) {
    struct two t;
    up(&t, transport);
    for (int round = 1; round <= 3; round++) {
        CHECK(weft_am_send(t.ep, INNER, NULL, 0, NULL, 0, NULL) >= 0);
        SERVE(&t, inner == round);
        CHECK(silent);
        CHECK(spins <= 1);             /* the call that finds out */
        SERVE(&t, came == 40 * round); /* what came meanwhile is reported */
        CHECK_EQ(weft_worker_fd(t.b), fd_of_b);
    }
    two_down(&t);
}
TEST(an_inner_loop_does_not_spin_tcp) {
    inner_loop("tcp");
}
TEST(an_inner_loop_does_not_spin_shm) {
    inner_loop("shm");
}

/* An edge-triggered host learns of what is left, too, and then sleeps. */
TEST(an_edge_triggered_host_is_woken_for_what_an_inner_loop_left) {
    struct two t;
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    up(&t, "tcp");
    int host = epoll_create1(EPOLL_CLOEXEC);
    CHECK_EQ(epoll_ctl(host, EPOLL_CTL_ADD, fd_of_b, &event), 0);
    for (int round = 1; round <= 3; round++) {
        CHECK(weft_am_send(t.ep, INNER, NULL, 0, NULL, 0, NULL) >= 0);
        for (double end = test_now() + test_timeout(60); came < 40 * round && test_now() < end;) {
            weft_worker_progress(t.a, 0);
            if (epoll_wait(host, &event, 1, 20) > 0) weft_worker_progress(t.b, 1);
        }
        CHECK_EQ(came, 40 * round);
    }
    while (epoll_wait(host, &event, 1, 500) > 0) weft_worker_progress(t.b, 0);
    CHECK(!is_readable(fd_of_b, 100));
    close(host);
    two_down(&t);
}

/* A worker that gets a thread afterwards, and gives it back, has the same fd. */
TEST(a_thread_may_take_over_after_an_inner_loop) {
    struct two t;
    two_thread_mode = WEFT_THREAD_MULTIPLE;
    up(&t, "tcp");
    two_thread_mode = WEFT_THREAD_SINGLE;
    CHECK(weft_am_send(t.ep, INNER, NULL, 0, NULL, 0, NULL) >= 0);
    SERVE(&t, came == 40);
    for (int round = 0; round < 2; round++) {
        int before = came;
        CHECK_EQ(weft_worker_start_thread(
                     t.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
                 0);
        CHECK_EQ(weft_worker_fd(t.b), fd_of_b);
        CHECK(weft_am_send(t.ep, PLAIN, NULL, 0, NULL, 0, NULL) >= 0);
        SERVE(&t, came == before + 1);
        CHECK_EQ(weft_worker_stop_thread(t.b), 0);
        CHECK_EQ(weft_worker_fd(t.b), fd_of_b);
        CHECK(weft_am_send(t.ep, PLAIN, NULL, 0, NULL, 0, NULL) >= 0);
        SERVE(&t, came == before + 2);
    }
    two_down(&t);
}

/* ---- a host's libev loop, which runs itself again from within a callback */

static int iterations, most_iterations;
static void on_iteration(struct ev_loop *loop, ev_prepare *w, int revents) {
    iterations++;
}
static bool rang;
static void on_alarm(struct ev_loop *loop, ev_timer *w, int revents) {
    rang = true;
}

static void on_libev_inner(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct ev_loop *loop = EV_DEFAULT;
    struct two *t = arg;
    ev_timer alarm;
    inner++;
    for (int i = 0; i < 20; i++) CHECK(weft_am_send(t->ep, PLAIN, NULL, 0, NULL, 0, NULL) >= 0);
    for (int i = 0; i < 5; i++) weft_worker_progress(t->a, 0);
    rang = false;
    ev_timer_init(&alarm, on_alarm, 0.1, 0.);
    ev_now_update(loop);
    ev_timer_start(loop, &alarm);
    for (iterations = 0; !rang && iterations < 100000;) ev_run(loop, EVRUN_ONCE);
    ev_timer_stop(loop, &alarm);
    if (iterations > most_iterations) most_iterations = iterations;
}

static void libev_inner_loop(const char *transport) {
    struct two t;
    ev_prepare each;
    struct ev_loop *loop = EV_DEFAULT;
    came = inner = most_iterations = 0;
    memset(&t, 0, sizeof t);
    weft_worker_params_t params = {
        .transports = transport, .on_endpoint = two_on_endpoint, .arg = &t};
    CHECK_EQ(weft_context_create(NULL, &t.context), 0);
    CHECK_EQ(weft_worker_create(t.context, &params, &t.a), 0);
    params.loop = loop;
    CHECK_EQ(weft_worker_create(t.context, &params, &t.b), 0);
    two_dial(&t);
    UNTIL(&t, t.ready && t.back);
    CHECK_EQ(weft_am_handler_set(t.b, PLAIN, on_plain, NULL), 0);
    CHECK_EQ(weft_am_handler_set(t.b, INNER, on_libev_inner, &t), 0);
    ev_prepare_init(&each, on_iteration);
    ev_prepare_start(loop, &each);
    for (int round = 1; round <= 3; round++) {
        CHECK(weft_am_send(t.ep, INNER, NULL, 0, NULL, 0, NULL) >= 0);
        for (double end = test_now() + test_timeout(60); came < 20 * round && test_now() < end;) {
            weft_worker_progress(t.a, 0);
            ev_run(loop, EVRUN_NOWAIT);
        }
        CHECK_EQ(inner, round);
        CHECK_EQ(came, 20 * round);
        CHECK(rang);
    }
    CHECK(most_iterations < 20);
    ev_prepare_stop(loop, &each);
    two_down(&t);
}
TEST(a_libev_loop_within_a_callback_does_not_spin_tcp) {
    libev_inner_loop("tcp");
}
TEST(a_libev_loop_within_a_callback_does_not_spin_shm) {
    libev_inner_loop("shm");
}
