/*
 * A turn polls memory, at intervals the kernel and the clock, runs the queued jobs and frees the
 * objects of the dead list.
 *
 * With pollers, a turn asks the kernel only after an interval, which the time stamp counter
 * measures every 16th turn. A ready fd is noticed within microseconds, and a spinning worker spends
 * little of its time in the kernel. While only memory delivers, the interval grows. After a socket
 * was ready, the interval is zero.
 */
#include "local.h"
#include <limits.h>

enum { TURNS_TO_TICKS = 16, DISTANCE = 16384, MAX_DISTANCE = 64 * DISTANCE, REPORTS_TO_KERNEL = 8 };

static __attribute__((noinline)) bool enough_time_went_by(struct reactor *r) {
    if (!r->pollers) {
        r->kernel.turns_to_poll = 1; /* there is nothing else to look at */
        return true;
    }
    r->kernel.turns_to_poll = TURNS_TO_TICKS;
    uint64_t now = weft__ticks();
    if (now - r->kernel.polled_at < r->kernel.ticks_to_poll) return false;
    r->kernel.polled_at = now;
    return true;
}

void weft__reactor_poll_soon(struct reactor *r) {
    r->kernel.turns_to_poll = 1;
    r->kernel.polled_at = 0;
}

static inline bool ticks_are_due(struct reactor *r) {
    return --r->kernel.turns_to_poll == 0;
}

bool weft__turn_kernel_is_due(struct reactor *r) {
    return UNLIKELY(ticks_are_due(r)) && enough_time_went_by(r);
}

/* A level-triggered host reports again whatever is ready, so a report that memory or a hot socket
 * explains need not ask the kernel for more; but not many in a row, or the other sockets starve. */
static bool kernel_can_wait(struct reactor *r, unsigned found) {
    bool waits = r->fd_level && found && ++r->kernel.passed_over < REPORTS_TO_KERNEL;
    if (!waits) r->kernel.passed_over = 0;
    return waits;
}

/* The worker's own eventfd counts as a watch only after a thread may have written it. */
static unsigned look_at_kernel(struct reactor *r, unsigned budget, enum look look) {
    unsigned jobs = r->jobs.n;
    weft__memory_count_into(r);
    if (look == POLL_KERNEL && (r->n_watches || r->event_fd_used)) weft__loop_poll(r);
    unsigned n = weft__timers_run(r, budget);
    bool watches_ran = r->jobs.n != jobs, found = n || watches_ran;
    if (found || !r->found_by_poll)
        r->kernel.ticks_to_poll = DISTANCE;
    else if (r->kernel.ticks_to_poll < MAX_DISTANCE)
        r->kernel.ticks_to_poll *= 2;
    r->found_by_poll = false;
    /* Where many sockets talk, others are ready by the time these were served: one look finds
     * them all, pollers ask each. */
    if (watches_ran) weft__reactor_poll_soon(r);
    return n;
}

/* True if a turn was requested, if the owner announced that it sleeps, or in a forked child. */
static inline bool is_called(const struct reactor *r) {
    return (atomic_load_explicit(&r->remote.woken, memory_order_relaxed) |
            atomic_load_explicit(&r->remote.armed, memory_order_relaxed) |
            (*r->gate.fork_mark ^ r->gate.fork_generation)) != 0;
}

static void take_wake(struct reactor *r) {
    atomic_exchange(&r->remote.woken, 0);
    r->woken_by_hand = true;
    weft__remotes_take(r);
}

/* A poller may be removed while it is polled. The poller that used up the budget is polled last in
 * the next turn, so that a flooded poller does not starve the others. */
static inline unsigned poll_memory(struct reactor *r, unsigned budget) {
    unsigned n = 0;
    for (struct poller *poller = r->pollers; poller; poller = r->next_poller) {
        r->next_poller = poller->next;
        n += (unsigned)poller->poll(poller, budget - n);
        if (LIKELY(n < budget)) continue;
        weft__pollers_rotate(r, r->next_poller);
        r->next_poller = NULL;
        break;
    }
    if (n) r->found_by_poll = true;
    return n;
}

/* The trace of a worker of one thread stays on: it also shows what the program does between
 * turns. */
static inline void enter_turn(struct reactor *r) {
    r->in_turn = true;
    r->woken_by_hand = false;
    r->gate.count->turns++;
    fsm_trace_use(&r->trace);
}

