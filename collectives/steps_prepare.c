/* What a plan over messages needs before its first step and gives back after its last: its plan,
 * its memory, and the counts that it asks for. */
#include <string.h>

#include "steps.h"

#define KNOWN_MOST (UINT64_C(1) << 60) /* bytes of all blocks of a group */

/* ---- memory ---------------------------------------------------------------------------------- */

/* Fresh memory costs a fault a page, more than the work that is done in it: the team keeps the
 * last one's, if it is not too much. */
enum { SPARE_MOST = 4 << 20 };

static bool take_scratch(struct collective *c, uint64_t bytes) {
    weft_team_t *team = c->team;
    if (bytes == 0) return true;
    if (team->standby && team->spare_bytes >= bytes) {
        c->buffer[COLL_SCRATCH] = team->standby;
        c->scratch_bytes = team->spare_bytes;
        team->standby = NULL;
        return true;
    }
    c->buffer[COLL_SCRATCH] = weft__realloc(team, NULL, bytes, "scratch");
    c->scratch_bytes = bytes;
    return c->buffer[COLL_SCRATCH] != NULL;
}

static void give_scratch_back(struct collective *c) {
    weft_team_t *team = c->team;
    void *memory = c->buffer[COLL_SCRATCH], *surplus = memory;
    if (memory && c->scratch_bytes <= SPARE_MOST &&
        (!team->standby || team->spare_bytes < c->scratch_bytes)) {
        surplus = team->standby;
        team->standby = memory;
        team->spare_bytes = c->scratch_bytes;
    }
    talloc_free(surplus);
}

/* Members that only ever send would run ahead of the others without end: now and then such a
 * collective ends with a barrier. */
static bool joins_now(const struct collective *c) {
    return !weft__coll_joins(c->call.kind) && c->order->unjoined + 1 >= UNJOINED_MOST;
}

static weft_status_t get_plan(weft_team_t *team, const struct coll_call *call, bool joined,
                              bool unexposed, struct plan **plan_p) {
    struct coll_shape shape = weft__coll_shape(team, call);
    shape.joined = joined;
    shape.unexposed = unexposed;
    return weft__plan_get(team, &team->plans, (enum coll_algorithm)call->algorithm, &shape, plan_p);
}

/* A persistent one of device memory has nothing prepared for messages. */
static bool is_kept(const struct collective *c) {
    return c->kept && c->kept->plan[0];
}

/* A plan of its own, or another than the one that was kept for it. */
static void put_plan(struct collective *c) {
    if (!is_kept(c) || c->plan != c->kept->plan[c->joins]) weft__plan_put(&c->team->plans, c->plan);
}

/* The others cannot finish it without this member's key, or the word that there is none. Then the
 * plan is one of as many steps, and as much memory, in which they send what they would put. */
static weft_status_t expose(struct collective *c) {
    struct plan *plan;
    weft_status_t failed = weft__steps_expose(c);
    if (failed == WEFT_OK) return WEFT_OK;
    weft_status_t st = get_plan(c->team, &c->call, c->joins, true, &plan);
    if (st < 0) return st;
    weft__log(c->team->worker->context, WEFT_LOG_INFO, "collectives",
              "%s: the others send what they would put, since memory was not registered: %s",
              weft__coll_name(c->call.kind), weft_status_name(failed));
    put_plan(c);
    c->plan = plan;
    return WEFT_OK;
}

/* In zeroed memory but for its plan. */
static weft_status_t set_steps(struct collective *c) {
    weft_status_t st = c->plan->schedule->exposes ? expose(c) : WEFT_OK;
    if (st < 0) return st;
    uint32_t n = c->plan->schedule->n_steps;
    c->buffer[COLL_SRC] = (uint8_t *)c->call.src; /* never written to: the checker proves it */
    c->buffer[COLL_DST] = c->call.dst;
    if (c->asked) c->buffer[COLL_SRC] = (uint8_t *)c->asked->counts;
    c->n_left = n;
    c->n_ready = 0;
    for (uint32_t i = n; i-- > 0;) {
        c->step[i] = (struct step_run){.collective = c, .waits = c->plan->waits[i]};
        if (c->step[i].waits == 0) c->ready[c->n_ready++] = i;
    }
    return WEFT_OK;
}

