/* Operations submitted by threads that do not own the worker. Arguments are copied; the owner
 * thread posts the operation, and it completes there once. The owner's own path has no code for
 * this. */
#ifndef WEFT_ENDPOINTS_CORE_SUBMIT_H
#define WEFT_ENDPOINTS_CORE_SUBMIT_H

#include "worker.h"
#include <base/compiler.h>

enum { POSTED_WORDS = 8 };

/* The arguments of a call, except its object and descriptor. Arrays are copied, but not the
 * memory that they point to. */
struct submit_args {
    uint64_t word[POSTED_WORDS];
    const weft_iov_t *iov;
    size_t n_iov;
    const void *bytes; /* a header of the program, or another array; the copy is aligned to 8 */
    size_t n_bytes;
    /* optional: called by the owner's thread in place of the submission's function, which will not
     * be called, to free what the arguments hold */
    void (*drop)(const struct submit_args *args);
};

/* Posts the operation on the owner thread. `object` is the endpoint or the worker. */
typedef weft_status_t (*submit_fn)(void *object, const struct submit_args *args,
                                   const weft_op_t *op);

/* Callable by any thread. Returns WEFT_IN_PROGRESS or NO_MEMORY. The owner thread calls `fn`, in
 * the order of each thread's submissions, and passes every result to op->done. `ep` may be NULL
 * for an operation of the worker. If the endpoint has gone, the result is WEFT_ERR_CLOSED. With
 * op->stream it is called when the stream has got there; also UNSUPPORTED and IO, then. */
weft_status_t weft__post(weft_worker_t *worker, weft_ep_t *ep, submit_fn fn,
                         const struct submit_args *args, const weft_op_t *op);

/* Who calls an operation: WEFT_OK for the owner thread, which goes on; IN_PROGRESS for another
 * thread, or with a stream: weft__post it. */
static inline weft_status_t weft__call_enter(const struct weft_worker *worker,
                                             const weft_op_t *op) {
    weft_status_t st = weft__worker_enter(worker);
    return UNLIKELY(st == WEFT_OK && op && op->stream) ? WEFT_IN_PROGRESS : st;
}

/*
 * The same for a stream that is being captured: recorded in its graph. Each launch calls `fn`, and
 * op->done reports the end of each. WEFT_OK: recorded. UNSUPPORTED: op->completion or request_p;
 * the driver cannot record it.
 */
weft_status_t weft__post_recorded(struct weft_worker *worker, submit_fn fn,
                                  const struct submit_args *args, const weft_op_t *op);
/* As weft__post_over, of one that a graph launched (recorded.c). */
void weft__recorded_over(const struct weft_request *req);

/* The program's handle of a submission that waits for its stream: it ends, soon. Nothing for one
 * that has begun. Owner's thread. */
void weft__post_stop(struct weft_request *handle, weft_status_t status);
/* The request has ended, and its callback waits for the program: no stream waits for that. */
void weft__post_over(const struct weft_request *req);
/* The worker closes, or the endpoint is lost: what waits for streams ends. */
void weft__posts_close(struct weft_worker *worker);
void weft__posts_fail(struct weft_ep *ep);

/* weft_request_cancel on a thread that does not own the worker. */
void weft__post_cancel(struct weft_request *req);

/* Runs held callbacks, `most` at most. Returns how many. */
unsigned weft__submit_notify(struct weft_worker *worker, unsigned most);

/* Frees the blocks of a worker that ends. */
void weft__submit_end(struct weft_worker *worker);

#endif
