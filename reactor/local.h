/* The inside of a reactor, shared by the files of this room. */
#ifndef WEFT_REACTOR_LOCAL_H
#define WEFT_REACTOR_LOCAL_H

#include <assert.h>
#include <ev.h>
#include <pthread.h>
#include <reactor/counters.h>
#include <reactor/patience.h>
#include <reactor/reactor.h>
#include <reactor/virtual.h>
#include <stdatomic.h>

#define LIKELY(x)   __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

enum { CACHE_LINE = 64 };

/* There may be thousands. */
struct watch_state {
    struct job job;
    ev_io io; /* its `data`: the reactor; NULL: it is spare */
    union {
        struct watch *watch;
        struct watch_state *next; /* spare */
    };
};
enum { WATCH_BLOCK = 16 };
struct watch_block {
    struct watch_block *next;
    struct watch_state state[WATCH_BLOCK];
};

/* One running timer. `order` makes equal times fire in the order set. */
struct heap_entry {
    uint64_t at, order;
    struct timer *timer;
};

struct reactor {
    struct reactor_gate gate; /* first */

    /* What a turn of a busy worker touches. */
    struct poller *pollers, *next_poller; /* the one a running turn looks at next */
    struct job *first_job, **last_job;
    unsigned n_jobs, n_timers, n_dead, n_watches;
    unsigned jobs_left;     /* that the pass through the queue may run yet */
    unsigned turns_to_look; /* until the time stamp counter is read to see whether a look is due */
    uint64_t looked_at;     /* ticks */
    uint64_t ticks_to_look; /* between two looks at the kernel */
    uint64_t handled;       /* events, ever */
    union {                 /* what most turns find unset, and ask for at once */
        struct {
            bool doomed, fd_taken, behind, jobs_first;
            bool watch_answered; /* one ran in this turn, and may have left jobs */
            bool any_threads; /* the next turn may be another thread's: this one forgets the worker behind each */
        };
        uint64_t seldom;
    };
    bool in_turn, found_by_poll, kicked, watch_ran;
    bool woken_by_hand;  /* this turn began with a wake */
    bool event_fd_used;  /* somebody may have written it */
    bool busy_once_more; /* the last turn in a host's loop found something */
    weft_thread_mode_t thread_mode;
    struct counters own_count; /* gate.count says where they are kept now */

    /* What other threads and signal handlers touch, on lines of its own (talloc aligns to 16 only). */
    char line_before[CACHE_LINE];
    atomic_uint woken;               /* somebody wants a turn: coalesces wakes */
    atomic_uint armed;               /* the owner sleeps, or may */
    _Atomic(struct remote *) posted; /* newest first */
    atomic_bool over;                /* calls are refused */
    int event_fd;
    char line_after[CACHE_LINE];

    weft_context_t *context;
    void *internals; /* talloc parent of what the reactor itself allocates */
    struct remote *remotes, **last_remote;
    struct job remote_job;

    struct heap_entry *heap;
    unsigned heap_room;
    uint64_t timer_order;

    struct ev_loop *loop;
    bool loop_is_ours;
    ev_io wake_io;
    ev_timer nearest;
    uint64_t nearest_at; /* while it runs */
    ev_prepare before_sleep;
    ev_check after_sleep, after_callbacks;
    ev_idle busy;
    struct watch_block *watch_blocks;
    struct watch cold;             /* the epoll of those that are cold (cold.c), */
    struct epoll_event *cold_told; /* and those that it told of, and that were not called yet */
    int n_cold_told;
    struct watch_state *spare_watches;

    int outer_fd, timer_fd;  /* -1 until somebody asks for the fd */
    uint64_t timer_fd_at;    /* 0: not set */
    int apart_fd;            /* the worker's fd while the outer epoll is another, or none yet; else -1 */
    atomic_bool apart_taken; /* somebody has asked for it */

    struct patience patience;
    unsigned waits_without_spin;
    bool crowded; /* somebody else wants our core */

    weft_done_fn ended; /* who hears of the end, once nothing is left */
    void *ended_arg;

    void **dead; /* in the order buried */
    unsigned dead_room;
    void *graveyard;

    struct reactor_clock *clock; /* NULL: the real one */
    struct reactor *next_of_clock;
    uint64_t paused_until; /* of the clock */

    bool random_is_seeded;
    unsigned n_random;
    uint64_t random[32];

    struct fsm_trace trace;
};

