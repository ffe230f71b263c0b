/* Collectives in progress: begun, matched with the messages that arrive, and completed or stopped.
 * The port of collective.fsm. */
#include "collective.h"
#include "peer.h"

#include <base/counters.h>
#include <base/hash.h>
#include <endpoints/core/cause.h>
#include <string.h>

/* ---- its memory, which serves the next collective -------------------------------------------- */

enum { IDLE_MOST = 4 };

static void renew(struct collective *c) {
    struct step_buffers few = c->few;
    memset(c, 0, sizeof *c);
    c->few = few;
}

static struct collective *new_collective(weft_team_t *team) {
    struct list *node = list_pop(&team->idle);
    if (!node) return weft__new(team, struct collective);
    struct collective *c = list_of(node, struct collective, of_team);
    renew(c);
    team->n_idle--;
    return c;
}

static bool serves_again(struct collective *c) {
    if (c->kept) {
        c->kept->active = false;
        return true;
    }
    bool plain = c->engine->may_move || c->engine == &weft__steps;
    if (!plain || c->team->n_idle == IDLE_MOST) return false;
    list_append(&c->team->idle, &c->of_team);
    c->team->n_idle++;
    return true;
}

/* ---- its machine ----------------------------------------------------------------------------- */

static void release_collective(struct collective *c) {
    list_remove(&c->of_team);
    weft__late_end(c);
    if (c->plan) weft__steps_release(c);
    c->plan = NULL;
    if (c->engine->release) c->engine->release(c);
    talloc_free(c->arrays);
    c->arrays = NULL;
}

/* The callback may be held until the team is gone, so the request takes the cause with it. */
static void finish_request(const weft_team_t *team, struct weft_request *req,
                           weft_status_t status) {
    struct cause *cause = NULL;
    if (status < 0 && status == team->status) {
        char text[CAUSE_ROOM];
        weft__team_reason(team, text, sizeof text);
        cause = weft__cause_new(team->worker, status, text);
    }
    req->recv.cause = cause;
    weft__request_finish(req, status);
}

static void explain(struct weft_request *req) {
    struct cause *cause = req->recv.cause;
    weft__cause_note(req->status, cause);
    if (!cause || cause->status != req->status)
        (void)weft__fail(req->status, "%s", req->kind->name);
    weft__cause_drop(cause);
}

static void notify_collective(struct job *job) {
    struct collective *c = list_of(job, struct collective, notify);
    weft_team_t *team = c->team;
    weft__fsm_step(&c->core.fsm, COLL_EV_NOTIFIED);
    if (c->over) c->over(team, c->status);
    if (c->call.staging) weft__staging_drop(c->call.staging);
    c->call.staging = NULL;
    struct weft_request *request = c->request;
    weft_status_t status = c->status;
    /* A persistent one may be started again, or freed, in the callback. */
    if (!serves_again(c)) weft__free_later(team->reactor, c);
    if (request) finish_request(team, request, status);
    weft__team_settle(team);
}

static void nothing_in_flight(struct job *job) {
    weft__fsm_step(&list_of(job, struct collective, returned)->core.fsm, COLL_EV_RETURNED);
}

