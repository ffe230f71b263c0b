#include "collective.h"

#include <reactor/counters.h>
#include <string.h>

/* ---- its memory: what went through the segment leaves nothing behind, and serves the next one ------------------------ */

enum { IDLE_MOST = 4 };

static struct collective *new_collective(weft_team_t *team) {
    struct list *node = list_pop(&team->idle);
    if (!node) return weft__new(team, struct collective);
    struct collective *c = list_of(node, struct collective, of_team);
    memset(c, 0, sizeof *c);
    team->n_idle--;
    return c;
}

static bool serves_again(struct collective *c) {
    if (!c->engine->may_move || c->team->n_idle == IDLE_MOST) return false;
    list_append(&c->team->idle, &c->of_team);
    c->team->n_idle++;
    return true;
}

/* ---- its machine -------------------------------------------------------------------------------------------------- */

static void release(struct collective *c) {
    list_remove(&c->of_team);
    if (c->plan) weft__steps_release(c);
    c->plan = NULL;
}

static void tell(struct job *job) {
    struct collective *c = list_of(job, struct collective, tell);
    weft_team_t *team = c->team;
    fsm_step(&c->core.fsm, COLL_EV_TOLD);
    if (c->over) c->over(team, c->status);
    if (c->request) weft__request_finish(c->request, c->status);
    if (!serves_again(c)) weft__bury(team->reactor, c);
    weft__team_settle(team);
}

static void nothing_lent(struct job *job) {
    fsm_step(&list_of(job, struct collective, returned)->core.fsm, COLL_EV_RETURNED);
}

static void on_effect(struct fsm *m, unsigned effect) {
    struct collective *c = list_of(m, struct collective, core.fsm);
    switch ((enum collective_effect)effect) {
    case COLL_FX_RECALL:
        c->status = c->team->status;
        if (c->plan) weft__steps_recall(c);
        if (c->n_lent == 0) weft__job_post(c->team->reactor, &c->returned);
        break;
    case COLL_FX_SETTLE: weft__job_post(c->team->reactor, &c->tell); break;
    case COLL_FX_LEAVE: release(c); break;
    case COLL_N_EFFECTS: break;
    }
}

static void on_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    struct collective *c = list_of(m, struct collective, core.fsm);
    weft__log(c->team->worker->context, WEFT_LOG_ERROR, "collectives", "collective: %s in %s",
              weft__collective_machine.event_name[event], fsm_state_name(m));
    weft__team_fail(c->team, WEFT_ERR_INTERNAL, c->team->rank);
}

static const struct fsm_port port = {&weft__collective_machine, on_effect, on_fail};

void weft__collective_finish(struct collective *c) {
    fsm_step(&c->core.fsm, COLL_EV_FINISH);
}

/* One whose last step is done keeps its outcome. */
void weft__collective_stop(struct collective *c) {
    fsm_step(&c->core.fsm, COLL_EV_STOP);
}

/* ---- the user's side of it ------------------------------------------------------------------------------------------ */

/* Cancelled, or past its deadline. The others cannot finish it without this member: the whole team fails. */
static void withdrawn(struct weft_request *req) {
    struct collective *c = (struct collective *)(uintptr_t)req->remote;
    weft__team_fail(c->team, req->status, c->team->rank);
}

static const struct request_kind collective_kind = {
    .name = "collective", .flags = WEFT_COLL_FIXED_ORDER, .withdraw = withdrawn};

/* Its memory is lent from the first moment on: a stop must wait until no transport may touch it. */
static weft_status_t accept_call(struct collective *c, const weft_op_t *op) {
    if (!op) return WEFT_OK;
    struct weft_request *req = weft__request_new(c->team->worker, &collective_kind);
    if (!req) return WEFT_ERR_NO_MEMORY;
    req->remote = (uint64_t)(uintptr_t)c;
    weft_status_t st = weft__request_accept(req, NULL, op);
    if (st < 0) return st;
    weft__request_park(req);
    req->lent.count = 1;
    c->request = req;
    return WEFT_OK;
}

/* ---- beginning ------------------------------------------------------------------------------------------------------ */

void weft__collectives_without(weft_team_t *team, uint32_t rank) {
    for (struct list *at = team->active.next; at != &team->active; at = at->next) {
        struct collective *c = list_of(at, struct collective, of_team);
        if (c->status < 0 || (c->plan && c->n_left == 0) || !c->engine->needs(c, rank)) continue;
        weft__team_fail(team, WEFT_ERR_PEER_FAILED, rank);
        return;
    }
}

