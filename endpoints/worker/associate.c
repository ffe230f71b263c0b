/* Workers in associated mode: resting, on the loop of a provider, or by a lease of another
 * worker. */
#include "associate.h"

#include <base/counters.h>
#include <base/stub.h>
#include <endpoints/connect/connect.h>
#include <endpoints/core/lease.h>
#include <endpoints/core/worker.h>
#include <endpoints/messages/leased.h>
#include <endpoints/threads/thread.h>
#include <transports/given.h>

/* What a worker in associated mode was created with, and how it ends. */
struct worker_stub {
    weft_worker_params_t params;
    struct counters counters; /* while it has no resource */
    weft_done_fn closed;
    void *closed_arg;
};

static struct worker_stub *own_of(const weft_worker_t *worker) {
    return worker->stub->params;
}

/* Calls return `status`. It counts as driven, so that progress leaves the fast path. */
static void make_dormant(weft_worker_t *worker, weft_status_t status) {
    worker->count = &own_of(worker)->counters;
    worker->reactor = weft__reactor_dormant(status);
    worker->driver.has_thread = true;
    worker->context = worker->stub->context;
    atomic_store(&worker->stub->status, status);
}

static void revert(struct stub *stub, weft_status_t status) {
    make_dormant(stub->object, status);
}

/* ---- without a resource */

static weft_status_t copy_text(const void *parent, const char **text_p) {
    if (!*text_p) return WEFT_OK;
    *text_p = talloc_strdup(parent, *text_p);
    return *text_p ? WEFT_OK : WEFT_ERR_NO_MEMORY;
}

static weft_status_t keep_params(struct stub *stub, const weft_worker_params_t *params) {
    struct worker_stub *own = weft__new(stub, struct worker_stub);
    if (!own) return WEFT_ERR_NO_MEMORY;
    own->params = *params;
    stub->params = own;
    weft_status_t st = copy_text(own, &own->params.name);
    return st < 0 ? st : copy_text(own, &own->params.transports);
}

weft_status_t weft__worker_stub(weft_context_t *context, const weft_worker_params_t *params,
                                weft_worker_t **worker_p) {
    if (params->loop) return weft__fail(WEFT_ERR_INVALID_PARAM, "loop is set, in associated mode");
    weft_worker_t *worker = weft__new(NULL, struct weft_worker);
    if (!worker) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = weft__stub_new(context, STUB_WORKER, worker, NULL, &worker->stub);
    if (st == WEFT_OK) {
        talloc_steal(worker, worker->stub);
        worker->stub->revert = revert;
        st = keep_params(worker->stub, params);
    }
    if (st < 0) {
        weft__stub_free(worker->stub);
        talloc_free(worker);
        return st;
    }
    worker->name = params->name ? talloc_strdup(worker, params->name) : NULL;
    worker->callbacks.handlers = worker->am;
    make_dormant(worker, WEFT_ERR_NOT_ASSOCIATED);
    *worker_p = worker;
    return WEFT_OK;
}

bool weft__worker_is_resting(const weft_worker_t *worker) {
    return worker->stub && (weft__reactor_is_dormant(worker->reactor) ||
                            atomic_load(&worker->stub->status) == WEFT_OK);
}

weft_status_t weft__worker_stub_close(weft_worker_t *worker) {
    if (worker->shared || atomic_load(&worker->stub->claim))
        return weft__fail(WEFT_ERR_BUSY, "the worker is associated; disassociate it first");
    weft__stub_free(worker->stub);
    talloc_free(worker);
    return WEFT_OK;
}

void weft__worker_stub_destroy(weft_worker_t *worker) {
    bool own_thread = worker->driver.has_thread && worker->driver.thread;
    if (own_thread && weft__thread_stop(worker, false) < 0) return;
    if (worker->stub->closing) worker->stub->closing(worker->stub);
    (void)weft__worker_stub_close(worker);
}

/* ---- on a loop */

/* Queues and queue pairs are for rdma_rc; rdma_ud has its own. */
static bool uses_verbs(const weft_worker_t *worker, const struct given *given) {
    const char *user = given->cq || given->srq || given->n_qp ? "rdma_rc" : "rdma_";
    for (uint32_t i = 0; i < worker->n_ifaces; i++)
        if (strncmp(worker->iface[i]->transport->name, user, strlen(user)) == 0) return true;
    return false;
}

