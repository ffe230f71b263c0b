/*
 * Endpoints in associated mode, while they have no resource: no worker lists them, and they have no
 * id. Their memory is of the worker's slab.
 */
#include "lease.h"
#include "worker.h"

weft_status_t weft__ep_stub_join(struct stub *stub) {
    struct weft_ep *ep = stub->object;
    void *user = ep->user;
    memset(ep, 0, sizeof *ep);
    ep->user = user;
    weft_status_t st = weft__ep_begin(stub->worker, ep);
    if (st < 0)
        weft__ep_stub_rest(stub, atomic_load(&stub->status));
    else if (stub->parent->lease)
        weft__ep_hold_lease(ep, stub->parent->lease);
    return st;
}

void weft__ep_stub_rest(struct stub *stub, weft_status_t status) {
    struct weft_ep *ep = stub->object;
    void *user = ep->user;
    memset(ep, 0, sizeof *ep);
    list_init(&ep->of_worker);
    ep->user = user;
    ep->worker = weft__stub_worker(status);
    ep->arg = stub;
}

static void free_stub(struct stub *stub) {
    weft__slab_put(&stub->worker->pools.eps, stub->object);
}

weft_status_t weft__ep_stub(struct weft_worker *worker, const weft_ep_params_t *params,
                            weft_ep_t **ep_p) {
    struct stub *stub;
    weft_worker_t *itself = weft__worker_itself(worker);
    if (!worker->stub)
        return weft__fail(WEFT_ERR_INVALID_PARAM,
                          "worker: the parent was not created in associated mode");
    weft_status_t st = weft__worker_check(itself);
    struct weft_ep *ep = st == WEFT_OK ? weft__slab_take(&itself->pools.eps) : NULL;
    if (!ep) return st < 0 ? st : WEFT_ERR_NO_MEMORY;
    st = weft__worker_stub_new(worker, STUB_ENDPOINT, ep, params, sizeof *params, &stub);
    if (st < 0) {
        weft__slab_put(&itself->pools.eps, ep);
        return st;
    }
    stub->closing = free_stub;
    weft__ep_stub_rest(stub, WEFT_ERR_NOT_ASSOCIATED);
    *ep_p = ep;
    return WEFT_OK;
}

weft_worker_t *weft__ep_stub_worker(const weft_ep_t *ep) {
    return ((struct stub *)ep->arg)->worker;
}

weft_status_t weft__ep_stub_close(weft_ep_t *ep) {
    struct stub *stub = ep->arg;
    weft_status_t st = weft__worker_check(stub->worker);
    if (st < 0) return st;
    free_stub(stub);
    weft__worker_stub_gone(stub);
    return WEFT_OK;
}
