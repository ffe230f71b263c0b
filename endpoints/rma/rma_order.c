/* What one-sided operations wait for: the endpoint, a fence, or answers to those before them. */
#include <endpoints/core/submit.h>

#include "rma.h"
#include <endpoints/core/worker.h>

bool weft__rma_first_key(struct weft_ep *ep) {
    struct ep_rma *rma = weft__new(ep->worker, struct ep_rma);
    if (!rma) return false;
    list_init(&rma->keys);
    list_init(&rma->queue);
    list_init(&rma->again);
    ep->rma = rma;
    weft__rma_update(ep);
    return true;
}

void weft__rma_update(struct weft_ep *ep) {
    const struct ep_rma *rma = ep->rma;
    ep->rma_slow = !rma || !weft__ep_goes(ep) || !list_empty(&rma->queue) || rma->ordered ||
                   rma->performed < rma->fenced;
}

/* ---- starting */

/* Its peer is known, also while the endpoint drains. */
static bool is_open(const struct weft_ep *ep) {
    return ep->link && ep->core.peer;
}

/* A request that is new, or was taken out of another queue. */
static void place_ordered(struct weft_request *req, struct list *queue) {
    if (request_is_idle(&req->core.fsm)) {
        weft__request_queue(req, queue);
        return;
    }
    req->queue = queue;
    list_append(queue, &req->queued);
}

static void to_link(struct weft_request *req) {
    struct link *link = req->ep->link;
    if (request_is_idle(&req->core.fsm)) {
        weft__link_submit(link, req);
        return;
    }
    struct list one;
    list_init(&one);
    list_append(&one, &req->queued);
    weft__link_submit_all(link, &one);
}

static void to_window(struct weft_request *req) {
    req->rma.windowed = true;
    req->ep->link->rma_unanswered++;
    to_link(req);
}

static void wait_for_window(struct weft_request *req) {
    struct link_ext *more = weft__link_ext(req->ep->link);
    if (more)
        place_ordered(req, &more->rma_wait);
    else
        weft__request_finish(req, WEFT_ERR_NO_MEMORY);
}

static bool needs_window(const struct weft_request *req) {
    return req->rma.what == RMA_GET || req->rma.what == RMA_FETCH ||
           req->send.flags & WEFT_RMA_REMOTE;
}

/*
 * A large put by a transport goes in parts, and so do pieces. Where puts keep their order, what
 * comes after it waits until it has ended: something smaller would be performed between two of its
 * parts.
 */
static bool is_ordered(const struct weft_request *req) {
    if (req->kind == &weft__rma_pieces_kind)
        return request_is_waiting(&req->core.fsm) && weft__rma_pieces_are_ordered(req);
    bool goes_on = request_is_queued(&req->core.fsm) ||
                   (req->rma.on_device && request_is_in_flight(&req->core.fsm));
    if (req->group || !goes_on) return false;
    enum rma_order order = weft__rma_key_order(req->rma.rkey->key);
    return order == RMA_ORDER_ALL || (order == RMA_ORDER_PUTS && req->kind == &weft__rma_put_kind);
}

static void keep_order(struct weft_request *req) {
    if (!is_ordered(req)) return;
    req->rma.ordered = true;
    req->ep->rma->ordered++;
}

static void start_ordered(struct weft_request *req) {
    struct link *link = req->ep->link;
    req->rma.active = true;
    req->ep->rma->active++;
    if (req->kind == &weft__rma_pieces_kind)
        weft__rma_pieces_start(req);
    else if (!needs_window(req))
        to_link(req);
    else if (link->rma_unanswered >= WIRE_RMA_WINDOW)
        wait_for_window(req);
    else
        to_window(req);
    keep_order(req);
}

static bool awaits_device(const struct weft_request *req) {
    return req->kind == &weft__rma_atomic_kind &&
           weft__rma_is_of_device(req->rma.rkey, (enum rma_what)req->rma.what) &&
           !weft__rma_is_native(req->ep, req->rma.rkey, (enum rma_what)req->rma.what,
                                req->rma.atomic, req->rma.size) &&
           weft__rma_awaits_device(req->ep, req->rma.rkey);
}

void weft__rma_launch(struct weft_request *req, bool behind_fences) {
    struct weft_ep *ep = req->ep;
    bool waits =
        !is_open(ep) || !list_empty(&ep->rma->queue) || ep->rma->ordered || awaits_device(req);
    if (behind_fences && waits) {
        place_ordered(req, &ep->rma->queue);
        weft__rma_update(ep);
        return;
    }
    start_ordered(req);
    weft__rma_update(ep);
}

/* ---- fences */

const struct request_kind weft__rma_fence_kind = {.name = "fence"};

/* Natively again when that is answered. Without memory for the question: when any later flush
 * is. */
