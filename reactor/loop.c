/*
 * The reactor's libev loop. `weft__loop_poll` and `weft__loop_sleep` run a loop of the reactor's
 * own until the program asks for the worker's fd. Then the loop is freed, and both functions ask
 * the outer epoll behind that fd (wakeup.c). In a host's loop, the reactor's watchers drive it:
 *
 *   before_sleep     (prepare)               arms; if there is something to do, `busy` keeps the loop from sleeping
 *   after_sleep      (check, first of all)   disarms, so that what the host's callbacks do costs no kick
 *   after_callbacks  (check, last of all)    takes a turn
 *
 * libev runs equal priorities last in first out, so the callbacks of fds only post to the run
 * queue.
 */
#include "local.h"
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

/* What one turn in a host's loop may handle before the host's own watchers get their turn. */
enum { HOST_BUDGET = 256, MOST_FDS = 4096 };

#define REACTOR_OF(w, member) container_of(w, struct reactor, member)

static void on_wake(struct ev_loop *loop, ev_io *w, int revents) {
    if (forked(REACTOR_OF(w, ev.wake_io))) {
        ev_io_stop(loop, w); /* the parent's: a child must not read it */
        return;
    }
    uint64_t count;
    ssize_t n = read(w->fd, &count, sizeof count); /* EAGAIN: another look was faster */
    (void)n;
}

/* The kernel did not take the descriptor (epoll_ctl: ENOSPC, ENOMEM), so libev stopped the watcher.
 * It is started again: until the kernel takes it, each iteration of the loop looks at it. */
static void watch_again(struct reactor *r, struct watch_state *state) {
    const struct watch *watch = state->watch;
    if (fcntl(watch->fd, F_GETFD) < 0) return;
    weft__log_limited(weft__reactor_context(r), WEFT_LOG_WARN, "reactor",
                      "descriptor %d is polled: epoll_ctl did not take it", watch->fd);
    weft__loop_watch(r, state, watch->events);
}

static void on_fd(struct ev_loop *loop, ev_io *w, int revents) {
    struct watch_state *state = container_of(w, struct watch_state, io);
    struct reactor *r = w->data;
    if (forked(r)) {
        ev_io_stop(loop, w);
    } else if (r->in_turn && !r->ev.is_ours) {
        /* the program runs its loop from a callback of ours, which would spin */
        ev_io_stop(loop, w);
        r->ev.io_stopped = true;
    } else {
        if (revents & EV_ERROR) watch_again(r, state);
        weft__watch_got(state, (revents & EV_READ ? WATCH_READ : 0) |
                                   (revents & EV_WRITE ? WATCH_WRITE : 0));
    }
}

/* the turn that follows sees it */
static void on_nearest(struct ev_loop *loop, ev_timer *w, int revents) {}
static void on_busy(struct ev_loop *loop, ev_idle *w, int revents) {}

/* ---- driven by a host's loop ----------------------------------------------------------------- */

static void set_busy(struct reactor *r, bool busy) {
    if (busy)
        ev_idle_start(r->ev.loop, &r->ev.busy);
    else
        ev_idle_stop(r->ev.loop, &r->ev.busy);
}

/* After the callback: those that were ready within it, which no turn could serve. */
static void start_stopped(struct reactor *r) {
    r->ev.io_stopped = false;
    for (struct watch_block *block = r->watches.blocks; block; block = block->next)
        for (unsigned i = 0; i < WATCH_BLOCK; i++) {
            struct watch_state *state = &block->state[i];
            if (state->io.data && !ev_is_active(&state->io))
                weft__loop_watch(r, state, state->watch->events);
        }
}

static void on_before_sleep(struct ev_loop *loop, ev_prepare *w, int revents) {
    struct reactor *r = REACTOR_OF(w, ev.before_sleep);
    if (forked(r)) return;
    if (r->in_turn) {
        set_busy(r, false); /* nothing can be done before the callback returns */
        return;
    }
    if (r->ev.io_stopped) start_stopped(r);
    /* The turn may have armed the worker for a program that polls its fd: then no work was left. */
    set_busy(r, !wakeup_is_armed(r) &&
                    (r->busy_once_more || turn_has_work(r) || !weft__wakeup_arm(r)));
}

