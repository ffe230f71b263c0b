/*
 * Leases of a worker: ranges of ids of active messages and of tags that other libraries use. An
 * endpoint that holds a lease maps what is sent over it into the range.
 */
#ifndef WEFT_ENDPOINTS_CORE_LEASE_H
#define WEFT_ENDPOINTS_CORE_LEASE_H

#include <base/list.h>
#include <stdbool.h>
#include <stdint.h>

struct weft_worker;
struct weft_ep;

enum { WORKER_LEASES = 64 }; /* at once; the numbers of endpoints' leases have 8 bits */

struct lease {
    uint8_t number; /* from 1; 0: free */
    uint8_t tag_bits;
    bool ends; /* its endpoints were asked to close: no others follow it */
    uint16_t am_first, am_count;
    uint32_t id; /* of this holder, in its worker; not 0, and never used again */
    uint64_t tag_first;
    struct weft_worker *user; /* the worker whose handlers run */
    void *handlers;           /* messages/leased.c: a talloc child of `user` */
    struct list receives;     /* messages/leased.c: posted for `user` */
};

struct leases {
    struct lease lease[WORKER_LEASES];
    uint32_t last_id;
};

static inline uint64_t lease_tag_mask(const struct lease *lease) {
    return (UINT64_C(1) << lease->tag_bits) - 1;
}

/* The lease that a peer's endpoint is for: that of the id, or (id 0) of the range's holder. NULL:
 * none. */
const struct lease *weft__lease_find(const struct weft_worker *worker, uint32_t id,
                                     uint32_t am_first);
/* The lease that the endpoint holds. */
const struct lease *weft__ep_lease(const struct weft_ep *ep);
/* Sends of this endpoint are mapped into the lease from now on; NULL: no more. */
void weft__ep_hold_lease(struct weft_ep *ep, const struct lease *lease);
/* The same, for an endpoint that a peer opened and whose first message came by that lease. */
void weft__ep_follow_lease(struct weft_ep *ep, const struct lease *lease);

#endif
