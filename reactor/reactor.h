/*
 * The reactor: one libev loop per worker, and the only way to clock, timers, randomness, allocation and
 * file descriptors for everything above it. A virtual-time twin runs the same callers in simulations.
 *
 * Owner's thread only, except where it says "any thread".
 */
#ifndef WEFT_REACTOR_H
#define WEFT_REACTOR_H

#include <fsm/fsm.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <talloc.h>
#include <weft/base.h>
#include <weft/context.h>
#include <weft/worker.h>

struct ev_loop;
struct reactor;

/* ---- life ------------------------------------------------------------------------------------------ */

struct reactor_params {
    struct ev_loop *loop;                /* the host's; NULL: its own */
    struct reactor_clock *virtual_clock; /* simulations: shared by all reactors of one (reactor/virtual.h) */
    uint64_t seed;                       /* of reactor_random; 0: from the kernel */
    unsigned max_fds; /* libev's arrays are reserved for so many; 0: RLIMIT_NOFILE, 4096 at most */
};

/* The reactor is a talloc root of its own: everything of one worker hangs below it. */
weft_status_t weft__reactor_create(weft_context_t *context, const struct reactor_params *params,
                                   struct reactor **reactor_p);
/* Everything below must be closed; frees the tree and asserts that nothing but it was left. Called from within a
 * turn, it does so when the turn ends. */
void weft__reactor_destroy(struct reactor *r);
/* The same, also from within its own turn (then at its end), and calls `ended` when nothing is left of it. */
void weft__reactor_end(struct reactor *r, weft_done_fn ended, void *arg);

weft_context_t *weft__reactor_context(struct reactor *r);

/* The four ways to drive it: see weft/worker.h, whose functions call these. */
int weft__reactor_progress(struct reactor *r, unsigned budget);
int weft__reactor_fd(struct reactor *r);
void weft__reactor_wake(struct reactor *r); /* any thread, signal handler */
weft_status_t weft__reactor_wait(struct reactor *r, int timeout_ms);
weft_status_t weft__reactor_call(struct reactor *r, void (*fn)(void *), void *arg); /* any thread */
/*
 * A thread that is not the program's is to drive it: from now on the worker's fd is readable as `news_fd` is (-1: never), and any thread
 * may ask for it. When that fails nothing has changed. Joined, by the owner, it tells again of all there is to do; when that fails it
 * stays apart, and the owner tries again.
 */
weft_status_t weft__reactor_part(struct reactor *r, int news_fd);
weft_status_t weft__reactor_join(struct reactor *r, int news_fd);

/*
 * Comes behind each call of the program's, before anything else is done for this reactor: a child that the program forked there, and that
 * came back from it, ends. A turn may be under way, and what it would go on with is its parent's.
 */
extern __attribute__((visibility("hidden"))) bool weft__is_child; /* of whatever process had a reactor */
void weft__end_stray(const struct reactor *r);
static inline void weft__program_returned(const struct reactor *r) {
    if (__builtin_expect(weft__is_child, 0)) weft__end_stray(r);
}

/* What another thread hands to the owner, in memory of its own: it is the owner's until `run` begins, and then whose `run` says. */
struct remote {
    struct remote *next;
    void (*run)(struct remote *remote);
};
void weft__reactor_submit(struct reactor *r,
                          struct remote *remote); /* any thread; in order with weft__reactor_call */

