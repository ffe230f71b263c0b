/* The port of the view's machine. */
#include "view.h"

#include <base/compiler.h>
#include <endpoints/core/worker.h>
#include <reactor/reactor.h>
#include <talloc.h>

/* ---- its creation: a team, then the identities of its members ------------------------------ */

static void end_if_left(weft_view_t *view) {
    bool is_left = view->ends_with_worker && view->refs == 0 && view->status != WEFT_IN_PROGRESS;
    if (is_left && !view_is_releasing(&view->core.fsm)) weft__view_end(view, NULL);
}

static void formed(weft_view_t *view, weft_status_t status) {
    view->status = status;
    weft__fsm_step(&view->core.fsm, status < 0 ? VIEW_EV_FAIL : VIEW_EV_FORMED);
    end_if_left(view);
}

static void members_known(weft_status_t status, void *arg) {
    formed(arg, status);
}

static void team_ready(weft_team_t *team, weft_status_t status, void *arg) {
    weft_view_t *view = arg;
    view->team = team; /* it may be ready within its creation's call */
    if (status == WEFT_OK && view_is_releasing(&view->core.fsm)) status = WEFT_ERR_CLOSED;
    if (status == WEFT_OK)
        status = weft_allgather(team, &view->me, view->member, sizeof view->me, WEFT_UINT8,
                                &(weft_op_t){.done = members_known, .arg = view});
    if (status != WEFT_IN_PROGRESS) formed(view, status);
}

static weft_status_t make_members(weft_view_t *view) {
    uint32_t size = view->session->exchange.size;
    view->member = weft__alloc(view, size * sizeof *view->member, "struct view_member");
    view->set = weft__alloc(view, size * sizeof *view->set, "resource sets");
    return view->member && view->set ? weft__view_expose(view) : WEFT_ERR_NO_MEMORY;
}

weft_status_t weft__view_begin(weft_view_t *view, uint32_t deadline_ms) {
    weft_status_t st = weft__view_join_worker(view);
    if (st == WEFT_OK) st = make_members(view);
    if (st < 0) return st;
    weft_team_params_t params = {.exchange = &view->session->exchange,
                                 .on_ready = team_ready,
                                 .arg = view,
                                 .deadline_ms = deadline_ms};
    return weft_team_create(view->worker, &params, &view->team);
}

/* ---- its end ------------------------------------------------------------------------------- */

static void team_closed(weft_status_t status, void *arg) {
    weft_view_t *view = arg;
    (void)status;
    view->team = NULL;
    if (view->is_settled) weft__fsm_step(&view->core.fsm, VIEW_EV_CLOSED);
}

static void finalizers_done(struct finalizers *f) {
    weft_view_t *view = container_of(f, weft_view_t, finalizers);
    weft__fsm_step(&view->core.fsm, VIEW_EV_FINALIZED);
}

/* Keys of the resource set become invalid, then nothing of the view is left at its peers. */
static void close_view(weft_view_t *view) {
    view->closes_team = true;
    if (view->mem) weft_mem_release(view->mem, NULL);
    view->mem = NULL;
    weft_status_t st = weft_team_close(view->team, &(weft_op_t){.done = team_closed, .arg = view});
    if (st != WEFT_IN_PROGRESS) team_closed(st, view);
}

static void stop_view(weft_view_t *view) {
    weft_status_t status = view->finalizers.status;
    weft_done_fn done = view->released;
    void *arg = view->released_arg;
    weft_view_t *parent = view->parent;
    view->session->engine->stop(view->session);
    weft__finalizers_end(&view->finalizers);
    weft__view_forget_fetches(view);
    weft__free_later(view->reactor, view);
    if (parent) parent->n_leaving--;
    weft__view_let_go(parent);
    if (done) done(status, arg);
    weft__view_leave_worker(view);
}

/* ---- the machine's outputs ----------------------------------------------------------------- */

static void notify_view(weft_view_t *view) {
    if (view->on_ready) view->on_ready(view, view->status, view->arg);
    weft__program_returned(view->reactor);
}

