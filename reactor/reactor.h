/*
 * The reactor: one libev loop per worker, and the only way to clock, timers, randomness, allocation
 * and file descriptors for everything above it. A virtual-time twin runs the same callers in
 * simulations.
 *
 * Owner's thread only, except where it says "any thread".
 */
#ifndef WEFT_REACTOR_REACTOR_H
#define WEFT_REACTOR_REACTOR_H

#include <base/alloc.h>
#include <base/check.h>
#include <base/clock.h>
#include <base/compiler.h>
#include <base/log.h>
#include <base/settings.h>
#include <base/status.h>
#include <fsm/fsm.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <talloc.h>
#include <weft/base.h>
#include <weft/context.h>
#include <weft/worker.h>

_Static_assert(sizeof(size_t) == 8, "lengths on the wire have 64 bits, and are compared as size_t");

struct ev_loop;
struct reactor;

/* ---- life ------------------------------------------------------------------------------------ */

struct given;
struct reactor_params {
    struct ev_loop *loop; /* the host's; NULL: its own */
    /* simulations: shared by all reactors of one (reactor/virtual.h) */
    struct reactor_clock *virtual_clock;
    uint64_t seed;    /* of reactor_random; 0: from the kernel */
    unsigned max_fds; /* capacity of libev's arrays; 0: RLIMIT_NOFILE, 4096 at most */
    /* what the program made for the transports (transports/given.h); NULL: nothing */
    const struct given *given;
};
/* That of the parameters. */
const struct given *weft__reactor_given(const struct reactor *r);

/* The reactor is a talloc root of its own: everything of one worker hangs below it. */
weft_status_t weft__reactor_create(weft_context_t *context, const struct reactor_params *params,
                                   struct reactor **reactor_p);
/* Everything below must be closed; frees the tree and asserts that nothing but it was left.
 * Called from within a turn, it does so when the turn ends. */
void weft__reactor_destroy(struct reactor *r);
/* The same, also from within its own turn (then at its end), and calls `ended` when nothing is
 * left of it. */
void weft__reactor_end(struct reactor *r, weft_done_fn ended, void *arg);

/*
 * A constant that stands for the reactor of an object which has none: every check of a call
 * returns `status`, which is NOT_ASSOCIATED, DISASSOCIATED or RESOURCE_LOST. Nothing else may be
 * done with it.
 */
struct reactor *weft__reactor_dormant(weft_status_t status);
/* The one of NOT_ASSOCIATED. */
extern const struct reactor weft__reactor_none;
bool weft__reactor_is_dormant(const struct reactor *r);

weft_context_t *weft__reactor_context(struct reactor *r);
struct ev_loop *weft__reactor_loop(const struct reactor *r);

/* The four ways to drive it: see weft/worker.h, whose functions call these. */
int weft__reactor_progress(struct reactor *r, unsigned budget);
int weft__reactor_fd(struct reactor *r);
int weft__reactor_fd_level(struct reactor *r);
void weft__reactor_wake(struct reactor *r); /* any thread, signal handler */
weft_status_t weft__reactor_wait(struct reactor *r, int timeout_ms);
int weft__reactor_spin(struct reactor *r);
weft_status_t weft__reactor_call(struct reactor *r, void (*fn)(void *), void *arg); /* any thread */
/*
 * A thread that is not the program's is to drive it: from now on the worker's fd is readable as
 * `news_fd` is (-1: never), and any thread may ask for it. When that fails nothing has changed.
 * When the owner joins it, it reports again all there is to do; when that fails it stays apart, and
 * the owner tries again.
 */
weft_status_t weft__reactor_detach(struct reactor *r, int news_fd);
weft_status_t weft__reactor_attach(struct reactor *r, int news_fd);

/* This process is the child of one that had a reactor. */
extern __attribute__((visibility("hidden"))) bool weft__is_child;
void weft__end_forked_child(const struct reactor *r);
void weft__end_child_of(uint32_t generation);

/*
 * Comes behind each call of the program's, before anything else is done for this reactor: a child
 * that the program forked there, and that came back from it, ends. A turn may be under way, and
 * what it would go on with is its parent's.
 */
static inline void weft__program_returned(const struct reactor *r) {
    if (UNLIKELY(weft__is_child)) weft__end_forked_child(r);
}
/* The same where no reactor is at work: what goes on was begun by a process of that generation
 * (weft__fork_generation). */
static inline void weft__program_returned_to(uint32_t generation) {
    if (UNLIKELY(weft__is_child)) weft__end_child_of(generation);
}

/* What another thread hands to the owner, in memory of its own: it is the owner's until `run`
 * begins, and then whose `run` says. */
struct remote {
    struct remote *next;
    void (*run)(struct remote *remote);
};
void weft__reactor_submit(struct reactor *r,
                          struct remote *remote); /* any thread; in order with weft__reactor_call */
/* The same, where a reactor that ends or belongs to the parent of a fork refuses it: CLOSED,
 * FORKED. */
