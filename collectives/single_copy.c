/*
 * Large blocks between members of one host: each offers the place of its memory in the segment. A
 * member that needs a block reads it there (offered.h). So every byte is copied once, and a vector
 * that is reduced by slices is read where it lies.
 *
 * No member writes to the memory of another. A member gives its buffers back when all that read
 * from them have said so, or when it has withdrawn its offers. A reader looks for that after each
 * copy: the order is that of a sequence lock. Each read begins with the nonce of the member, so
 * that a process which has the number of one that died is not read.
 *
 * Members enter and read in the order of the uses. An offer is written again when all have read
 * what they read in the use that had its place.
 */
#include <base/counters.h>
#include <reactor/reactor.h>
#include <stdio.h>
#include <string.h>
#include <transports/vm_speed.h>
#include <unistd.h>

#include "blocks.h"
#include "offered.h"

/* Bytes of a reduction at a time, which stay in the cache, and of a turn of the worker. */
enum { PIECE = 64 << 10, TURN_BYTES = 1 << 20 };
enum stage { ENTERING, READING, TAKING_SLICES, WAITING };

const struct copy_use weft__copy_uses[N_COLL_KINDS] = {
    [COLL_BCAST] = {.readers = FROM_ROOT},
    [COLL_SCATTER] = {.readers = FROM_ROOT, .scatters = true},
    [COLL_SCATTERV] = {.readers = FROM_ROOT, .scatters = true},
    [COLL_GATHER] = {.readers = BY_ROOT, .gathers = true},
    [COLL_GATHERV] = {.readers = BY_ROOT, .gathers = true},
    [COLL_REDUCE] = {.readers = BY_ROOT, .folds = true},
    [COLL_ALLGATHER] = {.readers = FROM_ALL, .gathers = true},
    [COLL_ALLGATHERV] = {.readers = FROM_ALL, .gathers = true},
    [COLL_ALLTOALL] = {.readers = FROM_ALL, .scatters = true, .gathers = true},
    [COLL_ALLTOALLV] = {.readers = FROM_ALL, .scatters = true, .gathers = true},
    [COLL_REDUCE_SCATTER] = {.readers = FROM_ALL, .scatters = true, .folds = true},
    [COLL_REDUCE_SCATTERV] = {.readers = FROM_ALL, .scatters = true, .folds = true},
    [COLL_ALLREDUCE] = {.readers = FROM_ALL, .folds = true, .slices = true},
};

bool weft__single_copy_has(enum coll_kind kind) {
    return weft__copy_uses[kind].readers != NO_READERS;
}

bool weft__single_copy_can_take(const weft_team_t *team, const struct coll_call *call) {
    return team->segment && team->offers.least && weft__single_copy_has(call->kind) &&
           !call->tagged && call->width <= PIECE && call->memory == COLL_HOST;
}

static bool reads(const struct collective *c, uint32_t reader, uint32_t owner) {
    return reader != owner &&
           coll_reads(weft__copy_uses[c->call.kind].readers, c->call.root, reader, owner);
}

static struct segment_member *member_of(const struct collective *c, uint32_t rank) {
    return &c->team->segment->member[rank];
}

/* ---- what each gives and takes --------------------------------------------------------------- */

static weft_status_t keep_blocks(struct collective *c) {
    uint32_t size = c->team->size;
    if (!coll_is_v_form(&c->call)) return WEFT_OK;
    c->blocks = weft__alloc(c->team, 2 * (size_t)size * sizeof *c->blocks, "blocks");
    if (!c->blocks) return WEFT_ERR_NO_MEMORY;
    weft__blocks_describe(c->team, &c->call, c->blocks);
    return WEFT_OK;
}

static struct piece gives(const struct collective *c, uint32_t rank) {
    return c->blocks ? c->blocks[rank] : weft__block_given(&c->call, rank);
}
static struct piece takes(const struct collective *c, uint32_t rank) {
    return c->blocks ? c->blocks[c->team->size + rank] : weft__block_taken(&c->call, rank);
}

/* A v-form that has kept its blocks, in a team of few. */
static bool has_places(const struct collective *c) {
    return c->blocks && segment_has_blocks(c->team->segment);
}

/* Does a block of this length stand in its place? */
static bool stands_there(const struct collective *c, uint64_t len) {
    return has_places(c) && block_is_small(c->team, len);
}

