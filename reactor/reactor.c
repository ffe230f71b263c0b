/* A reactor's life. */
#include "local.h"

static weft_status_t set_up(struct reactor *r, const struct reactor_params *params) {
    r->internals = weft__alloc(r, 0, "reactor internals");
    r->graveyard = weft__alloc(r, 0, "graveyard");
    if (!r->internals || !r->graveyard) return WEFT_ERR_NO_MEMORY;
    if (params->virtual_clock) {
        r->event_fd = r->outer_fd = r->apart_fd = r->timer_fd = -1;
        random_open(r, params->seed ? params->seed : clock_seed(params->virtual_clock));
        clock_join(params->virtual_clock, r);
        return WEFT_OK;
    }
    random_open(r, params->seed);
    weft_status_t st = wakeup_open(r);
    if (st == WEFT_OK) st = loop_open(r, params->loop, params->max_fds);
    return st;
}

weft_status_t weft__reactor_create(weft_context_t *context, const struct reactor_params *params,
                                   struct reactor **reactor_p) {
    struct reactor *r = weft__new(NULL, struct reactor);
    if (!r) return WEFT_ERR_NO_MEMORY;
    r->event_fd = r->outer_fd = r->apart_fd = r->timer_fd = -1;
    r->context = context;
    r->last_job = &r->first_job;
    r->turns_to_look = 1;
    assert(pthread_equal(weft__this_thread(), pthread_self()));
    weft__reactor_give(r, pthread_self());
    r->gate.fork_generation = fork_generation_now(&r->gate.fork_mark);
    r->patience.most = context ? weft__setting_u64(context, SETTING_WORKER_SPIN) : 50000;
    remotes_open(r);
    if (context) context_hold(context);
    r->gate.count = &r->own_count;
    memory_count_into(r);
    fsm_trace_use(&r->trace);
    weft_status_t st = set_up(r, params);
    if (st < 0)
        reactor_free(r);
    else
        *reactor_p = r;
    return st;
}

/* A tree with anything left in it is a defect of whoever forgot to close: say what. */
static void check_empty(struct reactor *r) {
    if (talloc_total_blocks(r) == 1) return;
    talloc_report_full(r, stderr);
    assert(!"something below the reactor was not closed");
}

void reactor_forget(struct reactor *r) {
    struct fsm_trace *trace = fsm_trace_use(NULL);
    if (trace != &r->trace) fsm_trace_use(trace);
    memory_forget(r);
}

/* In a fork's child only memory and fd numbers are given up: the epoll sets behind them are the parent's too. */
void reactor_free(struct reactor *r) {
    bool child = forked(r);
    if (!child && wakeup_is_armed(r)) wakeup_disarm(r);
    weft__reactor_finish_remotes(r);
    if (r->graveyard) dead_free(r);
    cold_close(r);
    if (!child || r->loop_is_ours) loop_close(r);
    wakeup_close(r);
    if (r->clock) clock_leave(r->clock, r);
    if (r->context) context_release(r->context);
    reactor_forget(r);
    talloc_free(r->internals);
    talloc_free(r->graveyard);
    check_empty(r);
    weft_done_fn ended = r->ended;
    void *arg = r->ended_arg;
    talloc_free(r);
    if (ended) ended(WEFT_OK, arg);
}

void weft__reactor_destroy(struct reactor *r) {
    if (r->in_turn)
        r->doomed = true; /* at the end of the turn */
    else
        reactor_free(r);
}

void weft__reactor_end(struct reactor *r, weft_done_fn ended, void *arg) {
    r->ended = ended;
    r->ended_arg = arg;
    weft__reactor_destroy(r);
}

weft_context_t *weft__reactor_context(struct reactor *r) {
    return r->context;
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
bool weft__reactor_tells_once(const struct reactor *r) {
    return r->fd_taken && !r->loop;
}
bool weft__reactor_in_turn(const struct reactor *r) {
    return r->in_turn;
}
void weft__reactor_thread_mode(struct reactor *r, weft_thread_mode_t mode) {
    r->thread_mode = mode;
    r->any_threads = mode == WEFT_THREAD_SERIALIZED;
    if (r->any_threads) reactor_forget(r);
}

void weft__reactor_give(struct reactor *r, pthread_t owner) {
    if (!pthread_equal(owner, pthread_self())) reactor_forget(r);
    atomic_store_explicit(&r->gate.owner, owner, memory_order_relaxed);
}

weft_status_t weft__reactor_check_other(const struct reactor *r) {
    if (forked(r)) return weft__fail(WEFT_ERR_FORKED, "this process is a fork of the worker's");
    if (r->thread_mode == WEFT_THREAD_SERIALIZED) return WEFT_OK;
    return weft__fail(WEFT_ERR_WRONG_THREAD, "the worker belongs to the thread that made it");
}

weft_status_t weft__reactor_enter_other(const struct reactor *r) {
    return r->thread_mode == WEFT_THREAD_MULTIPLE && !forked(r) ? WEFT_IN_PROGRESS : weft__reactor_check_other(r);
}
