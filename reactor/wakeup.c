/*
 * Sleeping without losing anything. The owner arms: it says so (`armed`), asks every poller for
 * notification, and then looks once more at everything. A waker publishes first and looks at
 * `armed` second. Both sides have a full fence between their store and their load, so at least one
 * of them sees the other (tests/reactor/arming_model_test.c explores this, and finds the lost
 * wakeup when a fence is missing).
 *
 * For hosts with a loop of another kind there is one fd: an outer epoll of our own. It holds the
 * fds that libev had (or still has, in a host's loop: watch.c keeps them in step), an eventfd for
 * wakes and kicks, and a timerfd for the nearest timer. libev's own epoll fd would not do: it is
 * silent about expired timers, and about watchers newly started on a ready fd.
 *
 * Within a callback nothing can be done, so a loop that the program runs there would spin by that
 * fd. Once such a loop has called progress, the fd is an epoll in front of the outer one, which can
 * be silenced by one call.
 *
 * While a thread drives the worker, that fd is apart: it reports what the program is to know, and
 * the thread sleeps on something else.
 */
#include "local.h"
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { YIELDS = 100 };

static weft_status_t failed_by_errno(const char *what) {
    int error = errno;
    return weft__fail(weft__errno_status(error), "%s: %s", what, strerror(error));
}

weft_status_t weft__wakeup_open(struct reactor *r) {
    r->remote.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return r->remote.event_fd >= 0 ? WEFT_OK : failed_by_errno("eventfd");
}

static void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* The descriptor that the program has, or -1. */
static int *fd_of_program(struct reactor *r) {
    if (r->outer.apart_fd >= 0) return &r->outer.apart_fd;
    return r->outer.front_fd >= 0 ? &r->outer.front_fd : &r->outer.fd;
}

int weft__wakeup_take_fd(struct reactor *r) {
    int *at = fd_of_program(r), fd = *at;
    *at = -1;
    return fd;
}

void weft__wakeup_close(struct reactor *r) {
    close_fd(&r->outer.fd);
    close_fd(&r->outer.front_fd);
    close_fd(&r->outer.apart_fd);
    close_fd(&r->outer.timer_fd);
    close_fd(&r->remote.event_fd);
}

/* ---- wakes and kicks ------------------------------------------------------------------------- */

/* Never blocks: the eventfd is non-blocking, and a full counter is as readable as can be. write()
 * would be a cancellation point: a thread that is cancelled there would leave `woken` set, and the
 * owner asleep. */