static const struct segment_block *place_of(const struct collective *c, uint32_t rank) {
    return segment_block(c->team->segment, c->first_use, rank, c->team->rank);
}
static const uint8_t *place_bytes(const struct collective *c, uint32_t rank, uint64_t len) {
    return segment_block_bytes(c->team->segment, c->first_use, rank, c->team->rank, len);
}

/* Must this member's memory stay until the other has read it? */
static bool memory_is_read_by(const struct collective *c, uint32_t rank) {
    return reads(c, rank, c->team->rank) && !stands_there(c, gives(c, rank).len);
}

static bool memory_is_read(const struct collective *c) {
    for (uint32_t r = 0; r < c->team->size; r++)
        if (memory_is_read_by(c, r)) return true;
    return false;
}

/* ---- what it takes for that ------------------------------------------------------------------ */

static weft_status_t keep_source(struct collective *c) {
    uint64_t bytes = 0;
    if (!c->call.in_place || !memory_is_read(c)) return WEFT_OK;
    for (uint32_t r = 0; r < c->team->size; r++) {
        struct piece block = gives(c, r);
        if (block.len && block.offset + block.len > bytes) bytes = block.offset + block.len;
    }
    c->saved = weft__realloc(c->team, NULL, bytes + 1, "saved");
    if (c->saved) memcpy(c->saved, c->call.src, bytes);
    return c->saved ? WEFT_OK : WEFT_ERR_NO_MEMORY;
}

weft_status_t weft__copies_scratch(weft_team_t *team, const struct coll_call *call) {
    struct team_offers *offers = &team->offers;
    if (!weft__copy_uses[call->kind].folds || offers->scratch) return WEFT_OK;
    offers->scratch = weft__realloc(team, NULL, 2 * (size_t)PIECE, "scratch");
    return offers->scratch ? WEFT_OK : WEFT_ERR_NO_MEMORY;
}

static void release_copies(struct collective *c) {
    if (c->blocks != c->team->offers.blocks) talloc_free(c->blocks);
    talloc_free(c->saved);
    c->blocks = NULL;
    c->saved = NULL;
}

static const uint8_t *given(const struct collective *c) {
    return c->saved ? c->saved : coll_source(&c->call);
}

static void copy_own_block(const struct collective *c) {
    uint32_t rank = c->team->rank;
    const struct copy_use *use = &weft__copy_uses[c->call.kind];
    bool copies = (use->scatters || use->gathers) && !use->folds;
    if (!copies || !coll_reads(use->readers, c->call.root, rank, rank)) return;
    struct piece from = gives(c, rank), to = takes(c, rank);
    uint8_t *at = (uint8_t *)c->call.dst + to.offset;
    const uint8_t *source = given(c) + from.offset;
    if (at != source && from.len) memcpy(at, source, from.len);
}

/* It may have entered within its call: then it has what it needs. */
static weft_status_t prepare_copies(struct collective *c) {
    c->n_parts = 1;
    if (c->entered) {
        c->stage = READING;
        c->blocks = c->team->offers.blocks;
        copy_own_block(c);
        return WEFT_OK;
    }
    weft_status_t st = keep_blocks(c);
    if (st == WEFT_OK) st = keep_source(c);
    if (st == WEFT_OK) st = weft__copies_scratch(c->team, &c->call);
    if (st < 0) {
        release_copies(c);
        return st;
    }
    c->first_use = c->team->offers.next++;
    weft__count(c->team->reactor)->coll_single_copy++;
    return WEFT_OK;
}

/* ---- reading the memory of another ----------------------------------------------------------- */

static const struct segment_offer *offer_of(const struct collective *c, uint32_t rank) {
    return segment_offer(c->team->segment, c->first_use, rank);
}

static void lose_memory(const struct collective *c, uint32_t rank, const char *why) {
    char what[120];
    snprintf(what, sizeof what, "the memory of rank %u cannot be read: %s", rank, why);
    weft__late_note(c->team, rank, what);
    weft__team_fail(c->team, WEFT_ERR_PEER_FAILED, rank);
}

