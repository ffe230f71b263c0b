/* The public functions: what may not be asked is refused here. */
#include <string.h>

#include "collective.h"

#define REFUSE(field, why) return weft__fail(WEFT_ERR_INVALID_PARAM, field ": " why)

/* ---- teams ------------------------------------------------------------------------------------------------------------ */

weft_status_t weft_team_create_sized(size_t params_size, weft_worker_t *worker, const weft_team_params_t *params,
                                     weft_team_t **team_p) {
    weft_team_params_t known;
    if (!worker) REFUSE("worker", "NULL");
    if (!team_p) REFUSE("team_p", "NULL");
    weft_status_t st = weft__worker_check(worker);
    if (st < 0) return st;
    st = weft__params_read(&known, sizeof known, params, params_size);
    if (st < 0) return st;
    if (!known.exchange) REFUSE("params->exchange", "NULL");
    if (!known.exchange->allgather) REFUSE("params->exchange->allgather", "NULL");
    if (known.exchange->size == 0) REFUSE("params->exchange->size", "0");
    if (known.exchange->rank >= known.exchange->size) REFUSE("params->exchange->rank", "not below size");
    return weft__team_create(worker, &known, team_p);
}

uint32_t weft_team_rank(const weft_team_t *team) {
    return team ? team->rank : 0;
}
uint32_t weft_team_size(const weft_team_t *team) {
    return team ? team->size : 0;
}
weft_ep_t *weft_team_ep(weft_team_t *team, uint32_t rank) {
    return team && weft__worker_check(team->worker) == WEFT_OK ? weft__team_ep(team, rank) : NULL;
}

weft_status_t weft_team_close(weft_team_t *team, const weft_op_t *op) {
    if (!team) REFUSE("team", "NULL");
    weft_status_t st = weft__worker_check(team->worker);
    if (st == WEFT_OK) st = weft__check_close(op, false);
    return st < 0 ? st : weft__team_close(team, op);
}

/* ---- collectives -------------------------------------------------------------------------------------------------------- */

static unsigned choose(weft_team_t *team, const struct coll_call *call) {
    struct question question = {.kind = call->kind,
                                .bytes = call->count * call->width,
                                .ranks = team->size,
                                .per_core = team->per_core,
                                .fixed_order = call->fixed_order,
                                .slots = weft__slots_can_take(team, call),
                                .oneshot = weft__oneshot_can_take(team, call)};
    return weft__choose(&team->choices, &question);
}

static weft_status_t begin(weft_team_t *team, struct coll_call *call, const weft_op_t *op) {
    weft_status_t st = weft__worker_check(team->worker);
    if (st == WEFT_OK) st = weft__check_op(op, WEFT_COLL_FIXED_ORDER);
    if (st == WEFT_OK) st = weft__check_no_layout(op);
    if (st == WEFT_OK) st = weft__team_usable(team);
    if (st < 0) return st;
    if (call->count == 0 && call->kind != COLL_BARRIER) return WEFT_OK; /* as it is everywhere */
    call->algorithm = choose(team, call);
    return weft__collective_start(team, call, op, NULL);
}

static weft_status_t elements(const weft_team_t *team, struct coll_call *call, size_t count, weft_datatype_t type) {
    call->width = (uint32_t)weft_datatype_size(type);
    call->count = count;
    if (call->width == 0) REFUSE("type", "not a datatype");
    if (count > (UINT64_C(1) << 56) / call->width / team->size)
        return weft__fail(WEFT_ERR_TOO_BIG, "count: %zu elements", count);
    bool two = call->kind != COLL_BCAST;
    weft_status_t st = weft__check_memory(two ? "dst" : "buf", call->dst, count * call->width);
    return st < 0 || !two ? st : weft__check_memory("src", call->src, count * call->width);
}

weft_status_t weft_barrier(weft_team_t *team, const weft_op_t *op) {
    struct coll_call call = {.kind = COLL_BARRIER, .width = 1};
    if (!team) REFUSE("team", "NULL");
    return begin(team, &call, op);
}

weft_status_t weft_bcast(weft_team_t *team, void *buf, size_t count, weft_datatype_t type, uint32_t root,
                         const weft_op_t *op) {
    struct coll_call call = {.kind = COLL_BCAST, .dst = buf, .root = root};
    if (!team) REFUSE("team", "NULL");
    if (root >= team->size) REFUSE("root", "not below the team's size");
    weft_status_t st = elements(team, &call, count, type);
    return st < 0 ? st : begin(team, &call, op);
}

