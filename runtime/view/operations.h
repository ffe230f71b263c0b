/* What the operations of a view have in common. */
#ifndef WEFT_RUNTIME_VIEW_OPERATIONS_H
#define WEFT_RUNTIME_VIEW_OPERATIONS_H

#include "view.h"
#include <weft/view_operations.h>

enum { VIEW_NO_ROOT = UINT32_MAX };

/*
 * Whether an operation may begin. Sets the rank of `set`, or VIEW_NO_ROOT for NULL where that is
 * `optional`. What it refuses: a view that is not ready, a set of no member, and that of
 * weft_view_mine.
 */
weft_status_t weft__view_root(weft_view_t *view, const weft_resource_set_t *set, bool optional,
                              uint32_t *root_p);

/* Makes the _wait form of an operation: `call` uses `op`. */
#define WEFT__VIEW_WAIT(view, call)                                                           \
    do {                                                                                      \
        weft_status_t outcome = WEFT_IN_PROGRESS;                                             \
        const weft_op_t *op = &(weft_op_t){.done = weft__view_note, .arg = &outcome};         \
        if (!(view)) return weft__fail(WEFT_ERR_INVALID_PARAM, "view: NULL");                 \
        weft_status_t st = weft__worker_check_wait((view)->worker);                           \
        if (st == WEFT_OK) st = (call);                                                       \
        return st == WEFT_IN_PROGRESS ? weft__worker_wait_for((view)->worker, &outcome) : st; \
    } while (0)
void weft__view_note(weft_status_t status, void *arg);

#endif
