/*
 * What it costs to be woken. Two threads on two cores, both asleep between messages, pass a counter
 * to and fro through shared memory and signal it through an eventfd:
 *
 *   raw     epoll_wait, read the eventfd
 *   wait    a worker in weft_worker_wait that does not spin
 *   fd      a host's epoll over the worker's fd, then progress
 *   native  a worker in a host's libev loop
 *
 * and beside it, what a polled turn costs beyond the poller that it looks at. Medians of half round
 * trips.
 */
#define _GNU_SOURCE
#include "cores.h"
#include <ev.h>
#include <pthread.h>
#include <reactor/reactor.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { ROUNDS = 20000, WARM = 500, TURNS = 1000, RUNS = 20000 };

struct side {
    struct poller poller;
    struct watch watch;
    struct reactor *r;
    struct ev_loop *loop;
    int event_fd, epoll_fd;
    int seen;
    struct side *other;
    _Alignas(64) atomic_int sent, armed; /* by the other side; by this one */
};

static void send_to(struct side *side) {
    uint64_t one = 1;
    atomic_fetch_add(&side->sent, 1);
    if (atomic_exchange(&side->armed, 0) && write(side->event_fd, &one, sizeof one) != sizeof one)
        abort();
}

static int poll_side(struct poller *poller, unsigned budget) {
    struct side *side = (struct side *)poller;
    int sent = atomic_load_explicit(&side->sent, memory_order_acquire), n = sent - side->seen;
    side->seen = sent;
    return n;
}

static bool arm_side(struct poller *poller) {
    struct side *side = (struct side *)poller;
    atomic_store(&side->armed, 1);
    return atomic_load(&side->sent) == side->seen;
}

static void disarm_side(struct poller *poller) {
    atomic_store(&((struct side *)poller)->armed, 0);
}

static void drain(int fd) {
    uint64_t count;
    if (read(fd, &count, sizeof count) < 0) return;
}
static void drain_watch(struct watch *watch, int events) {
    drain(watch->fd);
}

/* ---- the four ways to sleep until there is something new ------------------------------------- */

static void sleep_raw(struct side *side) {
    struct epoll_event event;
    while (poll_side(&side->poller, 1) == 0) {
        atomic_store(&side->armed, 1);
        if (atomic_load(&side->sent) != side->seen) continue;
        if (epoll_wait(side->epoll_fd, &event, 1, -1) == 1) drain(side->event_fd);
    }
}

static void sleep_wait(struct side *side) {
    for (int before = side->seen; side->seen == before;) weft__reactor_wait(side->r, -1);
}

static void sleep_fd(struct side *side) {
    struct epoll_event event;
    for (int before = side->seen; side->seen == before;)
        if (epoll_wait(side->epoll_fd, &event, 1, -1) == 1) weft__reactor_progress(side->r, 0);
}

static void sleep_native(struct side *side) {
    for (int before = side->seen; side->seen == before;) ev_run(side->loop, EVRUN_ONCE);
}

struct way {
    const char *name;
    void (*sleep)(struct side *side);
};
static const struct way ways[] = {
    {"raw", sleep_raw}, {"wait", sleep_wait}, {"fd", sleep_fd}, {"native", sleep_native}};

static weft_context_t *context;

static void open_side(struct side *side, const struct way *way) {
    memset(side, 0, sizeof *side);
    side->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    side->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int fd = side->event_fd;
    if (way->sleep != sleep_raw) {
        if (way->sleep == sleep_native) side->loop = ev_loop_new(0);
        if (weft__reactor_create(
                context, &(struct reactor_params){.loop = side->loop, .max_fds = 64}, &side->r))
            abort();
        side->poller = (struct poller){.poll = poll_side, .arm = arm_side, .disarm = disarm_side};
        side->watch.ready = drain_watch;
        weft__poller_add(side->r, &side->poller);
        if (weft__watch_start(side->r, &side->watch, side->event_fd, WATCH_READ)) abort();
        if (way->sleep == sleep_fd) fd = weft__reactor_fd(side->r);
    }
    struct epoll_event event = {EPOLLIN, {.fd = fd}};
    if (epoll_ctl(side->epoll_fd, EPOLL_CTL_ADD, fd, &event)) abort();
}

