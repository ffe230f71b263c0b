/* Flush: stands behind all that was accepted before it, then asks the lane. */
#include "rendezvous.h"
#include "worker.h"

static void flushed(struct weft_request *req, weft_status_t status) {
    weft__request_finish(req, status);
}

static const struct request_kind flush_kind = {.name = "flush", .returned = flushed};

/* It is first, and waits: nothing of the endpoint is before it any more. */
void weft__flush_check(struct weft_ep *ep) {
    struct weft_request *req = list_of(ep->requests.next, struct weft_request, of_ep);
    if (req->kind != &flush_kind || req->core.fsm.state != REQ_WAITING || !ep->link) return;
    req->lent.count++;
    weft_status_t st = ep->link->lane->ops->flush(ep->link->lane, &req->lent);
    if (st == WEFT_IN_PROGRESS) {
        weft__request_lend(req);
        return;
    }
    req->lent.count--;
    weft__request_finish(req, st);
}

weft_status_t weft__flush_post(struct weft_ep *ep, const weft_op_t *op) {
    bool first = list_empty(&ep->requests);
    struct weft_request *req = weft__request_new(ep->worker, &flush_kind);
    if (!req) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = weft__request_accept(req, ep, op);
    if (st < 0) return st;
    weft__request_park(req);
    if (first && ep->link) weft__flush_check(ep);
    return WEFT_IN_PROGRESS;
}

weft_status_t weft_ep_flush(weft_ep_t *ep, const weft_op_t *op) {
    if (!ep) return weft__fail(WEFT_ERR_INVALID_PARAM, "ep is NULL");
    weft_status_t st = weft__worker_check(ep->worker);
    return st < 0 ? st : ep->ops->flush(ep, op);
}
