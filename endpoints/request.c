#include "request.h"

#include <reactor/counters.h>
#include <reactor/mutant.h>

#include "ep.h"
#include "layout.h"
#include "plain.h"
#include "posted.h"
#include "rendezvous.h"
#include "thread.h"

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
        list_append(&req->worker->done, &req->queued);
        req->worker->match.seldom |= MATCH_DUE;
        weft__job_post(req->worker->reactor, &req->worker->complete);
        break;
    case REQ_N_EFFECTS: break;
    }
}

static void request_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    struct weft_request *req = list_of(m, struct weft_request, core.fsm);
    weft__log(req->worker->context, WEFT_LOG_ERROR, "endpoints", "request %s: %s in %s", req->kind->name,
              weft__request_machine.event_name[event], fsm_state_name(m));
    if (req->ep) weft__ep_violation(req->ep, WEFT_ERR_INTERNAL, "request");
}

static const struct fsm_port request_port = {&weft__request_machine, request_effect, request_fail};

static void lent_done(struct completion *c, weft_status_t status) {
    struct weft_request *req = list_of(c, struct weft_request, lent);
    c->status = WEFT_OK;
    fsm_step(&req->core.fsm, REQ_EV_RETURNED);
    if (req->core.fsm.state != REQ_DONE && req->kind->returned) req->kind->returned(req, status);
}

static void deadline_passed(struct timer *timer) {
    weft__request_stop(list_of(timer, struct weft_request, deadline), WEFT_ERR_TIMED_OUT);
}

struct weft_request *weft__request_new(struct weft_worker *worker, const struct request_kind *kind) {
    struct list *node = list_pop(&worker->free_requests);
    struct weft_request *req =
        node ? list_of(node, struct weft_request, queued) : weft__new(worker, struct weft_request);
    if (!req) return NULL;

    /* A cancel may outlive the operation before. The rest begins as zero, as far as this kind looks. */
    const size_t from = offsetof(struct weft_request, done), far = offsetof(struct weft_request, rma);
    size_t size = (kind->message ? far : sizeof *req) - from;
    __asm__("" : "+r"(size)); /* by the C library: the string instruction that a known size becomes starts slowly */
    memset((char *)req + from, 0, size);
    req->kind = kind;
    req->worker = worker;
    req->lent.done = lent_done;
    req->deadline.fire = deadline_passed;
    req->iov = req->iov_inline;
    list_init(&req->of_ep);
    list_init(&req->queued);
    fsm_init(&req->core.fsm, &request_port, REQ_IDLE, 0);
    return req;
}

/* Gives back what it holds, except for its place among its endpoint's requests. */
static void release(struct weft_request *req) {
    if (req->kind->release) req->kind->release(req);
    weft__timer_stop(req->worker->reactor, &req->deadline);
    if (req->id) weft__idmap_remove(&req->worker->requests, req->id);
    if (req->iov != req->iov_inline) talloc_free(req->iov);
    if (req->layout) weft__layout_end(req);
    talloc_free(req->header);
    talloc_free(req->spread);
    req->iov = req->iov_inline;
    req->header = NULL;
    req->spread = NULL;
    req->id = 0;
}

static void recycle(struct weft_request *req) {
    req->plain = false;
    struct weft_ep *ep = req->ep;
    weft__request_next_serial(req);
    list_remove(&req->of_ep);
    list_prepend(&req->worker->free_requests, &req->queued); /* the next one finds it in the cache */
    if (ep) weft__ep_request_left(ep);
}

