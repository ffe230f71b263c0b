/* Counts the requests of one call, and completes the call when the last of them has ended. */
#include "op_group.h"

#include "worker.h"

weft_status_t weft__op_group_begin(struct weft_worker *worker, const struct request_kind *kind,
                                   const weft_op_t *op, struct op_group **all_p) {
    weft_status_t st = WEFT_ERR_NO_MEMORY;
    struct op_group *all = weft__new(worker, struct op_group);
    struct weft_request *req = all ? weft__request_new(worker, kind) : NULL;
    if (req) st = weft__request_accept(req, NULL, op);
    if (st < 0) {
        talloc_free(all);
        return st;
    }
    all->left = 1;
    all->req = req;
    req->group = all;
    *all_p = all;
    return WEFT_OK;
}

weft_status_t weft__op_group_started(struct op_group *all) {
    weft_status_t st = all->status;
    if (--all->left) {
        weft__request_park(all->req);
        return WEFT_IN_PROGRESS;
    }
    weft__request_discard(all->req);
    talloc_free(all);
    return st;
}

void weft__op_group_one_less(struct op_group *all, weft_status_t status) {
    op_group_note(all, status);
    if (--all->left) return;
    if (all->req) {
        all->req->group = NULL;
        weft__request_finish(all->req, all->status);
    }
    talloc_free(all);
}

void weft__op_group_leave(struct weft_request *req) {
    if (req->group) ((struct op_group *)req->group)->req = NULL;
    req->group = NULL;
}
