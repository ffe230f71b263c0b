/*
 * Plain receives: of one piece, without layout, flags and deadline, as most are. One is posted and told with nothing but the first
 * lines of its request touched, which the next one takes as they are.
 */
#ifndef WEFT_ENDPOINTS_PLAIN_H
#define WEFT_ENDPOINTS_PLAIN_H

#include "rendezvous.h"
#include "worker.h"

/* What ended as plain as it began needs no cleaning; NULL: there is none. */
static inline struct weft_request *weft__plain_spare(struct weft_worker *worker) {
    struct list *node = worker->free_plain;
    if (__builtin_expect(!node, 0)) return NULL;
    worker->free_plain = node->next;
    return list_of(node, struct weft_request, queued);
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

/* Whom its end is told to. */
static inline void weft__plain_accept(struct weft_request *req, const weft_op_t *op) {
    void *arg = op->arg;
    PLAIN_ALONE(arg);
    req->done = op->done;
    req->arg = arg;
    if (__builtin_expect(op->completion != NULL, 0)) {
        req->done = weft__request_counted;
        req->arg = req;
        req->completion = op->completion;
        req->named_p = op->request_p;
        op->completion->count++;
    }
    if (op->request_p) *op->request_p = req;
}

/* It stands in `queue` from now on. */
static inline void weft__plain_post(struct weft_request *req, struct list *queue, const weft_iov_t *iov,
                                    const weft_op_t *op) {
    fsm_again(&req->core.fsm, REQ_QUEUED);
    weft__request_next_serial(req);
    size_t len = iov->len;
    void *base = iov->base;
    PLAIN_ALONE(len);
    PLAIN_ALONE(base);
    req->iov_inline[0] = (weft_iov_t){base, len};
    req->len = len;
    weft__plain_accept(req, op);
    list_append(queue, &req->queued);
}

/* Nothing is due before it, and the program is there. */
static inline bool weft__plain_may_tell(const struct weft_worker *worker) {
    assert(worker->match.seldom & MATCH_DUE || list_empty(&worker->done));
    assert(!(worker->match.seldom & MATCH_AWAY) == (worker->tellable == NOTICE_ALL));
    return !(worker->match.seldom & (MATCH_DUE | MATCH_AWAY));
}

/* Ends one that may be told, in its queue, and tells the program. The request is spare by then, and the program's next receive; a
 * cancel that comes too late still names the one that ended, since the serial number grows when the next begins. */
static inline void weft__plain_take(struct weft_worker *worker, struct weft_request *req, weft_status_t status) {
    struct list *node = &req->queued;
    weft_done_fn done = req->done;
    void *arg = req->arg;
    assert(weft__plain_may_tell(worker));
    node->prev->next = node->next;
    node->next->prev = node->prev;
    fsm_pass(&req->core.fsm, &weft__request_machine, REQ_EV_TAKE, REQ_QUEUED, REQ_DONE);
    node->next = worker->free_plain;
    worker->free_plain = node;
    if (done) done(status, arg);
    weft__program_returned(worker->reactor);
}

#endif
