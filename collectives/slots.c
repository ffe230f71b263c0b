/*
 * Collectives through memory that all members of a share have mapped: each puts its part into its
 * slot and adds to one counter; the last one does the work for all and publishes; the others poll,
 * or sleep and are woken once. When ranks outnumber cores the cost of a collective is its dependent
 * wakeups, and here there is one. The share is the whole team, or the members of one host: then
 * such a run is a step of a schedule (steps.c).
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
    [COLL_SCAN] = {true, true, false, OWN, false},
    [COLL_EXSCAN] = {true, true, false, OWN, false},
    [COLL_ALLGATHER] = {true, true, false, ROW, false},
    [COLL_GATHER] = {true, true, false, ROW, false},
};

static const struct coll_share *share_of(const struct slot_run *run) {
    return &run->team->share;
}
static const struct segment *segment_of(const struct slot_run *run) {
    return share_of(run)->segment;
}

/* All that a member puts in. */
static uint64_t deposit_bytes(const struct slot_run *run) {
    return run->bytes * (uses[run->kind].blocks ? share_of(run)->size : 1);
}

static bool only_reads(const struct slot_run *run) {
    return uses[run->kind].deposit == ROOTS && share_of(run)->rank != run->root;
}

/* What one part takes from each member. */
static uint64_t part_bytes(const struct slot_run *run) {
    uint64_t slot = segment_of(run)->slot;
    return slot - slot % run->call->width;
}

bool weft__slots_fit(enum coll_kind kind, uint64_t bytes, uint32_t width, uint32_t ranks,
                     uint64_t slot) {
    const struct slot_use *use = &uses[kind];
    if (!use->known || width > slot) return false;
    /* a slot has at least a line */
    if (use->cut) return bytes / SEGMENT_LINE < UINT32_MAX;
    return bytes <= slot / (use->blocks ? ranks : 1);
}

bool weft__slots_can_take(const weft_team_t *team, const struct coll_call *call) {
    return team->segment && !call->tagged &&
           weft__slots_fit(call->kind, coll_bytes(call), call->width, team->size,
                           team->segment->slot);
}

void weft__slots_begin(struct slot_run *run) {
    bool cut = uses[run->kind].cut;
    uint64_t most = cut ? part_bytes(run) : 1;
    run->n_parts = cut && run->bytes ? (uint32_t)((run->bytes + most - 1) / most) : 1;
    run->entered = run->left = 0;
    run->first_use = run->team->share.next_use;
    run->team->share.next_use += run->n_parts;
}

/* ---- one part -------------------------------------------------------------------------------- */

struct part {
    struct segment_channel *channel;
    uint32_t number; /* of the channel */
    uint64_t round;  /* how often the channel was used before */
    uint64_t use, offset, len;
};

static struct part part_of(const struct slot_run *run, uint32_t index) {
    uint64_t use = run->first_use + index, total = deposit_bytes(run);
    struct part p = {
        .use = use, .number = (uint32_t)(use % SEGMENT_CHANNELS), .round = use / SEGMENT_CHANNELS};
    p.channel = &segment_of(run)->head->channel[p.number];
    p.len = total;
    if (run->n_parts > 1) {
        p.offset = index * part_bytes(run);
        p.len = total - p.offset < part_bytes(run) ? total - p.offset : part_bytes(run);
    }
    return p;
}

static uint8_t *result_of(const struct slot_run *run, const struct part *p) {
    return segment_slot(segment_of(run), p->number, share_of(run)->size);
}

/* All are through with the use before. */
static bool is_free(const struct slot_run *run, const struct part *p) {
    return atomic_load_explicit(&p->channel->left, memory_order_acquire) >=
           p->round * share_of(run)->size;
}

static bool is_published(const struct part *p) {
    return atomic_load_explicit(&p->channel->published, memory_order_acquire) > p->round;
}

static void publish(struct slot_run *run, const struct part *p) {
    atomic_store_explicit(&p->channel->published, p->round + 1, memory_order_release);
    weft__shared_wake(run->team, FOR_NEWS);
}

/* In the order of ranks, whichever member does it: the result does not depend on who came last. */
static void slots_fold(struct slot_run *run, const struct part *p) {
    const struct segment *s = segment_of(run);
    uint8_t *result = result_of(run, p);
    const uint8_t *left = segment_slot(s, p->number, 0);
    for (uint32_t r = 1; r < share_of(run)->size; r++, left = result)
        coll_reduce(run->call, result, left, segment_slot(s, p->number, r),
                    p->len / run->call->width);
}

