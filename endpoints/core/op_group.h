/* A call of the program's that begins several requests, and ends when all of them have. */
#ifndef WEFT_ENDPOINTS_CORE_OP_GROUP_H
#define WEFT_ENDPOINTS_CORE_OP_GROUP_H

#include "request.h"

struct op_group {
    uint32_t left;            /* of them, and 1 until all are begun */
    struct weft_request *req; /* the call's; NULL: it ended early */
    weft_status_t status;     /* the first failure */
};

/* `kind` has weft__op_group_leave as its `withdraw`. */
weft_status_t weft__op_group_begin(struct weft_worker *worker, const struct request_kind *kind,
                                   const weft_op_t *op, struct op_group **all_p);
/* All are begun. The call's status: where it is IN_PROGRESS they are waited for, else `all` is
 * gone. */
weft_status_t weft__op_group_started(struct op_group *all);
/* One of them has ended. */
void weft__op_group_one_less(struct op_group *all, weft_status_t status);
void weft__op_group_leave(struct weft_request *req);

/* Its kind's `release` calls weft__op_group_one_less. */
static inline void op_group_add(struct op_group *all, struct weft_request *part) {
    part->group = all;
    all->left++;
}

static inline void op_group_note(struct op_group *all, weft_status_t status) {
    if (status < 0 && all->status == WEFT_OK) all->status = status;
}

#endif
