/* The blocks of the retain log: room for a message, release of acknowledged ones, and iteration. */
#include "retain_log.h"

#include <base/compiler.h>

#include <reactor/reactor.h>

void weft__retain_log_init(struct retain_log *log, const void *parent, size_t limit) {
    *log = (struct retain_log){.parent = parent, .limit = limit};
}

static void free_spares(struct retain_log *log, uint32_t but) {
    while (log->n_spare > but) {
        struct retain_block *b = log->standby;
        log->standby = b->next;
        log->n_spare--;
        talloc_free(b);
    }
}

static void came_back(struct completion *in_flight, weft_status_t status);

/* Spares are of the usual size. What a block holds is not cleared: that would cost as much as
 * the copies into it. */
static struct retain_block *block_new(struct retain_log *log, size_t size) {
    struct retain_block *b = log->standby;
    if (size < RETAIN_BLOCK) size = RETAIN_BLOCK;
    if (b && b->size >= size) {
        log->standby = b->next;
        log->n_spare--;
    } else {
        b = weft__realloc(log->parent, NULL, sizeof *b + size, "retained messages");
        if (!b) return NULL;
        b->size = size;
    }
    if (++log->n_used > log->most_used) log->most_used = log->n_used;
    b->next = NULL;
    b->log = log;
    b->in_flight = (struct completion){.done = came_back, .count = 1};
    return b;
}

static void begin_block(const struct retain_log *log, struct retain_block *b, uint64_t number) {
    b->begin = 0;
    b->run = (struct lane_run){.end = (char *)b->bytes};
    b->number = number;
    b->added = log->added;
    b->special = false;
}

static void block_free(struct retain_log *log, struct retain_block *b) {
    log->n_used--;
    if (log->n_spare >= RETAIN_SPARES || b->size > RETAIN_BLOCK) {
        talloc_free(b);
        return;
    }
    b->next = log->standby;
    log->standby = b;
    log->n_spare++;
}

/* What became of the bytes on their lane is not asked: the peer says what it has. */
static void came_back(struct completion *in_flight, weft_status_t status) {
    struct retain_block *b = container_of(in_flight, struct retain_block, in_flight);
    struct retain_log *log = b->log;
    struct retain_block **at = &log->away;
    while (*at != b) at = &(*at)->next;
    *at = b->next;
    block_free(log, b);
    if (!log->away && log->came_home) log->came_home(log);
}

static void put_away(struct retain_log *log, struct retain_block *b) {
    if (--b->in_flight.count == 0) {
        block_free(log, b);
        return;
    }
    b->next = log->away;
    log->away = b;
}

/* The first block is one with messages in it, if there are any. */
static void trim(struct retain_log *log) {
    for (struct retain_block *b = log->first; retain_block_empty(b) && b->next; b = log->first) {
        log->first = b->next;
        put_away(log, b);
    }
}

struct retained *weft__retain_log_more(struct retain_log *log, size_t size, uint64_t number) {
    struct retain_block *b = block_new(log, size);
    if (!b) return NULL;
    begin_block(log, b, number);
    if (!log->first)
        log->first = b;
    else
        log->last->next = b;
    log->last = b;
    trim(log);
    return (struct retained *)(void *)b->bytes;
}

/* The last block is reused from its start when it is empty, or behind the bytes of it that are in
 * flight. */
static void begin_again(struct retain_log *log, uint64_t number) {
    struct retain_block *b = log->first;
    struct lane_run run = b->run;
    begin_block(log, b, number);
    if (retain_block_is_shared(b)) {
        b->run = run;
        b->begin = (size_t)(run.end - (char *)b->bytes);
    }
    free_spares(log, log->most_used);
    log->most_used = log->n_used;
}

void weft__retain_log_drop(struct retain_log *log, size_t size, size_t cost, uint64_t number) {
    log->dropped += cost;
    log->first->begin += size;
    trim(log);
    if (retain_block_empty(log->first)) begin_again(log, number);
}

bool weft__retain_log_drop_block(struct retain_log *log, uint64_t acked, uint64_t number) {
    struct retain_block *b = log->first, *next = b ? b->next : NULL;
    if (!b || b->special || retain_block_empty(b) || acked < (next ? next->number : number))
        return false;
    log->dropped = next ? next->added : log->added;
    if (next) {
        log->first = next;
        put_away(log, b);
    } else {
        begin_again(log, number);
    }
    return true;
}

bool weft__retain_log_let_go(struct retain_log *log) {
    struct retain_block *b = log->first;
    log->first = log->last = NULL;
    if (b) put_away(log, b);
    return !log->away;
}

struct retain_at weft__retain_log_begin(const struct retain_log *log) {
    return (struct retain_at){log->first, log->first ? log->first->begin : 0};
}

static bool is_through(const struct retain_at *at) {
    return (char *)at->block->bytes + at->offset == at->block->run.end;
}

struct retained *weft__retain_log_at(struct retain_at *at) {
    while (at->block && is_through(at) && at->block->next) {
        at->block = at->block->next;
        at->offset = at->block->begin;
    }
    if (!at->block || is_through(at)) return NULL;
    return (struct retained *)(void *)(at->block->bytes + at->offset);
}
