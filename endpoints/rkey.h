/*
 * Keys to a peer's memory: as bytes, and as an endpoint's handle, which has the transport's own key where the link can use one.
 *
 * Layout, little-endian: 'W' 'K' version n | worker 8 | region 4 | epoch 4 | token 16 | base 8 | length 8 | rights 1, zero 3 |
 * n × (name length 1, name, length 1, bytes), one for each transport that registered the region.
 */
#ifndef WEFT_ENDPOINTS_RKEY_H
#define WEFT_ENDPOINTS_RKEY_H

#include "memory.h"

enum { RKEY_VERSION = 1, RKEY_ENTRIES = 8, RKEY_HEAD = 56 };

struct rkey_entry {
    const char *name;
    const uint8_t *bytes;
    uint8_t name_len, len;
};
struct rkey_packed {
    uint64_t worker;
    struct remote_region region;
    uint32_t n;
    struct rkey_entry entry[RKEY_ENTRIES]; /* these point into the bytes read */
};
/* Into WEFT_RKEY_MAX bytes; entries that do not fit any more are left out. Returns how many. */
size_t weft__rkey_write(void *to, const struct rkey_packed *key);
/* WEFT_ERR_ADDRESS: not a key, or not of this version. */
weft_status_t weft__rkey_read(const void *bytes, size_t len, struct rkey_packed *key_p);

struct weft_rkey {
    struct weft_ep *ep;    /* NULL: gone */
    struct lane_key *key;  /* the transport's; never NULL: one that cannot be used where there is none */
    struct lane_key *left; /* of a lane that is about to be left: for operations under way; NULL: none */
    size_t max_short;      /* bytes of a put that `key` takes at once */
    struct remote_region region;
    uint64_t worker;
    struct weft_worker *user; /* whose handle it is */
    weft_status_t status;     /* OK, or what operations end with */
    uint32_t uses;            /* the handle, and operations under way */
    bool lent;                /* no handle of the program's: loan.c */
    struct remote released;   /* in its turn among what other threads handed over */
    struct list of_ep;
    uint16_t packed_len;
    uint8_t packed[];
};

/* Packs a region's key into WEFT_RKEY_MAX bytes: for these of its rights, and for who comes by that iface (NULL: by any). Its length. */
size_t weft__mem_key(const weft_mem_t *mem, unsigned rights, const struct iface *only, void *to);

/* Can it be reached at all? Its own status, or its transport's last word. */
weft_status_t weft__rkey_status(const struct weft_rkey *rkey);
/* Is the range among its own, for these rights? */
weft_status_t weft__rkey_check(const struct weft_rkey *rkey, uint64_t remote, size_t len, unsigned right);
static inline struct weft_rkey *weft__rkey_use(struct weft_rkey *rkey) {
    rkey->uses++;
    return rkey;
}
void weft__rkey_drop(struct weft_rkey *rkey);

/* The endpoint is READY: its keys are opened. It has left its link: they are closed. It ends: they are without one. */
void weft__rkeys_open(struct weft_ep *ep);
void weft__rkeys_close(struct weft_ep *ep);
void weft__rkeys_end(struct weft_ep *ep);
/* This lane is about to be left: its keys serve what is under way, and nothing new. */
void weft__rkeys_leave(struct weft_ep *ep, const struct lane *lane);
/* It is, and its keys are closed; or it is gone, with its keys. */
void weft__rkeys_left(struct weft_ep *ep, const struct lane *gone);

#endif