static void on_after_sleep(struct ev_loop *loop, ev_check *w, int revents) {
    struct reactor *r = REACTOR_OF(w, ev.after_sleep);
    if (!forked(r) && !r->in_turn && wakeup_is_armed(r)) weft__wakeup_disarm(r);
}

/* Traffic tends to be followed by traffic: one more look at memory before arming spares the
 * peers a signal. */
static void on_after_callbacks(struct ev_loop *loop, ev_check *w, int revents) {
    struct reactor *r = REACTOR_OF(w, ev.after_callbacks);
    if (forked(r) || r->in_turn) return;
    int n = weft__turn_run(r, HOST_BUDGET, POLL_TIMERS);
    if (n == TURN_GONE) return;
    r->busy_once_more = n > 0;
    if (r->fd_taken) weft__wakeup_settle(r);
}

/* libev counts from the time it last read the clock, so it is made to read it now. */
void weft__loop_set_timer(struct reactor *r, uint64_t at) {
    if (ev_is_active(&r->ev.nearest) && at == r->ev.nearest_at) return;
    ev_timer_stop(r->ev.loop, &r->ev.nearest);
    r->ev.nearest_at = at;
    if (at == UINT64_MAX) return;
    ev_now_update(r->ev.loop);
    uint64_t now = weft__now(r);
    ev_timer_set(&r->ev.nearest, at > now ? (double)(at - now) / NS_PER_S : 0., 0.);
    ev_timer_start(r->ev.loop, &r->ev.nearest);
}

/* What serves only the library must not keep a host's loop alive. */
static void start_host_watchers(struct reactor *r) {
    ev_prepare_init(&r->ev.before_sleep, on_before_sleep);
    ev_check_init(&r->ev.after_sleep, on_after_sleep);
    ev_check_init(&r->ev.after_callbacks, on_after_callbacks);
    ev_set_priority(&r->ev.before_sleep, EV_MINPRI);
    ev_set_priority(&r->ev.after_sleep, EV_MAXPRI);
    ev_set_priority(&r->ev.after_callbacks, EV_MINPRI);
    ev_prepare_start(r->ev.loop, &r->ev.before_sleep);
    ev_check_start(r->ev.loop, &r->ev.after_sleep);
    ev_check_start(r->ev.loop, &r->ev.after_callbacks);
    for (int i = 0; i < 4; i++) ev_unref(r->ev.loop); /* these and wake_io */
}

static void stop_host_watchers(struct reactor *r) {
    for (int i = 0; i < 4; i++) ev_ref(r->ev.loop);
    ev_prepare_stop(r->ev.loop, &r->ev.before_sleep);
    ev_check_stop(r->ev.loop, &r->ev.after_sleep);
    ev_check_stop(r->ev.loop, &r->ev.after_callbacks);
    ev_idle_stop(r->ev.loop, &r->ev.busy);
}

/* ---- driven by us ---------------------------------------------------------------------------- */

static bool runs_own_loop(const struct reactor *r) {
    return r->ev.loop && r->ev.is_ours;
}

void weft__loop_poll(struct reactor *r) {
    r->gate.count->kernel_polls++;
    if (runs_own_loop(r))
        ev_run(r->ev.loop, EVRUN_NOWAIT);
    else if (weft__wakeup_outer_open(r) == WEFT_OK)
        weft__wakeup_outer_poll(r, 0); /* a host's loop is not ours to run */
}

