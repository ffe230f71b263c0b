/* A plan run over messages: steps become ready, post their message, and make others ready. */
#include <base/counters.h>
#include <string.h>

#include "collective.h"
#include <endpoints/messages/am.h>
#include <weft/rma.h>

/* Of one that asks for counts first: its shape. The arrays are copies, since the caller may change
 * its own when the call has returned. */
struct asked {
    struct coll_shape shape;
    uint64_t *counts; /* that this member says */
};

static const struct step *step_of(const struct collective *c, uint32_t i) {
    return &c->plan->schedule->step[i];
}
static uint32_t index_of(const struct step_run *run) {
    return (uint32_t)(run - run->collective->step);
}

/* The team's rank of a step's peer, and back. */
static uint32_t rank_of(const struct collective *c, const struct step *step) {
    return coll_member(&c->call, step->peer);
}

static uint8_t *place_step(const struct collective *c, unsigned buffer, uint64_t offset) {
    return c->buffer[buffer] + offset;
}

static uint32_t find_step(const struct collective *c, enum step_verb verb, uint32_t rank,
                          uint32_t tag) {
    uint32_t peer = coll_index(&c->call, rank);
    return peer == UINT32_MAX ? NO_STEP : weft__plan_find(c->plan, verb, peer, tag);
}

static void step_done(struct collective *c, uint32_t i) {
    c->step[i].state = STEP_DONE;
    c->n_left--;
    for (uint32_t edge = c->plan->first[i]; edge; edge = c->plan->next[edge - 1])
        if (--c->step[(edge - 1) / 3].waits == 0) c->ready[c->n_ready++] = (edge - 1) / 3;
}

/* A member that left in good order has received all that it was to receive, though its end may
 * hide that from the sender. */
static bool is_missed_by_none(const struct collective *c, const struct step *step,
                              weft_status_t status) {
    return step->verb == STEP_SEND && c->team->member[rank_of(c, step)].gone &&
           weft__team_outcome(status) == WEFT_ERR_PEER_FAILED;
}

/* What was in flight for a step is back. After a stop that is all that matters. */
static bool came_back(struct step_run *run, weft_status_t status) {
    struct collective *c = run->collective;
    run->request = NULL;
    run->state = STEP_POSTED;
    c->n_in_flight--;
    if (c->team->n_outstanding) weft__team_answer(c->team);
    if (c->status < 0) {
        if (c->n_in_flight == 0) weft__fsm_step(&c->core.fsm, COLL_EV_RETURNED);
        return false;
    }
    if (status < 0 && !is_missed_by_none(c, step_of(c, index_of(run)), status)) {
        weft__team_fail(c->team, weft__team_outcome(status), rank_of(c, step_of(c, index_of(run))));
        return false;
    }
    step_done(c, index_of(run));
    return true;
}

static void advance_step(struct collective *c);

static void take_known(struct collective *c);

/* One that has asked for its counts goes on with its blocks. */
static bool is_done(struct collective *c) {
    while (c->asked && c->status == WEFT_OK && c->n_left == 0) {
        take_known(c);
        advance_step(c);
    }
    return c->status == WEFT_OK && c->n_left == 0;
}

static void go_on(struct collective *c) {
    advance_step(c);
    if (!is_done(c)) return;
    c->left = c->n_parts;
    weft__collective_finish(c);
}

static void moved(weft_status_t status, void *arg) {
    struct step_run *run = arg;
    if (came_back(run, status)) go_on(run->collective);
}

/* ---- sending --------------------------------------------------------------------------------- */

static weft_status_t send_in(weft_team_t *team, unsigned id, uint32_t rank,
                             const struct coll_wire *wire, weft_iov_t payload,
                             const weft_op_t *op) {
    uint8_t header[COLL_WIRE_BYTES];
    weft_ep_t *ep = weft__team_ep(team, rank);
    if (!ep) return WEFT_ERR_PEER_FAILED;
    weft__coll_wire_write(header, wire);
    weft__count(team->reactor)->coll_messages++;
    return weft__am_send(
        ep, &(struct am_send_args){id, header, sizeof header, &payload, payload.len > 0, op});
}

