/* Collectives that end with an agreement, so that all members that are left get one outcome. */
#ifndef WEFT_COLLECTIVES_SAFE_H
#define WEFT_COLLECTIVES_SAFE_H

#include "team.h"

struct safe;

static inline bool is_safe(const weft_op_t *op) {
    return op && op->flags & WEFT_COLL_SAFE;
}
/* The collective is to be begun with *op_p. */
weft_status_t weft__safe_new(weft_team_t *team, const weft_op_t *op, struct safe **safe_p,
                             const weft_op_t **op_p);
/* It was begun, with `status`: what the call returns. After an error nothing has happened. */
weft_status_t weft__safe_begun(struct safe *safe, weft_status_t status);

#endif