/* NULL, or why not. */
static const char *copy_from(const struct collective *c, uint32_t rank,
                             const struct segment_place *place, uint64_t at, void *to, size_t len) {
    const uint8_t *mapped = weft__offered_map(c->team, rank, offer_of(c, rank), place, at, len);
    if (!mapped) return weft__offered_read(c->team, rank, place->address + at, to, len);
    memcpy(to, mapped, len);
    return weft__offered_stands(c->team, rank) ? NULL : weft__offer_withdrawn;
}

/* False: the team has failed. */
static bool read_from(const struct collective *c, uint32_t rank, const struct segment_place *place,
                      uint64_t at, void *to, size_t len) {
    const char *why = len == 0 ? NULL : copy_from(c, rank, place, at, to, len);
    if (why) lose_memory(c, rank, why);
    return !why;
}

static bool has_offered(const struct collective *c, uint32_t rank) {
    if (has_places(c)) return block_has_come(c->team, c->first_use, rank, c->team->rank);
    return atomic_load_explicit(&offer_of(c, rank)->use, memory_order_acquire) > c->first_use;
}
static bool has_read(const struct collective *c, uint32_t rank) {
    return atomic_load_explicit(&member_of(c, rank)->read, memory_order_acquire) > c->first_use;
}
static bool has_reduced(const struct collective *c, uint32_t rank) {
    return atomic_load_explicit(&member_of(c, rank)->reduced, memory_order_acquire) > c->first_use;
}

/* ---- entering -------------------------------------------------------------------------------- */

static bool is_offering(const struct collective *c) {
    for (uint32_t r = 0; r < c->team->size; r++)
        if (reads(c, r, c->team->rank)) return true;
    return false;
}

static bool has_room(const struct collective *c) {
    if (!has_places(c)) return weft__copies_have_room(c->team, c->first_use, SEGMENT_CHANNELS);
    struct block_run run = weft__block_run(c->team, &c->call, c->first_use, c->blocks);
    return weft__blocks_have_room(&run);
}

static bool may_enter(const struct collective *c) {
    if (c->team->offers.entered != c->first_use) return false;
    return !is_offering(c) || has_room(c);
}

static void offer_memory(const struct collective *c, struct segment_offer *offer) {
    weft__offered_place(c->team, given(c), &offer->src);
    weft__offered_place(c->team, weft__copy_uses[c->call.kind].slices ? c->call.dst : NULL,
                        &offer->dst);
    offer->released = c->team->worker->memory.exposed.generation;
    offer->blocks = (uintptr_t)c->blocks;
    offer->len = coll_bytes(&c->call);
}

/* Readers look at the places of their blocks, if there are any, and at the offer otherwise. */
static void offer(const struct collective *c) {
    struct segment_offer *offer = segment_offer(c->team->segment, c->first_use, c->team->rank);
    if (memory_is_read(c)) offer_memory(c, offer);
    if (has_places(c)) {
        struct block_run run = weft__block_run(c->team, &c->call, c->first_use, c->blocks);
        weft__blocks_write(&run, given(c));
    } else {
        atomic_store_explicit(&offer->use, c->first_use + 1, memory_order_release);
    }
    weft__shared_wake(c->team, FOR_NEWS);
}

static void single_copy_enter(struct collective *c) {
    c->entered = 1;
    c->team->offers.entered++;
    c->stage = READING;
    if (is_offering(c)) offer(c);
    copy_own_block(c);
}

/* ---- blocks of others ------------------------------------------------------------------------ */

struct range {
    const struct segment_place *place; /* of the one that is read */
    uint64_t from, to, len;
};

/* Where the block lies that `rank` gives to this member, by its own word. False: the team has
 * failed. */
static bool named_block(const struct collective *c, uint32_t rank, struct piece *block) {
    const struct segment_offer *offer = offer_of(c, rank);
    if (has_places(c)) {
        *block = (struct piece){place_of(c, rank)->offset, place_of(c, rank)->len};
        return true;
    }
    *block = (struct piece){0, offer->len};
    return !weft__copy_uses[c->call.kind].scatters ||
           read_from(c, rank, &(struct segment_place){.address = offer->blocks},
                     c->team->rank * sizeof *block, block, sizeof *block);
}