weft_status_t weft__worker_on_loop(weft_worker_t *worker, struct ev_loop *loop,
                                   const struct given *given) {
    struct worker_stub *own = own_of(worker);
    struct reactor *r;
    weft_status_t st = weft__reactor_create(
        worker->stub->context, &(struct reactor_params){.loop = loop, .given = given}, &r);
    if (st < 0) return st;
    own->params.loop = loop;
    weft__reactor_thread_mode(r, own->params.thread_mode);
    talloc_steal(r, worker);
    worker->driver.has_thread = false;
    st = weft__worker_open_in(worker, r, &own->params);
    if (st == WEFT_OK && given && given->pd && !uses_verbs(worker, given)) {
        weft__worker_discard(worker);
        st = weft__fail(WEFT_ERR_UNSUPPORTED,
                        "no transport of the worker could be opened by the verbs objects");
    }
    if (st < 0) {
        talloc_steal(NULL, worker);
        make_dormant(worker, WEFT_ERR_NOT_ASSOCIATED);
        weft__reactor_destroy(r);
        return st;
    }
    atomic_store(&worker->stub->status, WEFT_OK);
    return WEFT_OK;
}

/* The reactor is gone: everything but handlers and the stub begins again. */
static void associate_rest(weft_status_t status, void *arg) {
    weft_worker_t *worker = arg;
    struct worker_stub *own = own_of(worker);
    struct stub *stub = worker->stub;
    struct am_handler am[AM_ID_RESERVED];
    memcpy(am, worker->am, sizeof am);
    talloc_steal(NULL, stub);
    talloc_free_children(worker);
    memset(worker, 0, sizeof *worker);
    memcpy(worker->am, am, sizeof am);
    worker->stub = talloc_steal(worker, stub);
    worker->callbacks.handlers = worker->am;
    make_dormant(worker, WEFT_ERR_DISASSOCIATED);
    if (own->closed) own->closed(status, own->closed_arg);
}

void weft__worker_outlives(weft_worker_t *worker) {
    struct worker_stub *own = own_of(worker);
    own->closed = worker->close.done;
    own->closed_arg = worker->close.arg;
    worker->close.done = associate_rest;
    worker->close.arg = worker;
    talloc_steal(NULL, worker);
}

/* ---- by another worker */

weft_status_t weft__worker_share(weft_worker_t *worker, weft_worker_t *provider,
                                 struct lease *lease) {
    lease->user = worker;
    list_init(&lease->receives);
    weft_status_t st = weft__leased_handlers(provider, lease, true);
    if (st < 0) return st;
    if (lease->tag_first >> 63) weft__match_lease(&provider->match);
    worker->lease = lease;
    worker->shared = provider;
    worker->on_endpoint = own_of(worker)->params.on_endpoint;
    worker->on_error = own_of(worker)->params.on_error;
    worker->arg = own_of(worker)->params.arg;
    atomic_store(&worker->stub->status, WEFT_OK);
    return WEFT_OK;
}

static void abort_ep(struct weft_ep *ep, weft_status_t status) {
    if (ep->status == WEFT_OK) ep->status = (int8_t)status;
    weft__ep_abort(ep);
}

void weft__worker_abort(weft_worker_t *worker, weft_status_t status) {
    list_for_each_safe(n, next, &worker->due) {
        abort_ep(list_of(n, struct weft_ep, of_worker), status);
    }
    list_for_each_safe(m, after, &worker->endpoints) {
        abort_ep(list_of(m, struct weft_ep, of_worker), status);
    }
    weft__worker_end_receives(worker, status);
}

void weft__ep_drain(struct weft_ep *ep) {
    if (!ep->closing)
        (void)weft_ep_close(ep, WEFT_CLOSE_FLUSH, &(weft_op_t){.deadline_ms = UINT32_MAX});
}

static void drain_ep(struct weft_ep *ep, weft_status_t status, bool abort) {
    if (abort)
        abort_ep(ep, status);
    else
        weft__ep_drain(ep);
}

static void drain_list(struct list *endpoints, const struct lease *lease, weft_status_t status,
                       bool abort) {
    list_for_each_safe(n, next, endpoints) {
        struct weft_ep *ep = list_of(n, struct weft_ep, of_worker);
        if (ep->lease == lease->number) drain_ep(ep, status, abort);
    }
}

void weft__worker_drain(weft_worker_t *worker, weft_worker_t *provider, struct lease *lease,
                        weft_status_t status, bool abort) {
    worker->shared = NULL;
    worker->lease = NULL;
    make_dormant(worker, status);
    lease->ends = true;
    weft__leased_listeners_close(provider, lease);
    drain_list(&provider->due, lease, status, abort);
    drain_list(&provider->endpoints, lease, status, abort);
    weft__leased_receives_stop(provider, lease, status);
}

static size_t associate_count(const struct list *endpoints, const struct lease *lease) {
    size_t n = 0;
    list_for_each(node, endpoints) {
        n += list_of(node, struct weft_ep, of_worker)->lease == lease->number;
    }
    return n;
}

size_t weft__worker_undrained(const weft_worker_t *provider, const struct lease *lease) {
    return associate_count(&provider->due, lease) + associate_count(&provider->endpoints, lease) +
           weft__leased_receives(provider, lease);
}

void weft__worker_unshare(weft_worker_t *provider, struct lease *lease) {
    (void)weft__leased_handlers(provider, lease, false);
    weft__leased_messages_drop(provider, lease);
    lease->number = 0;
}
