/* From what a program describes to a call that can be begun. */
#ifndef WEFT_COLLECTIVES_CALL_H
#define WEFT_COLLECTIVES_CALL_H

#include "collective.h"

/* Beside the public flags: of a persistent collective. */
#define COLL_PERSISTENT (UINT32_C(1) << 31)

/* Checks the description and begins it. */
weft_status_t weft__coll_call(weft_team_t *team, const weft_coll_args_t *args, const weft_op_t *op);
/*
 * The call that a description asks for, its algorithm chosen. `kept` owns arrays that are made for
 * it (displacements, packed memory). WEFT_OK and `*nothing_p`: there is nothing to do.
 */
weft_status_t weft__coll_resolve(weft_team_t *team, const weft_coll_args_t *args, uint32_t flags,
                                 void *kept, struct coll_call *call, bool *nothing_p);

/* The same when op->stream has got there (streamed.c). */
weft_status_t weft__coll_call_streamed(weft_team_t *team, const weft_coll_args_t *call,
                                       const weft_op_t *op);
weft_status_t weft__coll_start_streamed(struct weft_coll *coll, const weft_op_t *op);

/* A form that waits was over within its call: one turn of the worker in sixteen such calls. */
void weft__coll_waited(weft_team_t *team);

/* The algorithm that the team chooses for a call. */
unsigned weft__collective_choice(weft_team_t *team, const struct coll_call *call);

#endif
