/* The operations: each is a description of its call (call.c). */
#include "call.h"

#include <endpoints/worker/drive.h>

static void note_outcome(weft_status_t status, void *arg) {
    *(weft_status_t *)arg = status;
}

/* Of a team that is NULL the operation itself says so. */
static weft_status_t run_waiting(weft_team_t *team, const weft_coll_args_t *args) {
    weft_status_t outcome = WEFT_IN_PROGRESS;
    weft_status_t st = team ? weft__worker_check_wait(team->worker) : WEFT_OK;
    if (team && st == WEFT_OK) st = weft__worker_check(team->worker);
    if (st < 0) return st;
    if (team) team->waits = true;
    st = weft__coll_call(team, args, &(weft_op_t){.done = note_outcome, .arg = &outcome});
    if (team) team->waits = false;
    if (st == WEFT_OK) weft__coll_waited(team);
    return st == WEFT_IN_PROGRESS ? weft__worker_wait_for(team->worker, &outcome) : st;
}

/* A program without a loop of its own drives its worker by such calls alone. */
enum { WAITS_TO_TURN = 16 };
void weft__coll_waited(weft_team_t *team) {
    if (++team->n_waited < WAITS_TO_TURN) return;
    team->n_waited = 0;
    weft_worker_progress(team->worker, 0);
}

/* Both forms of an operation. */
#define LIST(...) __VA_ARGS__
#define OPERATION(name, parameters, ...)                                                 \
    weft_status_t weft_##name(weft_team_t *team, LIST parameters, const weft_op_t *op) { \
        return weft__coll_call(team, &(weft_coll_args_t){__VA_ARGS__}, op);              \
    }                                                                                    \
    weft_status_t weft_##name##_wait(weft_team_t *team, LIST parameters) {               \
        return run_waiting(team, &(weft_coll_args_t){__VA_ARGS__});                      \
    }

weft_status_t weft_barrier(weft_team_t *team, const weft_op_t *op) {
    return weft__coll_call(team, &(weft_coll_args_t){.kind = WEFT_COLL_BARRIER}, op);
}
weft_status_t weft_barrier_wait(weft_team_t *team) {
    return run_waiting(team, &(weft_coll_args_t){.kind = WEFT_COLL_BARRIER});
}

OPERATION(fanin, (uint32_t root), .kind = WEFT_COLL_FANIN, .root = root)
OPERATION(fanout, (uint32_t root), .kind = WEFT_COLL_FANOUT, .root = root)
OPERATION(bcast, (void *buf, size_t count, weft_datatype_t type, uint32_t root),
          .kind = WEFT_COLL_BCAST, .dst = buf, .count = count, .type = type, .root = root)
OPERATION(allreduce,
          (const void *src, void *dst, size_t count, weft_datatype_t type,
           weft_reduction_t reduction),
          .kind = WEFT_COLL_ALLREDUCE, .src = src, .dst = dst, .count = count, .type = type,
          .reduction = reduction)
OPERATION(reduce,
          (const void *src, void *dst, size_t count, weft_datatype_t type,
           weft_reduction_t reduction, uint32_t root),
          .kind = WEFT_COLL_REDUCE, .src = src, .dst = dst, .count = count, .type = type,
          .reduction = reduction, .root = root)
OPERATION(allgather, (const void *src, void *dst, size_t count, weft_datatype_t type),
          .kind = WEFT_COLL_ALLGATHER, .src = src, .dst = dst, .count = count, .type = type)
OPERATION(allgatherv,
          (const void *src, void *dst, const uint64_t *counts, const uint64_t *displs,
           weft_datatype_t type),
          .kind = WEFT_COLL_ALLGATHERV, .src = src, .dst = dst, .dst_counts = counts,
          .dst_displs = displs, .type = type)
OPERATION(gather, (const void *src, void *dst, size_t count, weft_datatype_t type, uint32_t root),
          .kind = WEFT_COLL_GATHER, .src = src, .dst = dst, .count = count, .type = type,
          .root = root)
