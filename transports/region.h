/* Checks of keys that peers present, and of ranges in a region. */
#ifndef WEFT_TRANSPORTS_REGION_H
#define WEFT_TRANSPORTS_REGION_H

#include <stdbool.h>
#include <string.h>
#include <transports/transport.h>
#include <weft/memory.h>

/* The caller checks the id. The comparison of the token takes constant time. */
static inline weft_status_t region_admits(const struct region *own,
                                          const struct remote_region *shown) {
    uint64_t ours[2], theirs[2];
    memcpy(ours, own->token, sizeof ours);
    memcpy(theirs, shown->token, sizeof theirs);
    if ((ours[0] ^ theirs[0]) | (ours[1] ^ theirs[1]) || own->epoch != shown->epoch)
        return WEFT_ERR_REVOKED;
    if (shown->base != own->origin || shown->len != own->len) return WEFT_ERR_INVALID_PARAM;
    if (shown->rights & ~own->rights) return WEFT_ERR_INVALID_PARAM;
    /* The device performs the region's atomics; the requester must know that. */
    bool unaware = shown->rights & WEFT_MEM_ATOMIC && !(shown->rights & WEFT_MEM_ATOMIC_DEVICE);
    return unaware && own->rights & WEFT_MEM_ATOMIC_DEVICE ? WEFT_ERR_UNSUPPORTED : WEFT_OK;
}

/* Returns true for a set of rights that a region can have. */
static inline bool rights_are_known(unsigned rights) {
    if (rights & ~(unsigned)(WEFT_MEM_ALL | WEFT_MEM_ATOMIC_DEVICE)) return false;
    return !(rights & WEFT_MEM_ATOMIC_DEVICE) || rights & WEFT_MEM_ATOMIC;
}

/* Safe for all values of `at` and `len`. No region wraps around the end of the address space, so an
 * address before `base` is an offset beyond its length. */
static inline bool region_covers(uint64_t base, uint64_t region_len, uint64_t at, uint64_t len) {
    uint64_t offset = at - base;
    return offset <= region_len && len <= region_len - offset;
}

/* Returns the capabilities in `caps` that the rights permit. */
static inline uint32_t rights_caps(unsigned rights, uint32_t caps) {
    if (!(rights & WEFT_MEM_READ)) caps &= ~(uint32_t)CAP_GET;
    if (!(rights & WEFT_MEM_WRITE)) caps &= ~(uint32_t)CAP_PUT;
    if (!(rights & WEFT_MEM_ATOMIC)) caps &= ~(uint32_t)(CAP_ATOMIC | CAP_ATOMIC_DEVICE);
    if (rights & WEFT_MEM_ATOMIC_DEVICE) caps &= ~(uint32_t)CAP_ATOMIC;
    return caps;
}

#endif