weft_status_t weft__coll_send(weft_team_t *team, unsigned id, uint32_t rank, uint32_t seq,
                              uint32_t tag, weft_iov_t payload, const weft_op_t *op) {
    struct coll_wire wire = {team->id, team->epoch, seq, tag, team->rank, 0};
    return send_in(team, id, rank, &wire, payload, op);
}

/* A message of a step, in the order that its collective stands in. */
static weft_status_t send_of(const struct collective *c, unsigned id, const struct step *step,
                             const void *data, size_t len, const weft_op_t *op) {
    const weft_team_t *team = c->team;
    struct coll_wire wire = {team->id,  team->epoch, c->seq,
                             step->tag, team->rank,  c->order->stream};
    return send_in(c->team, id, rank_of(c, step), &wire, (weft_iov_t){(void *)data, len}, op);
}

static void send_step(struct collective *c, uint32_t i) {
    const struct step *step = step_of(c, i);
    struct step_run *run = &c->step[i];
    uint32_t how = step->len > c->team->eager ? 0 : WEFT_AM_EAGER;
    weft_op_t op = {.done = moved, .arg = run, .request_p = &run->request, .flags = how};
    weft_status_t st = send_of(c, COLL_WIRE_DATA, step,
                               place_step(c, step->left_buffer, step->left), step->len, &op);
    if (st == WEFT_OK) {
        run->request = NULL;
        step_done(c, i);
    } else if (st == WEFT_IN_PROGRESS) {
        run->state = STEP_IN_FLIGHT;
        c->n_in_flight++;
    } else {
        weft__team_fail(c->team, weft__team_outcome(st), rank_of(c, step));
    }
}

/* A large message waits for its receive, so that no member has to store it. */
static void begin_send(struct collective *c, uint32_t i) {
    bool asked = c->step[i].state == STEP_ASKED || step_of(c, i)->len <= c->team->eager;
    if (asked)
        send_step(c, i);
    else
        c->step[i].state = STEP_POSTED;
}

void weft__steps_go(struct collective *c, const struct coll_wire *wire) {
    uint32_t i = find_step(c, STEP_SEND, wire->from, wire->tag);
    if (i == NO_STEP || c->step[i].state > STEP_POSTED) {
        weft__team_fail(c->team, WEFT_ERR_PROTOCOL, wire->from);
    } else if (c->step[i].state == STEP_WAITS) {
        c->step[i].state = STEP_ASKED;
    } else {
        send_step(c, i);
        go_on(c);
    }
}

/* ---- receiving ------------------------------------------------------------------------------- */

static void ask_for(struct collective *c, uint32_t i) {
    const struct step *step = step_of(c, i);
    weft_status_t st = send_of(c, COLL_WIRE_GO, step, NULL, 0, NULL);
    if (st < 0) weft__team_fail(c->team, weft__team_outcome(st), rank_of(c, step));
}

static void take_early(struct collective *c, uint32_t i) {
    struct early *early = c->step[i].early;
    const struct step *step = step_of(c, i);
    if (step->len) memcpy(place_step(c, step->to_buffer, step->to), early->data, step->len);
    c->step[i].early = NULL;
    c->team->unexpected_bytes -= early->len;
    weft__early_drop(c->team->worker, early);
    step_done(c, i);
}

static void begin_recv(struct collective *c, uint32_t i) {
    if (c->step[i].early) {
        take_early(c, i);
        return;
    }
    c->step[i].state = STEP_POSTED;
    if (step_of(c, i)->len > c->team->eager) ask_for(c, i);
}

static weft_status_t receive_step(struct collective *c, uint32_t i, weft_am_t *am) {
    const struct step *step = step_of(c, i);
    struct step_run *run = &c->step[i];
    if (am->data || step->len == 0) {
        if (step->len) memcpy(place_step(c, step->to_buffer, step->to), am->data, step->len);
        step_done(c, i);
        return WEFT_OK;
    }
    weft_iov_t iov = {place_step(c, step->to_buffer, step->to), step->len};
    weft_op_t op = {.done = moved, .arg = run, .request_p = &run->request};
    weft_status_t st = weft_am_recv(am, &iov, 1, &op);
    if (st == WEFT_OK) step_done(c, i);
    if (st != WEFT_IN_PROGRESS) return st;
    run->state = STEP_IN_FLIGHT;
    c->n_in_flight++;
    return WEFT_OK;
}

