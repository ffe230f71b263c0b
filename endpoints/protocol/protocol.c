/* The cost model: the lines of each protocol, the lengths where they meet, and the choice for a
 * message. */
#include "protocol.h"

#include <math.h> /* INFINITY */

/* A request costs about so much over a call that finishes at once: measured over shm. */
static const double request_ns = 100;
/* The share of eager messages that arrive before their receive, and are copied once more. A
 * guess: what is known is that a program that posts in time has none, and that offering costs a
 * round trip for certain. */
static const double unexpected = 0.125;

enum {
    HEAD = 8, /* an active message's own */
    /* so that the receiver copies one piece while the sender makes the next */
    OVERLAP_PIECE = 128 << 10,
    LEAST_EAGER = 8 << 10, /* no estimate is good enough to offer less than this */
    /* Shorter ones the receiver fetches from the sender's cache for longer than a copy of its
     * own takes. */
    LEAST_PUT = 96 << 10
};

static const char *const names[] = {
#define PROTOCOL_NAME(id, name) name,
    PROTOCOL_WAYS(PROTOCOL_NAME)
#undef PROTOCOL_NAME
};

const char *weft__protocol_name(enum protocol_way way) {
    return names[way];
}

double weft__protocol_iface_ns(const struct iface_attr *attr) {
    return attr->latency_ns + attr->overhead_ns +
           (attr->bandwidth > 0 ? 1024e9 / attr->bandwidth : 0);
}

/* ---- what each way costs --------------------------------------------------------------------- */

struct terms {
    double message; /* one, small, from call to handler */
    double wire;    /* the bytes, through the lane */
    double copy;    /* the same bytes, once */
};

static struct terms terms_of(size_t len, const struct iface_attr *attr,
                             const struct calibration *c) {
    return (struct terms){
        .message = 2 * attr->overhead_ns + attr->latency_ns,
        .wire = attr->bandwidth > 0 ? (double)len * 1e9 / attr->bandwidth : 0,
        .copy = weft__calibration_copy_ns(c, (double)len),
    };
}

static double short_ns(size_t len, const struct iface_attr *attr, const struct calibration *c) {
    if (len > attr->max_short) return INFINITY;
    struct terms t = terms_of(len, attr, c);
    return t.message + 2 * t.copy;
}

/* Packed, carried, and copied out; a lane whose messages are packed where the peer finds them
 * copies once less. */
static double bcopy_ns(size_t len, const struct iface_attr *attr, const struct calibration *c) {
    if (len + HEAD > attr->max_bcopy) return INFINITY;
    struct terms t = terms_of(len, attr, c);
    return t.message + (attr->packs_in_place ? 0 : t.copy) + t.wire + (1 + unexpected) * t.copy;
}

/* Where it lands it is copied only when it comes before its receive. */
static double zcopy_ns(size_t len, const struct iface_attr *attr, const struct calibration *c) {
    if (!(attr->caps & CAP_AM_ZCOPY) || len > attr->max_zcopy) return INFINITY;
    struct terms t = terms_of(len, attr, c);
    double copies = (attr->caps & CAP_PLACE ? 0 : 1) + unexpected;
    return request_ns + t.message + t.wire + copies * t.copy;
}

/* Offered, and read in the kernel. That it pays at all was found out by the transport, or
 * decided by the user. */
static double get_ns(size_t len, const struct iface_attr *attr, const struct calibration *c) {
    if (!(attr->caps & CAP_BULK_GET)) return INFINITY;
    struct terms t = terms_of(len, attr, c);
    double bandwidth = (double)c->value[CALIBRATE_VM_READ];
    double read = bandwidth > 0 ? (double)len * 1e9 / bandwidth : t.wire;
    return 2 * request_ns + t.message + (double)c->value[CALIBRATE_SYSCALL] / 1000 + read;
}

/* Offered, and copied from where it lies. */
static double mapped_ns(size_t len, const struct iface_attr *attr, const struct calibration *c) {
    if (!(attr->caps & CAP_EXPOSE)) return INFINITY;
    struct terms t = terms_of(len, attr, c);
    return 2 * request_ns + 2 * t.message + t.copy;
}

/* Offered, asked for, and copied to where it belongs. */
static double put_ns(size_t len, const struct iface_attr *attr, const struct calibration *c) {
    if (!(attr->caps & CAP_EXPOSE)) return INFINITY;
    struct terms t = terms_of(len, attr, c);
    return 2 * request_ns + 3 * t.message + t.copy;
}

/* Offered and asked for. Pieces land where they belong; or the receiver copies one while the
 * next is under way. */
static double pieces_ns(size_t len, const struct iface_attr *attr, const struct calibration *c,
                        size_t piece) {
    if (!(attr->caps & CAP_AM_ZCOPY) || piece == 0) return INFINITY;
    struct terms t = terms_of(len, attr, c);
    double last = weft__calibration_copy_ns(c, (double)(len < piece ? len : piece));
    size_t pieces = len / piece + (len % piece != 0);
    double each = 2 * attr->overhead_ns * (double)pieces;
    double slower = t.wire > t.copy ? t.wire : t.copy;
    double bytes = attr->caps & CAP_PLACE ? t.wire : slower + last;
    return 2 * request_ns + 3 * t.message + each + bytes;
}