/* The first words of every reactor: who may enter, and where it is counted. */
struct reactor_gate {
    _Atomic(pthread_t) owner;
    const volatile uint32_t *fork_mark; /* in a page that a fork's child finds wiped */
    uint32_t fork_generation;
    struct counters *count;
};
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
/* True for the owner's thread in the owner's process: every public call asks this first, and mostly no more. */
static inline bool weft__reactor_mine(const struct reactor *r) {
    const struct reactor_gate *gate = (const struct reactor_gate *)r;
    return weft__gate_is_own_thread(gate) && *gate->fork_mark == gate->fork_generation;
}
weft_status_t weft__reactor_check_other(const struct reactor *r);
weft_status_t weft__reactor_enter_other(const struct reactor *r);
/* WEFT_OK, or WEFT_ERR_FORKED / WEFT_ERR_WRONG_THREAD. */
static inline weft_status_t weft__reactor_check(const struct reactor *r) {
    return __builtin_expect(weft__reactor_mine(r), 1) ? WEFT_OK : weft__reactor_check_other(r);
}
/* The same of what other threads may hand over: IN_PROGRESS when the caller is one, and the mode is MULTIPLE. */
static inline weft_status_t weft__reactor_enter(const struct reactor *r) {
    return __builtin_expect(weft__reactor_mine(r), 1) ? WEFT_OK : weft__reactor_enter_other(r);
}
/* `owner` has it from now on; the one before is out of it for good, or waits. */
void weft__reactor_give(struct reactor *r, pthread_t owner);
/* What was handed over so far and is not run yet is run now; and, at the end, all that others hand over meanwhile, but no call. */
void weft__reactor_run_remotes(struct reactor *r);
void weft__reactor_finish_remotes(struct reactor *r);
/* WEFT_THREAD_SERIALIZED lets other threads pass; SINGLE (the default) and MULTIPLE keep the data path to the owner. */
void weft__reactor_thread_mode(struct reactor *r, weft_thread_mode_t mode);
/* True while a callback of this reactor runs. */
bool weft__reactor_in_turn(const struct reactor *r);

/* True once somebody asked for the worker's fd, and may watch it. */
bool weft__reactor_has_fd(const struct reactor *r);
/* And nobody but the host looks at what is watched: of the watches that may be told_once it is true. */
bool weft__reactor_tells_once(const struct reactor *r);

/* ---- run queue: first in, first out; every callback to the user comes from here or from a poll --------- */

struct job {
    struct job *next;             /* NULL: not queued */
    void (*run)(struct job *job); /* may post itself again */
};
static inline bool weft__job_queued(const struct job *job) {
    return job->next != NULL;
}
void weft__job_post(struct reactor *r, struct job *job); /* nothing if queued already */
void weft__job_drop(struct reactor *r, struct job *job); /* takes it out again; nothing if not queued */
/* What it is for is done already: the same, where it would be the next to run. */
void weft__job_spare(struct reactor *r, struct job *job);

/* ---- timers: a heap of Weft's own behind one ev_timer ------------------------------------------------- */

struct timer {
    void (*fire)(struct timer *timer);
    uint32_t slot; /* index in the heap, from 1; 0: not running */
};
/* (Re)starts it, for when weft__now says `at`. WEFT_ERR_NO_MEMORY only when the heap cannot grow. */
weft_status_t weft__timer_start(struct reactor *r, struct timer *timer, uint64_t at);
void weft__timer_stop(struct reactor *r, struct timer *timer);
static inline bool weft__timer_running(const struct timer *timer) {
    return timer->slot != 0;
}
uint64_t weft__timer_at(const struct reactor *r, const struct timer *timer); /* UINT64_MAX: not running */

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S  UINT64_C(1000000000)
uint64_t weft__now(struct reactor *r); /* ns, monotonic; read afresh */
uint64_t weft__real_now(void); /* the machine's, also where a simulation has a clock of its own; any thread */
/* For what may be wrong by a factor, at the price of an instruction: some 2 to 3 a ns. */
uint64_t weft__ticks_of_clock(void);
static inline uint64_t weft__ticks(void) {
#if defined(__x86_64__) || defined(__i386__)
    return __builtin_ia32_rdtsc();
#else
    return weft__ticks_of_clock();
#endif
}
bool weft__reactor_virtual(const struct reactor *r); /* its time is a simulation's */
uint64_t weft__random(struct reactor *r);            /* seeded in simulations, else from the kernel */

