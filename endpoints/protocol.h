/*
 * How a message of some size crosses, chosen by what each way would cost. The costs are straight lines in the size, made of the
 * transport's attributes and of what this machine takes for a copy; where two lines meet is a plain number, found once for
 * each transport of a worker. Sending compares lengths and nothing else.
 */
#ifndef WEFT_ENDPOINTS_PROTOCOL_H
#define WEFT_ENDPOINTS_PROTOCOL_H

#include <transports/transport.h>

#include "calibrate.h"

#define PROTOCOL_WAYS(W)                                                       \
    W(SHORT, "short")              /* in the lane's own message */             \
    W(BCOPY, "eager bcopy")        /* packed into memory of the lane */        \
    W(ZCOPY, "eager zcopy")        /* lent to the lane by a request */         \
    W(GET, "rendezvous get")       /* offered, and read by the receiver */     \
    W(MAPPED, "rendezvous mapped") /* the same of memory that it has mapped */ \
    W(PUT, "rendezvous put")       /* offered, and written by its sender */    \
    W(PIECES, "rendezvous pieces") /* offered, asked for, and sent in pieces */
enum protocol_way {
#define PROTOCOL_WAY(id, name) WAY_##id,
    PROTOCOL_WAYS(PROTOCOL_WAY)
#undef PROTOCOL_WAY
        N_PROTOCOL_WAYS
};

enum { PROTOCOL_SHORT_MAX = 1024 }; /* short messages of several pieces: beyond, they are packed all the same */

/* What links compare with. */
struct protocol_limits {
    size_t copy;   /* short and bcopy: most bytes of a message, its own head among them, that are not better lent */
    size_t eager;  /* payloads beyond are offered */
    size_t mapped; /* … when they lie in memory that the receiver has mapped (loan.h) */
    size_t put;    /* … and offered ones into memory that the sender has mapped are written by it (joint.h) */
    size_t piece;  /* of an offered payload */
    /* Least part of an eager one that the receiver copies out while the sender makes the next; 0: it goes in one. */
    size_t part;
};

/* Parts of one size, and so few that what each costs beside its bytes is less than what it saves. */
enum { PROTOCOL_PARTS = 3, PROTOCOL_PART_LARGE = 32 << 10 };
static inline size_t weft__protocol_part(const struct protocol_limits *limits, size_t len) {
    size_t part = (len / PROTOCOL_PARTS + 64) & ~(size_t)63;
    if (part > PROTOCOL_PART_LARGE) part = PROTOCOL_PART_LARGE;
    return part > limits->part ? part : limits->part;
}

/* By cost; `threshold` is the user's word on `eager`, or SETTING_AUTO. */
struct protocol_limits weft__protocol_limits(const struct iface_attr *attr, const struct calibration *c,
                                             uint64_t threshold);

/* Nanoseconds from the call until `len` bytes are where the receiver wants them; INFINITY: they cannot go that way. */
double weft__protocol_ns(enum protocol_way way, size_t len, const struct iface_attr *attr,
                         const struct calibration *c, const struct protocol_limits *limits);
/* What the sender does with a payload of `len` bytes. */
enum protocol_way weft__protocol_way(size_t len, const struct iface_attr *attr,
                                     const struct protocol_limits *limits);
/* The last length that goes the way that `len` goes; SIZE_MAX: all beyond do. */
size_t weft__protocol_end(size_t len, const struct iface_attr *attr, const struct protocol_limits *limits);

const char *weft__protocol_name(enum protocol_way way);

#endif