static void on_effect(struct fsm *m, unsigned effect) {
    struct collective *c = list_of(m, struct collective, core.fsm);
    switch ((enum collective_effect)effect) {
    case COLL_FX_RECALL:
        c->status = c->team->status;
        if (c->plan) weft__steps_recall(c);
        if (c->engine->recall) c->engine->recall(c);
        if (c->n_in_flight == 0) weft__job_post(c->team->reactor, &c->returned);
        break;
    case COLL_FX_SETTLE:
        weft__timer_stop(c->team->reactor, &c->deadline);
        weft__job_post(c->team->reactor, &c->notify);
        break;
    case COLL_FX_LEAVE: release_collective(c); break;
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

/* Elements of the result here. */
static uint64_t result_count(const struct collective *c) {
    bool none = c->call.kind == COLL_REDUCE && c->team->rank != coll_member(&c->call, c->call.root);
    return none ? 0 : c->call.count;
}

void weft__collective_complete(struct collective *c) {
    if (c->call.scale) c->call.scale(c->call.dst, result_count(c), coll_size(c->team, &c->call));
    if (c->call.staging) weft__staging_end(c->call.staging, &c->status);
    c->call.staging = NULL;
}

void weft__collective_finish(struct collective *c) {
    weft__collective_complete(c);
    weft__fsm_step(&c->core.fsm, COLL_EV_FINISH);
}

/* One whose last step is done keeps its outcome. */
void weft__collective_stop(struct collective *c) {
    weft__fsm_step(&c->core.fsm, COLL_EV_STOP);
}

/* ---- the user's side of it ------------------------------------------------------------------- */

/* Cancelled, or past its deadline. The others cannot finish it without this member: the whole
 * team fails. What was decided before that, or is by now, is the outcome. */
static void withdrawn(struct weft_request *req) {
    struct collective *c = req->group;
    if (collective_is_running(&c->core.fsm)) {
        if (req->status == WEFT_ERR_TIMED_OUT) weft__late_name(c);
        weft__team_fail(c->team, req->status, c->team->rank);
    }
    if (!collective_is_running(&c->core.fsm)) req->status = WEFT_OK;
}

static const struct request_kind collective_kind = {
    .name = "collective",
    .flags = WEFT_COLL_FIXED_ORDER,
    .withdraw = withdrawn,
    .explain = explain,
};

/* Transports may use its memory from the first moment on: a stop must wait until no transport may
 * touch it. */
static weft_status_t accept_call(struct collective *c, const weft_op_t *op) {
    if (!op) return WEFT_OK;
    struct weft_request *req = weft__request_new(c->team->worker, &collective_kind);
    if (!req) return WEFT_ERR_NO_MEMORY;
    req->group = c;
    weft_status_t st = weft__request_accept(req, NULL, op);
    if (st < 0) return st;
    weft__request_park(req);
    req->in_flight.count = 1;
    c->request = req;
    return WEFT_OK;
}

/* ---- beginning ------------------------------------------------------------------------------- */

void weft__collective_misses_gone(struct collective *c) {
    for (uint32_t r = 0; r < c->team->size && c->status == WEFT_OK; r++)
        if (member_is_gone(&c->team->member[r]) && c->engine->needs(c, r))
            weft__team_misses(c->team, r);
}

void weft__collectives_without(weft_team_t *team, uint32_t rank) {
    list_for_each(at, &team->active) {
        struct collective *c = list_of(at, struct collective, of_team);
        if (c->status < 0 || (c->plan && c->n_left == 0) || !c->engine->needs(c, rank)) continue;
        weft__team_misses(team, rank);
        return;
    }
}

bool weft__collectives_await(const weft_team_t *team, uint32_t rank) {
    list_for_each(at, &team->active) {
        const struct collective *c = list_of(at, struct collective, of_team);
        if (c->engine->awaits && c->engine->awaits(c, rank)) return true;
    }
    return false;
}

const struct coll_engine *weft__engine_of(unsigned algorithm) {
    switch (algorithm) {
    case ALGORITHM_PEER:
    case ALGORITHM_STAGED: return &weft__peer;
    case ALGORITHM_SLOTS: return &weft__slots;
    case ALGORITHM_ONESHOT: return &weft__oneshot;
    case ALGORITHM_SINGLE_COPY: return &weft__single_copy;
    default: return &weft__steps;
    }
}

static void abandon(struct collective *c) {
    weft__timer_release(c->team->reactor, &c->deadline);
    if (c->request) weft__request_discard(c->request);
    if (c->call.staging) weft__staging_drop(c->call.staging);
    if (!c->kept) talloc_free(c);
}

/* Done within the call: it never gets a life of its own. */
static weft_status_t end_at_once(struct collective *c) {
    weft__collective_complete(c);
    weft_status_t outcome = c->status;
    release_collective(c);
    if (c->request) weft__request_discard(c->request);
    if (!serves_again(c)) talloc_free(c);
    return outcome;
}

/* One of the team's own order is numbered, and waits for those before it that are not decided. */
static weft_status_t prepare_call(weft_team_t *team, struct collective *c) {
    c->engine = weft__engine_of(c->call.algorithm);
    c->number = team->n_calls;
    bool waits = !c->call.tagged && c->engine != &weft__peer;
    if (waits && weft__peer_is_undecided(team, NULL)) c->engine = &weft__deferred;
    weft_status_t st = c->engine->prepare(c);
    if (st == WEFT_OK && !c->call.tagged) team->n_calls++;
    return st;
}

static weft_status_t collective_begin(weft_team_t *team, struct collective *c,
                                      const weft_op_t *op) {
    c->notify.run = notify_collective;
    c->returned.run = nothing_in_flight;
    list_init(&c->of_team);
    fsm_init(&c->core.fsm, &port, COLL_RUNNING, (uint32_t)team->id);
    weft_status_t st = accept_call(c, op);
    if (st == WEFT_OK) st = weft__late_reserve(c, op);
    if (st == WEFT_OK) st = prepare_call(team, c);
    if (st < 0) {
        abandon(c);
        return st;
    }
    weft__count(team->reactor)->coll_started++;
    if (c->kept) c->kept->active = true;
    list_append(&team->active, &c->of_team);
    weft__peer_note(team);
    bool ended = c->engine->advance(c);
    if (ended && !c->over) return end_at_once(c);
    weft__late_begin(c);
    if (c->engine->may_move) weft__shared_watch(team);
    if (ended) weft__collective_finish(c);
    weft__collective_misses_gone(c);
    if (!weft__reactor_in_turn(team->reactor)) weft__reactor_kick(team->reactor);
    return WEFT_IN_PROGRESS;
}

/* ---- over within the call -------------------------------------------------------------------- */

/* A member that has said something cannot take it back: what a collective needs is there. */
static bool has_memory(weft_team_t *team, const struct weft_coll *kept, const weft_op_t *op) {
    return (kept || team->n_idle) && (!op || weft__request_is_at_hand(team->worker)) &&
           weft__timer_is_at_hand(team->reactor);
}

/* The first of the team's collectives that are not over, and nothing can go wrong. */
static bool may_end_within(weft_team_t *team, const struct coll_engine *engine,
                           const struct coll_call *call, const struct weft_coll *kept,
                           const weft_op_t *op) {
    if (!engine->start || !list_empty(&team->active)) return false;
    if (call->staging || call->scale) return false;
    if (op && (op->deadline_ms || weft__op_is_extended(op, WEFT_COLL_FIXED_ORDER))) return false;
    return engine->prepare_start(team, call) && has_memory(team, kept, op);
}

static void count_ended(weft_team_t *team) {
    struct counters *count = weft__count(team->reactor);
    count->coll_started++;
    count->coll_within_call++;
    team->n_calls++;
    weft__peer_note(team);
}

/* Else `*use_p` is the use of the segment that it has entered, or NOT_ENTERED. */
#define NOT_ENTERED UINT64_MAX
static bool ends_within(weft_team_t *team, const struct coll_call *call,
                        const struct weft_coll *kept, const weft_op_t *op, uint64_t *use_p) {
    const struct coll_engine *engine = weft__engine_of(call->algorithm);
    bool is_over = false;
    *use_p = NOT_ENTERED;
    if (!may_end_within(team, engine, call, kept, op)) return false;
    *use_p = engine->start(team, call, &is_over);
    if (is_over) count_ended(team);
    return is_over;
}

static void take_use(struct collective *c, uint64_t use) {
    if (use == NOT_ENTERED) return;
    c->first_use = use;
    c->entered = 1;
}

weft_status_t weft__collective_start(weft_team_t *team, const struct coll_call *call,
                                     const weft_op_t *op,
                                     void (*over)(weft_team_t *, weft_status_t)) {
    uint64_t use = NOT_ENTERED;
    if (!over && ends_within(team, call, NULL, op, &use)) return WEFT_OK;
    struct collective *c = new_collective(team);
    if (!c) {
        if (call->staging) weft__staging_drop(call->staging);
        return WEFT_ERR_NO_MEMORY;
    }
    c->team = team;
    c->call = *call;
    c->over = over;
    take_use(c, use);
    return collective_begin(team, c, op);
}

weft_status_t weft__collective_restart(struct weft_coll *kept, const weft_op_t *op) {
    struct collective *c = kept->collective;
    uint64_t use;
    if (ends_within(kept->team, &kept->call, kept, op, &use)) return WEFT_OK;
    renew(c);
    c->team = kept->team;
    c->call = kept->call;
    c->kept = kept;
    take_use(c, use);
    weft_status_t st = c->call.staging ? weft__staging_pack(c->call.staging) : WEFT_OK;
    return st < 0 ? st : collective_begin(kept->team, c, op);
}

/* ---- messages -------------------------------------------------------------------------------- */

enum { SPARE_EARLY_MOST = 64 };

static void spare_early(weft_team_t *team, struct early *early) {
    list_append(&team->spare_early, &early->of);
    team->n_spare_early++;
}

void weft__early_drop(weft_worker_t *worker, struct early *early) {
    if (early->data) weft_am_release(worker, early->data);
    list_remove(&early->of);
    if (early->pool && early->pool->n_spare_early < SPARE_EARLY_MOST)
        spare_early(early->pool, early);
    else
        talloc_free(early);
}

static struct early *take_early(weft_team_t *team) {
    struct list *node = list_pop(&team->spare_early);
    if (!node) return weft__new(team, struct early);
    team->n_spare_early--;
    return list_of(node, struct early, of);
}

void weft__early_reserve(weft_team_t *team, uint32_t n) {
    while (team->n_spare_early < n && team->n_spare_early < SPARE_EARLY_MOST) {
        struct early *early = weft__new(team, struct early);
        if (!early) return;
        list_init(&early->of);
        spare_early(team, early);
    }
}

static struct collective *find_collective(weft_team_t *team, const struct coll_wire *wire) {
    list_for_each(at, &team->active) {
        struct collective *c = list_of(at, struct collective, of_team);
        if (c->plan && c->seq == wire->seq && c->order->stream == wire->stream) return c;
    }
    return NULL;
}

static struct coll_order *find_stream(weft_team_t *team, uint32_t stream) {
    if (stream == 0) return &team->order;
    list_for_each(at, &team->streams) {
        struct coll_order *order = list_of(at, struct coll_order, of_team);
        if (order->stream == stream) return order;
    }
    return NULL;
}

static bool not_begun(weft_team_t *team, const struct coll_wire *wire) {
    const struct coll_order *order = find_stream(team, wire->stream);
    return !order || (int32_t)(wire->seq - order->next_seq) >= 0;
}

/* Equal on all its members; 0 is the team's own order. */
static uint32_t stream_of(const struct coll_call *call) {
    const struct coll_set *set = &call->set;
    uint64_t h = hash_more(HASH_BEGIN, &call->tag, sizeof call->tag);
    h = hash_more(h, set, sizeof *set) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 32) ? (uint32_t)(h >> 32) : 1;
}

static bool is_of(const struct coll_order *order, const struct coll_call *call) {
    return order->tag == call->tag && order->set.start == call->set.start &&
           order->set.stride == call->set.stride && order->set.size == call->set.size;
}

weft_status_t weft__collective_order(weft_team_t *team, const struct coll_call *call,
                                     struct coll_order **order_p) {
    *order_p = &team->order;
    if (!call->tagged) return WEFT_OK;
    uint32_t stream = stream_of(call);
    struct coll_order *order = find_stream(team, stream);
    if (order && !is_of(order, call))
        return weft__fail(WEFT_ERR_UNSUPPORTED, "tag: stands for the same as another one");
    if (!order) {
        order = weft__new(team, struct coll_order);
        if (!order) return WEFT_ERR_NO_MEMORY;
        *order = (struct coll_order){.stream = stream, .tag = call->tag, .set = call->set};
        list_append(&team->streams, &order->of_team);
    }
    *order_p = order;
    return WEFT_OK;
}

static void store(weft_team_t *team, struct early *early) {
    team->unexpected_bytes += early_cost(early);
    list_append(&team->early, &early->of);
    if (team->unexpected_bytes > team->unexpected_most)
        weft__team_fail(team, WEFT_ERR_QUOTA, early->from);
}

weft_status_t weft__early_new(weft_team_t *team, unsigned id, const struct coll_wire *wire,
                              weft_am_t *am, struct early **early_p) {
    if (am->len > team->eager) return WEFT_ERR_PROTOCOL;
    struct early *early = take_early(team);
    if (!early) return WEFT_ERR_NO_MEMORY;
    *early = (struct early){.id = id,
                            .seq = wire->seq,
                            .tag = wire->tag,
                            .from = wire->from,
                            .len = am->len,
                            .stream = wire->stream,
                            .pool = team};
    list_init(&early->of);
    weft_status_t st = am->len ? weft_am_retain(am, &early->data) : WEFT_OK;
    if (st < 0)
        talloc_free(early);
    else
        *early_p = early;
    return st;
}

static void keep_collective(weft_team_t *team, unsigned id, const struct coll_wire *wire,
                            weft_am_t *am) {
    struct early *early;
    weft_status_t st = weft__early_new(team, id, wire, am, &early);
    if (st < 0)
        weft__team_fail(team, st, wire->from);
    else
        store(team, early);
}

void weft__collective_message(weft_team_t *team, unsigned id, const struct coll_wire *wire,
                              weft_am_t *am) {
    struct collective *c = find_collective(team, wire);
    if (team->status < 0 || (!c && !not_begun(team, wire))) {
        weft__count(team->reactor)->coll_dropped++;
        return;
    }
    if (!c || weft__steps_defer(c, wire))
        keep_collective(team, id, wire, am);
    else if (id == COLL_WIRE_DATA)
        weft__steps_data(c, wire, am);
    else
        weft__steps_go(c, wire);
}

void weft__collective_early(weft_team_t *team, struct early *early) {
    store(team, early);
}
