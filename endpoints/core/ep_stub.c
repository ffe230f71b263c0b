/* Endpoints in associated mode, while they have no resource: no worker lists them. */
#include "lease.h"
#include "worker.h"

void weft__ep_stub_join(struct weft_ep *ep, const struct stub *stub, bool join) {
    weft_worker_t *worker = stub->worker;
    if (join) {
        ep->worker = worker;
        list_append(&worker->endpoints, &ep->of_worker);
        if (stub->parent->lease) weft__ep_hold_lease(ep, stub->parent->lease);
    } else {
        list_remove(&ep->of_worker);
        ep->worker = weft__stub_worker();
        ep->arg = (void *)(uintptr_t)stub;
    }
}

static void forget(struct stub *stub) {
    struct weft_ep *ep = stub->object;
    if (ep->worker != weft__stub_worker()) return;
    weft__ep_stub_join(ep, stub, true);
    weft__ep_forget(ep);
}

weft_status_t weft__ep_stub(struct weft_worker *worker, const weft_ep_params_t *params,
                            weft_ep_t **ep_p) {
    struct weft_ep *ep;
    struct stub *stub;
    if (!worker->stub)
        return weft__fail(WEFT_ERR_INVALID_PARAM,
                          "worker: the parent was not created in associated mode");
    weft_status_t st = weft__worker_check(weft__worker_itself(worker));
    if (st == WEFT_OK) st = weft__ep_new(weft__worker_itself(worker), &ep);
    if (st < 0) return st;
    st = weft__worker_stub_new(worker, STUB_ENDPOINT, ep, params, sizeof *params, &stub);
    if (st < 0) {
        weft__ep_forget(ep);
        return st;
    }
    stub->closing = forget;
    weft__ep_stub_join(ep, stub, false);
    *ep_p = ep;
    return WEFT_OK;
}

weft_status_t weft__ep_stub_close(weft_ep_t *ep) {
    struct stub *stub = ep->arg;
    forget(stub);
    weft__worker_stub_gone(stub);
    return WEFT_OK;
}
