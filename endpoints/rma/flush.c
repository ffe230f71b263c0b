/* Flush: stands behind all that was accepted before it, then asks the lane. */
#include <endpoints/core/submit.h>

#include "rma.h"
#include <endpoints/core/op_group.h>
#include <endpoints/transfer/rendezvous.h>

/*
 * A flush that ends early leaves the lane's half of it, since a lane cannot forget a completion.
 * The next flush by that lane takes the half over, so that those that end one after the other leave
 * one.
 */
static void part_flush(struct weft_request *req) {
    if (req->group) weft__op_group_one_less(req->group, req->status);
    req->group = NULL;
    if (req->other) {
        req->other->other = NULL;
        list_append(&req->worker->left_flushes, &req->other->of_ep);
    }
    req->other = NULL;
}

static struct weft_request *left_half(const struct weft_worker *worker, const struct lane *lane) {
    list_for_each(n, &worker->left_flushes) {
        struct weft_request *lane_half = list_of(n, struct weft_request, of_ep);
        if (lane_half->lane == lane) return lane_half;
    }
    return NULL;
}

/* It has left this side. What the peer has taken of it the peer says, behind all of it. */
static void left_this_side(struct weft_request *req, weft_status_t status) {
    struct weft_ep *ep = req->ep;
    struct wire_message m;
    if (!(req->send.flags & WEFT_FLUSH_REMOTE) || status < 0) {
        weft__request_finish(req, status);
        return;
    }
    if (!ep->link || !ep->core.peer) {
        weft__request_finish(req, ep->status < 0 ? ep->status : WEFT_ERR_CLOSED);
        return;
    }
    req->rma.order = ep->rma ? ep->rma->sent : 0;
    req->rma.answered = true; /* asked for */
    weft__wire_flush(&m, (struct wire_flush){ep->core.peer, req->id});
    weft__link_control(ep->link, &m);
}

static void start_flush(struct weft_request *req);

static void lane_flushed(struct weft_request *lane_half, weft_status_t status) {
    struct weft_request *req = lane_half->other;
    /* than what the flush stands behind: the lane is asked again */
    bool is_older = lane_half->rma.waited;
    lane_half->other = NULL;
    if (req) req->other = NULL;
    list_remove(&lane_half->of_ep);
    weft__request_finish(lane_half, status);
    if (!req || !request_is_waiting(&req->core.fsm)) return; /* it ended early */
    if ((is_older && status == WEFT_OK) ||
        weft__link_has_left(req->ep ? req->ep->link : NULL, status))
        start_flush(req);
    else
        left_this_side(req, status);
}

/*
 * A lane cannot forget a completion, and a flush has no memory in use that it would have to wait
 * for: so the lane has a request of its own, which stays when the flush ends early.
 */
static const struct request_kind lane_kind = {.name = "lane flush", .returned = lane_flushed};

/* NO_RESOURCE: the lane is not up yet, or has too much else under way. */
static weft_status_t flush_lane(struct weft_request *req) {
    struct lane *lane = req->ep->link->lane;
    struct weft_request *lane_half = left_half(req->worker, lane);
    if (lane_half) {
        list_remove(&lane_half->of_ep);
        lane_half->rma.waited = true;
        lane_half->other = req;
        req->other = lane_half;
        return WEFT_IN_PROGRESS;
    }
    lane_half = weft__request_new(req->ep->worker, &lane_kind);
    if (!lane_half) return WEFT_ERR_NO_MEMORY;
    lane_half->in_flight.count = 1;
    lane_half->lane = lane;
    weft_status_t st = lane->ops->flush(lane, &lane_half->in_flight);
    if (st != WEFT_IN_PROGRESS) {
        weft__request_discard(lane_half);
        return st;
    }
    weft__request_hand_over(lane_half);
    lane_half->other = req;
    req->other = lane_half;
    return st;
}

/* Among what waits for the lane. */
static weft_status_t ask_again(struct weft_request *req) {
    weft_status_t st = flush_lane(req);
    if (st == WEFT_NO_RESOURCE) return st;
    weft__request_park(req);
    if (st != WEFT_IN_PROGRESS) left_this_side(req, st);
    return WEFT_IN_PROGRESS;
}

static void start_flush(struct weft_request *req) {
    weft_status_t st = flush_lane(req);
    if (st == WEFT_NO_RESOURCE)
        weft__link_submit(req->ep->link, req);
    else if (st != WEFT_IN_PROGRESS)
        left_this_side(req, st);
}