/* ---- file descriptors ---------------------------------------------------------------------------------- */

enum { WATCH_READ = 1, WATCH_WRITE = 2 };
struct watch {
    void (*ready)(struct watch *watch, int events); /* from the run queue, never from inside libev */
    int fd;
    uint8_t events;            /* watched now, by libev and the outer epoll; 0: stopped */
    uint8_t got;               /* the reactor's: what the kernel told and `ready` has not seen */
    bool told_once;            /* an eventfd: behind the worker's fd each write is told once, read or not */
    struct watch_state *state; /* the reactor's */
};
/* A watch that was zeroed and given `ready`. WEFT_ERR_NO_MEMORY, WEFT_ERR_IO. */
weft_status_t weft__watch_start(struct reactor *r, struct watch *watch, int fd, int events);
weft_status_t weft__watch_change(struct reactor *r, struct watch *watch, int events);
void weft__watch_stop(struct reactor *r, struct watch *watch); /* before the fd is closed */

/* The same for an fd that seldom has anything to tell, of which there may be thousands: cheap to keep, and told a system call
 * later (cold.c). */
struct cold_watch {
    void (*ready)(struct cold_watch *watch, int events); /* within a turn */
    int fd;
    uint8_t events; /* watched now; 0: stopped */
};
weft_status_t weft__cold_open(struct reactor *r); /* by whoever will have such; not in virtual time */
/* Starts one that has `ready` and `fd`, or changes it; 0 events are those of one that is stopped, and may be told yet. */
weft_status_t weft__cold_watch(struct reactor *r, struct cold_watch *watch, int events);
void weft__cold_stop(struct reactor *r, struct cold_watch *watch); /* before the fd is closed, or the watch goes */

/* ---- pollers: memory-mapped completions ------------------------------------------------------------------ */

/*
 * Something that is looked at on every turn, which costs each of them nanoseconds, also those that others wait for. So one that can
 * tell that it has nothing leaves, and is added again by whoever gives it something. `poll` handles up to `budget` events, and sends
 * what waited for room, and returns how many. Before the worker may sleep `arm` is asked: it requests notification and then looks once more, and answers
 * false when there is something after all; whatever wakes it later must come through a watch (an eventfd, a socket).
 * `disarm` is called on the way back, before the next poll; NULL if there is nothing to take back.
 * `busy` fds (hot sockets) need no arm: leave it NULL when their watch is always on.
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
void weft__poller_remove(struct reactor *r, struct poller *poller); /* also from within its own poll */

/* To be called by anything done outside a turn that leaves work for the next one (jobs and timers do it). */
void weft__reactor_kick(struct reactor *r);
/* This turn took long: the next one looks at the kernel and the clock, whenever that would have been due. */
void weft__reactor_look(struct reactor *r);

/* ---- memory: talloc, with a failure that tests can inject ----------------------------------------------- */

/* Zeroed, below `parent`; NULL when memory (or a test's patience) runs out. */
#define weft__new(parent, type) ((type *)weft__alloc((parent), sizeof(type), #type))
void *weft__alloc(const void *parent, size_t size, const char *name);
void *weft__realloc(const void *parent, void *old, size_t size, const char *name); /* new bytes not zeroed */
/* Frees a tree at the end of the turn, outside every callback. Its destructor must not refuse. */
void weft__bury(struct reactor *r, void *object);
/* Tests: the k-th allocation from now on this thread fails (0: none does). Returns how many were made since. */
uint64_t weft__alloc_fail_at(uint64_t k);
void weft__alloc_fail_run(uint64_t k, uint64_t n); /* n of them, one after the other */

/* ---- log, counters, configuration, causes ---------------------------------------------------------------- */