static void signal_fd(struct reactor *r) {
    int before = errno;
    uint64_t one = 1;
    while (syscall(SYS_write, r->remote.event_fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
    errno = before;
}

void weft__wake_within(struct reactor *r) {
    if (forked(r)) return; /* the eventfd is still the parent's */
    if (atomic_exchange(&r->remote.woken, 1)) return;
    if (atomic_load(&r->remote.armed)) signal_fd(r);
}

void weft__reactor_wake(struct reactor *r) {
    waker_enter(r);
    weft__wake_within(r);
    waker_leave(r);
}

/* Those that woke the owner for the last time are on their way out, but may have lost their core.
 * A child of fork has none of them. */
void weft__wakers_await(struct reactor *r) {
    for (unsigned i = 0; atomic_load_explicit(&r->remote.n_wakers, memory_order_acquire); i++)
        if (i < YIELDS)
            sched_yield();
        else
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

void weft__reactor_kick(struct reactor *r) {
    if (r->in_turn || !wakeup_is_armed(r) || r->kicked) return;
    r->kicked = true;
    signal_fd(r);
}

/* ---- the outer epoll ------------------------------------------------------------------------- */

uint32_t weft__epoll_of_watch(int events) {
    return (events & WATCH_READ ? (uint32_t)EPOLLIN : 0) |
           (events & WATCH_WRITE ? (uint32_t)EPOLLOUT : 0);
}

int weft__watch_of_epoll(uint32_t events) {
    int broken = events & (EPOLLERR | EPOLLHUP) ? WATCH_READ | WATCH_WRITE : 0;
    return broken | (events & EPOLLIN ? WATCH_READ : 0) | (events & EPOLLOUT ? WATCH_WRITE : 0);
}

static weft_status_t control(int epoll, int op, int fd, uint32_t events, void *mark) {
    struct epoll_event event = {events, {.ptr = mark}};
    int rc = epoll_ctl(epoll, op, fd, &event);
    return rc == 0 || op == EPOLL_CTL_DEL ? WEFT_OK : failed_by_errno("epoll_ctl");
}

static weft_status_t control_watch(int epoll, int op, struct watch_state *state, int events) {
    uint32_t once = state->watch->notified_once ? EPOLLET : 0;
    return control(epoll, op, state->watch->fd, weft__epoll_of_watch(events) | once, state);
}

/* A stopped fd is deleted, not masked: a hang-up shows even when no events are asked for. */
weft_status_t weft__wakeup_outer_set(struct reactor *r, struct watch_state *state, int events) {
    if (r->outer.fd < 0 || events == state->watch->events) return WEFT_OK;
    int op = !events ? EPOLL_CTL_DEL : state->watch->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    return control_watch(r->outer.fd, op, state, events);
}

static weft_status_t control_all(struct reactor *r, int epoll, int op) {
    weft_status_t st = control(epoll, op, r->remote.event_fd, EPOLLIN, &r->remote.event_fd);
    if (st == WEFT_OK) st = control(epoll, op, r->outer.timer_fd, EPOLLIN, &r->outer.timer_fd);
    for (struct watch_block *block = r->watches.blocks; block; block = block->next)
        for (unsigned i = 0; i < WATCH_BLOCK && st == WEFT_OK; i++) {
            struct watch_state *state = &block->state[i];
            if (state->io.data && state->watch->events)
                st = control_watch(epoll, op, state, state->watch->events);
        }
    return st;
}

static weft_status_t open_epoll(int *fd_p) {
    *fd_p = epoll_create1(EPOLL_CLOEXEC);
    return *fd_p >= 0 ? WEFT_OK : failed_by_errno("epoll_create1");
}

static weft_status_t open_timer(struct reactor *r) {
    if (r->outer.timer_fd < 0)
        r->outer.timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    return r->outer.timer_fd >= 0 ? WEFT_OK : failed_by_errno("timerfd_create");
}

/* All of it, or none. */
static weft_status_t fill_wakeup(struct reactor *r, int epoll) {
    weft_status_t st = open_timer(r);
    if (st < 0) return st;
    st = control_all(r, epoll, EPOLL_CTL_ADD);
    if (st < 0) control_all(r, epoll, EPOLL_CTL_DEL);
    return st;
}

weft_status_t weft__wakeup_outer_open(struct reactor *r) {
    if (r->outer.fd >= 0) return WEFT_OK;
    weft_status_t st = open_epoll(&r->outer.fd);
    if (st == WEFT_OK) st = fill_wakeup(r, r->outer.fd);
    if (st < 0) close_fd(&r->outer.fd);
    return st;
}

static void wakeup_drain(int fd) {
    uint64_t count;
    while (read(fd, &count, sizeof count) < 0 && errno == EINTR)
        ;
}

/* Asks the outer epoll itself: for a worker of a host's loop that progress or wait drives at
 * this time. */
void weft__wakeup_outer_poll(struct reactor *r, int timeout_ms) {
    struct epoll_event events[64];
    int n = epoll_wait(r->outer.fd, events, 64, timeout_ms);
    for (int i = 0; i < n; i++) {
        void *mark = events[i].data.ptr;
        if (mark == &r->remote.event_fd || mark == &r->outer.timer_fd)
            wakeup_drain(*(int *)mark);
        else
            weft__watch_got(mark, weft__watch_of_epoll(events[i].events));
    }
}

/*
 * Setting a timerfd also takes back an expiry that was not read, so it is never read here. An
 * absolute time of the clock that weft__now reads: when it fires, the timer is due.
 */
void weft__wakeup_timer_set(struct reactor *r, uint64_t at) {
    if (r->outer.timer_fd < 0) return;
    if (at == UINT64_MAX) at = 0;
    if (at == r->outer.timer_at) return;
    struct itimerspec when = {.it_value = {(time_t)(at / NS_PER_S), (long)(at % NS_PER_S)}};
    timerfd_settime(r->outer.timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
    r->outer.timer_at = at;
}

/* ---- arming ---------------------------------------------------------------------------------- */

static bool timer_is_due(struct reactor *r) {
    return r->n_timers && timers_nearest(r) <= weft__now(r);
}

bool weft__wakeup_arm(struct reactor *r) {
    r->event_fd_used = true;
    r->kicked = false;
    atomic_store(&r->remote.armed, 1);
    atomic_thread_fence(memory_order_seq_cst);
    bool quiet = weft__pollers_arm(r);
    if (quiet && !turn_has_work(r) && !timer_is_due(r)) {
        weft__wakeup_timer_set(r, timers_nearest(r));
        if (!r->ev.is_ours) weft__loop_set_timer(r, timers_nearest(r));
        r->gate.count->sleeps++;
        return true;
    }
    if (quiet) weft__pollers_disarm(r); /* else it took them back itself */
    atomic_store(&r->remote.armed, 0);
    r->kicked = false;
    return false;
}

void weft__wakeup_disarm(struct reactor *r) {
    atomic_store(&r->remote.armed, 0);
    r->kicked = false;
    r->gate.count->wakeups++;
    weft__pollers_disarm(r);
}

/* ---- silence --------------------------------------------------------------------------------- */

/* The fd's number stays, and its watches go to an epoll behind it. All of them, or none. */
static weft_status_t put_in_front(struct reactor *r) {
    int behind;
    weft_status_t st = open_epoll(&behind);
    if (st < 0) return st;
    st = fill_wakeup(r, behind);
    if (st == WEFT_OK) st = control(r->outer.fd, EPOLL_CTL_ADD, behind, 0, NULL);
    if (st < 0) {
        close_fd(&behind);
        return st;
    }
    control_all(r, r->outer.fd, EPOLL_CTL_DEL);
    r->outer.front_fd = r->outer.fd;
    r->outer.fd = behind;
    return WEFT_OK;
}

/* An epoll's fd has no hang-up, which would show even when no events are asked for. */
void weft__wakeup_silence(struct reactor *r) {
    if (!r->fd_taken || r->outer.silent) return;
    if (r->outer.front_fd < 0 && put_in_front(r) < 0) return; /* it stays readable */
    r->outer.silent = control(r->outer.front_fd, EPOLL_CTL_MOD, r->outer.fd, 0, NULL) == WEFT_OK;
}

static void end_silence(struct reactor *r) {
    r->outer.silent = false;
    /* it allocates nothing */
    (void)control(r->outer.front_fd, EPOLL_CTL_MOD, r->outer.fd, EPOLLIN, NULL);
}

/*
 * An edge-triggered host needs a new edge for what is left: in the queue, beyond the budget, or in
 * an fd that its handler did not empty. So the eventfd is written again, even when it is readable
 * already.
 */
void weft__wakeup_settle(struct reactor *r) {
    if (r->outer.silent) end_silence(r);
    if (r->watch_ran && !r->fd_level) weft__loop_poll(r);
    r->watch_ran = false;
    if (r->behind || turn_has_work(r) || !weft__wakeup_arm(r)) signal_fd(r);
}

/* From now on nothing but the outer epoll is asked: an fd in both would be reported twice. */
static void take_fd(struct reactor *r) {
    r->fd_taken = true;
    if (r->ev.is_ours) weft__loop_close(r);
    if (!r->in_turn && !wakeup_is_armed(r)) weft__wakeup_settle(r);
}

static int descriptor(struct reactor *r) {
    if (r->virtual.clock)
        return weft__fail(WEFT_ERR_UNSUPPORTED, "a worker in virtual time has no file descriptor");
    if (r->outer.apart_fd >= 0) {
        atomic_store(&r->outer.apart_taken, true);
        return r->outer.apart_fd;
    }
    if (r->fd_taken) return r->outer.front_fd >= 0 ? r->outer.front_fd : r->outer.fd;
    weft_status_t st = weft__wakeup_outer_open(r);
    if (st < 0) return st;
    take_fd(r);
    return r->outer.fd;
}

/* While a thread drives the worker any thread may ask, and the host's kind of watch is not used. */
static int descriptor_for(struct reactor *r, bool level) {
    int fd = descriptor(r);
    if (r->outer.apart_fd < 0) r->fd_level = level && fd >= 0;
    return fd;
}

int weft__reactor_fd(struct reactor *r) {
    return descriptor_for(r, false);
}

int weft__reactor_fd_level(struct reactor *r) {
    return descriptor_for(r, true);
}

/* ---- apart ----------------------------------------------------------------------------------- */

/* What is behind the worker's fd stays there, and leaves it. */
static weft_status_t part_behind(struct reactor *r, int news_fd) {
    weft_status_t st =
        news_fd >= 0 ? control(r->outer.front_fd, EPOLL_CTL_ADD, news_fd, EPOLLIN, NULL) : WEFT_OK;
    if (st < 0) return st;
    control(r->outer.front_fd, EPOLL_CTL_DEL, r->outer.fd, 0, NULL);
    r->outer.apart_fd = r->outer.front_fd;
    r->outer.front_fd = -1;
    atomic_store(&r->outer.apart_taken, true);
    r->fd_taken = false;
    return WEFT_OK;
}

/* The fd's number stays, so programs that poll it notice nothing. Each fd enters the new epoll
 * before it leaves the old one. */
weft_status_t weft__reactor_detach(struct reactor *r, int news_fd) {
    int fd;
    if (r->outer.apart_fd >= 0) return WEFT_OK; /* it was not joined since the last time */
    if (r->outer.front_fd >= 0) return part_behind(r, news_fd);
    weft_status_t st = open_epoll(&fd);
    if (st < 0) return st;
    int apart = r->fd_taken ? r->outer.fd : fd;
    if (r->fd_taken) st = fill_wakeup(r, fd);
    if (st == WEFT_OK && news_fd >= 0) st = control(apart, EPOLL_CTL_ADD, news_fd, EPOLLIN, NULL);
    if (st < 0) {
        close_fd(&fd);
        return st;
    }
    if (r->fd_taken) {
        control_all(r, apart, EPOLL_CTL_DEL);
        r->outer.fd = fd;
    }
    r->outer.apart_fd = apart;
    atomic_store(&r->outer.apart_taken, r->fd_taken);
    r->fd_taken = r->fd_level = false; /* the thread settles nothing */
    return WEFT_OK;
}

weft_status_t weft__reactor_attach(struct reactor *r, int news_fd) {
    if (r->outer.apart_fd < 0) return WEFT_OK;
    if (!atomic_load(&r->outer.apart_taken)) {
        close_fd(&r->outer.apart_fd);
        return WEFT_OK;
    }
    weft_status_t st = fill_wakeup(r, r->outer.apart_fd);
    if (st < 0) return st;
    control(r->outer.apart_fd, EPOLL_CTL_DEL, news_fd, 0, NULL);
    close_fd(&r->outer.fd);
    r->outer.fd = r->outer.apart_fd;
    r->outer.apart_fd = -1;
    take_fd(r);
    return WEFT_OK;
}
