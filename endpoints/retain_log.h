/*
 * Messages that were sent and are not acknowledged, in order: a queue of blocks, in which each message has its place until it
 * is let go. A message's place does not move, and a lane may be lent the bytes there: a block that the log has done with is put
 * away until no lane has any of it.
 */
#ifndef WEFT_ENDPOINTS_RETAIN_LOG_H
#define WEFT_ENDPOINTS_RETAIN_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <transports/transport.h>

struct retain_log;

/* Of one whose memory is lent until it is let go: two loans, the link's to us, and ours to the lane that sends it. */
struct retain_lent {
    struct completion below;  /* the lane's; count 0: it has nothing of it */
    struct completion *owner; /* NULL: told */
    void *log_owner;          /* for `below` */
};

/* A message: `n_iov` pieces follow, of one that is lent, then `len` bytes. Of a copy it is the head that a lane sends it with, a struct
 * lane_head. */
enum { RETAINED_COPY = 1 };
struct retained {
    uint32_t len;
    uint8_t kind; /* RETAINED_COPY, or 0: lent */
    uint8_t id;
    uint8_t n_iov;
    bool flush; /* no message: its completion comes in its turn */
};
_Static_assert(sizeof(struct retained) == LANE_HEAD &&
                   offsetof(struct retained, id) == offsetof(struct lane_head, id),
               "it stands where a head does");

struct retain_block {
    struct retain_block *next;
    uint64_t number, added; /* of the messages before its first, and the log's cost of them */
    bool special;           /* something in it is to be told of */
    size_t size, begin;     /* [begin, run.end) is in use */
    struct lane_run run;    /* what a lane sends from here; `limit` is NULL while none would see what is added */
    struct completion lent; /* of its bytes, one step for each loan; one more until the log has done with it */
    struct retain_log *log; /* for `lent` */
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
    struct retain_block *first, *last,
        *spare;                /* spares: RETAIN_SPARES at most; when nothing is kept, as many as were used last */
    struct retain_block *away; /* done with, and lent */
    void (*came_home)(struct retain_log *log); /* the last of those is back; may be NULL */
    uint32_t n_spare, n_used, most_used;       /* blocks; the last: at once, since nothing was kept */
    uint64_t added, dropped;                   /* bytes, in all, that were kept or lent */
    size_t limit;                              /* of what is there now; beyond, it is full */
};

/* Its blocks are below `parent`, and go with it. */
void retain_log_init(struct retain_log *log, const void *parent, size_t limit);

static inline size_t retained_size(size_t len, bool lent, size_t n_iov) {
    size_t size = sizeof(struct retained) + len;
    if (lent) size += sizeof(struct retain_lent) + n_iov * sizeof(weft_iov_t);
    return (size + 7) & ~(size_t)7;
}
static inline bool retained_is_lent(const struct retained *m) {
    return m->kind != RETAINED_COPY;
}
static inline struct retain_lent *retained_lent(const struct retained *m) {
    return (struct retain_lent *)(void *)((uintptr_t)m + sizeof *m);
}
static inline weft_iov_t *retained_iov(const struct retained *m) {
    return (weft_iov_t *)(void *)(retained_lent(m) + 1);
}
static inline void *retained_bytes(const struct retained *m) {
    return retained_is_lent(m) ? (void *)(retained_iov(m) + m->n_iov) : (void *)(uintptr_t)(m + 1);
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

/* Room for a message of that size behind the last; NULL when memory runs out. It is in the log with `keep`, which may be of
 * less. `number`: of the messages before it. */
struct retained *retain_log_more(struct retain_log *log, size_t size, uint64_t number);
static inline struct retained *retain_log_room(struct retain_log *log, size_t size, uint64_t number) {
    struct retain_block *b = log->last;
    if (__builtin_expect(b && (size_t)(retain_block_end(b) - b->run.end) >= size, 1))
        return (struct retained *)(void *)b->run.end;
    return retain_log_more(log, size, number);
}
static inline void retain_log_keep(struct retain_log *log, size_t size, size_t cost) {
    log->last->run.end += size;
    log->added += cost;
}

/* The first, or NULL. Letting it go takes back `cost`; `number`: of all messages that were kept so far. */
static inline struct retained *retain_log_first(const struct retain_log *log) {
    return retain_log_empty(log) ? NULL : (struct retained *)(void *)(log->first->bytes + log->first->begin);
}
void retain_log_drop(struct retain_log *log, size_t size, size_t cost, uint64_t number);
/* The first block at once, unseen, if all of its messages are among the first `acked`, and nothing in it is to be told of. */
bool retain_log_drop_block(struct retain_log *log, uint64_t acked, uint64_t number);
/* At the end, when no message is left. False: a lane still has some of it; `came_home` follows. */
bool retain_log_let_go(struct retain_log *log);

/* Bytes of that block are about to be lent: for the call that does so. It steps when they are back, or `unlend` says that they
 * were not. */
static inline struct completion *retain_block_lend(struct retain_block *b) {
    b->lent.count++;
    return &b->lent;
}
static inline void retain_block_unlend(struct retain_block *b) {
    b->lent.count--;
}
static inline bool retain_block_is_lent(const struct retain_block *b) {
    return b->lent.count > 1;
}

/* A walk: from the first on. NULL at the end, where it may go on when there is more. */
struct retain_at retain_log_begin(const struct retain_log *log);
struct retained *retain_log_at(struct retain_at *at);
static inline void retain_log_next(struct retain_at *at, size_t size) {
    at->offset += size;
}

#endif