weft_status_t weft__reactor_offer(struct reactor *r, struct remote *remote);

/* The first words of every reactor: who may enter, and where it is counted. */
struct reactor_gate {
    _Atomic(pthread_t) owner;
    const volatile uint32_t *fork_mark; /* in a page that a fork's child finds wiped */
    uint32_t fork_generation;
    struct counters *count;
};
/* A fork's child closes this descriptor, or (off) leaves it, as one must say before it is closed
 * here. Any thread. */
void weft__fork_closes(int fd, bool on);
uint32_t weft__fork_generation(void); /* never 0, and another in each process that a fork makes */
/* pthread_self(), without a call where the C library's answer is known. */
static inline pthread_t weft__this_thread(void) {
#if defined(__GLIBC__) && defined(__x86_64__)
    return (pthread_t)__builtin_thread_pointer();
#else
    return pthread_self();
#endif
}
static inline bool weft__gate_is_own_thread(const struct reactor_gate *gate) {
#ifdef WEFT_THREADS_FIXED
    return true; /* the program sees to it: a build without questions (//:threads) */
#else
    return atomic_load_explicit(&gate->owner, memory_order_relaxed) == weft__this_thread();
#endif
}
/* True for the owner's thread in the owner's process: every public call asks this first, and
 * usually no more. */
static inline bool weft__reactor_mine(const struct reactor *r) {
    const struct reactor_gate *gate = (const struct reactor_gate *)r;
    return weft__gate_is_own_thread(gate) && *gate->fork_mark == gate->fork_generation;
}
weft_status_t weft__reactor_check_other(const struct reactor *r);
weft_status_t weft__reactor_enter_other(const struct reactor *r);
/* WEFT_OK, or WEFT_ERR_FORKED / WEFT_ERR_WRONG_THREAD. */
static inline weft_status_t weft__reactor_check(const struct reactor *r) {
    return LIKELY(weft__reactor_mine(r)) ? WEFT_OK : weft__reactor_check_other(r);
}
/* The same of what other threads may hand over: IN_PROGRESS when the caller is one, and the mode
 * is MULTIPLE. */
static inline weft_status_t weft__reactor_enter(const struct reactor *r) {
    return LIKELY(weft__reactor_mine(r)) ? WEFT_OK : weft__reactor_enter_other(r);
}
/* `owner` has it from now on; the one before is out of it for good, or waits. */
void weft__reactor_give(struct reactor *r, pthread_t owner);
/* The same for the calling thread, where the one before has ended. Errors: FORKED, BUSY. */
weft_status_t weft__reactor_adopt(struct reactor *r);
/* Runs the functions that are queued now. At the end, it also runs those that other threads
 * queue during the call, except calls. */
void weft__reactor_run_remotes(struct reactor *r);
void weft__reactor_finish_remotes(struct reactor *r);
/* WEFT_THREAD_SERIALIZED lets other threads pass; SINGLE (the default) and MULTIPLE keep the
 * data path to the owner. */
void weft__reactor_thread_mode(struct reactor *r, weft_thread_mode_t mode);
/* True while a callback of this reactor runs. */
bool weft__reactor_in_turn(const struct reactor *r);

/* True once the program has asked for the worker's fd, and may watch it. */
bool weft__reactor_has_fd(const struct reactor *r);
/* Only the host's loop polls the watches: of the watches that may be notified_once it is true. */
bool weft__reactor_notifies_once(const struct reactor *r);

/* ---- run queue: first in, first out; every callback to the user comes from here or from a poll */

struct job {
    struct job *next;             /* NULL: not queued */
    void (*run)(struct job *job); /* may post itself again */
};
static inline bool weft__job_queued(const struct job *job) {
    return job->next != NULL;
}
void weft__job_post(struct reactor *r, struct job *job); /* nothing if queued already */
/* takes it out again; nothing if not queued */
void weft__job_drop(struct reactor *r, struct job *job);
/* What it is for is done already: the same, where it would be the next to run. */
void weft__job_spare(struct reactor *r, struct job *job);

/* ---- timers: a heap of Weft's own behind one ev_timer ---------------------------------------- */

struct timer {
    void (*fire)(struct timer *timer);
    uint32_t slot; /* index in the heap, from 1; 0: not running */
    bool reserved; /* a place in the heap is kept for it while it does not run */
};
/*
 * (Re)starts it, for when weft__now says `at`. WEFT_ERR_NO_MEMORY when the heap cannot grow, which
 * a reserved timer never returns.
 */
