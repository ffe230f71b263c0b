/*
 * The log of sent and unacknowledged messages, in order: a queue of blocks. A message does not move
 * until it is freed, and lanes may send from its place. A finished block is kept until no lane uses
 * it.
 */
#ifndef WEFT_ENDPOINTS_FAILOVER_RETAIN_LOG_H
#define WEFT_ENDPOINTS_FAILOVER_RETAIN_LOG_H

#include <base/compiler.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <transports/transport.h>

struct retain_log;

/* A message in the memory of its owner. `owner` completes on acknowledgement, `below` when the
 * lane is done. */
struct retain_zcopy {
    struct completion below;  /* of the lane; count 0: the lane is done */
    struct completion *owner; /* NULL: completed */
    void *copy;               /* a copy, if the owner has reclaimed its memory; else NULL */
    void *log_owner;          /* for `below` */
};

/* The head of a message. `n_iov` pieces follow if it is not a copy, then `len` bytes. The head
 * of a copy is also the struct lane_head with which a lane sends it. */
enum { RETAINED_COPY = 1 };
struct retained {
    uint32_t len;
    uint8_t kind; /* RETAINED_COPY, or 0: in the memory of its owner */
    uint8_t id;
    uint8_t n_iov;
    bool flush; /* a flush: no message, completed in order */
};
_Static_assert(sizeof(struct retained) == LANE_HEAD &&
                   offsetof(struct retained, id) == offsetof(struct lane_head, id),
               "a head of a copy is a struct lane_head");

struct retain_block {
    struct retain_block *next;
    uint64_t number, added; /* the number of its first message, and the cost of the log before it */
    bool special;           /* it holds a message with a completion */
    size_t size, begin;     /* [begin, run.end) is in use */
    /* what a lane sends from here; `limit` is NULL while none would see what is added */
    struct lane_run run;
    /* of its bytes, one step for each exposure; one more until the log has done with it */
    struct completion in_flight;
    struct retain_log *log; /* for `in_flight` */
    _Alignas(16) uint8_t bytes[];
};

/* A place in the log. */
struct retain_at {
    struct retain_block *block;
    size_t offset;
};

enum { RETAIN_BLOCK = 64 << 10, RETAIN_SPARES = 32, RETAIN_IOV = 16 };

struct retain_log {
    const void *parent; /* of blocks */
    struct retain_block *first, *last;
    /* spares: RETAIN_SPARES at most; when nothing is kept, as many as were used last */
    struct retain_block *standby;
    struct retain_block *away;                 /* acknowledged, and still in flight */
    void (*came_home)(struct retain_log *log); /* the last of those is back; may be NULL */
    /* blocks; the last: at once, since nothing was kept */
    uint32_t n_spare, n_used, most_used;
    uint64_t added, dropped; /* bytes, in all, that were kept or in flight */
    size_t limit;            /* of what is there now; beyond, it is full */
};

/* Its blocks are below `parent`, and go with it. */
void weft__retain_log_init(struct retain_log *log, const void *parent, size_t limit);

static inline size_t retained_size(size_t len, bool in_flight, size_t n_iov) {
    size_t size = sizeof(struct retained) + len;
    if (in_flight) size += sizeof(struct retain_zcopy) + n_iov * sizeof(weft_iov_t);
    return (size + 7) & ~(size_t)7;
}
static inline bool retained_is_zcopy(const struct retained *m) {
    return m->kind != RETAINED_COPY;
}
static inline struct retain_zcopy *retained_zcopy(const struct retained *m) {
    return (struct retain_zcopy *)(void *)((uintptr_t)m + sizeof *m);
}
static inline weft_iov_t *retained_iov(const struct retained *m) {
    return (weft_iov_t *)(void *)(retained_zcopy(m) + 1);
}
static inline void *retained_bytes(const struct retained *m) {
    return retained_is_zcopy(m) ? (void *)(retained_iov(m) + m->n_iov) : (void *)(uintptr_t)(m + 1);
}

static inline char *retain_block_end(struct retain_block *b) {
    return (char *)b->bytes + b->size;
}
static inline bool retain_block_empty(const struct retain_block *b) {
    return (const char *)b->bytes + b->begin == b->run.end;
}

static inline bool retain_log_empty(const struct retain_log *log) {
    return !log->first || retain_block_empty(log->first);
}
/* May a message of that cost be added? One may always be in it. */
static inline bool retain_log_full(const struct retain_log *log, size_t cost) {
    uint64_t now = log->added - log->dropped;
    return now + cost > log->limit && now > 0;
}

/* What may be added before it is. */
static inline size_t retain_log_left(const struct retain_log *log) {
    uint64_t now = log->added - log->dropped;
    return now < log->limit ? log->limit - now : 0;
}

/* Room for a message of that size behind the last; NULL when memory runs out. It is in the log
 * with `keep`, which may be of less. `number`: of the messages before it. */
struct retained *weft__retain_log_more(struct retain_log *log, size_t size, uint64_t number);
static inline struct retained *retain_log_room(struct retain_log *log, size_t size,
                                               uint64_t number) {
    struct retain_block *b = log->last;
    if (LIKELY(b && (size_t)(retain_block_end(b) - b->run.end) >= size))
        return (struct retained *)(void *)b->run.end;
    return weft__retain_log_more(log, size, number);
}
static inline void retain_log_keep(struct retain_log *log, size_t size, size_t cost) {
    log->last->run.end += size;
    log->added += cost;
}

/* The first, or NULL. Letting it go takes back `cost`; `number`: of all messages that were kept
 * so far. */
static inline struct retained *retain_log_first(const struct retain_log *log) {
    return retain_log_empty(log)
               ? NULL
               : (struct retained *)(void *)(log->first->bytes + log->first->begin);
}
void weft__retain_log_drop(struct retain_log *log, size_t size, size_t cost, uint64_t number);
/* The first block at once, unseen, if all of its messages are among the first `acked`, and
 * nothing in it is to be reported. */
bool weft__retain_log_drop_block(struct retain_log *log, uint64_t acked, uint64_t number);
/* At the end, when no message is left. False: a lane still has some of it; `came_home` follows. */
bool weft__retain_log_let_go(struct retain_log *log);

/* The completion for a call that sends bytes of that block without a copy. It steps when the
 * bytes are free again, or when `unlend` reports that they were not sent. */
static inline struct completion *retain_block_ref(struct retain_block *b) {
    b->in_flight.count++;
    return &b->in_flight;
}
static inline void retain_block_unref(struct retain_block *b) {
    b->in_flight.count--;
}
static inline bool retain_block_is_shared(const struct retain_block *b) {
    return b->in_flight.count > 1;
}

/* A walk: from the first on. NULL at the end, where it may go on when there is more. */
struct retain_at weft__retain_log_begin(const struct retain_log *log);
struct retained *weft__retain_log_at(struct retain_at *at);
static inline void retain_log_next(struct retain_at *at, size_t size) {
    at->offset += size;
}

#endif