weft_status_t weft_allreduce(weft_team_t *team, const void *src, void *dst, size_t count, weft_datatype_t type,
                             weft_reduction_t reduction, const weft_op_t *op) {
    struct coll_call call = {.kind = COLL_ALLREDUCE, .src = src, .dst = dst};
    if (!team) REFUSE("team", "NULL");
    weft_status_t st = elements(team, &call, count, type);
    if (st < 0) return st;
    if ((unsigned)reduction >= WEFT_N_REDUCTIONS) REFUSE("reduction", "not a reduction");
    call.reduce = weft__reduction(type, reduction);
    if (!call.reduce) return weft__fail(WEFT_ERR_UNSUPPORTED, "reduction: bitwise ones are for integers");
    call.fixed_order = op && (op->flags & WEFT_COLL_FIXED_ORDER) && type >= WEFT_FLOAT16;
    return begin(team, &call, op);
}

weft_status_t weft_allgather(weft_team_t *team, const void *src, void *dst, size_t count, weft_datatype_t type,
                             const weft_op_t *op) {
    struct coll_call call = {.kind = COLL_ALLGATHER, .src = src, .dst = dst};
    if (!team) REFUSE("team", "NULL");
    weft_status_t st = elements(team, &call, count, type);
    return st < 0 ? st : begin(team, &call, op);
}

/* ---- for programs without a loop of their own --------------------------------------------------------------------------- */

static void note(weft_status_t status, void *arg) {
    *(weft_status_t *)arg = status;
}

#define WAIT_OP(outcome)                \
    &(weft_op_t) {                      \
        .done = note, .arg = &(outcome) \
    }

/* Of a team that is NULL the operation itself says so. */
static weft_status_t may_wait(const weft_team_t *team) {
    return team ? weft__worker_may_wait(team->worker) : WEFT_OK;
}

static weft_status_t wait_for(const weft_team_t *team, weft_status_t st, const weft_status_t *outcome_p) {
    return st == WEFT_IN_PROGRESS ? weft__worker_wait_for(team->worker, outcome_p) : st;
}

weft_status_t weft_barrier_wait(weft_team_t *team) {
    weft_status_t outcome = WEFT_IN_PROGRESS, st = may_wait(team);
    if (st == WEFT_OK) st = weft_barrier(team, WAIT_OP(outcome));
    return wait_for(team, st, &outcome);
}

weft_status_t weft_bcast_wait(weft_team_t *team, void *buf, size_t count, weft_datatype_t type, uint32_t root) {
    weft_status_t outcome = WEFT_IN_PROGRESS, st = may_wait(team);
    if (st == WEFT_OK) st = weft_bcast(team, buf, count, type, root, WAIT_OP(outcome));
    return wait_for(team, st, &outcome);
}

weft_status_t weft_allreduce_wait(weft_team_t *team, const void *src, void *dst, size_t count, weft_datatype_t type,
                                  weft_reduction_t reduction) {
    weft_status_t outcome = WEFT_IN_PROGRESS, st = may_wait(team);
    if (st == WEFT_OK) st = weft_allreduce(team, src, dst, count, type, reduction, WAIT_OP(outcome));
    return wait_for(team, st, &outcome);
}

weft_status_t weft_allgather_wait(weft_team_t *team, const void *src, void *dst, size_t count,
                                  weft_datatype_t type) {
    weft_status_t outcome = WEFT_IN_PROGRESS, st = may_wait(team);
    if (st == WEFT_OK) st = weft_allgather(team, src, dst, count, type, WAIT_OP(outcome));
    return wait_for(team, st, &outcome);
}

static void note_ready(weft_team_t *team, weft_status_t status, void *arg) {
    note(status, arg);
}

weft_status_t weft_team_create_wait(weft_worker_t *worker, const weft_exchange_t *exchange, weft_team_t **team_p) {
    weft_status_t outcome = WEFT_IN_PROGRESS;
    weft_team_t *team;
    if (!team_p) REFUSE("team_p", "NULL");
    weft_team_params_t params = {.exchange = exchange, .on_ready = note_ready, .arg = &outcome};
    weft_status_t st = worker ? weft__worker_may_wait(worker) : WEFT_OK;
    if (st == WEFT_OK) st = weft_team_create(worker, &params, &team);
    if (st < 0) return st;
    st = weft__worker_wait_for(worker, &outcome);
    if (st == WEFT_OK)
        *team_p = team;
    else
        weft_team_close_wait(team);
    return st;
}

weft_status_t weft_team_close_wait(weft_team_t *team) {
    weft_status_t outcome = WEFT_IN_PROGRESS;
    if (!team) REFUSE("team", "NULL");
    weft_worker_t *worker = team->worker;
    weft_status_t st = may_wait(team);
    if (st == WEFT_OK) st = weft_team_close(team, WAIT_OP(outcome));
    return st == WEFT_IN_PROGRESS ? weft__worker_wait_for(worker, &outcome) : st;
}