/* The block that lies for this member at `rank`. False: the team has failed. */
static bool find_block(const struct collective *c, uint32_t rank, struct range *range) {
    struct piece block = gives(c, c->team->rank); /* where all have equal blocks */
    struct piece to = takes(c, rank);
    if (c->blocks && !named_block(c, rank, &block)) return false;
    *range = (struct range){&offer_of(c, rank)->src, block.offset, to.offset, to.len};
    if (block.len == to.len) return true;
    weft__team_fail(c->team, WEFT_ERR_PROTOCOL, rank);
    return false;
}

/* The slice of a vector that `rank` reduces. */
static struct piece slice_of(const struct collective *c, uint32_t rank) {
    return weft__piece(c->call.count, c->call.width, c->team->size, rank);
}

static size_t at_most(uint64_t len, size_t most) {
    return len < most ? (size_t)len : most;
}

/* ---- whose block is next? -------------------------------------------------------------------- */

static bool is_taken(const struct collective *c, uint32_t rank) {
    return c->taken[rank / 64] >> rank % 64 & 1;
}

static void mark_taken(struct collective *c, uint32_t rank) {
    c->taken[rank / 64] |= UINT64_C(1) << rank % 64;
    c->n_taken++;
    c->at = 0;
}

static void take_none(struct collective *c) {
    memset(c->taken, 0, sizeof c->taken);
    c->n_taken = 0;
    c->at = 0;
}

/* Of the members that this one reads from. */
static uint32_t to_take(const struct collective *c) {
    if (weft__copy_uses[c->call.kind].readers == FROM_ROOT) return c->team->rank != c->call.root;
    if (weft__copy_uses[c->call.kind].readers == BY_ROOT && c->team->rank != c->call.root) return 0;
    return c->team->size - 1;
}

/* Whichever is there first, from the neighbour on, so that not all read the same. UINT32_MAX: none
 * is there. */
static uint32_t next_to_take(const struct collective *c) {
    uint32_t size = c->team->size, rank = c->team->rank;
    if (c->at > 0) return c->taking;
    for (uint32_t i = 1; i < size; i++) {
        uint32_t r = (rank + i) % size;
        if (is_taken(c, r) || !reads(c, rank, r)) continue;
        if (c->stage == READING ? has_offered(c, r) : has_reduced(c, r)) return r;
    }
    return UINT32_MAX;
}

/* As much of this member's block as a turn has; true: it moved on. */
static bool take_range(struct collective *c, uint32_t rank, const struct range *range,
                       size_t *budget) {
    size_t len = at_most(range->len - c->at, *budget);
    uint8_t *to = (uint8_t *)c->call.dst + range->to + c->at;
    if (!read_from(c, rank, range->place, range->from + c->at, to, len)) return false;
    c->taking = rank;
    c->at += len;
    *budget -= len;
    if (c->at == range->len) mark_taken(c, rank);
    return true;
}

static void take_small(struct collective *c, uint32_t rank, const struct range *range,
                       size_t *budget) {
    if (range->len)
        memcpy((uint8_t *)c->call.dst + range->to, place_bytes(c, rank, range->len), range->len);
    *budget -= at_most(range->len, *budget);
    mark_taken(c, rank);
}

static bool take_block(struct collective *c, size_t *budget) {
    uint32_t rank = next_to_take(c);
    struct range range;
    if (rank == UINT32_MAX || !find_block(c, rank, &range)) return false;
    if (!stands_there(c, range.len)) return take_range(c, rank, &range, budget);
    take_small(c, rank, &range, budget);
    return true;
}

static bool take_slice(struct collective *c, size_t *budget) {
    uint32_t rank = next_to_take(c);
    if (rank == UINT32_MAX) return false;
    struct piece slice = slice_of(c, rank);
    struct range range = {&offer_of(c, rank)->dst, slice.offset, slice.offset, slice.len};
    return take_range(c, rank, &range, budget);
}

/* ---- reductions ------------------------------------------------------------------------------ */

/* What this member reduces: where it lies in every SRC, and in its own DST. */
static struct range folded(const struct collective *c) {
    struct piece piece = {0, coll_bytes(&c->call)};
    if (c->call.kind == COLL_REDUCE && c->team->rank != c->call.root) return (struct range){0};
    if (c->call.kind == COLL_REDUCE) return (struct range){.len = piece.len};
    if (weft__copy_uses[c->call.kind].slices) {
        piece = slice_of(c, c->team->rank);
        return (struct range){.from = piece.offset, .to = piece.offset, .len = piece.len};
    }
    piece = gives(c, c->team->rank);
    return (struct range){.from = piece.offset, .len = piece.len};
}