void weft__log(weft_context_t *context, weft_log_level_t level, const char *room, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
bool weft__log_wants(const weft_context_t *context, weft_log_level_t level);
/* As weft__log, at most ten lines a second from this place in the code (told apart by its format). */
void weft__log_limited(weft_context_t *context, weft_log_level_t level, const char *room, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Notes why a call is about to fail, for weft_status_describe; returns `status`, so it can stand in a return. */
weft_status_t weft__fail(weft_status_t status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The status that says what errno does: of sockets, descriptors and memory; IO: of anything else. */
weft_status_t weft__errno_status(int error);
/* Adds to what the call below has noted: "connecting to tcp://…". Starts anew if that was about another status. */
weft_status_t weft__fail_in(weft_status_t status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* What weft_status_describe tells, in one line of the log. */
enum { STATUS_LINE = 896 };
void weft__status_line(weft_status_t status, char line[STATUS_LINE]);

/* A parameter struct of a program that may be of another version. It may know more fields than we do; as long as it leaves
 * them zero we agree. */
weft_status_t weft__params_read(void *params, size_t known, const void *given, size_t size);

/* What a program names, refused in one place each: memory that is not there (NULL with nothing in it is legal) … */
weft_status_t weft__fail_null(const char *name, size_t len);
static inline weft_status_t weft__check_memory(const char *name, const void *base, size_t len) {
    return __builtin_expect(base || !len, 1) ? WEFT_OK : weft__fail_null(name, len);
}
/* … and what a descriptor has beyond what the operation knows, flags and reserved fields: later versions may give it a meaning. */
static inline uint64_t weft__op_reserved(const weft_op_t *op, uint64_t and_this) {
    return and_this | op->reserved[0] | op->reserved[1];
}
weft_status_t weft__fail_op(const weft_op_t *op, uint32_t flags);
static inline weft_status_t weft__check_op(const weft_op_t *op, uint32_t flags) {
    return __builtin_expect(op && weft__op_reserved(op, op->flags & ~flags), 0) ? weft__fail_op(op, flags)
                                                                                : WEFT_OK;
}
/* It asks for more than some of these flags, and word of the end. */
static inline bool weft__op_asks_more(const weft_op_t *op, uint32_t flags) {
    return weft__op_reserved(op, (op->flags & ~flags) | (uintptr_t)op->layout) != 0;
}
/* A layout, where no bytes of the program's own are moved. */
weft_status_t weft__fail_layout(void);
static inline weft_status_t weft__check_no_layout(const weft_op_t *op) {
    return __builtin_expect(op && op->layout, 0) ? weft__fail_layout() : WEFT_OK;
}
/* What a close has of a descriptor: who is told, and `bounded` a deadline. */
weft_status_t weft__check_close(const weft_op_t *op, bool bounded);

/* The always-on counters. Add a line to reactor/counters.def to get one; bump it by weft__count(r)->name++. */
struct counters;
static inline struct counters *weft__count(const struct reactor *r) {
    return ((const struct reactor_gate *)r)->count;
}
/* From now on they are kept there, with the values they have; NULL: in memory of the reactor's own again. Whoever keeps what
 * weft__count answered asks anew. */
void weft__count_in(struct reactor *r, struct counters *home);

/* Settings by id: reactor/settings.def is the one table (name, type, default, range, unit, help). */
enum setting {
#define SETTING(id, name, type, value, range, unit, help) SETTING_##id,
#include <reactor/settings.def>
#undef SETTING
    N_SETTINGS
};
/* Of an AUTOSIZE that is "auto". */
#define SETTING_AUTO UINT64_MAX
uint64_t weft__setting_u64(const weft_context_t *context, enum setting id); /* sizes, times, numbers, booleans */
/* The same, where what keeps it holds no more than `most`. */
uint32_t weft__setting_u32(const weft_context_t *context, enum setting id, uint32_t most);
const char *weft__setting_str(const weft_context_t *context, enum setting id);

struct fsm_trace *weft__reactor_trace(struct reactor *r);

#endif
