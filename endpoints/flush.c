/* Flush: stands behind all that was accepted before it, then asks the lane. */
#include "posted.h"
#include "rendezvous.h"

/*
 * A lane cannot forget a completion, and a flush lends no memory that it would have to wait for: so the lane has a request
 * of its own, which stays when the flush ends early.
 */
static void part(struct weft_request *req) {
    if (req->other) req->other->other = NULL;
    req->other = NULL;
}

static void lane_flushed(struct weft_request *lane_half, weft_status_t status) {
    struct weft_request *req = lane_half->other;
    weft__request_finish(lane_half, status);
    if (req) weft__request_finish(req, status);
}

static const struct request_kind flush_kind = {.name = "flush", .release = part};
static const struct request_kind lane_kind = {.name = "lane flush", .returned = lane_flushed, .release = part};

/* It is first, and waits: nothing of the endpoint is before it any more. */
void weft__flush_check(struct weft_ep *ep) {
    struct weft_request *req = list_of(ep->requests.next, struct weft_request, of_ep);
    if (req->kind != &flush_kind || req->core.fsm.state != REQ_WAITING || req->other || !ep->link) return;
    struct weft_request *lane_half = weft__request_new(ep->worker, &lane_kind);
    if (!lane_half) {
        weft__request_finish(req, WEFT_ERR_NO_MEMORY);
        return;
    }
    lane_half->lent.count = 1;
    weft_status_t st = ep->link->lane->ops->flush(ep->link->lane, &lane_half->lent);
    if (st == WEFT_IN_PROGRESS) {
        weft__request_lend(lane_half);
        lane_half->other = req;
        req->other = lane_half;
        return;
    }
    weft__request_discard(lane_half);
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

static weft_status_t flush_posted(void *ep, const struct posted_args *args, const weft_op_t *op) {
    return weft_ep_flush(ep, op);
}

weft_status_t weft_ep_flush(weft_ep_t *ep, const weft_op_t *op) {
    if (!ep) return weft__fail(WEFT_ERR_INVALID_PARAM, "ep is NULL");
    weft_status_t st = weft__worker_enter(ep->worker);
    if (st == WEFT_IN_PROGRESS) return weft__post(ep->worker, ep, flush_posted, &(struct posted_args){0}, op);
    return st < 0 ? st : ep->ops->flush(ep, op);
}