/* A block that is reduced whole, where it stands. NULL: the team has failed. */
static const uint8_t *small_operand(const struct collective *c, uint32_t rank, uint64_t len) {
    if (place_of(c, rank)->len == len) return place_bytes(c, rank, len);
    weft__team_fail(c->team, WEFT_ERR_PROTOCOL, rank);
    return NULL;
}

/* NULL: the team has failed. */
static const uint8_t *operand(const struct collective *c, uint32_t rank, uint64_t at, size_t len,
                              uint8_t *room) {
    if (rank == c->team->rank) return given(c) + at;
    if (stands_there(c, gives(c, c->team->rank).len)) return small_operand(c, rank, len);
    const struct segment_offer *offer = offer_of(c, rank);
    const uint8_t *mapped = weft__offered_map(c->team, rank, offer, &offer->src, at, len);
    if (mapped) return mapped;
    const char *why = weft__offered_read(c->team, rank, offer->src.address + at, room, len);
    if (why) lose_memory(c, rank, why);
    return why ? NULL : room;
}

/* What was mapped is read while it is reduced. */
static bool all_stand(const struct collective *c) {
    for (uint32_t r = 0; r < c->team->size; r++) {
        if (r == c->team->rank || weft__offered_stands(c->team, r)) continue;
        lose_memory(c, r, weft__offer_withdrawn);
        return false;
    }
    return true;
}

/* In the order of ranks, so that the result does not depend on who reduces it. The last reduction
 * writes to DST: what lies there, in place, has been taken by then. */
static bool fold_piece(const struct collective *c, const struct range *range, size_t len) {
    uint32_t size = c->team->size;
    uint8_t *sum = c->team->offers.scratch, *room = sum + PIECE;
    const uint8_t *left = operand(c, 0, range->from + c->at, len, sum);
    for (uint32_t r = 1; r < size && left; r++) {
        const uint8_t *right = operand(c, r, range->from + c->at, len, room);
        uint8_t *to = r + 1 == size ? (uint8_t *)c->call.dst + range->to + c->at : sum;
        if (!right) return false;
        coll_reduce(&c->call, to, left, right, len / c->call.width);
        left = to;
    }
    return left && all_stand(c);
}

static bool all_offered(const struct collective *c) {
    for (uint32_t r = 0; r < c->team->size; r++)
        if (reads(c, c->team->rank, r) && !has_offered(c, r)) return false;
    return true;
}

static bool single_copy_fold(struct collective *c, size_t *budget) {
    struct range range = folded(c);
    size_t len = at_most(range.len - c->at, PIECE - PIECE % c->call.width);
    if (len && (!all_offered(c) || !fold_piece(c, &range, len))) return false;
    c->at += len;
    *budget -= at_most(*budget, len);
    if (c->at == range.len) c->n_taken = to_take(c);
    return true;
}

/* ---- one after the other --------------------------------------------------------------------- */

static void announce(struct collective *c, _Atomic uint64_t *counter) {
    atomic_store_explicit(counter, c->first_use + 1, memory_order_release);
    weft__shared_wake(c->team, FOR_NEWS);
}

static void end_stage(struct collective *c) {
    take_none(c);
    if (c->stage == READING && weft__copy_uses[c->call.kind].slices) {
        announce(c, &member_of(c, c->team->rank)->reduced);
        c->stage = TAKING_SLICES;
        return;
    }
    weft__copies_leave(c->team);
    c->stage = WAITING;
}

static bool all_have_read(const struct collective *c) {
    for (uint32_t r = 0; r < c->team->size; r++)
        if (memory_is_read_by(c, r) && !has_read(c, r)) return false;
    return true;
}

static bool is_next(const struct collective *c) {
    return c->team->offers.read == c->first_use;
}

static bool move_on(struct collective *c, size_t *budget) {
    switch ((enum stage)c->stage) {
    case ENTERING:
        if (!may_enter(c)) return false;
        single_copy_enter(c);
        return true;
    case READING:
        if (!is_next(c)) return false;
        if (c->n_taken == to_take(c)) {
            end_stage(c);
            return true;
        }
        return weft__copy_uses[c->call.kind].folds ? single_copy_fold(c, budget)
                                                   : take_block(c, budget);
    case TAKING_SLICES:
        if (c->n_taken == to_take(c)) {
            end_stage(c);
            return true;
        }
        return take_slice(c, budget);
    case WAITING:
        if (!all_have_read(c)) return false;
        c->left = 1;
        return true;
    }
    return false;
}

