/*
 * A turn: look at memory, now and then at the kernel and the clock, run what is queued, free what is dead.
 *
 * With pollers the kernel is asked only when enough time has gone by, measured by the time stamp counter (an
 * instruction, read every 16th turn): an fd is noticed within microseconds, and a spinning worker spends little of
 * its time in the kernel. While only memory delivers, the distance grows; after sockets had news, there is none.
 */
#include "local.h"
#include <limits.h>

enum { TURNS_TO_TICKS = 16, DISTANCE = 16384, MAX_DISTANCE = 64 * DISTANCE };

uint64_t weft__ticks_of_clock(void) {
    return 2 * weft__real_now(); /* as of a processor at 2 GHz */
}

static __attribute__((noinline)) bool enough_time_went_by(struct reactor *r) {
    if (!r->pollers) {
        r->turns_to_look = 1; /* there is nothing else to look at */
        return true;
    }
    r->turns_to_look = TURNS_TO_TICKS;
    uint64_t now = weft__ticks();
    if (now - r->looked_at < r->ticks_to_look) return false;
    r->looked_at = now;
    return true;
}

void weft__reactor_look(struct reactor *r) {
    r->turns_to_look = 1;
    r->looked_at = 0;
}

static inline bool ticks_are_due(struct reactor *r) {
    return --r->turns_to_look == 0;
}

bool turn_kernel_is_due(struct reactor *r) {
    return UNLIKELY(ticks_are_due(r)) && enough_time_went_by(r);
}

/* The worker's own eventfd counts as a watch only once somebody may have written it. */
static unsigned look_at_kernel(struct reactor *r, unsigned budget, enum look look) {
    unsigned jobs = r->n_jobs;
    memory_count_into(r);
    if (look == LOOK_KERNEL && (r->n_watches || r->event_fd_used)) loop_look(r);
    unsigned n = timers_run(r, budget);
    bool watches_ran = r->n_jobs != jobs, found = n || watches_ran;
    if (found || !r->found_by_poll)
        r->ticks_to_look = DISTANCE;
    else if (r->ticks_to_look < MAX_DISTANCE)
        r->ticks_to_look *= 2;
    r->found_by_poll = false;
    /* Where many sockets talk, others are ready by the time these were served: one look finds them all, pollers ask each. */
    if (watches_ran) weft__reactor_look(r);
    return n;
}

/* Somebody wants a turn, or the owner said that it sleeps; or all that is seen here is the parent's. */
static inline bool is_called(const struct reactor *r) {
    return (atomic_load_explicit(&r->woken, memory_order_relaxed) |
            atomic_load_explicit(&r->armed, memory_order_relaxed) |
            (*r->gate.fork_mark ^ r->gate.fork_generation)) != 0;
}

static void take_wake(struct reactor *r) {
    atomic_exchange(&r->woken, 0);
    r->woken_by_hand = true;
    remotes_take(r);
}

/* Pollers may go while they are polled. The one that used up the budget is looked at last next time, so that a flooded one
 * starves nobody. */
static inline unsigned poll_memory(struct reactor *r, unsigned budget) {
    unsigned n = 0;
    for (struct poller *poller = r->pollers; poller; poller = r->next_poller) {
        r->next_poller = poller->next;
        n += (unsigned)poller->poll(poller, budget - n);
        if (LIKELY(n < budget)) continue;
        pollers_rotate(r, r->next_poller);
        r->next_poller = NULL;
        break;
    }
    if (n) r->found_by_poll = true;
    return n;
}

/* The trace stays, of a worker of one thread: what the program does between turns is worth knowing, too. */
static inline void enter(struct reactor *r) {
    r->in_turn = true;
    r->woken_by_hand = false;
    r->gate.count->turns++;
    fsm_trace_use(&r->trace);
}

/* Nothing is left but what memory brought. */
static inline bool is_over(const struct reactor *r, unsigned n, unsigned budget) {
    return n < budget && !r->seldom && !(r->n_jobs | r->n_dead);
}

