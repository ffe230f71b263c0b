/* One collective of each kind, as a description, with blocks of equal size. */
#ifndef WEFT_TESTS_COLLECTIVES_EACH_KIND_H
#define WEFT_TESTS_COLLECTIVES_EACH_KIND_H

#include "team.h"

/* For rank `r` of `size`: blocks of `count` 64-bit integers, the root 2, and a ring of neighbours.
 * `src` and `dst` have room for a block of each member. A bcast is in `src`. */
static inline weft_coll_args_t any_collective(weft_coll_kind_t kind, uint32_t r, uint32_t size,
                                              int64_t *src, int64_t *dst, size_t count) {
    static uint64_t counts[MOST_RANKS];
    static uint32_t others[2];
    static weft_neighbors_t ring = {others, others, 2, 2};
    for (uint32_t i = 0; i < size; i++) counts[i] = count;
    others[0] = (r + 1) % size;
    others[1] = (r + size - 1) % size;
    return (weft_coll_args_t){.kind = kind,
                              .src = src,
                              .dst = kind == WEFT_COLL_BCAST ? src : dst,
                              .count = count,
                              .type = WEFT_INT64,
                              .root = 2,
                              .src_counts = counts,
                              .dst_counts = counts,
                              .graph = &ring};
}

/* Where element `i` of what rank `r` gives is 1000 r + i: element `i` of the result at `r`, or of
 * its first block. */
static inline int64_t any_result(weft_coll_kind_t kind, uint32_t r, uint32_t size, uint32_t count,
                                 uint32_t i) {
    int64_t all = 1000 * (int64_t)size * (size - 1) / 2, upto = 1000 * (int64_t)r * (r + 1) / 2;
    switch (kind) {
    case WEFT_COLL_BCAST: return 2000 + i;
    case WEFT_COLL_SCATTER:
    case WEFT_COLL_SCATTERV: return 2000 + r * count + i;
    case WEFT_COLL_ALLREDUCE:
    case WEFT_COLL_REDUCE: return all + size * i;
    case WEFT_COLL_REDUCE_SCATTER:
    case WEFT_COLL_REDUCE_SCATTERV: return all + size * (r * count + i);
    case WEFT_COLL_SCAN: return upto + (r + 1) * i;
    case WEFT_COLL_EXSCAN: return upto - 1000 * (int64_t)r + r * i;
    case WEFT_COLL_ALLTOALL:
    case WEFT_COLL_ALLTOALLV: return r * count + i;
    /* the next one's block for the one before it */
    case WEFT_COLL_NEIGHBOR_ALLTOALLV: return 1000 * ((r + 1) % size) + count + i;
    default: return i; /* rank 0's block is the first */
    }
}

static inline bool any_has_result(weft_coll_kind_t kind, uint32_t r) {
    bool rooted = kind == WEFT_COLL_GATHER || kind == WEFT_COLL_GATHERV || kind == WEFT_COLL_REDUCE;
    bool none = kind == WEFT_COLL_BARRIER || kind == WEFT_COLL_FANIN || kind == WEFT_COLL_FANOUT ||
                (kind == WEFT_COLL_EXSCAN && r == 0);
    return rooted ? r == 2 : !none;
}

#endif
