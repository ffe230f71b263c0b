/*
 * Collectives through memory that all members have mapped: each puts its part into its slot and adds to one
 * counter; whoever comes last does the work for all and publishes; the others look, or sleep and are woken once. When ranks
 * outnumber cores the cost of a collective is its dependent wakeups, and here there is one.
 */
#include <reactor/counters.h>
#include <string.h>

#include "collective.h"

/* What one part takes from each member. */
static uint64_t part_bytes(const struct collective *c) {
    uint64_t slot = c->team->segment->slot;
    return slot - slot % c->call.width;
}

bool weft__slots_can_take(const weft_team_t *team, const struct coll_call *call) {
    return team->segment && coll_bytes(call) / SEGMENT_LINE < UINT32_MAX; /* a slot has at least a line */
}

static weft_status_t prepare(struct collective *c) {
    uint64_t bytes = coll_bytes(&c->call), most = c->call.kind == COLL_BARRIER ? 1 : part_bytes(c);
    c->n_parts = bytes ? (uint32_t)((bytes + most - 1) / most) : 1;
    c->first_use = c->team->next_use;
    c->team->next_use += c->n_parts;
    weft__count(c->team->reactor)->coll_slots++;
    return WEFT_OK;
}

/* ---- one part ------------------------------------------------------------------------------------------------------- */

struct part {
    struct segment_channel *channel;
    uint32_t number; /* of the channel */
    uint64_t round;  /* how often the channel was used before */
    uint64_t use, offset, len;
};

static struct part part_of(const struct collective *c, uint32_t index) {
    uint64_t use = c->first_use + index, total = coll_bytes(&c->call);
    struct part p = {.use = use, .number = (uint32_t)(use % SEGMENT_CHANNELS), .round = use / SEGMENT_CHANNELS};
    p.channel = &c->team->segment->head->channel[p.number];
    p.len = total;
    if (c->n_parts > 1) {
        p.offset = index * part_bytes(c);
        p.len = total - p.offset < part_bytes(c) ? total - p.offset : part_bytes(c);
    }
    return p;
}

static uint8_t *result_of(const struct collective *c, const struct part *p) {
    return segment_slot(c->team->segment, p->number, c->team->size);
}

/* All are through with the use before. */
static bool is_free(const struct collective *c, const struct part *p) {
    return atomic_load_explicit(&p->channel->left, memory_order_acquire) >= p->round * c->team->size;
}

static bool is_published(const struct part *p) {
    return atomic_load_explicit(&p->channel->published, memory_order_acquire) > p->round;
}

static void publish(struct collective *c, const struct part *p) {
    atomic_store_explicit(&p->channel->published, p->round + 1, memory_order_release);
    weft__shared_wake(c->team);
}

/* In the order of ranks, whoever does it: the result does not depend on who came last. */
static void fold(struct collective *c, const struct part *p) {
    const struct segment *s = c->team->segment;
    uint8_t *result = result_of(c, p);
    const uint8_t *left = segment_slot(s, p->number, 0);
    for (uint32_t r = 1; r < c->team->size; r++, left = result)
        c->call.reduce(result, left, segment_slot(s, p->number, r), p->len / c->call.width);
}

static void mark_entered(struct collective *c, const struct part *p) {
    atomic_store_explicit(&c->team->segment->member[c->team->rank].entered, p->use + 1, memory_order_release);
}

static void arrive(struct collective *c, const struct part *p) {
    uint64_t all = (p->round + 1) * c->team->size;
    mark_entered(c, p);
    if (atomic_fetch_add_explicit(&p->channel->arrived, 1, memory_order_acq_rel) + 1 != all) return;
    if (c->call.kind == COLL_ALLREDUCE) fold(c, p);
    publish(c, p);
}

/* False when it has to wait for the channel. */
static bool enter(struct collective *c, const struct part *p) {
    const struct segment *s = c->team->segment;
    bool reads = c->call.kind == COLL_BCAST && c->team->rank != c->call.root;
    if (reads) return true;
    if (!is_free(c, p)) return false;
    switch (c->call.kind) {
    case COLL_BCAST:
        memcpy(result_of(c, p), (const uint8_t *)c->call.dst + p->offset, p->len);
        mark_entered(c, p);
        /* It stands for all: the counter grows by one round a use, whatever the use. */
        atomic_fetch_add_explicit(&p->channel->arrived, c->team->size, memory_order_relaxed);
        publish(c, p);
        return true;
    case COLL_ALLREDUCE:
        memcpy(segment_slot(s, p->number, c->team->rank), (const uint8_t *)c->call.src + p->offset, p->len);
        break;
    case COLL_ALLGATHER: /* packed, so that a small result is one run of bytes */
        memcpy(segment_slot(s, p->number, 0) + c->team->rank * p->len, (const uint8_t *)c->call.src + p->offset,
               p->len);
        break;
    default: break;
    }
    arrive(c, p);
    return true;
}

static void take_all(struct collective *c, const struct part *p) {
    const uint8_t *from = segment_slot(c->team->segment, p->number, 0);
    uint8_t *dst = c->call.dst;
    uint64_t bytes = coll_bytes(&c->call);
    if (p->len == bytes) {
        memcpy(dst, from, c->team->size * bytes);
        return;
    }
    for (uint32_t r = 0; r < c->team->size; r++) memcpy(dst + r * bytes + p->offset, from + r * p->len, p->len);
}

static bool leave(struct collective *c, const struct part *p) {
    if (!is_published(p)) return false;
    uint8_t *dst = c->call.dst;
    switch (c->call.kind) {
    case COLL_BCAST:
        if (c->team->rank != c->call.root) memcpy(dst + p->offset, result_of(c, p), p->len);
        mark_entered(c, p);
        break;
    case COLL_ALLREDUCE: memcpy(dst + p->offset, result_of(c, p), p->len); break;
    case COLL_ALLGATHER: take_all(c, p); break;
    default: break;
    }
    uint64_t all = (p->round + 1) * c->team->size;
    /* The last one out frees the channel; someone may sleep until then. */
    if (atomic_fetch_add_explicit(&p->channel->left, 1, memory_order_acq_rel) + 1 == all)
        weft__shared_wake(c->team);
    return true;
}

static bool move(struct collective *c) {
    bool moved = false;
    if (c->entered < c->n_parts && c->entered - c->left < SEGMENT_CHANNELS) {
        struct part p = part_of(c, c->entered);
        if (enter(c, &p)) c->entered++, moved = true;
    }
    if (c->left < c->entered) {
        struct part p = part_of(c, c->left);
        if (leave(c, &p)) c->left++, moved = true;
    }
    return moved;
}

static bool advance(struct collective *c) {
    while (!weft__shared_over(c) && move(c)) continue;
    return weft__shared_over(c);
}

static bool may_move(const struct collective *c) {
    bool reads = c->call.kind == COLL_BCAST && c->team->rank != c->call.root;
    if (c->entered < c->n_parts && c->entered - c->left < SEGMENT_CHANNELS) {
        struct part p = part_of(c, c->entered);
        if (reads || is_free(c, &p)) return true;
    }
    if (c->left == c->entered) return false;
    struct part p = part_of(c, c->left);
    return is_published(&p);
}

/* A member that has left without taking its part will never take it. */
static bool needs(const struct collective *c, uint32_t rank) {
    uint64_t entered = atomic_load_explicit(&c->team->segment->member[rank].entered, memory_order_acquire);
    return entered < c->first_use + c->n_parts;
}

const struct coll_engine weft__slots = {
    .prepare = prepare, .advance = advance, .needs = needs, .may_move = may_move};
