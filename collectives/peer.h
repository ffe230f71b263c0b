/*
 * Collectives of device memory (CUDA) within a host: each member's device reads and writes the
 * memory of the others.
 */
#ifndef WEFT_COLLECTIVES_PEER_H
#define WEFT_COLLECTIVES_PEER_H

#include "collective.h"

/* What a member's device does in one stage. A fold takes `n` members' SRC, from rank 0 on. */
struct peer_op {
    bool fold;
    uint32_t n;         /* of a fold */
    uint32_t from_rank; /* of a copy */
    uint32_t to_rank;   /* whose DST */
    enum coll_buffer from_buffer;
    uint64_t to, from, len; /* bytes */
};

enum { PEER_STAGES = 2, PEER_MOST_MEMBERS = 64, PEER_MOST_OPS = PEER_MOST_MEMBERS };

/*
 * The work of this member in a stage: a pure function of the shape. `two`: an allreduce first
 * reduces a piece at each member, then copies the others' pieces; else each reduces all. Between
 * the stages all members are done with the first. Returns how many.
 */
uint32_t weft__peer_ops(const struct coll_shape *shape, bool two, unsigned stage,
                        struct peer_op ops[PEER_MOST_OPS]);

/* Collectives that peer memory can serve at all. */
bool weft__peer_knows(enum coll_kind kind);

/* May this call begin so? Its buffers lie in device memory; what the others have is seen later. */
bool weft__peer_may_take(const weft_team_t *team, const struct coll_call *call);

/* A collective of this team has begun, or one is decided, or over: what others wait for. */
void weft__peer_note(weft_team_t *team);
/* One before this one may still take another way, on which their order depends. */
bool weft__peer_is_undecided(const weft_team_t *team, const struct collective *before);

extern const struct coll_engine weft__peer, weft__deferred;

#endif