/* turn.c */
enum look { LOOK_MEMORY, LOOK_TIMERS, LOOK_KERNEL }; /* each includes those before */
enum { TURN_GONE = -1 };
int turn(struct reactor *r, unsigned budget,
         enum look look); /* events handled, or TURN_GONE: the reactor was destroyed */
bool turn_kernel_is_due(struct reactor *r);
static inline bool turn_has_work(struct reactor *r) { /* without asking anybody */
    return r->n_jobs || r->kicked || atomic_load_explicit(&r->woken, memory_order_relaxed);
}

/* reactor.c */
void reactor_free(struct reactor *r);

/* poller.c */
void pollers_rotate(struct reactor *r, struct poller *first); /* those before it go to the end */
bool pollers_arm(struct reactor *r);
void pollers_disarm(struct reactor *r);

/* runqueue.c */
unsigned jobs_run(struct reactor *r, unsigned budget);

/* timers.c */
unsigned timers_run(struct reactor *r, unsigned budget);
static inline uint64_t timers_nearest(const struct reactor *r) {
    return r->n_timers ? r->heap[1].at : UINT64_MAX;
}

/* watch.c */
void watch_got(struct watch_state *state, int events);

/* wakeup.c */
weft_status_t wakeup_open(struct reactor *r);
void wakeup_close(struct reactor *r);
uint32_t epoll_of_watch(int events);
int watch_of_epoll(uint32_t events);
weft_status_t wakeup_outer_open(struct reactor *r);
weft_status_t wakeup_outer_set(struct reactor *r, struct watch_state *state, int events);
void wakeup_outer_look(struct reactor *r, int timeout_ms);
void wakeup_timer_set(struct reactor *r, uint64_t at);
bool wakeup_arm(struct reactor *r); /* false: there is something to do after all, and nothing is armed */
void wakeup_disarm(struct reactor *r);
void wakeup_settle(struct reactor *r); /* after a turn: armed, or the fd readable */
static inline bool wakeup_is_armed(const struct reactor *r) {
    return atomic_load_explicit(&r->armed, memory_order_relaxed);
}

/* cold.c */
void cold_close(struct reactor *r);

/* loop.c */
weft_status_t loop_open(struct reactor *r, struct ev_loop *host, unsigned max_fds);
void loop_close(struct reactor *r);
void loop_look(struct reactor *r);                     /* does not sleep */
void loop_sleep(struct reactor *r, uint64_t until_ns); /* at most till then */
void loop_set_timer(struct reactor *r, uint64_t at);   /* UINT64_MAX: none */
void loop_watch(struct reactor *r, struct watch_state *state, int events);

/* remote.c */
void remotes_take(struct reactor *r);
void remotes_open(struct reactor *r);

/* memory.c */
void dead_free(struct reactor *r);
void memory_count_into(const struct reactor *r);
void memory_forget(const struct reactor *r);
void reactor_forget(struct reactor *r); /* what this thread remembers of it */

/* fork.c */
uint32_t fork_generation_now(const volatile uint32_t **mark_p);
static inline bool forked(const struct reactor *r) {
    return *r->gate.fork_mark != r->gate.fork_generation;
}

/* virtual.c */
void clock_join(struct reactor_clock *clock, struct reactor *r);
void clock_leave(struct reactor_clock *clock, struct reactor *r);
weft_status_t clock_wait(struct reactor *r, int timeout_ms);
uint64_t clock_seed(struct reactor_clock *clock);

/* clock.c */
void random_open(struct reactor *r, uint64_t seed);

/* context.c, log.c */
void context_hold(weft_context_t *context);
void context_release(weft_context_t *context);

/* config.c */
struct setting_value {
    char *text; /* talloc */
    uint64_t number;
    weft_origin_t origin;
};
weft_status_t config_read(weft_context_t *context, const weft_context_params_t *params);
void config_warn_unknown(weft_context_t *context, const weft_context_params_t *params);

/* One place in the code that logs with a limit. */
struct log_place {
    _Atomic(const char *) format;
    _Atomic uint64_t state; /* log.c's */
};
enum { LOG_PLACES = 64 };

/* A tree of its own; after its creation nothing in it changes but what is atomic. */
struct weft_context {
    weft_log_fn log;
    void *log_arg;
    weft_log_level_t log_level;
    atomic_uint n_reactors;
    struct log_place log_place[LOG_PLACES];
    struct setting_value setting[N_SETTINGS];
};
bool log_level_parse(const char *text, weft_log_level_t *level_p);

#endif