/* From the run queue, because these lead to further steps of the same machine. */
static void settle_view(struct job *job) {
    weft_view_t *view = container_of(job, weft_view_t, settle);
    view->is_settled = true;
    if (!view->team)
        team_closed(WEFT_OK, view);
    else if (!view->closes_team)
        close_view(view);
}

static void effect_view(struct fsm *m, unsigned effect) {
    weft_view_t *view = container_of(m, weft_view_t, core.fsm);
    switch (effect) {
    case VIEW_FX_NOTIFY: notify_view(view); break;
    case VIEW_FX_FINALIZE: weft__finalizers_run(&view->finalizers); break;
    case VIEW_FX_CLOSE: weft__job_post(view->reactor, &view->settle); break;
    case VIEW_FX_STOP: stop_view(view); break;
    default: break;
    }
}

static void fail_view(struct fsm *m, unsigned event, enum fsm_verb why) {
    weft_view_t *view = container_of(m, weft_view_t, core.fsm);
    (void)why;
    weft__log(weft__reactor_context(view->reactor), WEFT_LOG_ERROR, "runtime", "view: %s in %s",
              m->port->machine->event_name[event], fsm_state_name(m));
}

static const struct fsm_port port = {&weft__view_machine, effect_view, fail_view};

/* ---- life ---------------------------------------------------------------------------------- */

weft_view_t *weft__view_new(weft_worker_t *worker, weft_view_t *parent) {
    weft_view_t *view = weft__new(NULL, weft_view_t);
    if (!view) return NULL;
    view->refs = 1;
    view->status = WEFT_IN_PROGRESS;
    view->worker = worker;
    view->reactor = weft__worker_reactor(worker);
    view->settle.run = settle_view;
    list_init(&view->fetches);
    list_init(&view->of_worker);
    weft__finalizers_init(&view->finalizers, view->reactor);
    view->finalizers.done = finalizers_done;
    fsm_init(&view->core.fsm, &port, VIEW_STARTING, 0);
    if (weft__timer_reserve(view->reactor, &view->finalizers.deadline) < 0) {
        talloc_free(view);
        return NULL;
    }
    view->parent = parent;
    weft__view_hold(parent);
    return view;
}

void weft__view_discard(weft_view_t *view) {
    if (view->mem) weft_mem_release(view->mem, NULL);
    if (view->session) view->session->engine->stop(view->session);
    weft__finalizers_end(&view->finalizers);
    weft__view_let_go(view->parent);
    weft__view_leave_worker(view);
    talloc_free(view);
}

void weft__view_hold(weft_view_t *view) {
    if (!view) return;
    view->n_held++;
    view->refs++;
}

void weft__view_let_go(weft_view_t *view) {
    if (!view) return;
    view->n_held--;
    if (!view->ends_with_worker) {
        weft_view_release(view, NULL);
        return;
    }
    view->refs--;
    end_if_left(view);
}

/* Its team is closed before its finalizers run. One that is not ready fails, and is notified. */
void weft__view_end_with_worker(weft_view_t *view) {
    view->ends_with_worker = true;
    if (!view_is_releasing(&view->core.fsm)) view->refs = view->n_held;
    end_if_left(view);
    if (view->team && !view->closes_team) close_view(view);
}

void weft__view_end(weft_view_t *view, const weft_op_t *op) {
    if (op) view->released = op->done, view->released_arg = op->arg;
    if (view->parent) view->parent->n_leaving++;
    weft__fsm_step(&view->core.fsm, VIEW_EV_RELEASE);
}

weft_status_t weft__view_usable(const weft_view_t *view) {
    if (view->ends_with_worker) return weft__fail(WEFT_ERR_CLOSED, "the view's worker closes");
    if (view_is_in_use(&view->core.fsm) && view->status == WEFT_OK) return WEFT_OK;
    return view->status < 0 ? weft__fail(view->status, "the view's creation failed")
                            : weft__fail(WEFT_ERR_BUSY, "the view is not ready");
}
