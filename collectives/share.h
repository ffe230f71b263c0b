/*
 * The members of a team that share a segment, all of them or those of one host, and collectives
 * among them by its slots (slots.c).
 */
#ifndef WEFT_COLLECTIVES_SHARE_H
#define WEFT_COLLECTIVES_SHARE_H

#include "schedule.h"
#include "segment.h"
#include <reactor/reactor.h>

struct coll_call;

struct coll_share {
    struct segment *segment;   /* NULL: there is none */
    struct aux_watch doorbell; /* of the segment */
    uint32_t rank, size;       /* this member among those that share it */
    uint32_t *member;          /* their ranks in the team, ascending; NULL: all of it */
    uint64_t next_use;         /* of the slots */
};

/* One collective among them: `bytes` from each, or for each. */
struct slot_run {
    weft_team_t *team;
    const struct coll_call *call; /* its reduction and the width of an element */
    enum coll_kind kind;
    uint32_t root; /* in the share */
    uint64_t bytes;
    const uint8_t *src;
    uint8_t *dst;
    uint64_t first_use;
    uint32_t n_parts, entered, left;
    uint32_t step; /* whose it is, in a schedule */
};

/* Is it one that slots of `slot` bytes can do for so many ranks? */
bool weft__slots_fit(enum coll_kind kind, uint64_t bytes, uint32_t width, uint32_t ranks,
                     uint64_t slot);
/* Takes its uses of the slots: all members of the share begin their runs in the same order. */
void weft__slots_begin(struct slot_run *run);
/* As far as it goes; is it over? */
bool weft__slots_advance(struct slot_run *run);
bool weft__slots_over(const struct slot_run *run);
/* Looks only. */
bool weft__slots_may_move(const struct slot_run *run);
/* Must others leave the slots before it puts in its next part? */
bool weft__slots_need_space(const struct slot_run *run);
/* Has the member of this place in the share not taken its part yet? */
bool weft__slots_need(const struct slot_run *run, uint32_t index);

#endif
