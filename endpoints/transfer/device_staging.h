/*
 * Device memory of large messages, through staging buffers, without a wait of the worker's thread.
 *
 * A send reads the next chunks while it sends those before them. A receive gathers bytes in a
 * chunk, which is written when it is full, while the next ones come. Each copy under way counts in
 * the request's `in_flight`: memory of an operation that ends early is the program's when no copy
 * can touch it any more. A copy that fails ends its operation.
 *
 * Where the staging memory of the worker is used up, a copy is waited for instead.
 */
#ifndef WEFT_ENDPOINTS_TRANSFER_DEVICE_STAGING_H
#define WEFT_ENDPOINTS_TRANSFER_DEVICE_STAGING_H

#include "device_memory.h"
#include <base/compiler.h>

struct weft_ep;

void weft__device_copies_init(struct weft_worker *worker);
void weft__device_copies_end(struct weft_worker *worker);
/* NULL: no memory. */
struct cuda_copies *weft__device_copies_of(struct weft_worker *worker);

/* True if the request's memory is a device's, and long enough to be staged. */
bool weft__device_stages(const struct weft_request *req);
static inline bool weft__request_stages(const struct weft_request *req) {
    return UNLIKELY(weft__cuda_active) && weft__device_stages(req);
}

/*
 * A send that is queued wants its bytes from `req->offset` on. OK: `*ready_p` of them are at hand,
 * for weft__request_gather. IN_PROGRESS: none are; `resume` is called when some are, unless the
 * request ends before. An error: a copy has failed.
 */
weft_status_t weft__device_stage(struct weft_request *req, void (*resume)(struct weft_request *req),
                                 size_t *ready_p);
/* Bytes came for a request that waits for them, in order. An error: the request has to end. */
weft_status_t weft__device_land(struct weft_request *req, size_t offset, const void *from,
                                size_t len);
/* All bytes have come. True: the request ends when they are written; else it has to end now. */
bool weft__device_still_lands(struct weft_request *req);

/*
 * A message of `len` bytes is here, for a receive that is accepted. OK: its memory has them.
 * IN_PROGRESS: the receive waits, and ends when they are written. `ep`, which may be NULL, is where
 * the message came from. For memory that is not a device's, as weft__request_scatter.
 */
weft_status_t weft__device_take(struct weft_request *req, struct weft_ep *ep, const void *bytes,
                                size_t len);

/* Of device_memory.c: copies from chunks. False: they have not all of it. */
bool weft__device_take_staged(struct device_staging *staging, size_t offset, void *to, size_t len);
void weft__device_staging_end(struct device_staging *staging);

#endif
