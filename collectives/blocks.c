/*
 * A v-form's members may differ in their bytes, so what is small is decided for each block. A
 * member writes what it gives to another in the place of these two. A block that fits stands there
 * itself, and its reader needs nothing else: a short one is written with one line of the cache, and
 * the owner does not wait for the reader. Of a larger one the place says where it lies in the
 * memory that its owner offers (single_copy.c).
 *
 * A place is written again when all members have read what they read in its last use. Each block
 * says how many uses its writer had read, so members who go on one by one learn that in passing.
 * There are more places for short blocks than for others.
 */
#include "blocks.h"

#include <base/counters.h>
#include <string.h>

#include "within.h"

/* ---- what each gives and takes --------------------------------------------------------------- */

struct piece weft__block_given(const struct coll_call *call, uint32_t rank) {
    if (weft__copy_uses[call->kind].scatters)
        return coll_block(call->count, call->width, call->src_blocks, rank);
    return (struct piece){0, coll_bytes(call)};
}
struct piece weft__block_taken(const struct coll_call *call, uint32_t rank) {
    if (weft__copy_uses[call->kind].gathers)
        return coll_block(call->count, call->width, call->dst_blocks, rank);
    return (struct piece){0, coll_bytes(call)};
}

void weft__blocks_describe(const weft_team_t *team, const struct coll_call *call,
                           struct piece *blocks) {
    for (uint32_t r = 0; r < team->size; r++) {
        blocks[r] = weft__block_given(call, r);
        blocks[team->size + r] = weft__block_taken(call, r);
    }
}

/* ---- room ------------------------------------------------------------------------------------ */

static void note_read(struct team_offers *offers, uint32_t rank, uint64_t read) {
    if (read > offers->read_by[rank]) offers->read_by[rank] = read;
}

static bool have_read(weft_team_t *team, uint64_t use, uint64_t ahead) {
    uint64_t least = UINT64_MAX;
    for (uint32_t r = 0; r < team->size; r++)
        if (team->offers.read_by[r] < least) least = team->offers.read_by[r];
    team->offers.read_by_all = least;
    return use < least + ahead;
}

bool weft__copies_have_room(weft_team_t *team, uint64_t use, uint64_t ahead) {
    struct team_offers *offers = &team->offers;
    if (use < offers->read_by_all + ahead || have_read(team, use, ahead)) return true;
    for (uint32_t r = 0; r < team->size; r++)
        note_read(offers, r,
                  atomic_load_explicit(&team->segment->member[r].read, memory_order_acquire));
    return have_read(team, use, ahead);
}

void weft__copies_leave(weft_team_t *team) {
    struct team_offers *offers = &team->offers;
    offers->read_by[team->rank] = ++offers->read;
    atomic_store_explicit(&team->segment->member[team->rank].read, offers->read,
                          memory_order_release);
    weft__shared_wake(team, FOR_NEWS);
}

/* ---- giving ---------------------------------------------------------------------------------- */

struct block_run weft__block_run(weft_team_t *team, const struct coll_call *call, uint64_t use,
                                 const struct piece *blocks) {
    return (struct block_run){team, call, use, blocks, blocks + team->size};
}

static bool gives_to(const struct block_run *run, uint32_t rank) {
    return coll_reads(weft__copy_uses[run->call->kind].readers, run->call->root, rank,
                      run->team->rank);
}
static bool takes_from(const struct block_run *run, uint32_t rank) {
    return coll_reads(weft__copy_uses[run->call->kind].readers, run->call->root, run->team->rank,
                      rank);
}

static bool gives_at_most(const struct block_run *run, uint64_t len) {
    for (uint32_t r = 0; r < run->team->size; r++)
        if (gives_to(run, r) && run->gives[r].len > len) return false;
    return true;
}
static bool takes_at_most(const struct block_run *run, uint64_t len) {
    for (uint32_t r = 0; r < run->team->size; r++)
        if (takes_from(run, r) && run->takes[r].len > len) return false;
    return true;
}

static uint64_t uses_ahead(const struct block_run *run) {
    bool heads = segment_has_heads(run->team->size) && gives_at_most(run, SEGMENT_SHORT);
    return heads ? SEGMENT_HEADS : SEGMENT_CHANNELS;
}

bool weft__blocks_have_room(const struct block_run *run) {
    return weft__copies_have_room(run->team, run->use, uses_ahead(run));
}