static weft_status_t keep_early(struct collective *c, uint32_t i, const struct coll_wire *wire,
                                weft_am_t *am) {
    struct early *early;
    weft_status_t st = weft__early_new(c->team, COLL_WIRE_DATA, wire, am, &early);
    if (st < 0) return st;
    c->team->unexpected_bytes += early->len;
    c->step[i].early = early;
    return WEFT_OK;
}

void weft__steps_data(struct collective *c, const struct coll_wire *wire, weft_am_t *am) {
    uint32_t i = find_step(c, STEP_RECV, wire->from, wire->tag);
    weft_status_t st = WEFT_ERR_PROTOCOL;
    if (i != NO_STEP && step_of(c, i)->len == am->len) {
        if (c->step[i].state == STEP_POSTED)
            st = receive_step(c, i, am);
        else if (c->step[i].state == STEP_WAITS && !c->step[i].early)
            st = keep_early(c, i, wire, am);
    }
    if (st < 0)
        weft__team_fail(c->team, st, wire->from);
    else
        go_on(c);
}

/* One that came before the collective had begun. */
static void take_in(struct collective *c, struct early *early) {
    bool data = early->id == COLL_WIRE_DATA;
    uint32_t i = find_step(c, data ? STEP_RECV : STEP_SEND, early->from, early->tag);
    bool fits = i != NO_STEP && (!data || step_of(c, i)->len == early->len) && !c->step[i].early;
    if (fits && data) {
        c->step[i].early = early;
        return;
    }
    if (fits) c->step[i].state = STEP_ASKED;
    c->team->unexpected_bytes -= early->len;
    uint32_t from = early->from;
    weft__early_drop(c->team->worker, early);
    if (!fits) weft__team_fail(c->team, WEFT_ERR_PROTOCOL, from);
}

/* ---- one-sided ------------------------------------------------------------------------------- */

/* A key as it is sent: the address of DST, the length of the key, and the key. */
struct key_header {
    uint64_t base;
    uint64_t len;
};

static weft_status_t expose(struct collective *c) {
    const struct coll_shape *shape = &c->plan->schedule->shape;
    struct key_header header = {.base = (uintptr_t)c->call.dst,
                                .len = COLL_KEY_BYTES - sizeof header};
    uint64_t bytes = coll_bytes(&c->call) * (shape->kind == COLL_BCAST ? 1 : shape->size);
    uint8_t *to = c->buffer[COLL_SCRATCH];
    weft_status_t st =
        weft_mem_get(c->team->worker, c->call.dst, bytes, WEFT_MEM_WRITE, &c->exposed);
    size_t len = header.len;
    memset(to, 0, COLL_KEY_BYTES);
    if (st == WEFT_OK) st = weft_mem_pack(c->exposed, to + sizeof header, &len);
    header.len = len;
    memcpy(to, &header, sizeof header);
    return st;
}

/* The operation goes on without the key's handle. */
static weft_status_t put_by_key(struct collective *c, const struct step *step,
                                const weft_op_t *op) {
    struct key_header header;
    weft_rkey_t *rkey;
    const uint8_t *key = place_step(c, COLL_SCRATCH, step->right);
    weft_ep_t *ep = weft__team_ep(c->team, rank_of(c, step));
    if (!ep) return WEFT_ERR_PEER_FAILED;
    memcpy(&header, key, sizeof header);
    if (header.len > COLL_KEY_BYTES - sizeof header) return WEFT_ERR_PROTOCOL;
    weft_status_t st = weft_rkey_unpack(ep, key + sizeof header, header.len, &rkey);
    if (st < 0) return st;
    st = weft_put(ep, place_step(c, step->left_buffer, step->left), step->len,
                  header.base + step->to, rkey, op);
    weft_rkey_release(rkey);
    return st;
}