weft_status_t weft__timer_start(struct reactor *r, struct timer *timer, uint64_t at);
void weft__timer_stop(struct reactor *r, struct timer *timer); /* keeps its reservation */
/* Is there a place for one more? Then the next reservation cannot fail. */
bool weft__timer_is_at_hand(const struct reactor *r);
/* Keeps a place in the heap for it until weft__timer_release. WEFT_ERR_NO_MEMORY. */
weft_status_t weft__timer_reserve(struct reactor *r, struct timer *timer);
/* Stops it and gives up its reservation, if it has one; before its memory is freed. */
void weft__timer_release(struct reactor *r, struct timer *timer);
static inline bool weft__timer_running(const struct timer *timer) {
    return timer->slot != 0;
}
/* UINT64_MAX: not running */
uint64_t weft__timer_at(const struct reactor *r, const struct timer *timer);

uint64_t weft__now(struct reactor *r); /* ns, monotonic; read afresh */
/* The same for any thread, and of a dormant reactor: the trace does not learn of it. */
uint64_t weft__reactor_time(const struct reactor *r);
bool weft__reactor_virtual(const struct reactor *r); /* its time is a simulation's */
/* seeded in simulations, else from the kernel */
uint64_t weft__random(struct reactor *r);

/* ---- file descriptors ------------------------------------------------------------------------ */

enum { WATCH_READ = 1, WATCH_WRITE = 2 };
struct watch {
    /* from the run queue, never from inside libev */
    void (*ready)(struct watch *watch, int events);
    int fd;
    uint8_t events; /* watched now, by libev and the outer epoll; 0: stopped */
    uint8_t got;    /* the reactor's: what the kernel reported and `ready` has not seen */
    /* an eventfd: the worker's fd reports each write once, whether it was read or not */
    bool notified_once;
    struct watch_state *state; /* the reactor's */
};
/* A watch that was zeroed and given `ready`. WEFT_ERR_NO_MEMORY, WEFT_ERR_IO. */
weft_status_t weft__watch_start(struct reactor *r, struct watch *watch, int fd, int events);
weft_status_t weft__watch_change(struct reactor *r, struct watch *watch, int events);
void weft__watch_stop(struct reactor *r, struct watch *watch); /* before the fd is closed */

/* The same for an fd that rarely becomes ready, of which there may be thousands: cheap to
 * keep, and reported a system call later (aux_watch.c). */
struct aux_watch {
    void (*ready)(struct aux_watch *watch, int events); /* within a turn */
    int fd;
    uint8_t events;     /* watched now; 0: stopped */
    bool notified_once; /* each write is reported once, whether it was read or not */
};
/* reserves memory for one more slow watch; not in virtual time */
weft_status_t weft__aux_watch_open(struct reactor *r);
/* Starts one that has `ready` and `fd`, or changes it; 0 events are those of one that is
 * stopped, and may be reported yet. */
weft_status_t weft__aux_watch_start(struct reactor *r, struct aux_watch *watch, int events);
void weft__aux_watch_stop(struct reactor *r,
                          struct aux_watch *watch); /* before the fd is closed, or the watch goes */

/* ---- pollers: memory-mapped completions ------------------------------------------------------ */

/*
 * A source that is polled on every turn. Each source adds nanoseconds to every turn. A source that
 * has nothing to do should therefore remove itself, and be added again with its next work. `poll`
 * handles up to `budget` events, and sends what waited for room, and returns how many. Before the
 * worker may sleep `arm` is asked: it requests notification and then looks once more, and answers
 * false when there is something after all; whatever wakes it later must come through a watch (an
 * eventfd, a socket). `disarm` is called on the way back, before the next poll; NULL if there is
 * nothing to take back. `busy` fds (hot sockets) need no arm: leave it NULL when their watch is
 * always on.
 */
struct poller {
    int (*poll)(struct poller *poller, unsigned budget);
    bool (*arm)(struct poller *poller);
    void (*disarm)(struct poller *poller);
    struct poller *next;
    bool listed; /* the reactor's */
};
/* Nothing happens to one that is there already, or is not there. */
void weft__poller_add(struct reactor *r, struct poller *poller);
/* also from within its own poll */
void weft__poller_remove(struct reactor *r, struct poller *poller);

/* To be called by anything done outside a turn that leaves work for the next one (jobs and
 * timers do it). */
void weft__reactor_kick(struct reactor *r);
/* This turn took long: the next one looks at the kernel and the clock, whenever that would have
 * been due. */
void weft__reactor_poll_soon(struct reactor *r);

/* ---- memory that goes at the end of the turn, counters, trace -------------------------------- */

/* Frees a tree at the end of the turn, outside every callback. Its destructor must not refuse. */
void weft__free_later(struct reactor *r, void *object);

/* The always-on counters. Add a line to base/counters.def to get one; bump it by
 * weft__count(r)->name++. */
struct counters;
static inline struct counters *weft__count(const struct reactor *r) {
    return ((const struct reactor_gate *)r)->count;
}
/* From now on they are kept there, with the values they have; NULL: in memory of the reactor's
 * own again. Pointers that weft__count returned earlier are invalid from now on. */
void weft__count_in(struct reactor *r, struct counters *home);

struct fsm_trace *weft__reactor_trace(struct reactor *r);

#endif
