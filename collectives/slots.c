/*
 * Collectives through memory that all members have mapped: each puts its part into its slot and
 * adds to one counter; the last one does the work for all and publishes; the others poll, or
 * sleep and are woken once. When ranks outnumber cores the cost of a collective is its dependent
 * wakeups, and here there is one.
 */
#include <base/counters.h>
#include <string.h>

#include "collective.h"

/* What a member puts in: nothing, its part into its own slot, or into a row of all, or the root's
 * for all. And may it be cut into parts? */
enum deposit { NOTHING, OWN, ROW, ROOTS };
static const struct slot_use {
    bool known, cut, blocks; /* blocks: one for each member */
    enum deposit deposit;
    bool folds; /* the last member reduces all */
} uses[N_COLL_KINDS] = {
    [COLL_BARRIER] = {true, false, false, NOTHING, false},
    [COLL_FANIN] = {true, false, false, NOTHING, false},
    [COLL_FANOUT] = {true, false, false, NOTHING, false},
    [COLL_BCAST] = {true, true, false, ROOTS, false},
    [COLL_SCATTER] = {true, false, true, ROOTS, false},
    [COLL_ALLREDUCE] = {true, true, false, OWN, true},
    [COLL_REDUCE] = {true, true, false, OWN, true},
    [COLL_REDUCE_SCATTER] = {true, false, true, OWN, true},
    [COLL_ALLTOALL] = {true, false, true, OWN, false},
    [COLL_SCAN] = {true, false, false, OWN, false},
    [COLL_EXSCAN] = {true, false, false, OWN, false},
    [COLL_ALLGATHER] = {true, true, false, ROW, false},
    [COLL_GATHER] = {true, true, false, ROW, false},
};

/* All that a member puts in. */
static uint64_t deposit_bytes(const weft_team_t *team, const struct coll_call *call) {
    return coll_bytes(call) * (uses[call->kind].blocks ? team->size : 1);
}

static bool only_reads(const struct collective *c) {
    return uses[c->call.kind].deposit == ROOTS && c->team->rank != c->call.root;
}

/* What one part takes from each member. */
static uint64_t part_bytes(const struct collective *c) {
    uint64_t slot = c->team->segment->slot;
    return slot - slot % c->call.width;
}

bool weft__slots_can_take(const weft_team_t *team, const struct coll_call *call) {
    const struct slot_use *use = &uses[call->kind];
    if (!team->segment || !use->known || call->tagged || call->width > team->segment->slot)
        return false;
    /* a slot has at least a line */
    return use->cut ? coll_bytes(call) / SEGMENT_LINE < UINT32_MAX
                    : deposit_bytes(team, call) <= team->segment->slot;
}

static weft_status_t prepare_slot(struct collective *c) {
    bool cut = uses[c->call.kind].cut;
    uint64_t bytes = coll_bytes(&c->call), most = cut ? part_bytes(c) : 1;
    c->n_parts = cut && bytes ? (uint32_t)((bytes + most - 1) / most) : 1;
    c->first_use = c->team->next_use;
    c->team->next_use += c->n_parts;
    weft__count(c->team->reactor)->coll_slots++;
    return WEFT_OK;
}

/* ---- one part -------------------------------------------------------------------------------- */

struct part {
    struct segment_channel *channel;
    uint32_t number; /* of the channel */
    uint64_t round;  /* how often the channel was used before */
    uint64_t use, offset, len;
};

static struct part part_of(const struct collective *c, uint32_t index) {
    uint64_t use = c->first_use + index, total = deposit_bytes(c->team, &c->call);
    struct part p = {
        .use = use, .number = (uint32_t)(use % SEGMENT_CHANNELS), .round = use / SEGMENT_CHANNELS};
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
    return atomic_load_explicit(&p->channel->left, memory_order_acquire) >=
           p->round * c->team->size;
}

static bool is_published(const struct part *p) {
    return atomic_load_explicit(&p->channel->published, memory_order_acquire) > p->round;
}

static void publish(struct collective *c, const struct part *p) {
    atomic_store_explicit(&p->channel->published, p->round + 1, memory_order_release);
    weft__shared_wake(c->team);
}

/* In the order of ranks, whichever member does it: the result does not depend on who came last. */
static void slots_fold(struct collective *c, const struct part *p) {
    const struct segment *s = c->team->segment;
    uint8_t *result = result_of(c, p);
    const uint8_t *left = segment_slot(s, p->number, 0);
    for (uint32_t r = 1; r < c->team->size; r++, left = result)
        coll_reduce(&c->call, result, left, segment_slot(s, p->number, r), p->len / c->call.width);
}

static void mark_entered(struct collective *c, const struct part *p) {
    atomic_store_explicit(&c->team->segment->member[c->team->rank].entered, p->use + 1,
                          memory_order_release);
}

static void arrive_slot(struct collective *c, const struct part *p) {
    uint64_t all = (p->round + 1) * c->team->size;
    mark_entered(c, p);
    if (atomic_fetch_add_explicit(&p->channel->arrived, 1, memory_order_acq_rel) + 1 != all) return;
    if (uses[c->call.kind].folds) slots_fold(c, p);
    publish(c, p);
}

static const uint8_t *given(const struct collective *c, const struct part *p) {
    const uint8_t *from = c->call.kind == COLL_BCAST ? c->call.dst : c->call.src;
    return from + p->offset;
}

