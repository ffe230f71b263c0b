/* Remote keys: an endpoint's handle to a region of its peer, with the transport's own key if the
 * link has one. */
#ifndef WEFT_ENDPOINTS_MEMORY_RKEY_H
#define WEFT_ENDPOINTS_MEMORY_RKEY_H

#include "memory.h"
#include <endpoints/wire/rkey_wire.h>

struct weft_rkey {
    struct weft_ep *ep;   /* NULL: the endpoint is gone */
    struct lane_key *key; /* the transport's key; never NULL; a refused key if there is none */
    /* the key of the lane that is being left, for operations under way; or NULL */
    struct lane_key *left;
    size_t max_short; /* the longest put that `key` takes at once */
    struct remote_region region;
    uint64_t worker;
    struct weft_worker *user; /* the worker of the handle */
    weft_status_t status;     /* OK, or the status that operations end with */
    uint32_t uses;            /* the handle, and operations under way */
    bool exposed;             /* made by EXPOSE, not by the program (expose.c) */
    struct remote released;   /* its release, in order with submissions of other threads */
    struct list of_ep;
    uint16_t packed_len;
    uint8_t packed[];
};

/* Packs a region's key into WEFT_RKEY_MAX bytes and returns its length. `only` leaves out the
 * entries of other interfaces; NULL packs all. */
size_t weft__mem_key(const weft_mem_t *mem, unsigned rights, const struct iface *only, void *to);

/* The key's own status, or that of the transport's key. */
weft_status_t weft__rkey_status(const struct weft_rkey *rkey);
/* Checks the range and the right. */
weft_status_t weft__rkey_check(const struct weft_rkey *rkey, uint64_t remote, size_t len,
                               unsigned right);
static inline struct weft_rkey *weft__rkey_use(struct weft_rkey *rkey) {
    rkey->uses++;
    return rkey;
}
void weft__rkey_drop(struct weft_rkey *rkey);

/* Makes ep->keys, if the endpoint has none yet. False: no memory. */
bool weft__rkeys_init(struct weft_ep *ep);
/* Open the keys when the endpoint is READY, close them when it leaves its link, detach them at
 * its end. */
void weft__rkeys_open(struct weft_ep *ep);
void weft__rkeys_close(struct weft_ep *ep);
void weft__rkeys_end(struct weft_ep *ep);
/* The link is leaving this lane: its keys serve operations under way, and no new ones. */
void weft__rkeys_leave(struct weft_ep *ep, const struct lane *lane);
/* The link has left the lane: closes its keys. `gone` is a lane that was lost, or NULL. */
void weft__rkeys_left(struct weft_ep *ep, const struct lane *gone);

#endif