static weft_status_t set_out(struct collective *c) {
    bool joined = weft__coll_joins(c->call.kind) || c->joins;
    c->n_parts = c->plan->schedule->n_shared > 0;
    if (c->n_parts) c->engine = &weft__hosted;
    weft_status_t st = c->n_parts ? weft__team_segment_fill(c->team->share.segment) : WEFT_OK;
    if (st == WEFT_OK) st = set_steps(c);
    if (st < 0) return st;
    if (c->n_parts) weft__steps_take_slots(c);
    c->seq = c->order->next_seq++;
    c->order->unjoined = joined ? 0 : c->order->unjoined + 1;
    return WEFT_OK;
}

static weft_status_t take_kept(struct collective *c) {
    struct weft_coll *kept = c->kept;
    c->order = kept->order;
    c->joins = joins_now(c);
    c->plan = kept->plan[c->joins];
    c->step = kept->step;
    c->ready = kept->ready;
    c->slots_of = kept->slots;
    c->buffer[COLL_SCRATCH] = kept->scratch;
    return set_out(c);
}

enum { FEW_STEPS = 32 };

static bool make_step_buffers(struct collective *c) {
    if (!c->few.step) c->few.step = weft__alloc(c, FEW_STEPS * sizeof *c->step, "steps");
    c->few.ready = c->few.step ? weft__alloc(c, FEW_STEPS * sizeof *c->ready, "ready") : NULL;
    return c->few.ready != NULL;
}

/* Few steps have a place that the next collective takes over. */
static void take_steps(struct collective *c, uint32_t n) {
    if (n >= FEW_STEPS) {
        c->step = weft__alloc(c, (n + 1) * sizeof *c->step, "steps");
        c->ready = weft__alloc(c, (n + 1) * sizeof *c->ready, "ready");
    } else if (c->few.ready || make_step_buffers(c)) {
        c->step = c->few.step;
        c->ready = c->few.ready;
    }
}

static weft_status_t take_buffers(struct collective *c) {
    uint32_t n = c->plan->schedule->n_steps, shared = c->plan->schedule->n_shared;
    take_steps(c, n);
    if (shared) c->slots_of = weft__alloc(c, shared * sizeof *c->slots_of, "slots");
    bool made = c->step && c->ready && (c->slots_of || !shared) &&
                take_scratch(c, c->plan->schedule->scratch);
    return made ? WEFT_OK : WEFT_ERR_NO_MEMORY;
}

/* ---- asking for counts, before --------------------------------------------------------------- */

static weft_status_t get_asking_plan(struct collective *c, const struct coll_asking *asking) {
    struct asked *asked = weft__new(c, struct asked);
    if (!asked) return WEFT_ERR_NO_MEMORY;
    asked->shape = weft__coll_shape(c->team, &c->call);
    bool kept = weft__keep_shape(asked, &asked->shape);
    uint32_t n = asking->counts(&asked->shape, NULL);
    asked->counts = weft__alloc(asked, (n + 1) * sizeof *asked->counts, "counts");
    weft_status_t st = kept && asked->counts ? WEFT_OK : WEFT_ERR_NO_MEMORY;
    if (st == WEFT_OK) st = weft__plan_ask(c->team, asking, &asked->shape, &c->plan);
    if (st < 0) {
        talloc_free(asked);
        return st;
    }
    asking->counts(&asked->shape, asked->counts);
    asked->shape.joined = c->joins;
    c->asked = asked;
    return WEFT_OK;
}

bool weft__steps_defer(const struct collective *c, const struct coll_wire *wire) {
    return c->asked && !(wire->tag & ASK_TAG);
}

/* They are what other members said: of one block no more than a call may ask for, and of all
 * together so little that no sum of theirs passes 64 bits. */
static bool are_sound(const struct coll_shape *shape) {
    uint64_t most = ELEMENTS_MOST(shape->width, shape->size), sum = 0;
    for (uint64_t i = 0; i < shape->n_known; i++) {
        if (shape->known[i] > most) return false;
        sum += shape->known[i];
        if (sum > KNOWN_MOST / shape->width) return false;
    }
    return true;
}

/* The counts that came make the plan of the blocks. It has no steps by slots, whose uses are taken
 * in the order of calls. */
void weft__steps_take_known(struct collective *c) {
    weft_team_t *team = c->team;
    struct asked *asked = c->asked;
    struct plan *plan = NULL;
    asked->shape.known = (const uint64_t *)(const void *)c->buffer[COLL_SCRATCH];
    asked->shape.n_known = c->plan->schedule->scratch / sizeof(uint64_t);
    weft_status_t st = WEFT_OK;
    if (!are_sound(&asked->shape))
        st = weft__fail(WEFT_ERR_TOO_BIG, "the counts of other members: too many elements");
    if (st == WEFT_OK)
        st = weft__plan_get(team, &team->plans, (enum coll_algorithm)c->call.algorithm,
                            &asked->shape, &plan);
    if (st == WEFT_OK) {
        weft__steps_release(c); /* of the asking */
        c->plan = plan;
        c->buffer[COLL_SCRATCH] = NULL;
        st = take_buffers(c);
    }
    if (st == WEFT_OK) st = set_steps(c);
    if (st < 0) {
        weft__team_fail(team, st, team->rank);
        return;
    }
    weft__steps_hand_over_early(c);
    weft__collective_misses_gone(c);
}