static void begin_put(struct collective *c, uint32_t i) {
    struct step_run *run = &c->step[i];
    weft_op_t op = {
        .done = moved, .arg = run, .request_p = &run->request, .flags = WEFT_RMA_REMOTE};
    run->state = STEP_IN_FLIGHT;
    c->n_in_flight++;
    weft_status_t st = put_by_key(c, step_of(c, i), &op);
    if (st == WEFT_IN_PROGRESS) return;
    run->request = NULL;
    c->n_in_flight--;
    if (st == WEFT_OK)
        step_done(c, i);
    else
        weft__team_fail(c->team, weft__team_outcome(st), rank_of(c, step_of(c, i)));
}

/* ---- through the segment of this host -------------------------------------------------------- */

static struct slot_run *slots_of(const struct collective *c, uint32_t step) {
    uint32_t k = 0;
    while (c->slots_of[k].step != step) k++;
    return &c->slots_of[k];
}

/* It goes on when the segment is polled. */
static void begin_share(struct collective *c, uint32_t i) {
    c->step[i].state = STEP_POSTED;
    if (weft__slots_advance(slots_of(c, i))) step_done(c, i);
}

/* All members of the host begin the same ones in the same order. */
static void take_slots(struct collective *c) {
    const struct schedule *s = c->plan->schedule;
    c->n_slots = 0;
    for (uint32_t i = 0; i < s->n_steps && c->n_slots < s->n_shared; i++) {
        const struct step *step = &s->step[i];
        if (step->verb != STEP_SHARE) continue;
        struct slot_run *run = &c->slots_of[c->n_slots++];
        *run = (struct slot_run){.team = c->team,
                                 .call = &c->call,
                                 .kind = (enum coll_kind)step->tag,
                                 .root = step->peer,
                                 .bytes = step->len,
                                 .src = place_step(c, step->left_buffer, step->left),
                                 .dst = place_step(c, step->to_buffer, step->to),
                                 .step = i};
        weft__slots_begin(run);
    }
    if (c->n_slots) weft__count(c->team->reactor)->coll_hosted++;
}

static bool is_under_way(const struct collective *c, const struct slot_run *run) {
    return c->step[run->step].state == STEP_POSTED;
}

/* ---- running --------------------------------------------------------------------------------- */

static void take_step(struct collective *c, uint32_t i) {
    const struct step *step = step_of(c, i);
    uint8_t *to = place_step(c, step->to_buffer, step->to),
            *left = place_step(c, step->left_buffer, step->left);
    switch ((enum step_verb)step->verb) {
    case STEP_SEND: begin_send(c, i); return;
    case STEP_RECV: begin_recv(c, i); return;
    case STEP_REDUCE:
        coll_reduce(&c->call, to, left, place_step(c, step->right_buffer, step->right),
                    step->len / c->call.width);
        break;
    case STEP_PUT: begin_put(c, i); return;
    case STEP_SHARE: begin_share(c, i); return;
    case STEP_COPY:
        if (to != left) memcpy(to, left, step->len);
        break;
    }
    step_done(c, i);
}

/* A failure stops the collective, from wherever it is: nothing is begun after that. */
static void advance_step(struct collective *c) {
    while (c->n_ready > 0 && c->status == WEFT_OK) take_step(c, c->ready[--c->n_ready]);
}

/* What came before the collective was begun. */
static void hand_over_early(struct collective *c) {
    weft_team_t *team = c->team;
    list_for_each_safe(at, next, &team->early) {
        struct early *early = list_of(at, struct early, of);
        if (early->seq != c->seq || early->stream != c->order->stream) continue;
        if (c->asked && !(early->tag & ASK_TAG)) continue;
        list_remove(&early->of);
        take_in(c, early);
    }
}

static bool begin_step(struct collective *c) {
    hand_over_early(c);
    advance_step(c);
    return is_done(c);
}

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
enum { UNJOINED_MOST = 32 };

static bool joins_now(const struct collective *c) {
    return !weft__coll_joins(c->call.kind) && c->order->unjoined + 1 >= UNJOINED_MOST;
}

static weft_status_t get_plan(weft_team_t *team, const struct coll_call *call, bool joined,
                              struct plan **plan_p) {
    struct coll_shape shape = weft__coll_shape(team, call);
    shape.joined = joined;
    return weft__plan_get(team, &team->plans, (enum coll_algorithm)call->algorithm, &shape, plan_p);
}

