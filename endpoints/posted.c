/*
 * A submission lies in a block of its own that goes round: a thread takes it from the worker's spare ones, the owner gives it back.
 * Takers take the whole list and push the rest back, so there is no ABA. Blocks are freed with the worker, which makes it
 * safe for another thread to name one that has ended: its serial number tells.
 */
#include "posted.h"

#include <stdatomic.h>
#include <weft/layout.h>

#include "ep.h"
#include "thread.h"

enum { BYTES_INLINE = WEFT_AM_HEADER_MAX };

struct posted {
    struct remote remote;
    struct posted *next; /* spare */
    struct list queued;  /* ended, and to be told to a program that is not there now */
    struct weft_worker *worker;
    posted_fn fn;
    uint32_t ep; /* its id; 0: the worker's */
    weft_op_t op;
    weft_layout_t layout;
    struct posted_args args;
    weft_iov_t iov[REQUEST_IOV_INLINE];
    char bytes[BYTES_INLINE];
    void *copy; /* of what is longer: a talloc root; NULL: nothing is */

    struct weft_request handle; /* for the program that wants to cancel: stands for `request` */
    weft_request_t *request;
    weft_status_t ended; /* while it waits to be told: a cancel comes too late then */
};

/* ---- spare blocks */

static void push(_Atomic(void *) *list, struct posted *p) {
    void *head = atomic_load_explicit(list, memory_order_relaxed);
    do p->next = head;
    while (!atomic_compare_exchange_weak_explicit(list, &head, p, memory_order_release, memory_order_relaxed));
}

static struct posted *take_all(_Atomic(void *) *list) {
    return atomic_exchange_explicit(list, NULL, memory_order_acquire);
}

/* One list of two, of which only the shorter is gone through. */
static struct posted *join(struct posted *a, struct posted *b) {
    struct posted *last_a = a, *last_b = b;
    for (; last_a->next && last_b->next; last_a = last_a->next) last_b = last_b->next;
    if (last_b->next) {
        last_a->next = b;
        return a;
    }
    last_b->next = a;
    return b;
}

/* There may be thousands of them. What came meanwhile is short, or else it is what another taker put back, and ours is. */
static void put_back(_Atomic(void *) *list, struct posted *rest) {
    void *none = NULL;
    while (
        !atomic_compare_exchange_strong_explicit(list, &none, rest, memory_order_release, memory_order_relaxed)) {
        struct posted *came = take_all(list);
        if (came) rest = join(came, rest);
        none = NULL;
    }
}

static struct posted *take_spare(struct weft_worker *worker) {
    struct posted *first = take_all(&worker->spare_posted);
    if (first && first->next) put_back(&worker->spare_posted, first->next);
    return first;
}

static void give_back(struct posted *p) {
    talloc_free(p->copy);
    p->copy = NULL;
    atomic_fetch_add_explicit(&p->handle.cancel.serial, 1, memory_order_relaxed);
    push(&p->worker->spare_posted, p);
}

void weft__posted_end(struct weft_worker *worker) {
    for (struct posted *p = take_all(&worker->spare_posted), *next; p; p = next) {
        next = p->next;
        talloc_free(p);
    }
}

/* ---- the owner's side */

static void tell(struct posted *p, weft_status_t status) {
    weft_done_fn done = p->op.done;
    void *arg = p->op.arg;
    struct reactor *r = p->worker->reactor;
    give_back(p);
    if (done) done(status, arg);
    weft__program_returned(r);
}

/* It ended in the call that posted it. */
static void tell_when_there(struct posted *p, weft_status_t status) {
    struct weft_worker *worker = p->worker;
    if (worker->tellable == NOTICE_ALL || !p->op.done) {
        tell(p, status);
        return;
    }
    p->ended = status;
    list_append(&worker->held_posted, &p->queued);
    weft__thread_news(worker);
}

unsigned weft__posted_tell(struct weft_worker *worker, unsigned most) {
    struct list *node;
    unsigned n = 0;
    for (; n < most && (node = list_pop(&worker->held_posted)) != NULL; n++) {
        struct posted *p = list_of(node, struct posted, queued);
        tell(p, p->ended);
    }
    return n;
}

/* The callback of one that the program may cancel. */
static void ended(weft_status_t status, void *arg) {
    tell(arg, status);
}

static weft_status_t post(struct posted *p, const weft_op_t *op) {
    struct weft_ep *ep = weft__idmap_find(&p->worker->eps, p->ep);
    if (p->ep && !ep) return WEFT_ERR_CLOSED;
    return p->fn(p->ep ? (void *)ep : p->worker, &p->args, op);
}

static void run(struct remote *remote) {
    struct posted *p = (struct posted *)remote;
    weft_op_t op = p->op;
    if (op.request_p) {
        op.done = ended;
        op.arg = p;
        op.request_p = &p->request;
    }
    weft_status_t st = p->handle.status < 0 ? p->handle.status : post(p, &op);
    if (st != WEFT_IN_PROGRESS)
        tell_when_there(p, st);
    else if (!op.request_p)
        give_back(p);
}

/* ---- the other thread's side */

/* Arrays go inline, or into one block behind each other. */
static weft_status_t copy_args(struct posted *p, const struct posted_args *args) {
    weft_status_t st = weft__check_memory("iov", args->iov, args->n_iov);
    if (st < 0) return st;
    size_t iov_size = args->n_iov * sizeof *args->iov;
    bool iov_fits = args->n_iov <= REQUEST_IOV_INLINE, bytes_fit = args->n_bytes <= BYTES_INLINE;
    size_t more = (iov_fits ? 0 : iov_size) + (bytes_fit ? 0 : args->n_bytes);
    /* A root of its own: no other tree may be touched from this thread. */
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
    if (p->op.request_p) *p->op.request_p = &p->handle;
}

weft_status_t weft__post(weft_worker_t *worker, weft_ep_t *ep, posted_fn fn, const struct posted_args *args,
                         const weft_op_t *op) {
    if (op && op->completion)
        return weft__fail(WEFT_ERR_UNSUPPORTED, "a counting completion belongs to the worker's thread");
    struct posted *p = take_spare(worker);
    if (!p) p = weft__new(NULL, struct posted);
    if (!p) return WEFT_ERR_NO_MEMORY;
    p->worker = worker;
    p->fn = fn;
    p->ep = ep ? ep->id : 0;
    p->remote.run = run;
    list_init(&p->queued);
    weft_status_t st = copy_args(p, args);
    if (st < 0) {
        give_back(p);
        return st;
    }
    copy_op(p, op);
    weft__reactor_submit(worker->reactor, &p->remote);
    return WEFT_IN_PROGRESS;
}

/* ---- cancel */

static void run_cancel(struct remote *remote) {
    struct weft_request *req = list_of(remote, struct weft_request, cancel.remote);
    atomic_exchange(&req->cancel.under_way, false); /* who comes later sends it again; who came before has asked */
    if (atomic_load(&req->cancel.asked) == atomic_load(&req->cancel.serial)) weft_request_cancel(req);
}

void weft__post_cancel(struct weft_request *req) {
    unsigned asked = atomic_load(&req->cancel.asked);
    /* Read after what it replaces: so it is never older. */
    while (!atomic_compare_exchange_weak(&req->cancel.asked, &asked, atomic_load(&req->cancel.serial))) continue;
    if (atomic_exchange(&req->cancel.under_way, true)) return;
    req->cancel.remote.run = run_cancel;
    weft__reactor_submit(req->worker->reactor, &req->cancel.remote);
}
