/* Operations submitted by threads that do not own the worker. Arguments are copied; the owner
 * thread posts the operation, and it completes there once. The owner's own path has no code for
 * this. */
#ifndef WEFT_ENDPOINTS_CORE_SUBMIT_H
#define WEFT_ENDPOINTS_CORE_SUBMIT_H

#include "worker.h"

enum { POSTED_WORDS = 8 };

/* The arguments of a call, except its object and descriptor. Arrays are copied, but not the
 * memory that they point to. */
struct submit_args {
    uint64_t word[POSTED_WORDS];
    const weft_iov_t *iov;
    size_t n_iov;
    const void *bytes; /* a header of the program, or another array */
    size_t n_bytes;
};

/* Posts the operation on the owner thread. `object` is the endpoint or the worker. */
typedef weft_status_t (*submit_fn)(void *object, const struct submit_args *args,
                                   const weft_op_t *op);

/* Callable by any thread. Returns WEFT_IN_PROGRESS or NO_MEMORY. The owner thread calls `fn`, in
 * the order of each thread's submissions, and passes every result to op->done. `ep` may be NULL
 * for an operation of the worker. If the endpoint has gone, the result is WEFT_ERR_CLOSED. */
weft_status_t weft__post(weft_worker_t *worker, weft_ep_t *ep, submit_fn fn,
                         const struct submit_args *args, const weft_op_t *op);

/* weft_request_cancel on a thread that does not own the worker. */
void weft__post_cancel(struct weft_request *req);

/* Runs held callbacks, `most` at most. Returns how many. */
unsigned weft__submit_notify(struct weft_worker *worker, unsigned most);

/* Frees the blocks of a worker that ends. */
void weft__submit_end(struct weft_worker *worker);

#endif