static bool ask_performed(struct weft_ep *ep) {
    struct wire_message m;
    struct weft_request *req = weft__request_new(ep->worker, &weft__rma_fence_kind);
    if (!req) return false;
    if (weft__request_name(req) < 0) {
        weft__request_discard(req);
        return false;
    }
    (void)weft__request_accept(req, ep, NULL);
    req->rma.order = ep->rma->sent;
    weft__request_park(req);
    weft__wire_flush(&m, (struct wire_flush){ep->core.peer, req->id});
    weft__link_control(ep->link, &m);
    return true;
}

/* By message, until those sent so far are performed. */
static void fence_messages(struct weft_ep *ep) {
    struct ep_rma *rma = ep->rma;
    bool native = weft__link_iface(ep->link)->attr.caps & (CAP_PUT | CAP_GET | CAP_ATOMIC);
    if (!native || rma->sent <= rma->performed || rma->fenced >= rma->sent) return;
    rma->fenced = rma->sent;
    rma->asked = ask_performed(ep);
}

static weft_status_t fence_now(struct weft_ep *ep) {
    struct lane *lane = ep->link->lane;
    weft_status_t st = HAS_OP(lane->ops, rma, fence) ? lane->ops->rma->fence(lane) : WEFT_OK;
    if (st < 0) return st;
    fence_messages(ep);
    return WEFT_OK;
}

/* What had begun goes on, in its order. */
static void go_on_again(struct weft_ep *ep) {
    struct list *again = &ep->rma->again;
    while (!list_empty(again) && is_open(ep)) {
        struct weft_request *req = list_of(again->next, struct weft_request, queued);
        if (awaits_device(req)) break;
        list_remove(&req->queued);
        to_link(req);
    }
}

/* What waited, up to the next fence that something active stands before, or what all others wait
 * for. */
void weft__rma_go_on(struct weft_ep *ep) {
    struct ep_rma *rma = ep->rma;
    go_on_again(ep);
    while (!list_empty(&rma->queue) && is_open(ep) && !rma->ordered) {
        struct weft_request *req = list_of(rma->queue.next, struct weft_request, queued);
        if (awaits_device(req)) break;
        if (req->kind != &weft__rma_fence_kind) {
            list_remove(&req->queued);
            start_ordered(req);
            continue;
        }
        if (rma->active) break;
        weft__request_finish(req, fence_now(ep));
    }
    weft__rma_update(ep);
}

void weft__rma_go(struct weft_ep *ep) {
    if (!ep->rma) return;
    weft__rkeys_open(ep);
    weft__rma_go_on(ep);
}

void weft__rma_performed(struct weft_ep *ep, uint64_t order) {
    if (!ep->rma || order <= ep->rma->performed) return;
    ep->rma->performed = order;
    weft__rma_go_on(ep);
}

void weft__rma_keyed(struct lane *lane) {
    struct link *link = weft__lane_link(lane);
    if (link && link->more->main) link = link->more->main;
    if (!link) return;
    list_for_each_safe(n, next, &link->endpoints) {
        struct weft_ep *ep = list_of(n, struct weft_ep, of_link);
        if (ep->rma) weft__rma_go_on(ep);
    }
}

weft_status_t weft__rma_swap_refusal(struct weft_ep *ep, weft_status_t status) {
    weft_status_t notified = ep->rma ? ep->rma->notified : WEFT_OK;
    if (ep->rma && (status == WEFT_OK || notified == WEFT_OK)) ep->rma->notified = status;
    return notified;
}

/* Requests wait only while the window is full. Without an extension none does. */
static NOINLINE void take_waiting(struct link *link) {
    struct list *wait = &link->more->rma_wait, *node = wait->next ? list_pop(wait) : NULL;
    if (node) to_window(list_of(node, struct weft_request, queued));
}

void weft__rma_place_free(struct link *link) {
    if (LIKELY(link->rma_unanswered-- < WIRE_RMA_WINDOW)) return;
    take_waiting(link);
}

/* The peer was notified, and holds no place for what ends now. What waits for a place gets none. */
void weft__rma_leave_window(struct weft_ep *ep) {
    struct link *link = ep->link;
    uint32_t n = 0;
    list_for_each(at, &ep->requests) {
        struct weft_request *req = list_of(at, struct weft_request, of_ep);
        if (req->kind->message) continue;
        if (request_is_queued(&req->core.fsm) && req->queue == &link->more->rma_wait)
            (void)weft__rma_wait_again(req);
        n += req->rma.windowed;
        req->rma.windowed = false;
    }
    while (n--) weft__rma_place_free(link);
}

/* It keeps its place among those that are active: a fence waits for it. */
weft_status_t weft__rma_wait_again(struct weft_request *req) {
    list_remove(&req->queued);
    req->queue = &req->ep->rma->again;
    list_append(req->queue, &req->queued);
    return WEFT_IN_PROGRESS;
}