/* No other operation of the endpoint is before it any more. */
static void flush_oldest(struct weft_request *req) {
    const struct weft_ep *ep = req->ep;
    if (!request_is_waiting(&req->core.fsm) || req->other || !ep->link) return;
    if (!ep->core.peer)
        /* before the peer answers, the endpoint may move to another link (connect/handshake.c) */
        return;
    if (req->send.flags & WEFT_FLUSH_REMOTE && req->rma.answered) return; /* asked */
    start_flush(req);
}

static const struct request_kind flush_kind = {.name = "flush",
                                               .flags = WEFT_FLUSH_REMOTE,
                                               .moves_none = true,
                                               .advance = ask_again,
                                               .oldest = flush_oldest,
                                               .release = part_flush};

weft_status_t weft__flush_post(struct weft_ep *ep, const weft_op_t *op) {
    bool first = list_empty(&ep->requests);
    struct weft_request *req = weft__request_new(ep->worker, &flush_kind);
    if (!req) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = op && op->flags & WEFT_FLUSH_REMOTE ? weft__request_name(req) : WEFT_OK;
    if (st < 0) {
        weft__request_discard(req);
        return st;
    }
    st = weft__request_accept(req, ep, op);
    if (st < 0) return st;
    weft__request_park(req);
    if (first && ep->link) flush_oldest(req);
    return WEFT_IN_PROGRESS;
}

static weft_status_t flush_posted(void *ep, const struct submit_args *args, const weft_op_t *op) {
    return weft_ep_flush(ep, op);
}

weft_status_t weft_ep_flush(weft_ep_t *ep, const weft_op_t *op) {
    if (!ep) return weft__fail(WEFT_ERR_INVALID_PARAM, "ep is NULL");
    weft_status_t st = weft__call_enter(ep->worker, op);
    if (st == WEFT_IN_PROGRESS)
        return weft__post(ep->worker, ep, flush_posted, &(struct submit_args){0}, op);
    return st < 0 ? st : ep->ops->flush(ep, op);
}

/* ---- the peer has performed all before it */

void weft__on_flushed(struct link *link, struct lane *lane, const struct wire_fin *flushed) {
    struct weft_request *req = weft__idmap_find(&link->worker->requests, flushed->request);
    if (!req || !req->ep || req->ep->link != link || !request_is_waiting(&req->core.fsm)) return;
    weft_status_t st = (weft_status_t)flushed->status;
    if (req->kind == &weft__rma_fence_kind) {
        weft__rma_swap_refusal(req->ep, st); /* a refusal is for the program's flush */
        st = WEFT_OK;
    } else if (req->kind == &flush_kind && req->rma.answered) {
        weft_status_t notified = weft__rma_swap_refusal(req->ep, WEFT_OK);
        if (notified < 0) st = notified;
    } else {
        weft__ep_violation(req->ep, WEFT_ERR_PROTOCOL, "flushed");
        return;
    }
    weft__rma_performed(req->ep, req->rma.order);
    weft__request_finish(req, st);
}

/* ---- all endpoints of a worker */

static const struct request_kind all_kind = {.name = "worker flush",
                                             .flags = WEFT_FLUSH_REMOTE,
                                             .moves_none = true,
                                             .withdraw = weft__op_group_leave};

/* One that is lost is its status; one that closes is on its way out. */
static void flush_each(weft_worker_t *worker, const weft_op_t *how, struct op_group *all) {
    for (weft_ep_t *ep = weft__ep_next(worker, NULL); ep; ep = weft__ep_next(worker, ep)) {
        if (ep->draining || ep_is_closed(&ep->core.fsm)) continue;
        weft_status_t st = ep->ops->flush(ep, how);
        if (st == WEFT_IN_PROGRESS)
            op_group_add(all, list_of(ep->requests.prev, struct weft_request, of_ep));
        op_group_note(all, st);
    }
}

static weft_status_t worker_flush_posted(void *worker, const struct submit_args *args,
                                         const weft_op_t *op) {
    return weft_worker_flush(worker, op);
}

weft_status_t weft_worker_flush(weft_worker_t *worker, const weft_op_t *op) {
    if (!worker) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker is NULL");
    worker = weft__worker_itself(worker);
    weft_status_t st = weft__call_enter(worker, op);
    if (st == WEFT_IN_PROGRESS)
        return weft__post(worker, NULL, worker_flush_posted, &(struct submit_args){0}, op);
    struct op_group *all;
    if (st == WEFT_OK) st = weft__op_group_begin(worker, &all_kind, op, &all);
    if (st < 0) return st;
    flush_each(worker, &(weft_op_t){.flags = op ? op->flags : 0}, all);
    return weft__op_group_started(all);
}