static const struct coll_engine *engine_of(unsigned algorithm) {
    if (algorithm == ALGORITHM_SLOTS) return &weft__slots;
    return algorithm == ALGORITHM_ONESHOT ? &weft__oneshot : &weft__steps;
}

weft_status_t weft__collective_start(weft_team_t *team, const struct coll_call *call, const weft_op_t *op,
                                     void (*over)(weft_team_t *, weft_status_t)) {
    struct collective *c = new_collective(team);
    if (!c) return WEFT_ERR_NO_MEMORY;
    c->team = team;
    c->call = *call;
    c->engine = engine_of(call->algorithm);
    c->over = over;
    c->tell.run = tell;
    c->returned.run = nothing_lent;
    list_init(&c->of_team);
    fsm_init(&c->core.fsm, &port, COLL_RUNNING, (uint32_t)team->id);
    weft_status_t st = accept_call(c, op);
    if (st == WEFT_OK) st = c->engine->prepare(c);
    if (st < 0) {
        if (c->request) weft__request_discard(c->request);
        talloc_free(c);
        return st;
    }
    weft__count(team->reactor)->coll_started++;
    list_append(&team->active, &c->of_team);
    if (c->engine->advance(c) && !over) {
        /* Done within the call: it never gets a life of its own. */
        release(c);
        if (c->request) weft__request_discard(c->request);
        if (!serves_again(c)) talloc_free(c);
        return WEFT_OK;
    }
    if (c->engine->may_move) weft__shared_watch(team);
    if (c->plan && c->status == WEFT_OK && c->n_left == 0) weft__collective_finish(c);
    for (uint32_t r = 0; r < team->size && c->status == WEFT_OK; r++)
        if (team->member[r].gone && c->engine->needs(c, r)) weft__team_fail(team, WEFT_ERR_PEER_FAILED, r);
    if (!weft__reactor_in_turn(team->reactor)) weft__reactor_kick(team->reactor);
    return WEFT_IN_PROGRESS;
}

/* ---- messages ------------------------------------------------------------------------------------------------------- */

void weft__early_drop(weft_worker_t *worker, struct early *early) {
    if (early->data) weft_am_release(worker, early->data);
    list_remove(&early->of);
    talloc_free(early);
}

static struct collective *find(weft_team_t *team, uint32_t seq) {
    for (struct list *at = team->active.next; at != &team->active; at = at->next) {
        struct collective *c = list_of(at, struct collective, of_team);
        if (c->plan && c->seq == seq) return c;
    }
    return NULL;
}

static bool not_begun(const weft_team_t *team, uint32_t seq) {
    return (int32_t)(seq - team->next_seq) >= 0;
}

static void store(weft_team_t *team, struct early *early) {
    team->unexpected_bytes += early->len;
    list_append(&team->early, &early->of);
    if (team->unexpected_bytes > team->unexpected_most) weft__team_fail(team, WEFT_ERR_QUOTA, early->from);
}

weft_status_t weft__early_new(weft_team_t *team, unsigned id, const struct coll_wire *wire, weft_am_t *am,
                              struct early **early_p) {
    if (am->len > team->eager) return WEFT_ERR_PROTOCOL;
    struct early *early = weft__new(team, struct early);
    if (!early) return WEFT_ERR_NO_MEMORY;
    *early = (struct early){.id = id, .seq = wire->seq, .tag = wire->tag, .from = wire->from, .len = am->len};
    list_init(&early->of);
    weft_status_t st = am->len ? weft_am_keep(am, &early->data) : WEFT_OK;
    if (st < 0)
        talloc_free(early);
    else
        *early_p = early;
    return st;
}

static void keep(weft_team_t *team, unsigned id, const struct coll_wire *wire, weft_am_t *am) {
    struct early *early;
    weft_status_t st = weft__early_new(team, id, wire, am, &early);
    if (st < 0)
        weft__team_fail(team, st, wire->from);
    else
        store(team, early);
}

void weft__collective_message(weft_team_t *team, unsigned id, const struct coll_wire *wire, weft_am_t *am) {
    struct collective *c = find(team, wire->seq);
    if (team->status < 0 || (!c && !not_begun(team, wire->seq))) {
        weft__count(team->reactor)->coll_dropped++;
        return;
    }
    if (!c)
        keep(team, id, wire, am);
    else if (id == COLL_WIRE_DATA)
        weft__steps_data(c, wire, am);
    else
        weft__steps_go(c, wire);
}

void weft__collective_early(weft_team_t *team, struct early *early) {
    store(team, early);
}
