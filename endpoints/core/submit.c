/*
 * Each submission has a block: a thread takes it from the free list of the worker, and the owner
 * returns it. A taker takes the whole list and puts the rest back, so there is no ABA problem.
 * Blocks are freed with the worker, so another thread may safely cancel a completed submission: its
 * serial number differs.
 */
#include "submit.h"

#include <base/status.h>
#include <stdatomic.h>
#include <transports/cuda/place.h>
#include <transports/cuda/stream_gate.h>
#include <weft/layout.h>

#include "endpoint.h"

enum { BYTES_INLINE = WEFT_AM_HEADER_MAX };

struct posted {
    struct remote remote;
    struct posted *next; /* in the free list */
    struct list queued;  /* completed; its callback is held */
    struct weft_worker *worker;
    submit_fn fn;
    uint32_t ep; /* its id; 0: an operation of the worker */
    weft_op_t op;
    weft_layout_t layout;
    struct submit_args args;
    weft_iov_t iov[REQUEST_IOV_INLINE];
    _Alignas(uint64_t) char bytes[BYTES_INLINE];
    void *copy; /* longer arguments, a talloc root; NULL: none */

    struct weft_request handle; /* the program's handle, which stands for `request` */
    weft_request_t *request;
    weft_status_t ended; /* while its callback is held */

    struct cuda_gate *gate; /* of op.stream, until the operation has ended; NULL: no stream */
    struct timer deadline;  /* of the wait for the stream */
    uint64_t ends_at;       /* ns; 0: the deadline counts from the beginning */
};

/* ---- spare blocks */

static void push_submission(_Atomic(void *) *list, struct posted *p) {
    void *head = atomic_load_explicit(list, memory_order_relaxed);
    do p->next = head;
    while (!atomic_compare_exchange_weak_explicit(list, &head, p, memory_order_release,
                                                  memory_order_relaxed));
}

static struct posted *take_all(_Atomic(void *) *list) {
    return atomic_exchange_explicit(list, NULL, memory_order_acquire);
}

/* Joins two lists in the time of the shorter one. */
static struct posted *submit_join(struct posted *a, struct posted *b) {
    struct posted *last_a = a, *last_b = b;
    for (; last_a->next && last_b->next; last_a = last_a->next) last_b = last_b->next;
    if (last_b->next) {
        last_a->next = b;
        return a;
    }
    last_b->next = a;
    return b;
}

/* The list may have thousands of blocks. One of the two to join is short: either few blocks
 * arrived since then, or another taker put back the long one. */
static void put_back(_Atomic(void *) *list, struct posted *rest) {
    void *none = NULL;
    while (!atomic_compare_exchange_strong_explicit(list, &none, rest, memory_order_release,
                                                    memory_order_relaxed)) {
        struct posted *came = take_all(list);
        if (came) rest = submit_join(came, rest);
        none = NULL;
    }
}

static struct posted *take_spare(struct weft_worker *worker) {
    struct posted *first = take_all(&worker->pools.submit);
    if (first && first->next) put_back(&worker->pools.submit, first->next);
    return first;
}

static void give_back(struct posted *p) {
    talloc_free(p->copy);
    p->copy = NULL;
    atomic_fetch_add_explicit(&p->handle.cancel.serial, 1, memory_order_relaxed);
    push_submission(&p->worker->pools.submit, p);
}

void weft__submit_end(struct weft_worker *worker) {
    for (struct posted *p = take_all(&worker->pools.submit), *next; p; p = next) {
        next = p->next;
        talloc_free(p);
    }
}

/* ---- the owner's side */

/* The work behind the operation goes on before the program learns of its end. */
static void open_gate(struct posted *p) {
    if (p->gate) weft__cuda_gate_open(p->gate);
    p->gate = NULL;
}

static void notify_submission(struct posted *p, weft_status_t status) {
    weft_done_fn done = p->op.done;
    void *arg = p->op.arg;
    struct reactor *r = p->worker->reactor;
    open_gate(p);
    if (p->handle.completion) {
        weft__request_counted(status, &p->handle);
        done = NULL;
    }
    give_back(p);
    if (done) done(status, arg);
    weft__program_returned(r);
}

static void leave_endpoint(struct weft_worker *worker, uint32_t id) {
    struct weft_ep *ep = id ? weft__idmap_find(&worker->eps, id) : NULL;
    if (ep) weft__ep_post_left(ep);
}

/* The callback comes before the endpoint forgets the submission: a close completes after all
 * callbacks. */
static void notify_refused(struct posted *p, weft_status_t status) {
    struct weft_worker *worker = p->worker;
    uint32_t ep = p->ep;
    notify_submission(p, status);
    leave_endpoint(worker, ep);
}