static void close_side(struct side *side) {
    if (side->r) {
        weft__watch_stop(side->r, &side->watch);
        weft__poller_remove(side->r, &side->poller);
        weft__reactor_destroy(side->r);
    }
    if (side->loop) ev_loop_destroy(side->loop);
    close(side->event_fd);
    close(side->epoll_fd);
}

/* ---- ping and pong --------------------------------------------------------------------------- */

static const struct way *chosen;
static struct side sides[2];
static atomic_int opened;

static void *pong(void *arg) {
    pin(1);
    open_side(&sides[1], chosen);
    atomic_store(&opened, 1);
    for (int i = 0; i < ROUNDS; i++) {
        chosen->sleep(&sides[1]);
        send_to(&sides[0]);
    }
    close_side(&sides[1]);
    return NULL;
}

static double median_of(const struct way *way) {
    static double took[ROUNDS];
    pthread_t thread;
    chosen = way;
    atomic_store(&opened, 0);
    open_side(&sides[0], way);
    pthread_create(&thread, NULL, pong, NULL);
    while (!atomic_load(&opened)) usleep(100);
    cpu_set_t both;
    sched_getaffinity(0, sizeof both, &both);
    pin(0);
    for (int i = 0; i < ROUNDS; i++) {
        double begin = now_ns();
        send_to(&sides[1]);
        way->sleep(&sides[0]);
        took[i] = (now_ns() - begin) / 2;
    }
    pthread_join(thread, NULL);
    sched_setaffinity(0, sizeof both, &both);
    close_side(&sides[0]);
    sort_figures(took + WARM, ROUNDS - WARM);
    return took[WARM + (ROUNDS - WARM) / 2];
}

/* ---- a turn that finds nothing --------------------------------------------------------------- */

/* The best of many short runs: what the machine's other users take is not ours. */
static double best_of(int (*fn)(void *, unsigned), void *arg) {
    double best = 1e9;
    for (int run = 0; run < RUNS; run++) {
        double begin = now_ns();
        for (int i = 0; i < TURNS; i++) fn(arg, 1);
        double took = (now_ns() - begin) / TURNS;
        if (took < best) best = took;
    }
    return best;
}

static int poll_alone(void *side, unsigned budget) {
    return poll_side(side, budget);
}
static int take_turn(void *r, unsigned budget) {
    return weft__reactor_progress(r, budget);
}

static double turn_costs(double *poller_p) {
    struct side side = {.poller.poll = poll_side};
    struct reactor *r;
    if (weft__reactor_create(context, &(struct reactor_params){.max_fds = 64}, &r)) abort();
    weft__poller_add(r, &side.poller);
    *poller_p = best_of(poll_alone, &side);
    double turn = best_of(take_turn, r);
    weft__poller_remove(r, &side.poller);
    weft__reactor_destroy(r);
    return turn;
}

int main(void) {
    weft_setting_t no_spin = {"worker.spin", "0"};
    if (weft_context_create(&(weft_context_params_t){.settings = &no_spin, .n_settings = 1},
                            &context))
        return 1;
    double poller, turn = turn_costs(&poller), raw = 0;
    printf("{\"test\": \"turn\", \"poller_ns\": %.2f, \"turn_ns\": %.2f}\n", poller, turn);
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
        double ns = median_of(&ways[i]);
        if (i == 0) raw = ns;
        printf("{\"test\": \"wakeup\", \"way\": \"%s\", \"p50_us\": %.3f, \"ratio\": %.2f}\n",
               ways[i].name, ns / 1e3, ns / raw);
    }
    return weft_context_destroy(context) != WEFT_OK;
}
