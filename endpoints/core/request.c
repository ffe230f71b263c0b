/* Requests: taking one, deadlines and cancels, completion, and the callbacks that are due. */
#include "request.h"

#include <base/counters.h>

#include "cause.h"
#include "endpoint.h"
#include "link.h"
#include "request_fast.h"
#include "submit.h"

static void request_effect(struct fsm *m, unsigned effect) {
    struct weft_request *req = list_of(m, struct weft_request, core.fsm);
    switch ((enum request_effect)effect) {
    case REQ_FX_ENQUEUE: list_append(req->queue, &req->queued); break;
    case REQ_FX_UNQUEUE: list_remove(&req->queued); break;
    case REQ_FX_WITHDRAW:
        if (req->kind->withdraw) req->kind->withdraw(req);
        break;
    case REQ_FX_COMPLETE:
        weft__timer_stop(req->worker->reactor, &req->deadline);
        list_append(&req->worker->callbacks.done, &req->queued);
        req->worker->match.slow |= MATCH_DUE;
        weft__job_post(req->worker->reactor, &req->worker->callbacks.complete);
        break;
    case REQ_N_EFFECTS: break;
    }
}

static void request_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    struct weft_request *req = list_of(m, struct weft_request, core.fsm);
    weft__log(req->worker->context, WEFT_LOG_ERROR, "endpoints", "request %s: %s in %s",
              req->kind->name, weft__request_machine.event_name[event], fsm_state_name(m));
    if (req->ep) weft__ep_violation(req->ep, WEFT_ERR_INTERNAL, "request");
}

static const struct fsm_port request_port = {&weft__request_machine, request_effect, request_fail};

static void in_flight_done(struct completion *c, weft_status_t status) {
    struct weft_request *req = list_of(c, struct weft_request, in_flight);
    c->status = WEFT_OK;
    weft__fsm_step(&req->core.fsm, REQ_EV_RETURNED);
    if (!request_is_done(&req->core.fsm) && req->kind->returned) req->kind->returned(req, status);
}

static void deadline_passed(struct timer *timer) {
    weft__request_stop(list_of(timer, struct weft_request, deadline), WEFT_ERR_TIMED_OUT);
}

struct weft_request *weft__request_new(struct weft_worker *worker,
                                       const struct request_kind *kind) {
    struct list *node = list_pop(&worker->pools.requests);
    struct weft_request *req =
        node ? list_of(node, struct weft_request, queued) : weft__new(worker, struct weft_request);
    if (!req) return NULL;

    /* `cancel` keeps its value for late cancels. The fields that this kind uses start as zero. */
    const size_t from = offsetof(struct weft_request, done),
                 far = offsetof(struct weft_request, rma);
    size_t size = (kind->message ? far : sizeof *req) - from;
    /* forces a call of memset: `rep stos` for a known size starts slowly */
    __asm__("" : "+r"(size));
    memset((char *)req + from, 0, size);
    req->kind = kind;
    req->worker = worker;
    req->in_flight.done = in_flight_done;
    req->deadline.fire = deadline_passed;
    req->iov = req->iov_inline;
    list_init(&req->of_ep);
    list_init(&req->queued);
    fsm_init(&req->core.fsm, &request_port, REQ_IDLE, 0);
    return req;
}

bool weft__request_is_at_hand(const struct weft_worker *worker) {
    return !list_empty(&worker->pools.requests);
}

void weft__request_offer_over(struct weft_request *req) {
    if (!req->send.offered) return;
    req->send.offered = 0;
    completion_step(&req->in_flight, WEFT_OK);
}

/* Frees what it holds. It stays in the list of its endpoint. */
static void release_request(struct weft_request *req) {
    if (req->kind->release) req->kind->release(req);
    weft__timer_stop(req->worker->reactor, &req->deadline);
    weft__request_forget_name(req);
    if (req->iov != req->iov_inline) talloc_free(req->iov);
    if (req->layout) req->layout->end(req);
    talloc_free(req->owned);
    talloc_free(req->rails.ranges);
    req->iov = req->iov_inline;
    req->owned = NULL;
    req->rails.ranges = NULL;
    req->id = 0;
}

static void recycle(struct weft_request *req) {
    req->plain = false;
    struct weft_ep *ep = req->ep;
    weft__request_next_serial(req);
    list_remove(&req->of_ep);
    list_prepend(&req->worker->pools.requests, &req->queued); /* in front: it is in the cache */
    if (ep) weft__ep_request_left(ep);
}

/* The call returns the result: the completion does not count it, and the handle is NULL. */
void weft__request_discard(struct weft_request *req) {
    if (req->completion) req->completion->count--;
    if (req->named_p) *req->named_p = NULL;
    release_request(req);
    recycle(req);
}