/* It stands for all: the counter grows by one round a use, whatever the use. */
static void enter_for_all(struct collective *c, const struct part *p) {
    memcpy(result_of(c, p), given(c, p), p->len);
    mark_entered(c, p);
    atomic_fetch_add_explicit(&p->channel->arrived, c->team->size, memory_order_relaxed);
    publish(c, p);
}

/* False when it has to wait for the channel. */
static bool enter_slot(struct collective *c, const struct part *p) {
    const struct segment *s = c->team->segment;
    if (only_reads(c)) return true;
    if (!is_free(c, p)) return false;
    switch (uses[c->call.kind].deposit) {
    case ROOTS: enter_for_all(c, p); return true;
    case OWN: memcpy(segment_slot(s, p->number, c->team->rank), given(c, p), p->len); break;
    case ROW: /* packed, so that a small result is one run of bytes */
        memcpy(segment_slot(s, p->number, 0) + c->team->rank * p->len, given(c, p), p->len);
        break;
    case NOTHING: break;
    }
    arrive_slot(c, p);
    return true;
}

/* ---- leaving --------------------------------------------------------------------------------- */

/* All members' parts lie in a row; in DST they are apart, if there are several. */
static void take_all(struct collective *c, const struct part *p) {
    const uint8_t *from = segment_slot(c->team->segment, p->number, 0);
    uint8_t *dst = c->call.dst;
    uint64_t bytes = coll_bytes(&c->call);
    if (c->n_parts == 1) {
        memcpy(dst, from, c->team->size * bytes);
        return;
    }
    for (uint32_t r = 0; r < c->team->size; r++)
        memcpy(dst + r * bytes + p->offset, from + r * p->len, p->len);
}

/* This member's block of each. */
static void take_blocks(struct collective *c, const struct part *p) {
    uint64_t bytes = coll_bytes(&c->call);
    uint8_t *dst = c->call.dst;
    for (uint32_t r = 0; r < c->team->size; r++)
        memcpy(dst + r * bytes,
               segment_slot(c->team->segment, p->number, r) + c->team->rank * bytes, bytes);
}

/* The first `n` members' parts, in the order of ranks. */
static void take_prefix(struct collective *c, const struct part *p, uint32_t n) {
    const struct segment *s = c->team->segment;
    if (n > 0) memcpy(c->call.dst, segment_slot(s, p->number, 0), p->len);
    for (uint32_t r = 1; r < n; r++)
        coll_reduce(&c->call, c->call.dst, c->call.dst, segment_slot(s, p->number, r),
                    c->call.count);
}

static void take_slot(struct collective *c, const struct part *p) {
    uint32_t rank = c->team->rank;
    uint64_t bytes = coll_bytes(&c->call);
    uint8_t *dst = c->call.dst;
    switch (c->call.kind) {
    case COLL_BCAST:
        if (rank != c->call.root) memcpy(dst + p->offset, result_of(c, p), p->len);
        break;
    case COLL_REDUCE:
        if (rank == c->call.root) memcpy(dst + p->offset, result_of(c, p), p->len);
        break;
    case COLL_ALLREDUCE: memcpy(dst + p->offset, result_of(c, p), p->len); break;
    case COLL_SCATTER:
    case COLL_REDUCE_SCATTER: memcpy(dst, result_of(c, p) + rank * bytes, bytes); break;
    case COLL_GATHER:
        if (rank == c->call.root) take_all(c, p);
        break;
    case COLL_ALLGATHER: take_all(c, p); break;
    case COLL_ALLTOALL: take_blocks(c, p); break;
    case COLL_SCAN: take_prefix(c, p, rank + 1); break;
    case COLL_EXSCAN: take_prefix(c, p, rank); break;
    default: break;
    }
}

static bool leave_slot(struct collective *c, const struct part *p) {
    if (!is_published(p)) return false;
    take_slot(c, p);
    if (uses[c->call.kind].deposit == ROOTS) mark_entered(c, p);
    uint64_t all = (p->round + 1) * c->team->size;
    /* The last one out frees the channel; someone may sleep until then. */
    if (atomic_fetch_add_explicit(&p->channel->left, 1, memory_order_acq_rel) + 1 == all)
        weft__shared_wake(c->team);
    return true;
}

static bool slots_move(struct collective *c) {
    bool moved = false;
    if (c->entered < c->n_parts && c->entered - c->left < SEGMENT_CHANNELS) {
        struct part p = part_of(c, c->entered);
        if (enter_slot(c, &p)) c->entered++, moved = true;
    }
    if (c->left < c->entered) {
        struct part p = part_of(c, c->left);
        if (leave_slot(c, &p)) c->left++, moved = true;
    }
    return moved;
}

static bool advance_slot(struct collective *c) {
    while (!weft__shared_over(c) && slots_move(c)) continue;
    return weft__shared_over(c);
}

static bool may_move(const struct collective *c) {
    if (c->entered < c->n_parts && c->entered - c->left < SEGMENT_CHANNELS) {
        struct part p = part_of(c, c->entered);
        if (only_reads(c) || is_free(c, &p)) return true;
    }
    if (c->left == c->entered) return false;
    struct part p = part_of(c, c->left);
    return is_published(&p);
}

/* A member that has left without taking its part will never take it. */
static bool needs_slot(const struct collective *c, uint32_t rank) {
    uint64_t entered =
        atomic_load_explicit(&c->team->segment->member[rank].entered, memory_order_acquire);
    return entered < c->first_use + c->n_parts;
}

const struct coll_engine weft__slots = {
    .prepare = prepare_slot, .advance = advance_slot, .needs = needs_slot, .may_move = may_move};