void weft__rma_left(struct weft_request *req) {
    struct weft_ep *ep = req->ep;
    struct request_rma *r = &req->rma;
    if (r->windowed && ep->link) {
        if (r->by_message && req->status == WEFT_OK) weft__rma_performed(ep, r->order);
        if (!weft__rma_add_outstanding(req)) weft__rma_place_free(ep->link);
    }
    r->windowed = false;
    if (r->waited && ep->link) weft__link_quiesce_step(ep->link, 1);
    r->waited = false;
    if (!r->active) return;
    bool waited_for = r->ordered && --ep->rma->ordered == 0;
    r->active = r->ordered = false;
    if (--ep->rma->active == 0 || waited_for) weft__rma_go_on(ep);
}

/* ---- the link goes on by another lane */

/* Posted, it may wait for nothing but room for the lane's flush. */
static bool is_under_way(const struct weft_request *req) {
    return !req->kind->message && req->rma.rkey && !req->rma.by_message &&
           (req->in_flight.count > 0 || req->rma.posted) && !request_is_done(&req->core.fsm);
}

uint32_t weft__rma_quiesce(struct weft_ep *ep, const struct lane *lane) {
    uint32_t n = 0;
    if (!ep->rma) return 0;
    weft__rkeys_leave(ep, lane);
    list_for_each(at, &ep->requests) {
        struct weft_request *req = list_of(at, struct weft_request, of_ep);
        if (is_under_way(req)) n++, req->rma.waited = true;
    }
    return n;
}

void weft__rma_unquiesce(struct weft_ep *ep, const struct lane *gone, bool keys_stayed) {
    if (!ep->rma) return;
    (void)weft__rma_unwait(ep);
    weft__rkeys_left(ep, gone);
    if (weft__ep_goes(ep)) {
        weft__rkeys_open(ep);
        if (!keys_stayed) fence_messages(ep);
    }
    weft__rma_go_on(ep);
}

uint32_t weft__rma_unwait(struct weft_ep *ep) {
    uint32_t n = 0;
    list_for_each(at, &ep->requests) {
        struct weft_request *req = list_of(at, struct weft_request, of_ep);
        if (req->kind->message || !req->rma.waited) continue;
        req->rma.waited = false;
        n++;
    }
    return n;
}

/* A fence without memory cannot be reported: the endpoint fails, so that the order is never
 * broken. */
static weft_status_t fence_posted(void *object, const struct submit_args *args,
                                  const weft_op_t *op) {
    weft_status_t st = weft_ep_fence(object);
    if (st == WEFT_ERR_NO_MEMORY) weft__ep_violation(object, st, "no memory for a fence");
    return st;
}
static weft_status_t worker_fence_posted(void *worker, const struct submit_args *args,
                                         const weft_op_t *op) {
    for (weft_ep_t *ep = weft__ep_next(worker, NULL); ep; ep = weft__ep_next(worker, ep))
        (void)fence_posted(ep, args, op);
    return WEFT_OK;
}

static weft_status_t elsewhere_ordered(weft_worker_t *worker, weft_ep_t *ep) {
    submit_fn fn = ep ? fence_posted : worker_fence_posted;
    weft_status_t st = weft__post(worker, ep, fn, &(struct submit_args){0}, NULL);
    return st == WEFT_IN_PROGRESS ? WEFT_OK : st;
}

weft_status_t weft_ep_fence(weft_ep_t *ep) {
    if (!ep) return weft__fail(WEFT_ERR_INVALID_PARAM, "ep is NULL");
    weft_status_t st = weft__worker_enter(ep->worker);
    if (st == WEFT_IN_PROGRESS) return elsewhere_ordered(ep->worker, ep);
    if (st < 0) return st;
    if (ep->refuses) return ep->status < 0 ? ep->status : WEFT_ERR_CLOSED;
    if (!ep->rma) return WEFT_OK; /* nothing one-sided was ever posted */
    if (ep->rma->active == 0 && list_empty(&ep->rma->queue)) {
        if (weft__ep_goes(ep)) st = fence_now(ep);
        weft__rma_update(ep);
        return st;
    }
    struct weft_request *req = weft__request_new(ep->worker, &weft__rma_fence_kind);
    if (!req) return WEFT_ERR_NO_MEMORY;
    (void)weft__request_accept(req, ep, NULL);
    place_ordered(req, &ep->rma->queue);
    weft__rma_update(ep);
    return WEFT_OK;
}

weft_status_t weft_worker_fence(weft_worker_t *worker) {
    if (!worker) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker is NULL");
    worker = weft__worker_itself(worker);
    weft_status_t st = weft__worker_enter(worker);
    if (st == WEFT_IN_PROGRESS) return elsewhere_ordered(worker, NULL);
    if (st < 0) return st; /* one without a resource has no endpoints */
    for (weft_ep_t *ep = weft__ep_next(worker, NULL); st == WEFT_OK && ep;
         ep = weft__ep_next(worker, ep))
        if (!ep->refuses) st = weft_ep_fence(ep);
    return st;
}