double weft__protocol_ns(enum protocol_way way, size_t len, const struct iface_attr *attr,
                         const struct calibration *c, const struct protocol_limits *limits) {
    switch (way) {
    case WAY_SHORT: return short_ns(len, attr, c);
    case WAY_BCOPY: return bcopy_ns(len, attr, c);
    case WAY_ZCOPY: return zcopy_ns(len, attr, c);
    case WAY_GET: return get_ns(len, attr, c);
    case WAY_MAPPED: return mapped_ns(len, attr, c);
    case WAY_PUT: return put_ns(len, attr, c);
    case WAY_PIECES: return pieces_ns(len, attr, c, limits->piece);
    case N_PROTOCOL_WAYS: break;
    }
    return INFINITY;
}

/* ---- where they meet ------------------------------------------------------------------------- */

typedef double (*cost_fn)(size_t len, const struct iface_attr *attr, const struct calibration *c,
                          const struct protocol_limits *limits);

/* The last length for which `first` is no dearer: it is cheaper at the beginning, and the lines
 * meet once. */
static size_t meet(cost_fn first, cost_fn second, size_t most, const struct iface_attr *attr,
                   const struct calibration *c, const struct protocol_limits *limits) {
    size_t low = 0, high = most;
    if (first(most, attr, c, limits) <= second(most, attr, c, limits)) return most;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (first(middle, attr, c, limits) <= second(middle, attr, c, limits))
            low = middle;
        else
            high = middle;
    }
    return low;
}

static double packed(size_t len, const struct iface_attr *attr, const struct calibration *c,
                     const struct protocol_limits *limits) {
    return bcopy_ns(len, attr, c);
}

static double exposed(size_t len, const struct iface_attr *attr, const struct calibration *c,
                      const struct protocol_limits *limits) {
    return zcopy_ns(len, attr, c);
}

static double eager(size_t len, const struct iface_attr *attr, const struct calibration *c,
                    const struct protocol_limits *limits) {
    double copied = bcopy_ns(len, attr, c), zcopied = zcopy_ns(len, attr, c);
    return copied < zcopied ? copied : zcopied;
}

static double offered(size_t len, const struct iface_attr *attr, const struct calibration *c,
                      const struct protocol_limits *limits) {
    return attr->caps & CAP_BULK_GET ? get_ns(len, attr, c)
                                     : pieces_ns(len, attr, c, limits->piece);
}

static double mapped(size_t len, const struct iface_attr *attr, const struct calibration *c,
                     const struct protocol_limits *limits) {
    return mapped_ns(len, attr, c);
}

static size_t most_eager(const struct iface_attr *attr) {
    size_t packed = attr->max_bcopy > HEAD ? attr->max_bcopy - HEAD : 0;
    return attr->caps & CAP_AM_ZCOPY && attr->max_zcopy > packed ? attr->max_zcopy : packed;
}

struct protocol_limits weft__protocol_limits(const struct iface_attr *attr,
                                             const struct calibration *c, uint64_t threshold) {
    struct protocol_limits limits = {
        .copy = attr->max_bcopy, .piece = attr->max_zcopy, .part = attr->overlap};
    if (!(attr->caps & CAP_PLACE) && limits.piece > OVERLAP_PIECE) limits.piece = OVERLAP_PIECE;
    if (attr->max_bcopy > HEAD)
        limits.copy = HEAD + meet(packed, exposed, attr->max_bcopy - HEAD, attr, c, &limits);
    if (limits.copy < attr->max_short + HEAD) limits.copy = attr->max_short + HEAD;
    if (limits.copy > attr->max_bcopy) limits.copy = attr->max_bcopy;

    limits.eager = meet(eager, offered, most_eager(attr), attr, c, &limits);
    if (limits.eager < LEAST_EAGER) limits.eager = LEAST_EAGER;
    limits.mapped = meet(eager, mapped, limits.eager, attr, c, &limits);
    if (limits.mapped < LEAST_EAGER) limits.mapped = LEAST_EAGER;
    if (threshold != SETTING_AUTO) limits.eager = limits.mapped = (size_t)threshold;
    limits.put = limits.eager > LEAST_PUT ? limits.eager : LEAST_PUT;
    return limits;
}

/* ---- which way ------------------------------------------------------------------------------- */

enum protocol_way weft__protocol_way(size_t len, const struct iface_attr *attr,
                                     const struct protocol_limits *limits) {
    bool exposes = attr->caps & CAP_AM_ZCOPY && len <= attr->max_zcopy;
    if (len <= limits->eager) {
        if (len <= attr->max_short) return WAY_SHORT;
        if (len + HEAD <= limits->copy) return WAY_BCOPY;
        if (exposes) return WAY_ZCOPY;
        if (len + HEAD <= attr->max_bcopy) return WAY_BCOPY;
    }
    return attr->caps & CAP_BULK_GET ? WAY_GET : WAY_PIECES;
}

size_t weft__protocol_end(size_t len, const struct iface_attr *attr,
                          const struct protocol_limits *limits) {
    enum protocol_way way = weft__protocol_way(len, attr, limits);
    const size_t ends[] = {attr->max_short, limits->copy - HEAD, attr->max_bcopy - HEAD,
                           attr->max_zcopy, limits->eager};
    size_t end = SIZE_MAX;
    for (unsigned i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends[i] >= len && ends[i] < end && weft__protocol_way(ends[i] + 1, attr, limits) != way)
            end = ends[i];
    return end;
}