/* Nothing is left but what memory brought. */
static inline bool is_over(const struct reactor *r, unsigned n, unsigned budget) {
    return n < budget && !r->slow && !(r->jobs.n | r->n_dead);
}

static inline int end_early(struct reactor *r, unsigned n) {
    r->handled += n;
    r->in_turn = false;
    return (int)n;
}

/* False when the reactor is gone. */
static inline bool leave_turn(struct reactor *r) {
    if (UNLIKELY(r->n_dead)) weft__dead_free(r);
    r->in_turn = false;
    if (UNLIKELY(r->any_threads)) weft__reactor_forget(r);
    if (LIKELY(!r->destroying)) return true;
    weft__reactor_free(r);
    return false;
}

/* What watches made others post runs as what polls do: in the same turn. The program may compute
 * for long before the next. The cold ones run among these, and what they post behind them. */
static __attribute__((noinline)) unsigned run_answers(struct reactor *r, unsigned budget) {
    unsigned n = 0;
    while (r->watch_answered) {
        r->watch_answered = false;
        n += weft__jobs_run(r, budget - n);
    }
    return n;
}

/* A poll may have found more, since it sends what was waiting to be sent, too. */
static inline unsigned left_of(unsigned budget, unsigned n) {
    return n < budget ? budget - n : 0;
}

/* What follows the look at memory, which found `n`. */
static __attribute__((noinline)) int finish(struct reactor *r, unsigned budget, unsigned n,
                                            enum look look) {
    if (look == POLL_KERNEL && kernel_can_wait(r, n)) look = POLL_TIMERS;
    if (look != POLL_MEMORY) n += look_at_kernel(r, left_of(budget, n), look);
    if (r->jobs.n) n += weft__jobs_run(r, left_of(budget, n));
    if (r->watch_answered) n += run_answers(r, left_of(budget, n));
    if (r->jobs_first && n < budget) n += poll_memory(r, budget - n);

    /* Pollers and the queue take the first place by turns when the budget does not reach for
     * both. */
    if (n >= budget || r->behind) {
        r->behind = n >= budget;
        r->jobs_first = r->behind && !r->jobs_first;
    }
    r->handled += n;
    return leave_turn(r) ? (int)n : TURN_GONE;
}

int weft__turn_run(struct reactor *r, unsigned budget, enum look look) {
    unsigned n = 0;
    enter_turn(r);
    if (UNLIKELY(atomic_load_explicit(&r->remote.woken, memory_order_relaxed))) take_wake(r);
    if (LIKELY(!r->jobs_first)) n = poll_memory(r, budget);
    if (LIKELY(look == POLL_MEMORY && is_over(r, n, budget))) return end_early(r, n);
    return finish(r, budget, n, look);
}

/* After a turn of progress; the reactor may be gone. */
static int settled(struct reactor *r, int n) {
    if (n == TURN_GONE) return 0;
    if (r->fd_taken) weft__wakeup_settle(r);
    return n;
}

static __attribute__((noinline)) int progress_slow(struct reactor *r, unsigned budget, bool due) {
    if (forked(r))
        return weft__fail(WEFT_ERR_FORKED,
                          "the worker belongs to the parent of this forked process");
    if (wakeup_is_armed(r)) weft__wakeup_disarm(r);
    if (r->spun_at) weft__wait_came_back(r);
    bool look = (due && enough_time_went_by(r)) || r->fd_taken;
    return settled(r, weft__turn_run(r, budget, look ? POLL_KERNEL : POLL_MEMORY));
}

static __attribute__((noinline)) int progress_rest(struct reactor *r, unsigned budget,
                                                   unsigned found) {
    return settled(r, finish(r, budget, found, POLL_MEMORY));
}

static __attribute__((noinline)) int progress_busy(struct reactor *r) {
    if (!forked(r)) weft__wakeup_silence(r);
    return weft__fail(WEFT_ERR_BUSY, "weft_worker_progress was called from within a callback");
}

/* Most turns find nothing or one message, so the common case tests few words. */
int weft__reactor_progress(struct reactor *r, unsigned budget) {
    if (UNLIKELY(r->in_turn)) return progress_busy(r);
    if (budget == 0 || budget > INT_MAX) budget = INT_MAX;
    bool due = ticks_are_due(r);
    if (UNLIKELY(due || r->slow || is_called(r))) return progress_slow(r, budget, due);
    enter_turn(r);
    unsigned n = poll_memory(r, budget);
    return LIKELY(is_over(r, n, budget)) ? end_early(r, n) : progress_rest(r, budget, n);
}
