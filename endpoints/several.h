/* A call of the program's that begins several requests, and ends when all of them have. */
#ifndef WEFT_ENDPOINTS_SEVERAL_H
#define WEFT_ENDPOINTS_SEVERAL_H

#include "request.h"

struct several {
    uint32_t left;            /* of them, and 1 until all are begun */
    struct weft_request *req; /* the call's; NULL: it ended early */
    weft_status_t status;     /* the first failure */
};

/* `kind` has weft__several_leave as its `withdraw`. */
weft_status_t weft__several_begin(struct weft_worker *worker, const struct request_kind *kind, const weft_op_t *op,
                                  struct several **all_p);
/* All are begun. The call's status: where it is IN_PROGRESS they are waited for, else `all` is gone. */
weft_status_t weft__several_begun(struct several *all);
/* One of them has ended. */
void weft__several_less(struct several *all, weft_status_t status);
void weft__several_leave(struct weft_request *req);

/* Its kind's `release` calls weft__several_less. */
static inline void several_add(struct several *all, struct weft_request *part) {
    part->group = all;
    all->left++;
}

static inline void several_note(struct several *all, weft_status_t status) {
    if (status < 0 && all->status == WEFT_OK) all->status = status;
}

#endif