static bool advance_copies(struct collective *c) {
    size_t budget = TURN_BYTES;
    while (!weft__shared_over(c) && c->status == WEFT_OK && budget && move_on(c, &budget)) continue;
    return weft__shared_over(c);
}

static bool may_move(const struct collective *c) {
    bool done = c->n_taken == to_take(c);
    switch ((enum stage)c->stage) {
    case ENTERING: return may_enter(c);
    case READING:
        if (!is_next(c)) return false;
        if (done) return true;
        if (weft__copy_uses[c->call.kind].folds) return folded(c).len == 0 || all_offered(c);
        return next_to_take(c) != UINT32_MAX;
    case TAKING_SLICES: return done || next_to_take(c) != UINT32_MAX;
    case WAITING: return all_have_read(c);
    }
    return false;
}

static bool needs_copy(const struct collective *c, uint32_t rank) {
    if (memory_is_read_by(c, rank) && !has_read(c, rank)) return true;
    if (c->stage >= WAITING || !reads(c, c->team->rank, rank)) return false;
    return !has_offered(c, rank) || (weft__copy_uses[c->call.kind].slices && !has_reduced(c, rank));
}

/* Readers look after each copy. */
static void recall_offers(struct collective *c) {
    atomic_store_explicit(&member_of(c, c->team->rank)->withdrawn, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
}

const struct coll_engine weft__single_copy = {.prepare = prepare_copies,
                                              .prepare_start = weft__blocks_prepare_start,
                                              .start = weft__blocks_start,
                                              .advance = advance_copies,
                                              .needs = needs_copy,
                                              .may_move = may_move,
                                              .recall = recall_offers,
                                              .release = release_copies};

/* ---- may it be done here, and from which size on? -------------------------------------------- */

/* A system call, and the pages that it pins: of a small read, in ns. */
static uint64_t cost_of_read(const weft_team_t *team) {
    uint64_t least = UINT64_MAX;
    uint8_t to[64];
    for (int i = 0; i < 5; i++) {
        uint64_t begin = weft__real_now();
        if (weft__offered_read(team, team->rank, (uintptr_t)team->all, to, sizeof to))
            return UINT64_MAX;
        uint64_t took = weft__real_now() - begin;
        if (took < least) least = took;
    }
    return least;
}

/*
 * The size at which the bytes of a read take as long as its call does otherwise, as the nearest
 * power of two.
 * By slots a byte is copied twice, crosses between caches twice, and waits for its readers a part
 * at a time, which no member can measure alone. With a core each and with shared cores one read was
 * the faster way from that size on (docs/performance/choices.md). A kernel that reads slower
 * than a copy is left to large blocks.
 * A member that has exposed regions when the team is made is taken to use them in its collectives.
 * Those are read without a call, so it proposes the least size. The largest proposal counts: so it
 * is that size where all have such regions.
 */
uint32_t weft__single_copy_least(const weft_team_t *team) {
    enum { LEAST = 14, MOST = 18, SLOWER = 4, FAR_SLOWER = 16 };
    uint32_t next = (team->rank + 1) % team->size, bits = LEAST;
    uint64_t nonce, from = team->record[next].probe;
    struct vm_speed speed = weft__vm_speed();
    if (!speed.read_ns || weft__offered_read(team, next, from, &nonce, sizeof nonce))
        return SINGLE_COPY_NEVER;
    uint64_t call = cost_of_read(team);
    if (call == UINT64_MAX) return SINGLE_COPY_NEVER;
    if (speed.read_ns / FAR_SLOWER > speed.copy_ns) return MOST;
    if (team->worker->memory.exposed.n) return SINGLE_COPY_EXPOSED;
    if (speed.read_ns / SLOWER > speed.copy_ns) return MOST;
    uint64_t least = call * VM_SPEED_BYTES / speed.read_ns;
    while (bits < MOST && (UINT64_C(3) << bits) / 2 < least) bits++;
    return bits;
}