/* Of several at once a later one may be entered first. */
static void mark_entered(struct slot_run *run, const struct part *p) {
    _Atomic uint64_t *entered = &segment_of(run)->member[share_of(run)->rank].entered;
    if (atomic_load_explicit(entered, memory_order_relaxed) <= p->use)
        atomic_store_explicit(entered, p->use + 1, memory_order_release);
}

static void arrive_slot(struct slot_run *run, const struct part *p) {
    uint64_t all = (p->round + 1) * share_of(run)->size;
    mark_entered(run, p);
    if (atomic_fetch_add_explicit(&p->channel->arrived, 1, memory_order_acq_rel) + 1 != all) return;
    if (uses[run->kind].folds) slots_fold(run, p);
    publish(run, p);
}

static const uint8_t *given(const struct slot_run *run, const struct part *p) {
    const uint8_t *from = run->kind == COLL_BCAST ? run->dst : run->src;
    return from + p->offset;
}

/* It stands for all: the counter grows by one round a use, whatever the use. */
static void enter_for_all(struct slot_run *run, const struct part *p) {
    memcpy(result_of(run, p), given(run, p), p->len);
    mark_entered(run, p);
    atomic_fetch_add_explicit(&p->channel->arrived, share_of(run)->size, memory_order_relaxed);
    publish(run, p);
}

/* False when it has to wait for the channel. */
static bool enter_slot(struct slot_run *run, const struct part *p) {
    const struct segment *s = segment_of(run);
    uint32_t rank = share_of(run)->rank;
    if (only_reads(run)) return true;
    if (!is_free(run, p)) return false;
    switch (uses[run->kind].deposit) {
    case ROOTS: enter_for_all(run, p); return true;
    case OWN: memcpy(segment_slot(s, p->number, rank), given(run, p), p->len); break;
    case ROW: /* packed, so that a small result is one run of bytes */
        memcpy(segment_slot(s, p->number, 0) + rank * p->len, given(run, p), p->len);
        break;
    case NOTHING: break;
    }
    arrive_slot(run, p);
    return true;
}

/* ---- leaving --------------------------------------------------------------------------------- */

/* All members' parts lie in a row; in DST they are apart, if there are several. */
static void take_all(struct slot_run *run, const struct part *p) {
    const uint8_t *from = segment_slot(segment_of(run), p->number, 0);
    uint8_t *dst = run->dst;
    uint64_t bytes = run->bytes;
    if (run->n_parts == 1) {
        memcpy(dst, from, share_of(run)->size * bytes);
        return;
    }
    for (uint32_t r = 0; r < share_of(run)->size; r++)
        memcpy(dst + r * bytes + p->offset, from + r * p->len, p->len);
}

/* This member's block of each. */
static void take_blocks(struct slot_run *run, const struct part *p) {
    uint64_t bytes = run->bytes;
    uint8_t *dst = run->dst;
    for (uint32_t r = 0; r < share_of(run)->size; r++)
        memcpy(dst + r * bytes,
               segment_slot(segment_of(run), p->number, r) + share_of(run)->rank * bytes, bytes);
}

/* The first `n` members' parts, in the order of ranks. */
static void take_prefix(struct slot_run *run, const struct part *p, uint32_t n) {
    const struct segment *s = segment_of(run);
    uint8_t *dst = (uint8_t *)run->dst + p->offset;
    const uint8_t *left = segment_slot(s, p->number, 0);
    if (n == 1) memcpy(dst, left, p->len);
    for (uint32_t r = 1; r < n; r++, left = dst)
        coll_reduce(run->call, dst, left, segment_slot(s, p->number, r), p->len / run->call->width);
}

