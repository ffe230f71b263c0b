/* The inside of a reactor, shared by the files of this room: its parts, and its turn. */
#ifndef WEFT_REACTOR_LOCAL_H
#define WEFT_REACTOR_LOCAL_H

#include <assert.h>
#include <base/compiler.h>
#include <base/context.h>
#include <base/counters.h>
#include <pthread.h>
#include <reactor/adaptive_spin.h>
#include <reactor/reactor.h>
#include <reactor/timers.h>
#include <reactor/virtual.h>
#include <reactor/wakeup.h>
#include <reactor/watches.h>
#include <stdatomic.h>

enum { CACHE_LINE = 64 };

/* dead_list.c: what is freed at the end of the turn. */
struct reactor_freed {
    void **list; /* in the order given */
    unsigned room;
    void *tree; /* talloc parent of the list's objects */
};

/* clock.c */
struct reactor_rng {
    bool is_seeded;
    unsigned n;
    uint64_t value[32];
};

/* runqueue.c: first in, first out. */
struct reactor_jobs {
    struct job *first, **last;
    unsigned n;
    unsigned left; /* that the pass through the queue may still run */
};

/* turn.c: when a busy worker polls the kernel. */
struct reactor_kernel {
    unsigned turns_to_poll; /* until the time stamp counter is read, to see whether a poll is due */
    uint64_t polled_at;     /* ticks */
    uint64_t ticks_to_poll; /* between two polls of the kernel */
    unsigned passed_over;   /* reports in a row for which a level-triggered host's kernel waited */
};

/* xthread.c: what other threads submitted, in the order in which it runs. */
struct reactor_inbox {
    struct remote *first, **last;
    struct job job;
};

/* The callback of the reactor's end, which runs when nothing is left. */
struct reactor_end {
    weft_done_fn done;
    void *arg;
};

/* virtual.c */
struct reactor_virtual {
    struct reactor_clock *clock; /* NULL: the real one */
    struct reactor *next;        /* of the clock */
    uint64_t paused_until;       /* of the clock */
};

struct reactor {
    struct reactor_gate gate; /* first */

    /* What a turn of a busy worker touches. */
    struct poller *pollers, *next_poller; /* the next poller of a running turn */
    struct reactor_jobs jobs;
    unsigned n_timers, n_dead, n_watches;
    struct reactor_kernel kernel;
    uint64_t handled; /* events, ever */
    union {           /* what most turns find unset, and ask for at once */
        struct {
            bool destroying, fd_taken, behind, jobs_first;
            bool watch_answered; /* one ran in this turn, and may have left jobs */
            /* the next turn may be another thread's: this one forgets the worker behind each */
            bool any_threads;
        };
        uint64_t slow;
    };
    bool in_turn, found_by_poll, kicked, watch_ran;
    bool fd_level;       /* the host's watch is level-triggered: what is left is reported again */
    bool woken_by_hand;  /* this turn began with a wake */
    bool event_fd_used;  /* another thread may have written it */
    bool busy_once_more; /* the last turn in a host's loop found something */
    weft_thread_mode_t thread_mode;
    const struct given *given;
    struct counters own_count; /* gate.count says where they are kept now */

    /* On cache lines of its own (talloc aligns to 16 only). */
    char line_before[CACHE_LINE];
    struct reactor_remote remote;
    char line_after[CACHE_LINE];

    weft_context_t *context;
    void *internals; /* talloc parent of what the reactor itself allocates */
    struct reactor_inbox inbox;

    struct reactor_timers timers;
    struct reactor_ev ev;
    struct reactor_watches watches;
    struct reactor_aux aux;
    struct reactor_outer outer;

    struct spin spin;
    uint64_t spun_at; /* when a spin for a host's loop ended in vain; 0: it has come back since */
    unsigned waits_without_spin;
    unsigned vain_yields;                   /* of a host's loop, in a row */
    bool others_ran;                        /* during a yield since look_in_host began */
    bool shares_core;                       /* a host's loop yields before it looks */
    struct oversubscription oversubscribed; /* other processes that want this core */

    struct reactor_end end;

    struct alloc_counter allocations;
    struct reactor_freed freed;

    struct reactor_virtual virtual;

    struct reactor_rng rng;

    struct fsm_trace trace;

    /* not OK: it stands for a reactor that is missing, and every check returns this */
    weft_status_t dormant;
};

/* wait.c: the host's loop calls again, and may have slept since a spin in vain. */
void weft__wait_came_back(struct reactor *r);

/* turn.c */
enum look { POLL_MEMORY, POLL_TIMERS, POLL_KERNEL }; /* each includes those before */
enum { TURN_GONE = -1 };
int weft__turn_run(struct reactor *r, unsigned budget,
                   enum look look); /* events handled, or TURN_GONE: the reactor was destroyed */
bool weft__turn_kernel_is_due(struct reactor *r);
static inline bool turn_has_work(struct reactor *r) { /* makes no call */
    return r->jobs.n || r->kicked || atomic_load_explicit(&r->remote.woken, memory_order_relaxed);
}

/* timers.c */
static inline uint64_t timers_nearest(const struct reactor *r) {
    return r->n_timers ? r->timers.heap[1].at : UINT64_MAX;
}

/* wakeup.c */
static inline void waker_enter(struct reactor *r) {
    atomic_fetch_add_explicit(&r->remote.n_wakers, 1, memory_order_relaxed);
}
static inline void waker_leave(struct reactor *r) { /* nothing of it is touched after that */
    atomic_fetch_sub_explicit(&r->remote.n_wakers, 1, memory_order_release);
}
static inline bool wakeup_is_armed(const struct reactor *r) {
    return atomic_load_explicit(&r->remote.armed, memory_order_relaxed);
}

/* reactor.c */
void weft__reactor_free(struct reactor *r);

/* poller.c */
/* those before it go to the end */
void weft__pollers_rotate(struct reactor *r, struct poller *first);
bool weft__pollers_arm(struct reactor *r);
void weft__pollers_disarm(struct reactor *r);

/* runqueue.c */
unsigned weft__jobs_run(struct reactor *r, unsigned budget);

/* dead_list.c */
void weft__memory_count_into(struct reactor *r);
void weft__memory_forget(const struct reactor *r);
void weft__dead_free(struct reactor *r);
void weft__reactor_forget(struct reactor *r); /* what this thread remembers of it */

/* fork.c */
uint32_t weft__fork_generation_now(const volatile uint32_t **mark_p);
static inline bool forked(const struct reactor *r) {
    return *r->gate.fork_mark != r->gate.fork_generation;
}

/* virtual.c */
void weft__clock_join(struct reactor_clock *clock, struct reactor *r);
void weft__clock_leave(struct reactor_clock *clock, struct reactor *r);
weft_status_t weft__clock_wait(struct reactor *r, int timeout_ms);
uint64_t weft__clock_seed(struct reactor_clock *clock);

/* clock.c */
void weft__random_open(struct reactor *r, uint64_t seed);

#endif
