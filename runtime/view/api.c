/* The public functions of views: what may not be asked is refused here. */
#include "view.h"

#include <base/alloc.h>
#include <base/check.h>
#include <base/status.h>
#include <endpoints/core/worker.h>
#include <endpoints/worker/drive.h>
#include <reactor/reactor.h>
#include <string.h>
#include <talloc.h>
#include <unistd.h>
#include <weft/weft.h>

/* ---- creation ------------------------------------------------------------------------------ */

/*
 * Views of one thread for which the program gave no worker share one, so that a call that waits for
 * one of them drives all: else processes that wait in different views would wait for each other.
 * The thread's own variable says which: an id of a thread that has ended may be another's later.
 */
struct shared_worker {
    weft_context_t *context;
    weft_worker_t *worker;
    unsigned n_views;
    pid_t pid; /* a child of a fork makes its own */
};
static _Thread_local struct shared_worker *own __attribute__((tls_model("initial-exec")));

static weft_status_t make_worker(struct shared_worker *shared) {
    weft_status_t st = weft_context_create(NULL, &shared->context);
    if (st < 0) return st;
    st = weft_worker_create(shared->context, NULL, &shared->worker);
    if (st < 0) weft_context_destroy(shared->context);
    return st;
}

static weft_status_t make_shared(struct shared_worker **shared_p) {
    struct shared_worker *shared = weft__new(NULL, struct shared_worker);
    if (!shared) return WEFT_ERR_NO_MEMORY;
    shared->pid = getpid();
    weft_status_t st = make_worker(shared);
    if (st == WEFT_OK)
        *shared_p = shared;
    else
        talloc_free(shared);
    return st;
}

static bool has_shared(void) {
    return own && own->pid == getpid();
}

/* The program's worker, or else this thread's; `*shared_p` is NULL or what the view is one of. */
static weft_status_t worker_for(weft_view_params_t *params, struct shared_worker **shared_p) {
    *shared_p = NULL;
    if (params->worker) return weft__worker_check(params->worker);
    weft_status_t st = has_shared() ? WEFT_OK : make_shared(&own);
    if (st < 0) return st;
    own->n_views++;
    params->worker = own->worker;
    *shared_p = own;
    return WEFT_OK;
}

static void drop_worker(struct shared_worker *shared) {
    if (!shared || --shared->n_views > 0) return;
    if (own == shared) own = NULL;
    weft_worker_destroy(shared->worker);
    weft_context_destroy(shared->context);
    talloc_free(shared);
}

static weft_status_t view_create(const weft_view_params_t *params, weft_view_t **view_p) {
    const struct view_engine *engine;
    weft_status_t st = weft__view_engine_of(params, &engine);
    if (st < 0) return st;
    weft_view_t *view = weft__view_new(params->worker, NULL);
    if (!view) return WEFT_ERR_NO_MEMORY;
    view->on_ready = params->on_ready;
    view->arg = params->arg;
    view->finalizers.on_error = params->on_finalizer_error;
    view->finalizers.error_arg = params->arg;
    st = engine->start(view, params->worker, params, &view->session);
    if (st == WEFT_OK) st = weft__view_begin(view, params->deadline_ms);
    if (st == WEFT_OK)
        *view_p = view;
    else
        weft__view_discard(view);
    return st;
}

weft_status_t weft_view_create_sized(size_t params_size, const weft_view_params_t *params,
                                     weft_view_t **view_p) {
    weft_view_params_t known = {0};
    struct shared_worker *shared;
    if (!view_p) REFUSE("view_p", "NULL");
    weft_status_t st =
        params ? weft__params_read(&known, sizeof known, params, params_size) : WEFT_OK;
    if (st == WEFT_OK) st = worker_for(&known, &shared);
    if (st < 0) return st;
    st = view_create(&known, view_p);
    if (st == WEFT_OK)
        (*view_p)->shared = shared;
    else
        drop_worker(shared);
    return st;
}

static weft_status_t until_ready(weft_view_t *view, weft_view_t **view_p) {
    weft__view_hold(view);
    while (view->status == WEFT_IN_PROGRESS) weft__worker_wait_for(view->worker, &view->status);
    weft_status_t st = view->status;
    bool ends_alone = !view->ends_with_worker;
    weft__view_let_go(view);
    if (st == WEFT_OK)
        *view_p = view;
    else if (ends_alone)
        weft_view_release_wait(view);
    return st;
}

/* The worker that a view of this thread would use, if it is there already. */
static weft_worker_t *worker_there(const weft_view_params_t *params) {
    if (params && params->worker) return params->worker;
    return has_shared() ? own->worker : NULL;
}

weft_status_t weft_view_create_wait_sized(size_t params_size, const weft_view_params_t *params,
                                          weft_view_t **view_p) {
    weft_view_t *view;
    if (!view_p) REFUSE("view_p", "NULL");
    weft_worker_t *worker = worker_there(params);
    weft_status_t st = worker ? weft__worker_check_wait(worker) : WEFT_OK;
    if (st == WEFT_OK) st = weft_view_create_sized(params_size, params, &view);
    return st < 0 ? st : until_ready(view, view_p);
}

/* ---- references ---------------------------------------------------------------------------- */

weft_view_t *weft_view_retain(weft_view_t *view) {
    if (view && !view->ends_with_worker) view->refs++;
    return view;
}

static bool is_ending(const weft_view_t *view) {
    return view->ends_with_worker || view_is_releasing(&view->core.fsm);
}

/* Whether the end of this view ends one that has a worker of its own. */
static bool ends_worker(const weft_view_t *view) {
    if (view->refs - view->n_leaving > 1) return false;
    return view->shared || (view->parent && ends_worker(view->parent));
}