OPERATION(gatherv,
          (const void *src, size_t count, void *dst, const uint64_t *counts, const uint64_t *displs,
           weft_datatype_t type, uint32_t root),
          .kind = WEFT_COLL_GATHERV, .src = src, .count = count, .dst = dst, .dst_counts = counts,
          .dst_displs = displs, .type = type, .root = root)
OPERATION(scatter, (const void *src, void *dst, size_t count, weft_datatype_t type, uint32_t root),
          .kind = WEFT_COLL_SCATTER, .src = src, .dst = dst, .count = count, .type = type,
          .root = root)
OPERATION(scatterv,
          (const void *src, const uint64_t *counts, const uint64_t *displs, void *dst, size_t count,
           weft_datatype_t type, uint32_t root),
          .kind = WEFT_COLL_SCATTERV, .src = src, .src_counts = counts, .src_displs = displs,
          .dst = dst, .count = count, .type = type, .root = root)
OPERATION(reduce_scatter,
          (const void *src, void *dst, size_t count, weft_datatype_t type,
           weft_reduction_t reduction),
          .kind = WEFT_COLL_REDUCE_SCATTER, .src = src, .dst = dst, .count = count, .type = type,
          .reduction = reduction)
OPERATION(reduce_scatterv,
          (const void *src, void *dst, const uint64_t *counts, weft_datatype_t type,
           weft_reduction_t reduction),
          .kind = WEFT_COLL_REDUCE_SCATTERV, .src = src, .dst = dst, .src_counts = counts,
          .type = type, .reduction = reduction)
OPERATION(alltoall, (const void *src, void *dst, size_t count, weft_datatype_t type),
          .kind = WEFT_COLL_ALLTOALL, .src = src, .dst = dst, .count = count, .type = type)
OPERATION(alltoallv,
          (const void *src, const uint64_t *src_counts, const uint64_t *src_displs, void *dst,
           const uint64_t *dst_counts, const uint64_t *dst_displs, weft_datatype_t type),
          .kind = WEFT_COLL_ALLTOALLV, .src = src, .src_counts = src_counts,
          .src_displs = src_displs, .dst = dst, .dst_counts = dst_counts, .dst_displs = dst_displs,
          .type = type)
OPERATION(scan,
          (const void *src, void *dst, size_t count, weft_datatype_t type,
           weft_reduction_t reduction),
          .kind = WEFT_COLL_SCAN, .src = src, .dst = dst, .count = count, .type = type,
          .reduction = reduction)
OPERATION(exscan,
          (const void *src, void *dst, size_t count, weft_datatype_t type,
           weft_reduction_t reduction),
          .kind = WEFT_COLL_EXSCAN, .src = src, .dst = dst, .count = count, .type = type,
          .reduction = reduction)
OPERATION(neighbor_alltoallv,
          (const weft_neighbors_t *graph, const void *src, const uint64_t *src_counts,
           const uint64_t *src_displs, void *dst, const uint64_t *dst_counts,
           const uint64_t *dst_displs, weft_datatype_t type),
          .kind = WEFT_COLL_NEIGHBOR_ALLTOALLV, .graph = graph, .src = src,
          .src_counts = src_counts, .src_displs = src_displs, .dst = dst, .dst_counts = dst_counts,
          .dst_displs = dst_displs, .type = type)

/* ---- by their description -------------------------------------------------------------------- */

/* A program of this version: what it gives needs no copy. */
static bool is_known(const weft_coll_args_t *args, size_t size) {
    return args && size == sizeof *args;
}

weft_status_t weft_coll_sized(size_t args_size, weft_team_t *team, const weft_coll_args_t *args,
                              const weft_op_t *op) {
    weft_coll_args_t known;
    if (is_known(args, args_size)) return weft__coll_call(team, args, op);
    weft_status_t st = weft__params_read(&known, sizeof known, args, args_size);
    return st < 0 ? st : weft__coll_call(team, &known, op);
}

weft_status_t weft_coll_wait_sized(size_t args_size, weft_team_t *team,
                                   const weft_coll_args_t *args) {
    weft_coll_args_t known;
    if (is_known(args, args_size)) return run_waiting(team, args);
    weft_status_t st = weft__params_read(&known, sizeof known, args, args_size);
    return st < 0 ? st : run_waiting(team, &known);
}
