/*
 * Operations submitted by threads that do not own the worker: copied, handed to the owner, posted and completed there,
 * once. Nothing on the owner's own path knows of them.
 */
#ifndef WEFT_ENDPOINTS_POSTED_H
#define WEFT_ENDPOINTS_POSTED_H

#include "worker.h"

enum { POSTED_WORDS = 8 };

/* What an operation was called with, besides its object and its descriptor. Arrays are copied, not what they point to. */
struct posted_args {
    uint64_t word[POSTED_WORDS];
    const weft_iov_t *iov;
    size_t n_iov;
    const void *bytes; /* a user header, or an array of the operation's own */
    size_t n_bytes;
};

/* Posts it, on the owner's thread: the operation's own function. `object` is the endpoint, or the worker. */
typedef weft_status_t (*posted_fn)(void *object, const struct posted_args *args, const weft_op_t *op);

/*
 * From any thread: WEFT_IN_PROGRESS, and `fn` is called by the owner, in the order of each thread's submissions; what it answers at once
 * comes through op->done all the same. Or NO_MEMORY. `ep` NULL: the worker's. An endpoint that is gone by then
 * answers WEFT_ERR_CLOSED.
 */
weft_status_t weft__post(weft_worker_t *worker, weft_ep_t *ep, posted_fn fn, const struct posted_args *args,
                         const weft_op_t *op);

/* weft_request_cancel by another thread. */
void weft__post_cancel(struct weft_request *req);

/* Callbacks that waited for the program to be there, so many at most. Returns how many. */
unsigned weft__posted_tell(struct weft_worker *worker, unsigned most);

/* The worker is gone: so is what it kept for submissions. */
void weft__posted_end(struct weft_worker *worker);

#endif