weft_status_t weft__request_iov(struct weft_request *req, const weft_iov_t *iov, size_t n_iov) {
    weft_status_t st = weft__iov_measure(iov, n_iov, &req->len);
    if (st < 0) return st;
    if (n_iov > REQUEST_IOV_INLINE) {
        req->iov = weft__alloc(req, n_iov * sizeof *iov, "iov");
        if (!req->iov) {
            req->iov = req->iov_inline;
            return WEFT_ERR_NO_MEMORY;
        }
    }
    if (n_iov) memcpy(req->iov, iov, n_iov * sizeof *iov);
    req->n_iov = (uint32_t)n_iov;
    return WEFT_OK;
}

weft_status_t weft__request_name(struct weft_request *req) {
    if (req->id) return WEFT_OK;
    return weft__idmap_add(req->worker, &req->worker->requests, req, &req->id);
}

weft_status_t weft__request_reserve_name(struct weft_worker *worker) {
    return weft__idmap_reserve(worker, &worker->requests);
}

void weft__request_forget_name(struct weft_request *req) {
    if (req->id) weft__idmap_remove(&req->worker->requests, req->id);
    req->id = 0;
}

void weft__request_bind(struct weft_request *req, struct weft_ep *ep) {
    list_remove(&req->of_ep);
    req->ep = ep;
    if (ep) list_append(&ep->requests, &req->of_ep);
}

static weft_status_t check_descriptor(const struct weft_request *req, const weft_op_t *op) {
    weft_status_t st = weft__check_op(op, req->kind->flags);
    return st == WEFT_OK && req->kind->moves_none ? weft__check_no_layout(op) : st;
}

weft_status_t weft__request_start_deadline(struct weft_request *req, uint64_t after_ms) {
    if (!after_ms) return WEFT_OK;
    uint64_t at = weft__now(req->worker->reactor) + after_ms * NS_PER_MS;
    return weft__timer_start(req->worker->reactor, &req->deadline, at);
}

/* How the program is notified of the end, and the handle that it gets. */
static void take_descriptor(struct weft_request *req, const weft_op_t *op) {
    req->done = op->done;
    req->arg = op->arg;
    req->send.flags = op->flags;
    req->named_p = op->request_p;
    if (op->request_p) *op->request_p = req;
    req->completion = op->completion;
    if (req->completion) req->completion->count++;
}

weft_status_t weft__request_accept(struct weft_request *req, struct weft_ep *ep,
                                   const weft_op_t *op) {
    weft_status_t st = op ? check_descriptor(req, op) : WEFT_OK;
    if (st == WEFT_OK && op) st = weft__request_start_deadline(req, op->deadline_ms);
    if (st < 0) {
        weft__request_discard(req);
        return st;
    }
    if (op) take_descriptor(req, op);
    weft__request_bind(req, ep);
    return WEFT_IN_PROGRESS;
}

void weft__request_queue(struct weft_request *req, struct list *queue) {
    req->queue = queue;
    weft__fsm_step(&req->core.fsm, REQ_EV_QUEUE);
}
void weft__request_hand_over(struct weft_request *req) {
    weft__fsm_step(&req->core.fsm, REQ_EV_HAND_OVER);
}
void weft__request_park(struct weft_request *req) {
    weft__fsm_step(&req->core.fsm, REQ_EV_PARK);
}

/* TRUNCATED says that the receive has all that fits, so it gives way to a failure. */
void weft__request_finish(struct weft_request *req, weft_status_t status) {
    if (req->status == WEFT_OK || (req->status == WEFT_ERR_TRUNCATED && status < 0))
        req->status = status;
    weft__fsm_step(&req->core.fsm, REQ_EV_FINISH);
}

void weft__request_reclaim(struct weft_request *req) {
    struct link *link = req->ep ? req->ep->link : NULL;
    for (int i = 0; link && i < LINK_LANES && req->in_flight.count; i++) {
        struct lane *lane = link->lanes[i];
        if (lane && HAS_OP(lane->ops, buffer, reclaim))
            lane->ops->buffer->reclaim(lane, &req->in_flight);
    }
}

void weft__request_stop(struct weft_request *req, weft_status_t status) {
    if (!request_is_over(&req->core.fsm)) req->status = status;
    weft__fsm_step(&req->core.fsm, req->in_flight.count ? REQ_EV_STOP_IN_FLIGHT : REQ_EV_STOP);
    if (req->in_flight.count)
        weft__request_reclaim(req); /* a slow peer must not hold memory of a completed operation */
}

/* By TRUNCATED a receive has all that fits: no sender can report it. */
void weft__request_failed_there(struct weft_request *req, weft_status_t status) {
    if (status == WEFT_ERR_TRUNCATED) status = WEFT_ERR_CANCELLED;
    req->failed_there = !request_is_over(&req->core.fsm);
    weft__request_stop(req, status);
}

