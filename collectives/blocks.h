/*
 * What the members of a team give to each other by single copies, and the places of v-forms
 * (blocks.c): in teams of up to SEGMENT_ANNEX_MEMBERS each member has one for what it gives to each
 * other one.
 */
#ifndef WEFT_COLLECTIVES_BLOCKS_H
#define WEFT_COLLECTIVES_BLOCKS_H

#include "collective.h"

/* Who reads from whom; and what lies where: in one that scatters SRC has a block for each member,
 * in one that gathers DST has one of each. */
struct copy_use {
    enum coll_readers readers;
    bool scatters, gathers, folds, slices;
};
extern const struct copy_use weft__copy_uses[N_COLL_KINDS];

/* ---- what each gives and takes, in bytes */

/* The block of SRC that a member gives to `rank`, and that of DST for what it takes from it. */
struct piece weft__block_given(const struct coll_call *call, uint32_t rank);
struct piece weft__block_taken(const struct coll_call *call, uint32_t rank);
/* All that is given, and then all that is taken. The arrays of a call are not kept. */
void weft__blocks_describe(const weft_team_t *team, const struct coll_call *call,
                           struct piece *blocks);
static inline const void *coll_source(const struct coll_call *call) {
    return call->kind == COLL_BCAST ? call->dst : call->src;
}

/* ---- places */

/* One use of the offers by a v-form: a collective's, or a call's that may be over before it needs
 * one. */
struct block_run {
    weft_team_t *team;
    const struct coll_call *call;
    uint64_t use;
    const struct piece *gives, *takes; /* for each member, and from each */
};
struct block_run weft__block_run(weft_team_t *team, const struct coll_call *call, uint64_t use,
                                 const struct piece *blocks);

static inline bool coll_is_v_form(const struct coll_call *call) {
    return !weft__coll_is_even(call->kind);
}
static inline bool call_has_places(const weft_team_t *team, const struct coll_call *call) {
    return coll_is_v_form(call) && segment_has_blocks(team->segment);
}

/* Does the block itself stand there? Both ends know its size, so they agree. */
static inline bool block_is_small(const weft_team_t *team, uint64_t len) {
    return len <= segment_block_room(team->segment);
}

static inline bool block_has_come(const weft_team_t *team, uint64_t use, uint32_t from,
                                  uint32_t to) {
    const struct segment_block *block = segment_block(team->segment, use, from, to);
    return atomic_load_explicit(&block->use, memory_order_acquire) > use;
}

/* What this member gives, to itself, too. `from`: SRC. */
void weft__blocks_write(const struct block_run *run, const uint8_t *from);

/* ---- uses of the offers */

/* Have all read what this member said in the use that had the same room, `ahead` before? */
bool weft__copies_have_room(weft_team_t *team, uint64_t use, uint64_t ahead);
/* The same of blocks, of which short ones have more room. */
bool weft__blocks_have_room(const struct block_run *run);
/* This member has read all that it reads in its next use. */
void weft__copies_leave(weft_team_t *team);
/* single_copy.c: memory of a collective that folds; the team's from then on. */
weft_status_t weft__copies_scratch(weft_team_t *team, const struct coll_call *call);

/* ---- within the call (struct coll_engine) */

bool weft__blocks_prepare_start(weft_team_t *team, const struct coll_call *call);
uint64_t weft__blocks_start(weft_team_t *team, const struct coll_call *call, bool *over_p);

#endif
