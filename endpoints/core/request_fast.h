/* Plain receives: one piece, no layout, flags or deadline. They touch only the first cache lines
 * of their request, and the next plain receive reuses the request as it is. */
#ifndef WEFT_ENDPOINTS_CORE_REQUEST_FAST_H
#define WEFT_ENDPOINTS_CORE_REQUEST_FAST_H

#include "worker.h"
#include <base/compiler.h>

/* A completed plain request, clean as it is. NULL: none. */
static inline struct weft_request *weft__plain_spare(struct weft_worker *worker) {
    struct list *node = worker->pools.plain;
    if (UNLIKELY(!node)) return NULL;
    worker->pools.plain = node->next;
    return list_of(node, struct weft_request, queued);
}

/* NULL when memory runs out. */
static inline struct weft_request *weft__plain_new(struct weft_worker *worker,
                                                   const struct request_kind *kind) {
    struct weft_request *req = weft__plain_spare(worker);
    if (req) return req;
    req = weft__request_new(worker, kind);
    if (!req) return NULL;
    req->plain = true;
    req->n_iov = 1;
    return req;
}

/* Loads one value by itself: a wide load of two values that were just stored would stall. */
#define LOAD_ALONE(place) (*(const volatile __typeof__(place) *)&(place))

/* The program waits for it by a completion, or wants its handle. */
static inline void weft__plain_name(struct weft_request *req, const weft_op_t *op) {
    if (op->completion) {
        req->done = weft__request_counted;
        req->arg = req;
        req->completion = op->completion;
        req->named_p = op->request_p;
        op->completion->count++;
    }
    if (op->request_p) *op->request_p = req;
}

/* Sets the callback, and the handle of the program. */
static inline void weft__plain_accept(struct weft_request *req, const weft_op_t *op) {
    req->done = op->done;
    req->arg = LOAD_ALONE(op->arg);
    if ((uintptr_t)op->completion | (uintptr_t)op->request_p) weft__plain_name(req, op);
}

/* Puts it into `queue`. */
static inline void weft__plain_post(struct weft_request *req, struct list *queue,
                                    const weft_iov_t *iov, const weft_op_t *op) {
    fsm_again(&req->core.fsm, REQ_QUEUED);
    weft__request_next_serial(req);
    size_t len = LOAD_ALONE(iov->len);
    req->iov_inline[0] = (weft_iov_t){LOAD_ALONE(iov->base), len};
    req->len = len;
    weft__plain_accept(req, op);
    list_append(queue, &req->queued);
}

/* True if no other completion is due, and callbacks are not held. */
static inline bool weft__plain_may_notify(const struct weft_worker *worker) {
    assert(worker->match.slow & MATCH_DUE || list_empty(&worker->callbacks.done));
    assert(!(worker->match.slow & MATCH_CB_DEFERRED) ==
           (worker->callbacks.deliverable == NOTICE_ALL));
    return !(worker->match.slow & (MATCH_DUE | MATCH_CB_DEFERRED));
}

/* Completes a queued receive and runs its callback. The request is free before the callback, so
 * the callback may reuse it. A late cancel names the completed operation, since the serial
 * number grows when the next one begins. */
static inline void weft__plain_take(struct weft_worker *worker, struct weft_request *req,
                                    weft_status_t status) {
    struct list *node = &req->queued;
    weft_done_fn done = req->done;
    void *arg = req->arg;
    assert(weft__plain_may_notify(worker));
    node->prev->next = node->next;
    node->next->prev = node->prev;
    fsm_pass(&req->core.fsm, &weft__request_machine, REQ_EV_TAKE, REQ_QUEUED, REQ_DONE);
    node->next = worker->pools.plain;
    worker->pools.plain = node;
    if (done) done(status, arg);
    weft__program_returned(worker->reactor);
}

#endif
