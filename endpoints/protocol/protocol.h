/*
 * The protocol for a message of some size, chosen by cost. Costs are straight lines in the size,
 * made of the transport's attributes and the measured copy rates. The lengths where two lines meet
 * are computed once for each transport of a worker. Sending then only compares lengths.
 */
#ifndef WEFT_ENDPOINTS_PROTOCOL_PROTOCOL_H
#define WEFT_ENDPOINTS_PROTOCOL_PROTOCOL_H

#include <transports/transport.h>

#include "calibrate.h"

#define PROTOCOL_WAYS(W)                                                     \
    W(SHORT, "short")              /* in the lane's own message */           \
    W(BCOPY, "eager bcopy")        /* packed into memory of the lane */      \
    W(ZCOPY, "eager zcopy")        /* the lane reads the request's memory */ \
    W(GET, "rendezvous get")       /* offered, and read by the receiver */   \
    W(MAPPED, "rendezvous mapped") /* the same, from mapped memory */        \
    W(PUT, "rendezvous put")       /* offered, and written by its sender */  \
    W(PIECES, "rendezvous pieces") /* offered, asked for, and sent in pieces */
enum protocol_way {
#define PROTOCOL_WAY(id, name) WAY_##id,
    PROTOCOL_WAYS(PROTOCOL_WAY)
#undef PROTOCOL_WAY
        N_PROTOCOL_WAYS
};

enum { PROTOCOL_SHORT_MAX = 1024 }; /* the longest short message of several pieces */

/* Lengths that links compare with. */
struct protocol_limits {
    /* the longest message for short and bcopy, with its header; longer ones use zcopy */
    size_t copy;
    size_t eager;  /* longer payloads are offered */
    size_t mapped; /* the same, if the receiver has mapped the memory (expose.h) */
    /* longer offers are written by the sender if it has mapped the receiver's memory
     * (split_copy.h) */
    size_t put;
    size_t piece; /* the length of one DATA message */
    /* The least fragment of a tagged eager message: the receiver copies one while the sender
     * packs the next. 0: no fragments. */
    size_t part;
};

/* Fragments have one size. They are few, so that their fixed cost stays below what they save. */
enum { PROTOCOL_PARTS = 3, PROTOCOL_PART_LARGE = 32 << 10 };
static inline size_t weft__protocol_part(const struct protocol_limits *limits, size_t len) {
    size_t part = (len / PROTOCOL_PARTS + 64) & ~(size_t)63;
    if (part > PROTOCOL_PART_LARGE) part = PROTOCOL_PART_LARGE;
    return part > limits->part ? part : limits->part;
}

/* `threshold` sets `eager`, unless it is SETTING_AUTO. */
struct protocol_limits weft__protocol_limits(const struct iface_attr *attr,
                                             const struct calibration *c, uint64_t threshold);

/* Nanoseconds that a message of 1 KiB takes by such an interface. Transports are chosen by it. */
double weft__protocol_iface_ns(const struct iface_attr *attr);

/* Nanoseconds from the call until `len` bytes are in place at the receiver. INFINITY: not
 * possible. */
double weft__protocol_ns(enum protocol_way way, size_t len, const struct iface_attr *attr,
                         const struct calibration *c, const struct protocol_limits *limits);
/* The protocol for a payload of `len` bytes. */
enum protocol_way weft__protocol_way(size_t len, const struct iface_attr *attr,
                                     const struct protocol_limits *limits);
/* The greatest length with the same protocol as `len`; SIZE_MAX: unbounded. */
size_t weft__protocol_end(size_t len, const struct iface_attr *attr,
                          const struct protocol_limits *limits);

const char *weft__protocol_name(enum protocol_way way);

#endif