/* In zeroed memory but for its plan. */
static weft_status_t set_steps(struct collective *c) {
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
    /* The others cannot finish it without this member's key. */
    weft_status_t st = c->plan->schedule->exposes ? expose(c) : WEFT_OK;
    if (st < 0) weft__team_fail(c->team, st, c->team->rank);
    return st;
}

static weft_status_t set_out(struct collective *c) {
    bool joined = weft__coll_joins(c->call.kind) || c->joins;
    c->n_parts = c->plan->schedule->n_shared > 0;
    if (c->n_parts) c->engine = &weft__hosted;
    weft_status_t st = set_steps(c);
    if (c->n_parts) take_slots(c);
    c->seq = c->order->next_seq++;
    c->order->unjoined = joined ? 0 : c->order->unjoined + 1;
    return st;
}

/* A persistent one of device memory has nothing prepared for messages. */
static bool is_kept(const struct collective *c) {
    return c->kept && c->kept->plan[0];
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

static weft_status_t take_room(struct collective *c) {
    uint32_t n = c->plan->schedule->n_steps, shared = c->plan->schedule->n_shared;
    c->step = weft__alloc(c, (n + 1) * sizeof *c->step, "steps");
    c->ready = weft__alloc(c, (n + 1) * sizeof *c->ready, "ready");
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

static void go_without(struct collective *c) {
    for (uint32_t r = 0; r < c->team->size && c->status == WEFT_OK; r++)
        if (c->team->member[r].gone && c->engine->needs(c, r))
            weft__team_fail(c->team, WEFT_ERR_PEER_FAILED, r);
}

/* The counts that came make the plan of the blocks. It has no steps by slots, whose uses are taken
 * in the order of calls. */
static void take_known(struct collective *c) {
    weft_team_t *team = c->team;
    struct asked *asked = c->asked;
    struct plan *plan = NULL;
    asked->shape.known = (const uint64_t *)(const void *)c->buffer[COLL_SCRATCH];
    asked->shape.n_known = c->plan->schedule->scratch / sizeof(uint64_t);
    weft_status_t st = weft__plan_get(team, &team->plans, (enum coll_algorithm)c->call.algorithm,
                                      &asked->shape, &plan);
    if (st == WEFT_OK) {
        weft__steps_release(c); /* of the asking */
        c->plan = plan;
        c->buffer[COLL_SCRATCH] = NULL;
        st = take_room(c);
    }
    if (st == WEFT_OK) st = set_steps(c);
    if (st < 0) {
        weft__team_fail(team, st, team->rank);
        return;
    }
    hand_over_early(c);
    go_without(c);
}

/* ---- beginning ------------------------------------------------------------------------------- */

static weft_status_t prepare_step(struct collective *c) {
    if (is_kept(c)) return take_kept(c);
    bool alone = coll_size(c->team, &c->call) == 1;
    const struct coll_asking *asking = alone ? NULL : weft__asking(c->call.algorithm);
    weft_status_t st = weft__collective_order(c->team, &c->call, &c->order);
    if (st < 0) return st;
    c->joins = joins_now(c);
    st = asking ? get_asking_plan(c, asking) : get_plan(c->team, &c->call, c->joins, &c->plan);
    if (st < 0) return st;
    st = take_room(c);
    if (st == WEFT_OK) st = set_out(c);
    if (st < 0) weft__steps_release(c);
    return st;
}

/* Both plans: the one that is taken usually, and the one that joins the members. */
/* A first message to each member that a plan sends to: what a transport takes for it is taken
 * now. */
static void open_peers(struct weft_coll *kept, const struct plan *plan) {
    for (uint32_t i = 0; i < plan->schedule->n_steps; i++) {
        const struct step *step = &plan->schedule->step[i];
        bool meets = step->verb == STEP_SEND || step->verb == STEP_RECV || step->verb == STEP_PUT;
        uint32_t rank = meets ? coll_member(&kept->call, step->peer) : kept->team->rank;
        if (rank != kept->team->rank && !kept->team->member[rank].ep)
            weft__coll_send(kept->team, COLL_WIRE_WAKE, rank, 0, 0, (weft_iov_t){0}, NULL);
    }
}

weft_status_t weft__steps_keep(struct weft_coll *kept) {
    weft_status_t st = weft__collective_order(kept->team, &kept->call, &kept->order);
    bool two = !weft__coll_joins(kept->call.kind);
    uint32_t n = 0;
    for (unsigned i = 0; i <= two && st == WEFT_OK; i++) {
        st = get_plan(kept->team, &kept->call, i, &kept->plan[i]);
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

/* None of one that could not go on for lack of memory. */
static uint32_t n_steps_of(const struct collective *c) {
    return c->step ? c->plan->schedule->n_steps : 0;
}

void weft__steps_recall(struct collective *c) {
    for (uint32_t i = 0; i < n_steps_of(c); i++)
        if (c->step[i].request) weft_request_cancel(c->step[i].request);
}

static bool needs_share(const struct collective *c, uint32_t rank) {
    const struct coll_share *share = &c->team->share;
    uint32_t place = 0;
    if (!c->n_slots) return false;
    while (place < share->size && share->member[place] != rank) place++;
    for (uint32_t k = 0; k < c->n_slots && place < share->size; k++)
        if (!weft__slots_over(&c->slots_of[k]) && weft__slots_need(&c->slots_of[k], place))
            return true;
    return false;
}

/*
 * Is there a step that `rank` has to take part in, and has not? A step in flight is none: `rank`
 * sent its message, or was sent one, before it left, and the request's status decides.
 */
static bool needs_step(const struct collective *c, uint32_t rank) {
    for (uint32_t i = 0; i < n_steps_of(c); i++) {
        const struct step *step = step_of(c, i);
        bool meets = step->verb == STEP_SEND || step->verb == STEP_RECV;
        if (meets && rank_of(c, step) == rank && c->step[i].state < STEP_IN_FLIGHT &&
            !c->step[i].early)
            return true;
    }
    return needs_share(c, rank);
}

static bool awaits(const struct collective *c, uint32_t rank) {
    for (uint32_t i = 0; i < n_steps_of(c); i++) {
        const struct step *step = step_of(c, i);
        if (step->verb == STEP_RECV && rank_of(c, step) == rank &&
            c->step[i].state == STEP_IN_FLIGHT)
            return true;
    }
    return false;
}

void weft__steps_release(struct collective *c) {
    for (uint32_t i = 0; i < n_steps_of(c); i++) {
        if (!c->step[i].early) continue;
        c->team->unexpected_bytes -= c->step[i].early->len;
        weft__early_drop(c->team->worker, c->step[i].early);
    }
    if (c->exposed) weft_mem_put(c->exposed);
    c->exposed = NULL;
    talloc_free(c->asked);
    c->asked = NULL;
    if (is_kept(c)) return;
    talloc_free(c->step);
    talloc_free(c->ready);
    talloc_free(c->slots_of);
    c->step = NULL;
    c->ready = NULL;
    c->slots_of = NULL;
    c->n_slots = 0;
    give_scratch_back(c);
    weft__plan_put(&c->team->plans, c->plan);
}

const struct coll_engine weft__steps = {
    .prepare = prepare_step, .advance = begin_step, .needs = needs_step, .awaits = awaits};

/* ---- with steps through the segment of this host --------------------------------------------- */

static bool advance_hosted(struct collective *c) {
    hand_over_early(c);
    for (bool moved = true; moved;) {
        moved = false;
        advance_step(c);
        for (uint32_t k = 0; k < c->n_slots && c->status == WEFT_OK; k++) {
            struct slot_run *run = &c->slots_of[k];
            if (!is_under_way(c, run) || !weft__slots_advance(run)) continue;
            step_done(c, run->step);
            moved = true;
        }
    }
    if (is_done(c)) c->left = c->n_parts;
    return is_done(c);
}

static bool hosted_may_move(const struct collective *c) {
    for (uint32_t k = 0; k < c->n_slots; k++)
        if (is_under_way(c, &c->slots_of[k]) && weft__slots_may_move(&c->slots_of[k])) return true;
    return false;
}

const struct coll_engine weft__hosted = {.prepare = prepare_step,
                                         .advance = advance_hosted,
                                         .needs = needs_step,
                                         .awaits = awaits,
                                         .may_move = hosted_may_move};