static void take_slot(struct slot_run *run, const struct part *p) {
    uint32_t rank = share_of(run)->rank;
    uint64_t bytes = run->bytes;
    uint8_t *dst = run->dst;
    switch (run->kind) {
    case COLL_BCAST:
        if (rank != run->root) memcpy(dst + p->offset, result_of(run, p), p->len);
        break;
    case COLL_REDUCE:
        if (rank == run->root) memcpy(dst + p->offset, result_of(run, p), p->len);
        break;
    case COLL_ALLREDUCE: memcpy(dst + p->offset, result_of(run, p), p->len); break;
    case COLL_SCATTER:
    case COLL_REDUCE_SCATTER: memcpy(dst, result_of(run, p) + rank * bytes, bytes); break;
    case COLL_GATHER:
        if (rank == run->root) take_all(run, p);
        break;
    case COLL_ALLGATHER: take_all(run, p); break;
    case COLL_ALLTOALL: take_blocks(run, p); break;
    case COLL_SCAN: take_prefix(run, p, rank + 1); break;
    case COLL_EXSCAN: take_prefix(run, p, rank); break;
    default: break;
    }
}

static bool leave_slot(struct slot_run *run, const struct part *p) {
    if (!is_published(p)) return false;
    take_slot(run, p);
    if (uses[run->kind].deposit == ROOTS) mark_entered(run, p);
    uint64_t all = (p->round + 1) * share_of(run)->size;
    /* The last one out frees the channel; someone may sleep until then. */
    if (atomic_fetch_add_explicit(&p->channel->left, 1, memory_order_acq_rel) + 1 == all)
        weft__shared_wake(run->team, FOR_SPACE);
    return true;
}

static bool slots_move(struct slot_run *run) {
    bool moved = false;
    if (run->entered < run->n_parts && run->entered - run->left < SEGMENT_CHANNELS) {
        struct part p = part_of(run, run->entered);
        if (enter_slot(run, &p)) run->entered++, moved = true;
    }
    if (run->left < run->entered) {
        struct part p = part_of(run, run->left);
        if (leave_slot(run, &p)) run->left++, moved = true;
    }
    return moved;
}

bool weft__slots_over(const struct slot_run *run) {
    return run->left == run->n_parts;
}

bool weft__slots_advance(struct slot_run *run) {
    while (!weft__slots_over(run) && slots_move(run)) continue;
    return weft__slots_over(run);
}

bool weft__slots_need_space(const struct slot_run *run) {
    if (run->entered == run->n_parts || run->entered - run->left == SEGMENT_CHANNELS) return false;
    struct part p = part_of(run, run->entered);
    return !only_reads(run) && !is_free(run, &p);
}

bool weft__slots_may_move(const struct slot_run *run) {
    if (run->entered < run->n_parts && run->entered - run->left < SEGMENT_CHANNELS) {
        struct part p = part_of(run, run->entered);
        if (only_reads(run) || is_free(run, &p)) return true;
    }
    if (run->left == run->entered) return false;
    struct part p = part_of(run, run->left);
    return is_published(&p);
}

/* A member that has left without taking its part will never take it. */
bool weft__slots_need(const struct slot_run *run, uint32_t index) {
    uint64_t entered =
        atomic_load_explicit(&segment_of(run)->member[index].entered, memory_order_acquire);
    return entered < run->first_use + run->n_parts;
}

/* ---- a collective of the whole team ---------------------------------------------------------- */

static weft_status_t prepare_slot(struct collective *c) {
    weft_status_t st = weft__team_segment_fill(c->team->share.segment);
    if (st < 0) return st;
    c->slots = (struct slot_run){.team = c->team,
                                 .call = &c->call,
                                 .kind = c->call.kind,
                                 .root = c->call.root,
                                 .bytes = coll_bytes(&c->call),
                                 .src = c->call.src,
                                 .dst = c->call.dst};
    weft__slots_begin(&c->slots);
    c->first_use = c->slots.first_use;
    c->n_parts = 1;
    weft__count(c->team->reactor)->coll_slots++;
    return WEFT_OK;
}

static bool advance_slot(struct collective *c) {
    c->left = weft__slots_advance(&c->slots);
    return c->left;
}

static bool may_move(const struct collective *c) {
    return weft__slots_may_move(&c->slots);
}

static bool needs_space(const struct collective *c) {
    return weft__slots_need_space(&c->slots);
}

static bool needs_slot(const struct collective *c, uint32_t rank) {
    return weft__slots_need(&c->slots, rank);
}

const struct coll_engine weft__slots = {.prepare = prepare_slot,
                                        .advance = advance_slot,
                                        .needs = needs_slot,
                                        .may_move = may_move,
                                        .needs_space = needs_space};