static void count_down(weft_completion_t *completion, weft_status_t status) {
    if (status < 0 && completion->status == WEFT_OK) completion->status = status;
    if (--completion->count > 0 || !completion->done) return;
    /* an earlier operation failed */
    if (completion->status < 0 && status >= 0) weft__causes_clear();
    completion->done(completion->status, completion->arg);
}

void weft_completion_release(weft_completion_t *completion) {
    if (completion) count_down(completion, WEFT_OK);
}

/* A plain request is free already, and stays zero. */
void weft__request_counted(weft_status_t status, void *arg) {
    struct weft_request *req = arg;
    weft_completion_t *completion = req->completion;
    if (req->named_p) *req->named_p = NULL;
    req->completion = NULL;
    req->named_p = NULL;
    count_down(completion, status);
}

static const char *what_happened(const struct weft_request *req) {
    if (req->failed_there) return ": the message failed at its sender";
    switch (req->status) {
    case WEFT_ERR_TIMED_OUT: return ": its deadline passed before it was done";
    case WEFT_ERR_REJECTED: return ": the receiver's handler did not take the payload";
    default: return "";
    }
}

/* In the callback, weft_status_describe must find the causes of this failure only. */
static __attribute__((cold)) NOINLINE void explain(struct weft_request *req) {
    char peer[PEER_ROOM] = "";
    if (req->kind->explain) {
        req->kind->explain(req);
        return;
    }
    const struct weft_ep *ep = req->ep;
    weft__cause_note(req->status, ep ? ep->cause : NULL);
    if (req->status == WEFT_ERR_CANCELLED || (ep && ep->cause && ep->cause->status == req->status))
        return;
    if (ep && ep->link) weft__peer_text(ep->link, peer);
    (void)weft__fail(req->status, "%s%s%s%s", req->kind->name, *peer ? ", " : "", peer,
                     what_happened(req));
}

static void notify_request(struct weft_request *req) {
    if (UNLIKELY(req->status < 0)) explain(req);
    if (req->completion)
        weft__request_counted(req->status, req);
    else if (req->done)
        req->done(req->status, req->arg);
    weft__program_returned(req->worker->reactor);
}

static NOINLINE void take_failed(struct weft_request *req, weft_status_t status) {
    weft__causes_clear();
    weft__plain_take(req->worker, req, status);
}

void weft__request_take(struct weft_request *req, weft_status_t status) {
    struct weft_worker *worker = req->worker;
    if (!weft__plain_may_notify(worker)) {
        weft__request_finish(req, status);
    } else if (LIKELY(req->plain && status == WEFT_OK)) {
        weft__plain_take(worker, req, WEFT_OK);
    } else if (req->plain) {
        take_failed(req, status);
    } else {
        req->status = status;
        list_remove(&req->queued);
        weft__fsm_step(&req->core.fsm, REQ_EV_TAKE);
        release_request(req);
        notify_request(req);
        recycle(req);
    }
}

/* Callbacks are held for the program, but what waits for the end of a request, here or at the peer,
 * does not wait for the program. A request without a callback completes now. */
static bool held(struct weft_request *req) {
    struct weft_worker *worker = req->worker;
    if (worker->callbacks.deliverable == NOTICE_ALL || !(req->done || req->completion))
        return false;
    req->released = !req->kind->releases_late;
    if (req->released) release_request(req);
    weft__post_over(req);
    list_append(&worker->callbacks.held_done, &req->queued);
    worker->features->callbacks_pending(worker);
    return true;
}

/* The callback comes before the endpoint forgets the request: a close completes after all
 * callbacks. */
static inline void end_request(struct weft_request *req) {
    if (LIKELY(!req->released)) release_request(req);
    notify_request(req);
    recycle(req);
}

void weft__requests_complete(struct weft_worker *worker) {
    struct list *node;
    while ((node = list_pop(&worker->callbacks.done)) != NULL) {
        struct weft_request *req = list_of(node, struct weft_request, queued);
        if (LIKELY(!held(req))) end_request(req);
    }
    worker->match.slow &= ~(uint32_t)MATCH_DUE;
}

unsigned weft__requests_notify(struct weft_worker *worker, unsigned most) {
    struct list *node;
    unsigned n = 0;
    for (; n < most && ((node = list_pop(&worker->callbacks.held_done)) ||
                        (node = list_pop(&worker->callbacks.done)));
         n++)
        end_request(list_of(node, struct weft_request, queued));
    return n;
}

void weft_request_cancel(weft_request_t *request) {
    if (!request) return;
    weft_status_t st = weft__worker_enter(request->worker);
    if (st < 0) return;
    if (st == WEFT_IN_PROGRESS)
        weft__post_cancel(request);
    else if (!request->stands_for)
        weft__request_stop(request, WEFT_ERR_CANCELLED);
    else if (*request->stands_for)
        weft__request_stop(*request->stands_for, WEFT_ERR_CANCELLED);
    else /* cancelled before the owner posted it */
        weft__post_stop(request, WEFT_ERR_CANCELLED);
}
