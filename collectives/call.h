/* From what a program describes to a call that can be begun. */
#ifndef WEFT_COLLECTIVES_CALL_H
#define WEFT_COLLECTIVES_CALL_H

#include "collective.h"

/* Beside the public flags: of a persistent collective. */
#define COLL_PERSISTENT (UINT32_C(1) << 31)

/* What each kind has of a description. */
enum { ROOTED = 1, REDUCES = 2, V_SRC = 4, V_DST = 8, SIGNALS = 16 };
extern const uint8_t weft__coll_traits[N_COLL_KINDS];

/* Bytes of SRC and DST at this member: 0 where there is none. */
void weft__buffer_bytes(const struct coll_shape *shape, uint64_t *src_p, uint64_t *dst_p);

/* Checks the description and begins it. */
weft_status_t weft__coll_call(weft_team_t *team, const weft_coll_args_t *args, const weft_op_t *op);
/* Memory for displacements that a description leaves out. */
enum { FEW_BLOCKS = 16 };
struct coll_displacements {
    uint64_t (*few)[FEW_BLOCKS]; /* of DST and of SRC; NULL: they are allocated, too */
    void *owner;                 /* of those that are; NULL: made when it is needed */
};
/*
 * The call that a description asks for, its algorithm chosen. It refers to the arrays of both.
 * WEFT_OK and `*nothing_p`: there is nothing to do.
 */
weft_status_t weft__coll_resolve(weft_team_t *team, const weft_coll_args_t *args, uint32_t flags,
                                 struct coll_displacements *displacements, struct coll_call *call,
                                 bool *nothing_p);

/*
 * call_again.c: the call of its kind before, for this description, if that is the same but for its
 * memory and its root; else NULL, and it has to be resolved. Valid until the next call of its kind.
 */
const struct coll_call *weft__call_again(const weft_team_t *team, const weft_coll_args_t *args,
                                         uint32_t flags);
/* A call that was resolved, for the next one. Without memory for that the next is resolved, too. */
void weft__call_keep(weft_team_t *team, const weft_coll_args_t *args, uint32_t flags,
                     const struct coll_call *call);

/* How many elements a description's arrays of SRC and of DST have at this member; 0: it has none.
 * Errors: INVALID_PARAM for its kind, members, root and graph. */
weft_status_t weft__coll_arrays(const weft_team_t *team, const weft_coll_args_t *args,
                                uint32_t *n_src_p, uint32_t *n_dst_p);

/* The same when op->stream has got there (streamed.c). */
weft_status_t weft__coll_call_streamed(weft_team_t *team, const weft_coll_args_t *args,
                                       const weft_op_t *op);
weft_status_t weft__coll_start_streamed(struct weft_coll *coll, const weft_op_t *op);

/* A form that waits was over within its call: one turn of the worker in sixteen such calls. */
void weft__coll_waited(weft_team_t *team);

/* The algorithm that the team chooses for a call. */
unsigned weft__collective_choice(weft_team_t *team, const struct coll_call *call);

#endif