/* For a submission that completed within the call that posted it. */
static void notify_when_there(struct posted *p, weft_status_t status) {
    struct weft_worker *worker = p->worker;
    open_gate(p);
    if (worker->callbacks.deliverable == NOTICE_ALL || !(p->op.done || p->op.completion)) {
        notify_refused(p, status);
        return;
    }
    p->ended = status;
    list_append(&worker->callbacks.held_posted, &p->queued);
    worker->features->callbacks_pending(worker);
}

unsigned weft__submit_notify(struct weft_worker *worker, unsigned most) {
    struct list *node;
    unsigned n = 0;
    for (; n < most && (node = list_pop(&worker->callbacks.held_posted)) != NULL; n++) {
        struct posted *p = list_of(node, struct posted, queued);
        if (p->ended < 0) weft__causes_clear();
        notify_refused(p, p->ended);
    }
    return n;
}

/* The callback of a submission that has a handle. */
static void submit_ended(weft_status_t status, void *arg) {
    notify_submission(arg, status);
}

void weft__post_over(const struct weft_request *req) {
    if (req->done == submit_ended) open_gate(req->arg);
    weft__recorded_over(req);
}

static weft_status_t post_submission(struct posted *p, const weft_op_t *op) {
    struct weft_ep *ep = weft__idmap_find(&p->worker->eps, p->ep);
    weft_status_t st = p->ep && !ep ? weft__worker_end_status(p->worker) : p->handle.status;
    if (st < 0) {
        if (p->args.drop) p->args.drop(&p->args);
        return st;
    }
    return p->fn(p->ep ? (void *)ep : p->worker, &p->args, op);
}

/* What is left of its deadline, in ms from now; 0: none. */
static uint32_t deadline_left(struct posted *p) {
    uint64_t now = p->ends_at ? weft__now(p->worker->reactor) : 0;
    if (!p->ends_at) return p->op.deadline_ms;
    return p->ends_at > now + NS_PER_MS ? (uint32_t)((p->ends_at - now) / NS_PER_MS) : 1;
}

/* The descriptor of the call on the owner's thread. */
static weft_op_t op_of(struct posted *p) {
    weft_op_t op = p->op;
    if (!op.request_p && !p->gate) return op;
    op.done = submit_ended;
    op.arg = p;
    op.request_p = &p->request;
    op.completion = NULL;
    op.stream = NULL;
    op.deadline_ms = deadline_left(p);
    return op;
}

static void run_submission(struct remote *remote) {
    struct posted *p = (struct posted *)remote;
    if (p->gate) weft__timer_release(p->worker->reactor, &p->deadline);
    weft_op_t op = op_of(p);
    weft__causes_clear(); /* the call below notes causes of this failure */
    weft_status_t st = post_submission(p, &op);
    if (st != WEFT_IN_PROGRESS) {
        notify_when_there(p, st);
        return;
    }
    leave_endpoint(p->worker, p->ep);
    if (!op.request_p) give_back(p);
}

/* ---- the other thread's side */

/* Arrays are copied into the block, or together into one allocation. */
static weft_status_t copy_args(struct posted *p, const struct submit_args *args) {
    weft_status_t st = weft__check_memory("iov", args->iov, args->n_iov);
    if (st < 0) return st;
    size_t iov_size = args->n_iov * sizeof *args->iov;
    bool iov_fits = args->n_iov <= REQUEST_IOV_INLINE, bytes_fit = args->n_bytes <= BYTES_INLINE;
    size_t more = (iov_fits ? 0 : iov_size) + (bytes_fit ? 0 : args->n_bytes);
    /* A talloc root, as this thread must not touch other trees. */
    if (more && !(p->copy = weft__alloc(NULL, more, "posted arguments"))) return WEFT_ERR_NO_MEMORY;
    p->args = *args;
    p->args.iov = iov_fits ? p->iov : p->copy;
    p->args.bytes = bytes_fit ? p->bytes : (char *)p->copy + (iov_fits ? 0 : iov_size);
    if (iov_size) memcpy((void *)(uintptr_t)p->args.iov, args->iov, iov_size);
    if (args->n_bytes) memcpy((void *)(uintptr_t)p->args.bytes, args->bytes, args->n_bytes);
    return WEFT_OK;
}

static void copy_op(struct posted *p, const weft_op_t *op) {
    p->op = op ? *op : (weft_op_t){0};
    if (p->op.layout) {
        p->layout = *p->op.layout;
        p->op.layout = &p->layout;
    }
    p->request = NULL;
    p->handle.worker = p->worker;
    p->handle.stands_for = &p->request;
    p->handle.status = WEFT_OK;
    p->handle.completion = p->op.completion;
    p->handle.named_p = p->op.request_p;
    p->gate = NULL;
    p->ends_at = 0;
    if (p->op.request_p) *p->op.request_p = &p->handle;
}

/* ---- with a stream */

/* On the driver's thread. */
static void stream_reached(void *posted) {
    struct posted *p = posted;
    weft__reactor_submit(p->worker->reactor, &p->remote);
}