/* It is told by what the call returns, so it does not count, and there is nothing to cancel. */
void weft__request_discard(struct weft_request *req) {
    if (req->completion) req->completion->count--;
    if (req->named_p) *req->named_p = NULL;
    release(req);
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

void weft__request_bind(struct weft_request *req, struct weft_ep *ep) {
    list_remove(&req->of_ep);
    req->ep = ep;
    if (ep) list_append(&ep->requests, &req->of_ep);
}

weft_status_t weft__request_accept(struct weft_request *req, struct weft_ep *ep, const weft_op_t *op) {
    if (op) {
        weft_status_t st = weft__check_op(op, req->kind->flags);
        if (st == WEFT_OK && req->kind->moves_none) st = weft__check_no_layout(op);
        if (st < 0) {
            weft__request_discard(req);
            return st;
        }
        req->done = op->done;
        req->arg = op->arg;
        req->flags = op->flags;
        if (op->deadline_ms) {
            uint64_t at = weft__now(req->worker->reactor) + op->deadline_ms * NS_PER_MS;
            weft_status_t st = weft__timer_start(req->worker->reactor, &req->deadline, at);
            if (st < 0) {
                weft__request_discard(req);
                return st;
            }
        }
        req->named_p = op->request_p;
        if (op->request_p) *op->request_p = req;
        req->completion = op->completion;
        if (req->completion) req->completion->count++;
    }
    weft__request_bind(req, ep);
    return WEFT_IN_PROGRESS;
}

void weft__request_queue(struct weft_request *req, struct list *queue) {
    req->queue = queue;
    fsm_step(&req->core.fsm, REQ_EV_QUEUE);
}
void weft__request_lend(struct weft_request *req) {
    fsm_step(&req->core.fsm, REQ_EV_LEND);
}
void weft__request_park(struct weft_request *req) {
    fsm_step(&req->core.fsm, REQ_EV_PARK);
}

void weft__request_finish(struct weft_request *req, weft_status_t status) {
    if (req->status == WEFT_OK) req->status = status;
    fsm_step(&req->core.fsm, REQ_EV_FINISH);
}

void weft__request_stop(struct weft_request *req, weft_status_t status) {
    enum request_state state = req->core.fsm.state;
    if (state != REQ_ENDING && state != REQ_DONE) req->status = status;
    fsm_step(&req->core.fsm, req->lent.count && !WEFT_MUTANT(cancel_frees_lent) ? REQ_EV_STOP_LENT : REQ_EV_STOP);
}

static void count_down(weft_completion_t *completion, weft_status_t status) {
    if (status < 0 && completion->status == WEFT_OK) completion->status = status;
    if (--completion->count == 0 && completion->done) completion->done(completion->status, completion->arg);
}

void weft_completion_release(weft_completion_t *completion) {
    if (completion) count_down(completion, WEFT_OK);
}

/* A plain one is spare already, and is left as blank as it was. */
void weft__request_counted(weft_status_t status, void *arg) {
    struct weft_request *req = arg;
    weft_completion_t *completion = req->completion;
    if (req->named_p) *req->named_p = NULL;
    req->completion = NULL;
    req->named_p = NULL;
    count_down(completion, status);
}

static void tell(struct weft_request *req) {
    if (req->completion)
        weft__request_counted(req->status, req);
    else if (req->done)
        req->done(req->status, req->arg);
    weft__program_returned(req->worker->reactor);
}

void weft__request_take(struct weft_request *req, weft_status_t status) {
    struct weft_worker *worker = req->worker;
    if (!weft__plain_may_tell(worker)) {
        weft__request_finish(req, status);
    } else if (req->plain) {
        weft__plain_take(worker, req, status);
    } else {
        req->status = status;
        list_remove(&req->queued);
        fsm_step(&req->core.fsm, REQ_EV_TAKE);
        release(req);
        tell(req);
        recycle(req);
    }
}

/* The program is not there now, and its callbacks wait for it; what has none need not. */
static bool held(struct weft_request *req) {
    struct weft_worker *worker = req->worker;
    if (worker->tellable == NOTICE_ALL || !(req->done || req->completion)) return false;
    list_append(&worker->held_done, &req->queued);
    weft__thread_news(worker);
    return true;
}

/* The callback comes first, the endpoint's books after: a close is done when all callbacks have been. */
static inline void end(struct weft_request *req) {
    release(req);
    tell(req);
    recycle(req);
}

void weft__requests_complete(struct weft_worker *worker) {
    struct list *node;
    while ((node = list_pop(&worker->done)) != NULL) {
        struct weft_request *req = list_of(node, struct weft_request, queued);
        if (__builtin_expect(!held(req), 1)) end(req);
    }
    worker->match.seldom &= ~(uint32_t)MATCH_DUE;
}

unsigned weft__requests_tell(struct weft_worker *worker, unsigned most) {
    struct list *node;
    unsigned n = 0;
    for (; n < most && ((node = list_pop(&worker->held_done)) || (node = list_pop(&worker->done))); n++)
        end(list_of(node, struct weft_request, queued));
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
    else
        request->status = WEFT_ERR_CANCELLED; /* before it was posted */
}
