/* Persistent collectives: checked, chosen and built once, started many times. */
#include <base/check.h>
#include <string.h>

#include "call.h"
#include "safe.h"
#include "select.h"
#include <endpoints/worker/drive.h>

/* An array that the kind does not use has no bytes. */
static const void *keep_array(const struct weft_coll *coll, const void *array, size_t bytes,
                              bool *kept) {
    const void *copy = NULL;
    *kept = *kept && weft__keep_array(coll, bytes ? array : NULL, bytes, &copy);
    return copy;
}

/* The arrays of a description are the program's again when it has been taken. */
static weft_status_t keep_arrays(const struct weft_coll *coll, weft_coll_args_t *args,
                                 weft_neighbors_t *graph) {
    uint32_t n_src, n_dst;
    weft_status_t st = weft__coll_arrays(coll->team, args, &n_src, &n_dst);
    if (st < 0) return st;
    const size_t src = n_src * sizeof(uint64_t), dst = n_dst * sizeof(uint64_t);
    const bool row = args->kind == WEFT_COLL_REDUCE_SCATTERV; /* which has counts alone */
    bool kept = true;
    args->src_counts = keep_array(coll, args->src_counts, src, &kept);
    args->src_displs = keep_array(coll, args->src_displs, row ? 0 : src, &kept);
    args->dst_counts = keep_array(coll, args->dst_counts, dst, &kept);
    args->dst_displs = keep_array(coll, args->dst_displs, dst, &kept);
    if (args->kind == WEFT_COLL_NEIGHBOR_ALLTOALLV) {
        *graph = *args->graph;
        args->graph = graph;
        graph->sources = keep_array(coll, graph->sources, n_dst * sizeof(uint32_t), &kept);
        graph->destinations =
            keep_array(coll, graph->destinations, n_src * sizeof(uint32_t), &kept);
    }
    return kept ? WEFT_OK : WEFT_ERR_NO_MEMORY;
}

static weft_status_t make_persistent(weft_team_t *team, const weft_coll_args_t *args,
                                     uint32_t flags, struct weft_coll *coll) {
    weft_coll_args_t own = *args;
    weft_neighbors_t graph;
    coll->team = team;
    coll->collective = weft__new(coll, struct collective);
    if (!coll->collective) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = keep_arrays(coll, &own, &graph);
    if (st < 0) return st;
    struct coll_displacements displacements = {.owner = coll};
    st = weft__coll_resolve(team, &own, flags | COLL_PERSISTENT, &displacements, &coll->call,
                            &coll->nothing);
    if (st < 0 || coll->nothing) return st;
    if (coll->call.staging) talloc_steal(coll, coll->call.staging);
    return coll->call.algorithm < N_ALGORITHMS ? weft__steps_keep(coll) : WEFT_OK;
}

weft_status_t weft_coll_init_sized(size_t args_size, weft_team_t *team,
                                   const weft_coll_args_t *args, uint32_t init_flags,
                                   weft_coll_t **coll_p) {
    weft_coll_args_t known;
    if (!team) REFUSE("team", "NULL");
    if (!coll_p) REFUSE("coll_p", "NULL");
    if (init_flags & ~(uint32_t)WEFT_COLL_FIXED_ORDER) REFUSE("init_flags", "not known");
    weft_status_t st = weft__worker_check(team->worker);
    if (st == WEFT_OK) st = weft__params_read(&known, sizeof known, args, args_size);
    if (st == WEFT_OK) st = weft__team_usable(team);
    if (st < 0) return st;
    struct weft_coll *coll = weft__new(team, struct weft_coll);
    if (!coll) return WEFT_ERR_NO_MEMORY;
    st = make_persistent(team, &known, init_flags, coll);
    if (st == WEFT_OK) {
        coll->number = ++team->n_persistent;
        list_append(&team->persistent, &coll->of_team);
        *coll_p = coll;
        return WEFT_OK;
    }
    weft__steps_unkeep(coll);
    talloc_free(coll);
    return st;
}

weft_status_t weft_coll_start(weft_coll_t *coll, const weft_op_t *op) {
    if (!coll) REFUSE("coll", "NULL");
    weft_status_t st = weft__worker_check(coll->team->worker);
    if (st == WEFT_OK) st = weft__check_streamed_op(op, WEFT_COLL_SAFE);
    if (st == WEFT_OK) st = weft__check_no_layout(op);
    if (st == WEFT_OK && !is_safe(op)) st = weft__team_usable(coll->team);
    if (st < 0) return st;
    if (op && op->stream) return weft__coll_start_streamed(coll, op);
    if (coll->active) return weft__fail(WEFT_ERR_BUSY, "the collective is under way");
    if (coll->nothing) return WEFT_OK;
    struct safe *safe;
    if (!is_safe(op)) return weft__collective_restart(coll, op);
    st = weft__safe_new(coll->team, op, &safe, &op);
    if (st < 0) return st;
    st = weft__team_usable(coll->team);
    return weft__safe_begun(safe, st < 0 ? st : weft__collective_restart(coll, op));
}

weft_status_t weft_coll_free(weft_coll_t *coll) {
    if (!coll) REFUSE("coll", "NULL");
    weft_status_t st = weft__worker_check(coll->team->worker);
    if (st < 0) return st;
    if (coll->active) return weft__fail(WEFT_ERR_BUSY, "the collective is under way");
    weft__steps_unkeep(coll);
    list_remove(&coll->of_team);
    talloc_free(coll);
    return WEFT_OK;
}

static void note_started(weft_status_t status, void *arg) {
    *(weft_status_t *)arg = status;
}

weft_status_t weft_coll_start_wait(weft_coll_t *coll) {
    weft_status_t outcome = WEFT_IN_PROGRESS;
    if (!coll) REFUSE("coll", "NULL");
    weft_worker_t *worker = coll->team->worker;
    weft_status_t st = weft__worker_check_wait(worker);
    if (st == WEFT_OK) st = weft__worker_check(worker);
    if (st < 0) return st;
    coll->team->waits = true;
    st = weft_coll_start(coll, &(weft_op_t){.done = note_started, .arg = &outcome});
    coll->team->waits = false;
    if (st == WEFT_OK) weft__coll_waited(coll->team);
    return st == WEFT_IN_PROGRESS ? weft__worker_wait_for(worker, &outcome) : st;
}