void weft__post_stop(struct weft_request *handle, weft_status_t status) {
    struct posted *p = list_of(handle, struct posted, handle);
    handle->status = status;
    if (p->gate && weft__cuda_gate_leave(p->gate)) stream_reached(p);
}

static void stream_is_late(struct timer *timer) {
    weft__post_stop(&list_of(timer, struct posted, deadline)->handle, WEFT_ERR_TIMED_OUT);
}

static weft_status_t limit_wait(struct posted *p) {
    struct reactor *r = p->worker->reactor;
    if (!p->op.deadline_ms || !weft__reactor_mine(r)) return WEFT_OK;
    p->ends_at = weft__now(r) + p->op.deadline_ms * NS_PER_MS;
    p->deadline.fire = stream_is_late;
    return weft__timer_start(r, &p->deadline, p->ends_at);
}

/* Its call was refused: the endpoint waits for it no more. */
static void run_refused(struct remote *remote) {
    struct posted *p = (struct posted *)remote;
    leave_endpoint(p->worker, p->ep);
    give_back(p);
}

/* The stream may get there before this returns. */
static weft_status_t post_behind_stream(struct posted *p) {
    weft_completion_t *completion = p->op.completion;
    weft_request_t **named_p = p->op.request_p;
    struct reactor *r = p->worker->reactor;
    weft_status_t st = weft__cuda_place_admits(weft__reactor_given(r), p->op.stream);
    if (st == WEFT_OK)
        st = weft__cuda_gate_new(p->op.stream, p->worker, stream_reached, p, &p->gate);
    if (st == WEFT_OK) st = limit_wait(p);
    if (completion) completion->count++;
    if (st < 0 && p->gate) weft__cuda_gate_free(p->gate);
    if (st == WEFT_OK) st = weft__cuda_gate_place(p->gate);
    if (st == WEFT_OK) return WEFT_IN_PROGRESS;
    p->gate = NULL;
    if (completion) completion->count--;
    if (named_p) *named_p = NULL;
    if (p->ends_at) weft__timer_release(r, &p->deadline);
    p->remote.run = run_refused;
    weft__reactor_submit(r, &p->remote);
    return st;
}

/* What waits for a stream, on one endpoint or everywhere, is refused now. */
static bool refuse_waiting(void *posted, const void *of_ep) {
    struct posted *p = posted;
    const struct weft_ep *ep = of_ep;
    if (ep && p->ep != weft__ep_id(ep)) return false;
    p->handle.status = ep ? (weft_status_t)ep->status : weft__worker_end_status(p->worker);
    stream_reached(p);
    return true;
}

void weft__posts_close(struct weft_worker *worker) {
    weft__cuda_gates_leave(worker, refuse_waiting, NULL);
}

void weft__posts_fail(struct weft_ep *ep) {
    weft__cuda_gates_leave(ep->worker, refuse_waiting, ep);
}

weft_status_t weft__post(weft_worker_t *worker, weft_ep_t *ep, submit_fn fn,
                         const struct submit_args *args, const weft_op_t *op) {
    if (op && op->completion && !weft__reactor_mine(worker->reactor))
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "op->completion may be used on the worker's thread only");
    struct posted *p = take_spare(worker);
    if (!p) p = weft__new(NULL, struct posted);
    if (!p) return WEFT_ERR_NO_MEMORY;
    p->worker = worker;
    p->fn = fn;
    p->ep = ep ? weft__ep_id(ep) : 0;
    p->remote.run = run_submission;
    list_init(&p->queued);
    weft_status_t st = copy_args(p, args);
    if (st < 0) {
        give_back(p);
        return st;
    }
    copy_op(p, op);
    if (ep) atomic_fetch_add_explicit(&ep->n_posted, 1, memory_order_relaxed);
    if (p->op.stream) return post_behind_stream(p);
    weft__reactor_submit(worker->reactor, &p->remote);
    return WEFT_IN_PROGRESS;
}

/* ---- cancel */

static void run_cancel(struct remote *remote) {
    struct weft_request *req = list_of(remote, struct weft_request, cancel.remote);
    atomic_exchange(&req->cancel.under_way,
                    false); /* a later cancel is sent again; an earlier one has set `asked` */
    if (atomic_load(&req->cancel.asked) == atomic_load(&req->cancel.serial))
        weft_request_cancel(req);
}

void weft__post_cancel(struct weft_request *req) {
    unsigned asked = atomic_load(&req->cancel.asked);
    /* `serial` is read after `asked`, so it is never older. */
    while (
        !atomic_compare_exchange_weak(&req->cancel.asked, &asked, atomic_load(&req->cancel.serial)))
        continue;
    if (atomic_exchange(&req->cancel.under_way, true)) return;
    req->cancel.remote.run = run_cancel;
    weft__reactor_submit(req->worker->reactor, &req->cancel.remote);
}