/* What our own loop calls back needs no kick: a turn follows. */
void weft__loop_sleep(struct reactor *r, uint64_t until) {
    r->gate.count->kernel_polls++;
    r->kicked = true;
    if (runs_own_loop(r)) {
        weft__loop_set_timer(r, until);
        ev_run(r->ev.loop, EVRUN_ONCE);
        ev_timer_stop(r->ev.loop, &r->ev.nearest);
    } else if (weft__wakeup_outer_open(r) == WEFT_OK) {
        weft__wakeup_timer_set(r, until);
        weft__wakeup_outer_poll(r, -1);
    }
}

void weft__loop_watch(struct reactor *r, struct watch_state *state, int events) {
    ev_io_stop(r->ev.loop, &state->io);
    if (!events) return;
    ev_io_init(&state->io, on_fd, state->watch->fd,
               (events & WATCH_READ ? EV_READ : 0) | (events & WATCH_WRITE ? EV_WRITE : 0));
    ev_io_start(r->ev.loop, &state->io);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void never(struct ev_loop *loop, ev_io *w, int revents) {}

/*
 * libev aborts when it cannot grow an array of its own, so they are made to grow now, by public
 * calls alone (4.33): starting a watcher on the highest fd grows the table of fds; starting one on
 * each fd, the list of changes; feeding an event to each, the queue of pending events, where a
 * cleared one keeps its place until the next iteration. No watcher is left, no callback runs, and
 * no system call is made (`events` is set by hand, so that libev compares before it calls). What
 * cannot be reserved so is the batch of epoll_wait, 64 events at first, which doubles when it was
 * full; and an fd beyond the limit grows the table of fds.
 */
static void reserve(struct reactor *r, unsigned fds) {
    ev_io *dummy = weft__alloc(NULL, fds * sizeof *dummy, "reserve");
    if (!dummy) return; /* then memory is short already, and libev's first watcher decides */
    for (unsigned i = fds; i-- > 0;) {
        ev_init(&dummy[i], never);
        dummy[i].fd = (int)i;
        dummy[i].events = EV_READ;
        ev_io_start(r->ev.loop, &dummy[i]);
        ev_feed_event(r->ev.loop, &dummy[i], 0);
    }
    /* clears what is pending too */
    for (unsigned i = 0; i < fds; i++) ev_io_stop(r->ev.loop, &dummy[i]);
    ev_timer_start(r->ev.loop, &r->ev.nearest);
    ev_timer_stop(r->ev.loop, &r->ev.nearest);
    ev_idle_start(r->ev.loop, &r->ev.busy);
    ev_idle_stop(r->ev.loop, &r->ev.busy);
    talloc_free(dummy);
}

static unsigned fd_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > MOST_FDS) return MOST_FDS;
    return (unsigned)limit.rlim_cur;
}

weft_status_t weft__loop_open(struct reactor *r, struct ev_loop *host, unsigned max_fds) {
    r->ev.loop = host ? host : ev_loop_new(EVBACKEND_EPOLL | EVFLAG_NOENV);
    if (!r->ev.loop)
        return weft__fail(WEFT_ERR_NO_FDS, "libev could not create a loop with the epoll backend");
    r->ev.is_ours = !host;
    ev_timer_init(&r->ev.nearest, on_nearest, 0., 0.);
    ev_idle_init(&r->ev.busy, on_busy);
    reserve(r, max_fds ? max_fds : fd_limit());
    ev_io_init(&r->ev.wake_io, on_wake, r->remote.event_fd, EV_READ);
    ev_io_start(r->ev.loop, &r->ev.wake_io);
    if (host)
        start_host_watchers(r);
    else
        /* what was reserved is gone through now, not while the first peer waits */
        ev_run(r->ev.loop, EVRUN_NOWAIT);
    return WEFT_OK;
}

void weft__loop_close(struct reactor *r) {
    if (!r->ev.loop) return;
    if (!r->ev.is_ours) stop_host_watchers(r);
    ev_timer_stop(r->ev.loop, &r->ev.nearest);
    ev_io_stop(r->ev.loop, &r->ev.wake_io);
    if (r->ev.is_ours) ev_loop_destroy(r->ev.loop);
    r->ev.loop = NULL;
}
