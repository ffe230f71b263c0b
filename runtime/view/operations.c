/* Operations of a view that are one collective of its team. */
#include "operations.h"

#include <base/check.h>
#include <base/status.h>
#include <endpoints/core/worker.h>
#include <endpoints/worker/drive.h>

weft_status_t weft__view_root(weft_view_t *view, const weft_resource_set_t *set, bool optional,
                              uint32_t *root_p) {
    if (!view) REFUSE("view", "NULL");
    weft_status_t st = weft__worker_check(view->worker);
    if (st == WEFT_OK) st = weft__view_usable(view);
    if (st < 0) return st;
    *root_p = VIEW_NO_ROOT;
    if (!set && optional) return WEFT_OK;
    if (!set) REFUSE("set", "NULL");
    if (set == view->mine)
        REFUSE("set", "weft_view_mine names another process at each, and each would wait for all "
                      "others; use weft_view_at_wait");
    if (set->rank >= weft_view_size(view) || view->member[set->rank].process != set->process_id)
        REFUSE("set", "it belongs to no member of the view");
    *root_p = set->rank;
    return WEFT_OK;
}

void weft__view_note(weft_status_t status, void *arg) {
    *(weft_status_t *)arg = status;
}

weft_status_t weft_view_barrier(weft_view_t *view, const weft_op_t *op) {
    uint32_t root;
    weft_status_t st = weft__view_root(view, NULL, true, &root);
    return st < 0 ? st : weft_barrier(view->team, op);
}

weft_status_t weft_view_gather(weft_view_t *view, const weft_resource_set_t *at, const void *src,
                               size_t len, void *dst, const weft_op_t *op) {
    uint32_t root;
    weft_status_t st = weft__view_root(view, at, true, &root);
    if (st < 0) return st;
    if (root == VIEW_NO_ROOT) return weft_allgather(view->team, src, dst, len, WEFT_UINT8, op);
    return weft_gather(view->team, src, dst, len, WEFT_UINT8, root, op);
}

weft_status_t weft_view_reduce(weft_view_t *view, const weft_resource_set_t *at, const void *src,
                               void *dst, size_t count, weft_datatype_t type,
                               weft_reduction_t reduction, const weft_op_t *op) {
    uint32_t root;
    weft_status_t st = weft__view_root(view, at, true, &root);
    if (st < 0) return st;
    if (root == VIEW_NO_ROOT)
        return weft_allreduce(view->team, src, dst, count, type, reduction, op);
    return weft_reduce(view->team, src, dst, count, type, reduction, root, op);
}

weft_status_t weft_view_bcast(weft_view_t *view, const weft_resource_set_t *from, void *buf,
                              size_t len, const weft_op_t *op) {
    uint32_t root;
    weft_status_t st = weft__view_root(view, from, false, &root);
    return st < 0 ? st : weft_bcast(view->team, buf, len, WEFT_UINT8, root, op);
}

weft_status_t weft_view_scatter(weft_view_t *view, const weft_resource_set_t *from, const void *src,
                                size_t len, void *dst, const weft_op_t *op) {
    uint32_t root;
    weft_status_t st = weft__view_root(view, from, false, &root);
    return st < 0 ? st : weft_scatter(view->team, src, dst, len, WEFT_UINT8, root, op);
}

weft_status_t weft_view_alltoall(weft_view_t *view, const void *src, size_t len, void *dst,
                                 const weft_op_t *op) {
    uint32_t root;
    weft_status_t st = weft__view_root(view, NULL, true, &root);
    return st < 0 ? st : weft_alltoall(view->team, src, dst, len, WEFT_UINT8, op);
}

/* ---- between two processes ----------------------------------------------------------------- */

/* A broadcast among two members. The direction is part of the tag, since both may send at once. */
static weft_status_t between(weft_view_t *view, uint32_t from, uint32_t to, weft_iov_t memory,
                             uint32_t tag, const weft_op_t *op) {
    uint32_t low = from < to ? from : to, high = from < to ? to : from;
    weft_coll_args_t args = {.kind = WEFT_COLL_BCAST,
                             .type = WEFT_UINT8,
                             .root = from,
                             .dst = memory.base,
                             .count = memory.len,
                             .flags = WEFT_COLL_TAGGED,
                             .tag = (uint64_t)tag << 1 | (from > to),
                             .members = {.start = low, .stride = high - low, .size = 2}};
    return weft_coll(view->team, &args, op);
}

weft_status_t weft_view_send(weft_view_t *view, const weft_resource_set_t *to, const void *src,
                             size_t len, uint32_t tag, const weft_op_t *op) {
    uint32_t root;
    weft_status_t st = weft__view_root(view, to, false, &root);
    if (st < 0) return st;
    if (root == weft_view_rank(view)) REFUSE("to", "this process itself");
    return between(view, weft_view_rank(view), root, (weft_iov_t){(void *)src, len}, tag, op);
}

weft_status_t weft_view_receive(weft_view_t *view, const weft_resource_set_t *from, void *dst,
                                size_t len, uint32_t tag, const weft_op_t *op) {
    uint32_t root;
    weft_status_t st = weft__view_root(view, from, false, &root);
    if (st < 0) return st;
    if (root == weft_view_rank(view)) REFUSE("from", "this process itself");
    return between(view, root, weft_view_rank(view), (weft_iov_t){dst, len}, tag, op);
}

/* ---- for programs without a loop of their own ---------------------------------------------- */

weft_status_t weft_view_barrier_wait(weft_view_t *view) {
    WEFT__VIEW_WAIT(view, weft_view_barrier(view, op));
}

weft_status_t weft_view_gather_wait(weft_view_t *view, const weft_resource_set_t *at,
                                    const void *src, size_t len, void *dst) {
    WEFT__VIEW_WAIT(view, weft_view_gather(view, at, src, len, dst, op));
}

weft_status_t weft_view_reduce_wait(weft_view_t *view, const weft_resource_set_t *at,
                                    const void *src, void *dst, size_t count, weft_datatype_t type,
                                    weft_reduction_t reduction) {
    WEFT__VIEW_WAIT(view, weft_view_reduce(view, at, src, dst, count, type, reduction, op));
}

weft_status_t weft_view_bcast_wait(weft_view_t *view, const weft_resource_set_t *from, void *buf,
                                   size_t len) {
    WEFT__VIEW_WAIT(view, weft_view_bcast(view, from, buf, len, op));
}

weft_status_t weft_view_scatter_wait(weft_view_t *view, const weft_resource_set_t *from,
                                     const void *src, size_t len, void *dst) {
    WEFT__VIEW_WAIT(view, weft_view_scatter(view, from, src, len, dst, op));
}

weft_status_t weft_view_alltoall_wait(weft_view_t *view, const void *src, size_t len, void *dst) {
    WEFT__VIEW_WAIT(view, weft_view_alltoall(view, src, len, dst, op));
}

weft_status_t weft_view_send_wait(weft_view_t *view, const weft_resource_set_t *to, const void *src,
                                  size_t len, uint32_t tag) {
    WEFT__VIEW_WAIT(view, weft_view_send(view, to, src, len, tag, op));
}

weft_status_t weft_view_receive_wait(weft_view_t *view, const weft_resource_set_t *from, void *dst,
                                     size_t len, uint32_t tag) {
    WEFT__VIEW_WAIT(view, weft_view_receive(view, from, dst, len, tag, op));
}