/* ---- beginning ------------------------------------------------------------------------------- */

weft_status_t weft__steps_prepare(struct collective *c) {
    if (is_kept(c)) return take_kept(c);
    bool alone = coll_size(c->team, &c->call) == 1;
    const struct coll_asking *asking = alone ? NULL : weft__asking(c->call.algorithm);
    weft_status_t st = weft__collective_order(c->team, &c->call, &c->order);
    if (st < 0) return st;
    c->joins = joins_now(c);
    st = asking ? get_asking_plan(c, asking)
                : get_plan(c->team, &c->call, c->joins, false, &c->plan);
    if (st < 0) return st;
    st = take_buffers(c);
    if (st == WEFT_OK) st = set_out(c);
    if (st < 0) weft__steps_release(c);
    return st;
}

/* A first message to each member that a plan sends to: what a transport takes for it is taken
 * now. */
static void open_peers(struct weft_coll *kept, const struct plan *plan) {
    for (uint32_t i = 0; i < plan->schedule->n_steps; i++) {
        const struct step *step = &plan->schedule->step[i];
        bool meets = step->verb == STEP_SEND || step->verb == STEP_RECV || step->verb == STEP_PUT;
        uint32_t rank = meets ? coll_member(&kept->call, step->peer) : kept->team->rank;
        if (rank != kept->team->rank && !kept->team->member[rank].ep)
            weft__coll_send(kept->team, rank, &(struct coll_message){.id = COLL_WIRE_OPEN});
    }
}

/* Both plans: the one that is taken usually, and the one that joins the members. */
weft_status_t weft__steps_keep(struct weft_coll *kept) {
    weft_status_t st = weft__collective_order(kept->team, &kept->call, &kept->order);
    bool two = !weft__coll_joins(kept->call.kind);
    uint32_t n = 0;
    for (unsigned i = 0; i <= two && st == WEFT_OK; i++) {
        st = get_plan(kept->team, &kept->call, i, false, &kept->plan[i]);
        if (st == WEFT_OK && kept->plan[i]->schedule->n_steps > n)
            n = kept->plan[i]->schedule->n_steps;
        if (st == WEFT_OK) open_peers(kept, kept->plan[i]);
    }
    if (st < 0) return st;
    weft__early_reserve(kept->team, n);
    uint64_t scratch = kept->plan[0]->schedule->scratch;
    kept->step = weft__alloc(kept, (n + 1) * sizeof *kept->step, "steps");
    kept->ready = weft__alloc(kept, (n + 1) * sizeof *kept->ready, "ready");
    uint32_t shared = kept->plan[0]->schedule->n_shared;
    if (scratch) kept->scratch = weft__realloc(kept, NULL, scratch, "scratch");
    if (shared) kept->slots = weft__alloc(kept, shared * sizeof *kept->slots, "slots");
    bool made =
        kept->step && kept->ready && (kept->scratch || !scratch) && (kept->slots || !shared);
    return made ? WEFT_OK : WEFT_ERR_NO_MEMORY;
}

void weft__steps_unkeep(struct weft_coll *kept) {
    for (unsigned i = 0; i < 2; i++)
        if (kept->plan[i]) weft__plan_put(&kept->team->plans, kept->plan[i]);
}

/* ---- the end -------------------------------------------------------------------------------- */

void weft__steps_release(struct collective *c) {
    for (uint32_t i = 0; i < n_steps_of(c); i++) {
        if (!c->step[i].early) continue;
        c->team->unexpected_bytes -= early_cost(c->step[i].early);
        weft__early_drop(c->team->worker, c->step[i].early);
    }
    if (c->exposed) weft_mem_put(c->exposed);
    c->exposed = NULL;
    talloc_free(c->asked);
    c->asked = NULL;
    put_plan(c);
    if (is_kept(c)) return;
    if (c->step != c->few.step) {
        talloc_free(c->step);
        talloc_free(c->ready);
    }
    talloc_free(c->slots_of);
    c->step = NULL;
    c->ready = NULL;
    c->slots_of = NULL;
    c->n_slots = 0;
    give_scratch_back(c);
}