static inline int end_early(struct reactor *r, unsigned n) {
    r->handled += n;
    r->in_turn = false;
    return (int)n;
}

/* False when the reactor is gone. */
static inline bool leave(struct reactor *r) {
    if (UNLIKELY(r->n_dead)) dead_free(r);
    r->in_turn = false;
    if (UNLIKELY(r->any_threads)) reactor_forget(r);
    if (LIKELY(!r->doomed)) return true;
    reactor_free(r);
    return false;
}

/* What watches made others post runs as what polls do: in the same turn. The program may compute for long before the next.
 * The cold ones run among these, and what they post behind them. */
static __attribute__((noinline)) unsigned run_answers(struct reactor *r, unsigned budget) {
    unsigned n = 0;
    while (r->watch_answered) {
        r->watch_answered = false;
        n += jobs_run(r, budget - n);
    }
    return n;
}

/* A poll may have found more, since it sends what was waiting to be sent, too. */
static inline unsigned left_of(unsigned budget, unsigned n) {
    return n < budget ? budget - n : 0;
}

/* What follows the look at memory, which found `n`. */
static __attribute__((noinline)) int finish(struct reactor *r, unsigned budget, unsigned n, enum look look) {
    if (look != LOOK_MEMORY) n += look_at_kernel(r, left_of(budget, n), look);
    if (r->n_jobs) n += jobs_run(r, left_of(budget, n));
    if (r->watch_answered) n += run_answers(r, left_of(budget, n));
    if (r->jobs_first && n < budget) n += poll_memory(r, budget - n);

    /* Pollers and the queue take the first place by turns when the budget does not reach for both. */
    if (n >= budget || r->behind) {
        r->behind = n >= budget;
        r->jobs_first = r->behind && !r->jobs_first;
    }
    r->handled += n;
    return leave(r) ? (int)n : TURN_GONE;
}

int turn(struct reactor *r, unsigned budget, enum look look) {
    unsigned n = 0;
    enter(r);
    if (UNLIKELY(atomic_load_explicit(&r->woken, memory_order_relaxed))) take_wake(r);
    if (LIKELY(!r->jobs_first)) n = poll_memory(r, budget);
    if (LIKELY(look == LOOK_MEMORY && is_over(r, n, budget))) return end_early(r, n);
    return finish(r, budget, n, look);
}

/* After a turn of progress; the reactor may be gone. */
static int settled(struct reactor *r, int n) {
    if (n == TURN_GONE) return 0;
    if (r->fd_taken) wakeup_settle(r);
    return n;
}

static __attribute__((noinline)) int progress_seldom(struct reactor *r, unsigned budget, bool due) {
    if (forked(r)) return weft__fail(WEFT_ERR_FORKED, "this process is a fork of the worker's");
    if (wakeup_is_armed(r)) wakeup_disarm(r);
    bool look = (due && enough_time_went_by(r)) || r->fd_taken;
    return settled(r, turn(r, budget, look ? LOOK_KERNEL : LOOK_MEMORY));
}

static __attribute__((noinline)) int progress_rest(struct reactor *r, unsigned budget, unsigned found) {
    return settled(r, finish(r, budget, found, LOOK_MEMORY));
}

/* Most turns find nothing, or one message that somebody waits for: what they ask for besides is asked in few words. */
int weft__reactor_progress(struct reactor *r, unsigned budget) {
    if (UNLIKELY(r->in_turn)) return weft__fail(WEFT_ERR_BUSY, "progress was called from within a callback");
    if (budget == 0 || budget > INT_MAX) budget = INT_MAX;
    bool due = ticks_are_due(r);
    if (UNLIKELY(due || r->seldom || is_called(r))) return progress_seldom(r, budget, due);
    enter(r);
    unsigned n = poll_memory(r, budget);
    return LIKELY(is_over(r, n, budget)) ? end_early(r, n) : progress_rest(r, budget, n);
}
