/*
 * Plain receives: of one piece, without layout, flags and deadline, as most are. One is posted and told with nothing but the first
 * lines of its request touched, which the next one takes as they are.
 */
#ifndef WEFT_ENDPOINTS_PLAIN_H
#define WEFT_ENDPOINTS_PLAIN_H

#include "rendezvous.h"
#include "worker.h"

/* What ended as plain as it began needs no cleaning; NULL: the next spare one is not such. */
static inline struct weft_request *weft__plain_spare(struct weft_worker *worker) {
    struct list *spare = &worker->free_requests, *node = spare->next;
    struct weft_request *req = list_of(node, struct weft_request, queued);
    if (__builtin_expect(node == spare || !req->plain, 0)) return NULL;
    node->next->prev = spare;
    spare->next = node->next;
    return req;
}

/* NULL when memory runs out. */
static inline struct weft_request *weft__plain_new(struct weft_worker *worker) {
    struct weft_request *req = weft__plain_spare(worker);
    if (req) return req;
    req = weft__request_new(worker, &weft__receive_kind);
    if (!req) return NULL;
    req->plain = true;
    req->n_iov = 1;
    return req;
}

/* A value that the caller has just written, beside others: reading them as one would wait until that is done. */
#define PLAIN_ALONE(value) __asm__("" : "+r"(value))

/* It stands in `queue` from now on. */
static inline void weft__plain_post(struct weft_request *req, struct list *queue, const weft_iov_t *iov,
                                    const weft_op_t *op) {
    fsm_init(&req->core.fsm, &weft__request_port, REQ_QUEUED, 0);
    req->status = WEFT_OK;
    size_t len = iov->len;
    void *base = iov->base;
    PLAIN_ALONE(len);
    PLAIN_ALONE(base);
    req->iov_inline[0] = (weft_iov_t){base, len};
    req->len = len;
    req->done = NULL;
    req->completion = NULL;
    if (op) {
        void *arg = op->arg;
        PLAIN_ALONE(arg);
        req->done = op->done;
        req->arg = arg;
        req->completion = op->completion;
        if (req->completion) req->completion->count++;
        if (op->request_p) *op->request_p = req;
    }
    list_append(queue, &req->queued);
}

/* Nothing is due before it, and the program is there. */
static inline bool weft__plain_may_tell(const struct weft_worker *worker) {
    return list_empty(&worker->done) && worker->tellable == NOTICE_ALL;
}

/* Ends one that may be told, in its queue, and tells the program. */
static inline void weft__plain_take(struct weft_worker *worker, struct weft_request *req, weft_status_t status) {
    struct list *node = &req->queued, *spare = &worker->free_requests;
    node->prev->next = node->next;
    node->next->prev = node->prev;
    fsm_step_inline(&req->core.fsm, &weft__request_machine, REQ_EV_TAKE);
    if (__builtin_expect(!req->completion, 1)) {
        if (req->done) req->done(status, req->arg);
    } else {
        weft__completion_step(req->completion, status);
    }
    weft__request_next_serial(req);
    list_prepend(spare, node);
}

#endif