static void write_block(const struct block_run *run, const uint8_t *from, uint32_t to) {
    weft_team_t *team = run->team;
    struct piece piece = run->gives[to];
    struct segment_block *block = segment_block(team->segment, run->use, team->rank, to);
    block->read = team->offers.read;
    block->offset = piece.offset;
    block->len = piece.len;
    if (piece.len && block_is_small(team, piece.len))
        memcpy(segment_block_bytes(team->segment, run->use, team->rank, to, piece.len),
               from + piece.offset, piece.len);
    atomic_store_explicit(&block->use, run->use + 1, memory_order_release);
}

void weft__blocks_write(const struct block_run *run, const uint8_t *from) {
    for (uint32_t r = 0; r < run->team->size; r++)
        if (gives_to(run, r)) write_block(run, from, r);
}

/* ---- taking ---------------------------------------------------------------------------------- */

static const struct segment_block *block_of(const struct block_run *run, uint32_t rank) {
    return segment_block(run->team->segment, run->use, rank, run->team->rank);
}

static const uint8_t *bytes_of(const struct block_run *run, uint32_t rank) {
    return segment_block_bytes(run->team->segment, run->use, rank, run->team->rank,
                               run->takes[rank].len);
}

static uint32_t look_on(const void *arg, uint32_t rank, unsigned looks) {
    const struct block_run *run = arg;
    for (; rank < run->team->size; rank++)
        while (takes_from(run, rank) && !block_has_come(run->team, run->use, rank, run->team->rank))
            if (looks-- == 0) return rank;
    return rank;
}

static void copy_blocks(const struct block_run *run) {
    for (uint32_t r = 0; r < run->team->size; r++)
        if (takes_from(run, r) && run->takes[r].len)
            memcpy((uint8_t *)run->call->dst + run->takes[r].offset, bytes_of(run, r),
                   run->takes[r].len);
}

/* In the order of ranks. This member's own block is read where it was written, since SRC may lie
 * under DST. */
static void fold_blocks(const struct block_run *run) {
    const void *left = bytes_of(run, 0);
    if (run->call->count == 0) return;
    for (uint32_t r = 1; r < run->team->size; r++, left = run->call->dst)
        coll_reduce(run->call, run->call->dst, left, bytes_of(run, r), run->call->count);
}

/* False, and nothing is taken: a member gives more or less than this one takes. */
static bool take_blocks(const struct block_run *run) {
    for (uint32_t r = 0; r < run->team->size; r++)
        if (takes_from(run, r) && block_of(run, r)->len != run->takes[r].len) return false;
    if (weft__copy_uses[run->call->kind].folds)
        fold_blocks(run);
    else
        copy_blocks(run);
    for (uint32_t r = 0; r < run->team->size; r++)
        if (takes_from(run, r)) note_read(&run->team->offers, r, block_of(run, r)->read);
    return true;
}

/* ---- within the call ------------------------------------------------------------------------- */

/* Blocks of the only collective at a time that has entered within its call. */
static bool take_blocks_memory(weft_team_t *team) {
    struct team_offers *offers = &team->offers;
    size_t bytes = 2 * (size_t)team->size * sizeof *offers->blocks;
    if (!offers->blocks) offers->blocks = weft__alloc(team, bytes, "blocks");
    return offers->blocks;
}

bool weft__blocks_prepare_start(weft_team_t *team, const struct coll_call *call) {
    struct team_offers *offers = &team->offers;
    if (!call_has_places(team, call) || offers->read != offers->next) return false;
    /* Before any block is described: members that are behind still need the place. */
    if (!weft__copies_have_room(team, offers->next, segment_heads(team->segment))) return false;
    if (!take_blocks_memory(team) || weft__copies_scratch(team, call) < 0) return false;
    weft__blocks_describe(team, call, offers->blocks);
    struct block_run run = weft__block_run(team, call, offers->next, offers->blocks);
    uint64_t room = segment_block_room(team->segment);
    return gives_at_most(&run, room) && takes_at_most(&run, room) && weft__blocks_have_room(&run);
}

uint64_t weft__blocks_start(weft_team_t *team, const struct coll_call *call, bool *over_p) {
    struct team_offers *offers = &team->offers;
    struct block_run run = weft__block_run(team, call, offers->next++, offers->blocks);
    weft__count(team->reactor)->coll_single_copy++;
    offers->entered++;
    weft__blocks_write(&run, coll_source(call));
    weft__shared_wake(team, FOR_NEWS);
    *over_p = look_within_call(team, look_on, &run) && take_blocks(&run);
    if (*over_p) weft__copies_leave(team);
    return run.use;
}
