/* Flush: stands behind all that was accepted before it, then asks the lane. */
#include "posted.h"

#include <reactor/mutant.h>

#include "rendezvous.h"
#include "rma.h"
#include "several.h"
#include "switch.h"

static void part(struct weft_request *req) {
    if (req->group) weft__several_less(req->group, req->status);
    req->group = NULL;
    if (req->other) req->other->other = NULL;
    req->other = NULL;
}

/* It has left this side. What the peer has taken of it the peer says, behind all of it. */
static void left_this_side(struct weft_request *req, weft_status_t status) {
    struct weft_ep *ep = req->ep;
    struct wire_message m;
    if (!(req->flags & WEFT_FLUSH_REMOTE) || status < 0) {
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

static void ask_lane(struct weft_request *req);

static void lane_flushed(struct weft_request *lane_half, weft_status_t status) {
    struct weft_request *req = lane_half->other;
    lane_half->other = NULL;
    if (req) req->other = NULL;
    weft__request_finish(lane_half, status);
    if (!req || (req->core.fsm.state != REQ_WAITING && !WEFT_MUTANT(flush_told_twice))) return; /* it ended early */
    if (weft__switch_has_left(req->ep ? req->ep->link : NULL, status))
        ask_lane(req);
    else
        left_this_side(req, status);
}

/*
 * A lane cannot forget a completion, and a flush lends no memory that it would have to wait for: so the lane has a request
 * of its own, which stays when the flush ends early.
 */
static const struct request_kind lane_kind = {.name = "lane flush", .returned = lane_flushed, .release = part};

/* NO_RESOURCE: the lane is not up yet, or has too much else under way. */
static weft_status_t flush_lane(struct weft_request *req) {
    struct lane *lane = req->ep->link->lane;
    struct weft_request *lane_half = weft__request_new(req->ep->worker, &lane_kind);
    if (!lane_half) return WEFT_ERR_NO_MEMORY;
    lane_half->lent.count = 1;
    weft_status_t st = lane->ops->flush(lane, &lane_half->lent);
    if (st != WEFT_IN_PROGRESS) {
        weft__request_discard(lane_half);
        return st;
    }
    weft__request_lend(lane_half);
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

static void ask_lane(struct weft_request *req) {
    weft_status_t st = flush_lane(req);
    if (st == WEFT_NO_RESOURCE)
        weft__link_submit(req->ep->link, req);
    else if (st != WEFT_IN_PROGRESS)
        left_this_side(req, st);
}

static const struct request_kind flush_kind = {
    .name = "flush", .flags = WEFT_FLUSH_REMOTE, .moves_none = true, .advance = ask_again, .release = part};

/* It is first, and waits: nothing of the endpoint is before it any more. */
void weft__flush_check(struct weft_ep *ep) {
    struct weft_request *req = list_of(ep->requests.next, struct weft_request, of_ep);
    if (req->kind != &flush_kind || req->core.fsm.state != REQ_WAITING || req->other || !ep->link) return;
    if (!ep->core.peer) return; /* before the peer answers, another link may become the endpoint's (link_greet.c) */
    if (req->flags & WEFT_FLUSH_REMOTE && req->rma.answered) return; /* asked */
    if (WEFT_MUTANT(flush_early)) return weft__request_finish(req, WEFT_OK);
    ask_lane(req);
}

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

/* ---- the peer has performed all before it */

void weft__on_flushed(struct lane *lane, const void *data, size_t len) {
    struct link *link = weft__link_of(lane, "flushed before hello");
    struct wire_fin flushed;
    if (!link) return;
    if (!weft__wire_read_flushed(data, len, &flushed)) {
        weft__link_violation(link, "flushed");
        return;
    }
    struct weft_request *req = weft__idmap_find(&link->worker->requests, flushed.request);
    if (!req || !req->ep || req->ep->link != link || req->core.fsm.state != REQ_WAITING) return;
    weft_status_t st = (weft_status_t)flushed.status;
    if (req->kind == &weft__rma_fence_kind) {
        weft__rma_told(req->ep, st); /* a refusal is for the program's flush */
        st = WEFT_OK;
    } else if (req->kind == &flush_kind && req->rma.answered) {
        weft_status_t told = weft__rma_told(req->ep, WEFT_OK);
        if (told < 0) st = told;
    } else {
        weft__ep_violation(req->ep, WEFT_ERR_PROTOCOL, "flushed");
        return;
    }
    weft__rma_performed(req->ep, req->rma.order);
    weft__request_finish(req, st);
}

/* ---- all endpoints of a worker */

static const struct request_kind all_kind = {
    .name = "worker flush", .flags = WEFT_FLUSH_REMOTE, .moves_none = true, .withdraw = weft__several_leave};

/* One that is lost is its status; one that closes is on its way out. */
static void flush_each(weft_worker_t *worker, const weft_op_t *how, struct several *all) {
    for (weft_ep_t *ep = weft__ep_next(worker, NULL); ep; ep = weft__ep_next(worker, ep)) {
        if (ep->draining || ep->core.fsm.state == EP_CLOSED) continue;
        weft_status_t st = ep->ops->flush(ep, how);
        if (st == WEFT_IN_PROGRESS) several_add(all, list_of(ep->requests.prev, struct weft_request, of_ep));
        several_note(all, st);
    }
}

static weft_status_t worker_flush_posted(void *worker, const struct posted_args *args, const weft_op_t *op) {
    return weft_worker_flush(worker, op);
}

weft_status_t weft_worker_flush(weft_worker_t *worker, const weft_op_t *op) {
    if (!worker) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker is NULL");
    weft_status_t st = weft__worker_enter(worker);
    if (st == WEFT_IN_PROGRESS) return weft__post(worker, NULL, worker_flush_posted, &(struct posted_args){0}, op);
    struct several *all;
    if (st == WEFT_OK) st = weft__several_begin(worker, &all_kind, op, &all);
    if (st < 0) return st;
    flush_each(worker, &(weft_op_t){.flags = op ? op->flags : 0}, all);
    return weft__several_begun(all);
}