weft_status_t weft_view_release(weft_view_t *view, const weft_op_t *op) {
    if (!view) return WEFT_OK;
    weft_status_t st = weft__worker_check(view->worker);
    if (st == WEFT_OK) st = weft__check_close(op, false);
    if (st < 0) return st;
    if (is_ending(view)) return weft__fail(WEFT_ERR_BUSY, "the view is being released");
    if (ends_worker(view))
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "the view has a worker of its own: use weft_view_release_wait");
    if (--view->refs > 0) return WEFT_OK;
    weft__view_end(view, op);
    return WEFT_IN_PROGRESS;
}

static void note_release(weft_status_t status, void *arg) {
    *(weft_status_t *)arg = status;
}

/* Of a part that has ended. */
static weft_status_t let_go_and_wait(weft_view_t *view) {
    if (!view) return WEFT_OK;
    if (view->ends_with_worker) {
        weft__view_let_go(view);
        return WEFT_OK;
    }
    view->n_held--;
    return weft_view_release_wait(view);
}

static weft_status_t end_and_wait(weft_view_t *view) {
    struct shared_worker *shared = view->shared;
    weft_worker_t *worker = view->worker;
    weft_view_t *parent = view->parent;
    weft_status_t outcome = WEFT_IN_PROGRESS;
    view->parent = NULL; /* released here, because that may end the worker */
    view->refs = 0;
    weft__view_end(view, &(weft_op_t){.done = note_release, .arg = &outcome});
    weft__worker_wait_for(worker, &outcome);
    weft_status_t above = let_go_and_wait(parent);
    drop_worker(shared);
    return outcome == WEFT_OK ? above : outcome;
}

/* No other call may drive them: they alone hold the view, beside the caller. False: the view has
 * ended with its worker. */
static bool wait_for_leaving(weft_view_t *view) {
    weft__view_hold(view);
    while (view->n_leaving && view->refs == 2 + view->n_leaving && !is_ending(view))
        weft__reactor_wait(view->reactor, 100);
    bool is_left = !is_ending(view);
    weft__view_let_go(view);
    return is_left;
}

weft_status_t weft_view_release_wait(weft_view_t *view) {
    if (!view) return WEFT_OK;
    weft_status_t st = weft__worker_check(view->worker);
    if (st == WEFT_OK) st = weft__worker_check_wait(view->worker);
    if (st < 0) return st;
    if (is_ending(view) || (view->n_leaving && !wait_for_leaving(view)))
        return weft__fail(WEFT_ERR_BUSY, "the view is being released");
    if (view->refs > 1) {
        view->refs--;
        return WEFT_OK;
    }
    return end_and_wait(view);
}

/* ---- processes ----------------------------------------------------------------------------- */

uint32_t weft_view_size(const weft_view_t *view) {
    return view ? view->session->exchange.size : 0;
}

uint32_t weft_view_rank(const weft_view_t *view) {
    return view ? view->session->exchange.rank : 0;
}

const char *weft_view_engine(const weft_view_t *view) {
    if (!view) return "null";
    return view->parent ? weft_view_engine(view->parent) : view->session->engine->name;
}

bool weft_view_did_start(const weft_view_t *view) {
    return view && view->session->started;
}

weft_status_t weft_view_mpi_comm(const weft_view_t *view, void *comm_p, size_t size) {
    size_t has = 0;
    if (!view) REFUSE("view", "NULL");
    if (!comm_p) REFUSE("comm_p", "NULL");
    weft_status_t st = weft__view_usable(view);
    if (st < 0) return st;
    const struct view_engine *engine = view->session->engine;
    if (!engine->communicator) return weft__fail(WEFT_ERR_NOT_FOUND, "engine: %s", engine->name);
    const void *comm = engine->communicator(view->session, &has);
    if (size != has)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "size: %zu, and an MPI_Comm has %zu", size, has);
    memcpy(comm_p, comm, size);
    return WEFT_OK;
}

weft_worker_t *weft_view_worker(const weft_view_t *view) {
    return view ? view->worker : NULL;
}

weft_team_t *weft_view_team(const weft_view_t *view) {
    return view && view_is_in_use(&view->core.fsm) && view->status == WEFT_OK ? view->team : NULL;
}

bool weft_view_equal(const weft_view_t *a, const weft_view_t *b) {
    uint32_t size = weft_view_size(a);
    if (a == b) return true;
    if (size != weft_view_size(b)) return false;
    if (weft__view_usable(a) < 0 || weft__view_usable(b) < 0) return false;
    for (uint32_t r = 0; r < size; r++)
        if (a->member[r].process != b->member[r].process) return false;
    return true;
}

/* ---- finalizers ---------------------------------------------------------------------------- */

weft_status_t weft_view_push_finalizer_sized(size_t params_size, weft_view_t *view,
                                             weft_finalizer_fn run, void *arg,
                                             const weft_finalizer_params_t *params,
                                             weft_finalizer_t **finalizer_p) {
    weft_finalizer_params_t known;
    if (!view) REFUSE("view", "NULL");
    if (!run) REFUSE("run", "NULL");
    weft_status_t st = weft__worker_check(view->worker);
    if (st == WEFT_OK) st = weft__params_read(&known, sizeof known, params, params_size);
    if (st < 0) return st;
    return weft__finalizers_push(&view->finalizers, view, run, arg, &known, finalizer_p);
}

weft_status_t weft_view_remove_finalizer(weft_view_t *view, weft_finalizer_t *finalizer) {
    if (!view) REFUSE("view", "NULL");
    weft_status_t st = weft__worker_check(view->worker);
    return st < 0 ? st : weft__finalizers_remove(&view->finalizers, finalizer);
}
