/* A reactor's life. */
#include "local.h"
#include <unistd.h>

static weft_status_t set_up(struct reactor *r, const struct reactor_params *params) {
    r->internals = weft__alloc(r, 0, "reactor internals");
    r->freed.tree = weft__alloc(r, 0, "free list");
    if (!r->internals || !r->freed.tree) return WEFT_ERR_NO_MEMORY;
    if (params->virtual_clock) {
        weft__random_open(r, params->seed ? params->seed : weft__clock_seed(params->virtual_clock));
        weft__clock_join(params->virtual_clock, r);
        return WEFT_OK;
    }
    weft__random_open(r, params->seed);
    r->given = params->given;
    weft_status_t st = weft__wakeup_open(r);
    if (st == WEFT_OK) st = weft__loop_open(r, params->loop, params->max_fds);
    return st;
}

weft_status_t weft__reactor_create(weft_context_t *context, const struct reactor_params *params,
                                   struct reactor **reactor_p) {
    struct reactor *r = weft__new(NULL, struct reactor);
    if (!r) return WEFT_ERR_NO_MEMORY;
    r->remote.event_fd = r->outer.fd = r->outer.front_fd = r->outer.apart_fd = r->outer.timer_fd =
        -1;
    r->context = context;
    r->jobs.last = &r->jobs.first;
    r->kernel.turns_to_poll = 1;
    assert(pthread_equal(weft__this_thread(), pthread_self()));
    weft__reactor_give(r, pthread_self());
    r->gate.fork_generation = weft__fork_generation_now(&r->gate.fork_mark);
    r->spin.most = context ? weft__setting_u64(context, SETTING_WORKER_SPIN) : 50000;
    weft__remotes_open(r);
    if (context) weft__context_hold(context);
    r->gate.count = &r->own_count;
    weft__memory_count_into(r);
    fsm_trace_use(&r->trace);
    weft_status_t st = set_up(r, params);
    if (st < 0)
        weft__reactor_free(r);
    else
        *reactor_p = r;
    return st;
}

/* An object that is left in the tree was not closed, which is a defect: print the tree. */
static void check_empty(struct reactor *r) {
    if (talloc_total_blocks(r) == 1) return;
    talloc_report_full(r, stderr);
    assert(!"something below the reactor was not closed");
}

void weft__reactor_forget(struct reactor *r) {
    struct fsm_trace *trace = fsm_trace_use(NULL);
    if (trace != &r->trace) fsm_trace_use(trace);
    weft__memory_forget(r);
}

/* In a fork's child only memory and fd numbers are given up: the epoll sets behind them are the
 * parent's too. */
void weft__reactor_free(struct reactor *r) {
    bool child = forked(r);
    if (!child && wakeup_is_armed(r)) weft__wakeup_disarm(r);
    weft__reactor_finish_remotes(r);
    if (!child) weft__wakers_await(r);
    if (r->freed.tree) weft__dead_free(r);
    weft__aux_watch_close(r);
    if (!child || r->ev.is_ours) weft__loop_close(r);
    int fd = weft__wakeup_take_fd(r);
    weft__wakeup_close(r);
    if (r->virtual.clock) weft__clock_leave(r->virtual.clock, r);
    if (r->context) weft__context_release(r->context);
    weft__reactor_forget(r);
    talloc_free(r->internals);
    talloc_free(r->freed.tree);
    check_empty(r);
    weft_done_fn ended = r->end.done;
    void *arg = r->end.arg;
    talloc_free(r);
    if (ended) ended(WEFT_OK, arg);
    if (fd >= 0) close(fd); /* a host's loop could take it from its set within the callback */
}

void weft__reactor_destroy(struct reactor *r) {
    if (r->in_turn)
        r->destroying = true; /* at the end of the turn */
    else
        weft__reactor_free(r);
}

void weft__reactor_end(struct reactor *r, weft_done_fn ended, void *arg) {
    r->end.done = ended;
    r->end.arg = arg;
    weft__reactor_destroy(r);
}

weft_context_t *weft__reactor_context(struct reactor *r) {
    return r->context;
}
struct ev_loop *weft__reactor_loop(const struct reactor *r) {
    return r->ev.loop;
}
void weft__count_in(struct reactor *r, struct counters *home) {
    if (!home) home = &r->own_count;
    if (home != r->gate.count) *home = *r->gate.count;
    r->gate.count = home;
}
struct fsm_trace *weft__reactor_trace(struct reactor *r) {
    return &r->trace;
}
bool weft__reactor_has_fd(const struct reactor *r) {
    return r->fd_taken;
}
bool weft__reactor_notifies_once(const struct reactor *r) {
    return r->fd_taken && !r->ev.loop;
}
const struct given *weft__reactor_given(const struct reactor *r) {
    return r->given;
}
bool weft__reactor_in_turn(const struct reactor *r) {
    return r->in_turn;
}
void weft__reactor_thread_mode(struct reactor *r, weft_thread_mode_t mode) {
    r->thread_mode = mode;
    r->any_threads = mode == WEFT_THREAD_SERIALIZED;
    if (r->any_threads) weft__reactor_forget(r);
}

void weft__reactor_give(struct reactor *r, pthread_t owner) {
    if (!pthread_equal(owner, pthread_self())) weft__reactor_forget(r);
    atomic_store_explicit(&r->gate.owner, owner, memory_order_relaxed);
}

weft_status_t weft__reactor_adopt(struct reactor *r) {
    if (r->dormant || forked(r)) return weft__reactor_check_other(r);
    if (r->in_turn) return weft__fail(WEFT_ERR_BUSY, "called from within a callback");
    weft__reactor_give(r, pthread_self());
    return WEFT_OK;
}

static const uint32_t no_fork_mark;
#define DORMANT(status) \
    { .gate = {.fork_mark = &no_fork_mark, .fork_generation = 1}, .dormant = status, }
const struct reactor weft__reactor_none = DORMANT(WEFT_ERR_NOT_ASSOCIATED);
static const struct reactor returned = DORMANT(WEFT_ERR_DISASSOCIATED);
static const struct reactor lost = DORMANT(WEFT_ERR_RESOURCE_LOST);

struct reactor *weft__reactor_dormant(weft_status_t status) {
    const struct reactor *r = status == WEFT_ERR_DISASSOCIATED   ? &returned
                              : status == WEFT_ERR_RESOURCE_LOST ? &lost
                                                                 : &weft__reactor_none;
    return (struct reactor *)(uintptr_t)r;
}
bool weft__reactor_is_dormant(const struct reactor *r) {
    return r->dormant != WEFT_OK;
}

weft_status_t weft__reactor_check_other(const struct reactor *r) {
    if (r->dormant) return weft__fail(r->dormant, "the object has no resource to work with");
    if (forked(r))
        return weft__fail(WEFT_ERR_FORKED,
                          "the worker belongs to the parent of this forked process");
    if (r->thread_mode == WEFT_THREAD_SERIALIZED) return WEFT_OK;
    return weft__fail(WEFT_ERR_WRONG_THREAD, "%s",
                      r->thread_mode == WEFT_THREAD_MULTIPLE
                          ? "this call is for the worker's owner alone, which is another thread"
                          : "the worker belongs to another thread");
}

weft_status_t weft__reactor_enter_other(const struct reactor *r) {
    if (r->dormant) return weft__reactor_check_other(r);
    return r->thread_mode == WEFT_THREAD_MULTIPLE && !forked(r) ? WEFT_IN_PROGRESS
                                                                : weft__reactor_check_other(r);
}
