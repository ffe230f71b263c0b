/* A plan run over messages: steps become ready, post their message, and make others ready. */
#include <base/counters.h>
#include <string.h>

#include "steps.h"
#include <endpoints/messages/am.h>
#include <weft/rma.h>

static uint32_t index_of(const struct step_run *run) {
    return (uint32_t)(run - run->collective->step);
}

/* The team's rank of a step's peer, and back. */
static uint32_t rank_of(const struct collective *c, const struct step *step) {
    return coll_member(&c->call, step->peer);
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
    return step->verb == STEP_SEND && member_is_gone(&c->team->member[rank_of(c, step)]) &&
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
        weft__team_loses(c->team, rank_of(c, step_of(c, index_of(run))), status);
        return false;
    }
    step_done(c, index_of(run));
    return true;
}

static void advance_steps(struct collective *c);

static bool is_done(const struct collective *c) {
    return c->status == WEFT_OK && c->n_left == 0;
}

/* One that has asked for its counts goes on with its blocks. */
static void advance_asked(struct collective *c) {
    while (c->asked && is_done(c)) {
        weft__steps_take_known(c);
        advance_steps(c);
    }
}

static void go_on(struct collective *c) {
    advance_steps(c);
    advance_asked(c);
    if (!is_done(c)) return;
    c->left = c->n_parts;
    weft__collective_finish(c);
}

static void moved(weft_status_t status, void *arg) {
    struct step_run *run = arg;
    if (came_back(run, status)) go_on(run->collective);
}

/* A large message waits for its receive, so that no member has to store it. */
static bool waits_for_go(const struct collective *c, const struct step *step) {
    return step->len > team_eager(c->team, rank_of(c, step));
}

/* ---- sending --------------------------------------------------------------------------------- */

/* An endpoint that could not be opened for a reason of this side's own says nothing of the peer. */
static weft_status_t why_none(const struct member *member) {
    return member->why < 0 && !member->lost ? member->why : WEFT_ERR_PEER_FAILED;
}

static weft_status_t send_in(weft_team_t *team, unsigned id, uint32_t rank,
                             const struct coll_wire *wire, weft_iov_t payload,
                             const weft_op_t *op) {
    uint8_t header[COLL_WIRE_BYTES];
    weft_ep_t *ep = weft__team_ep(team, rank);
    if (!ep) return why_none(&team->member[rank]);
    weft__coll_wire_write(header, wire);
    weft__count(team->reactor)->coll_messages++;
    return weft__am_send(
        ep, &(struct am_send_args){id, header, sizeof header, &payload, payload.len > 0, op});
}

weft_status_t weft__coll_send(weft_team_t *team, uint32_t rank, const struct coll_message *m) {
    struct coll_wire wire = {team->id, team->epoch, m->seq, m->tag, team->rank, 0};
    return send_in(team, m->id, rank, &wire, m->payload, m->op);
}

/* A message of a step, in the order that its collective stands in. */
static weft_status_t send_of(const struct collective *c, unsigned id, const struct step *step,
                             const void *data, size_t len, const weft_op_t *op) {
    const weft_team_t *team = c->team;
    struct coll_wire wire = {team->id,  team->epoch, c->seq,
                             step->tag, team->rank,  c->order->stream};
    return send_in(c->team, id, rank_of(c, step), &wire, (weft_iov_t){(void *)data, len}, op);
}

/* What is sent: the step's own, or what it was to report. */
static const struct step *sent_by(const struct collective *c, uint32_t i) {
    return step_of(c, c->step[i].block ? c->step[i].block - 1 : i);
}

static void send_step(struct collective *c, uint32_t i) {
    const struct step *step = sent_by(c, i);
    struct step_run *run = &c->step[i];
    uint32_t how = waits_for_go(c, step) ? 0 : WEFT_AM_EAGER;
    weft_op_t op = {.done = moved, .arg = run, .request_p = &run->request, .flags = how};
    weft_status_t st = send_of(c, COLL_WIRE_DATA, step_of(c, i),
                               place_step(c, step->left_buffer, step->left), step->len, &op);
    if (st == WEFT_OK) {
        run->request = NULL;
        step_done(c, i);
    } else if (st == WEFT_IN_PROGRESS) {
        run->state = STEP_IN_FLIGHT;
        c->n_in_flight++;
    } else {
        weft__team_loses(c->team, rank_of(c, step), st);
    }
}

static void begin_send(struct collective *c, uint32_t i) {
    if (waits_for_go(c, sent_by(c, i)) && c->step[i].state != STEP_ASKED)
        c->step[i].state = STEP_POSTED;
    else
        send_step(c, i);
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
    if (st < 0) weft__team_loses(c->team, rank_of(c, step), st);
}

/*
 * The reduction that alone reads what step `i` receives takes it from the message, if that is all
 * that it waits for. A function of the program's own gets aligned memory only.
 */
static bool reduce_message(struct collective *c, uint32_t i, const void *data) {
    const struct step *received = step_of(c, i);
    if (!received->right || c->call.user || c->step[received->right - 1].waits > 1) return false;
    uint32_t r = (uint32_t)received->right - 1;
    const struct step *step = step_of(c, r);
    bool is_left = step->left_buffer == received->to_buffer && step->left == received->to;
    const void *left = is_left ? data : place_step(c, step->left_buffer, step->left),
               *right = is_left ? place_step(c, step->right_buffer, step->right) : data;
    coll_reduce(&c->call, place_step(c, step->to_buffer, step->to), left, right,
                step->len / c->call.width);
    c->step[r].reduced = true;
    return true;
}

/* The bytes of a message for step `i` are here. */
static void take_data(struct collective *c, uint32_t i, const void *data) {
    const struct step *step = step_of(c, i);
    if (step->len && !reduce_message(c, i, data))
        memcpy(place_step(c, step->to_buffer, step->to), data, step->len);
}

static void take_early(struct collective *c, uint32_t i) {
    struct early *early = c->step[i].early;
    take_data(c, i, early->data);
    c->step[i].early = NULL;
    c->team->unexpected_bytes -= early_cost(early);
    weft__early_drop(c->team->worker, early);
    step_done(c, i);
}

static void begin_recv(struct collective *c, uint32_t i) {
    if (c->step[i].early) {
        take_early(c, i);
        return;
    }
    c->step[i].state = STEP_POSTED;
    if (waits_for_go(c, step_of(c, i))) ask_for(c, i);
}

static weft_status_t receive_step(struct collective *c, uint32_t i, weft_am_t *am) {
    const struct step *step = step_of(c, i);
    struct step_run *run = &c->step[i];
    if (am->data || step->len == 0) {
        take_data(c, i, am->data);
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
    c->team->unexpected_bytes += early_cost(early);
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
    c->team->unexpected_bytes -= early_cost(early);
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

weft_status_t weft__steps_expose(struct collective *c) {
    const struct coll_shape *shape = &c->plan->schedule->shape;
    struct key_header header = {.base = (uintptr_t)c->call.dst};
    uint64_t bytes = coll_bytes(&c->call) * (shape->kind == COLL_BCAST ? 1 : shape->size);
    uint8_t *to = c->buffer[COLL_SCRATCH];
    size_t len = COLL_KEY_BYTES - sizeof header;
    memset(to, 0, COLL_KEY_BYTES);
    weft_status_t st =
        weft_mem_get(c->team->worker, c->call.dst, bytes, WEFT_MEM_WRITE, &c->exposed);
    if (st < 0) return st;
    st = weft_mem_pack(c->exposed, to + sizeof header, &len);
    if (st < 0) {
        weft_mem_put(c->exposed);
        c->exposed = NULL;
        memset(to, 0, COLL_KEY_BYTES);
        return st;
    }
    header.len = len;
    memcpy(to, &header, sizeof header);
    return WEFT_OK;
}

/* The peer has none: the word that was to follow carries the block. */
static bool has_key(const struct collective *c, const struct step *put) {
    struct key_header header;
    memcpy(&header, place_step(c, COLL_SCRATCH, put->right), sizeof header);
    return header.len > 0;
}

static void leave_to_word(struct collective *c, uint32_t put) {
    for (uint32_t edge = c->plan->first[put]; edge; edge = c->plan->next[edge - 1]) {
        uint32_t i = (edge - 1) / 3;
        const struct step *word = step_of(c, i);
        if (word->verb == STEP_SEND && word->len == 0 && word->peer == step_of(c, put)->peer)
            c->step[i].block = put + 1;
    }
    step_done(c, put);
}

/* The operation goes on without the key's handle. */
static weft_status_t put_by_key(struct collective *c, const struct step *step,
                                const weft_op_t *op) {
    struct key_header header;
    weft_rkey_t *rkey;
    const uint8_t *key = place_step(c, COLL_SCRATCH, step->right);
    weft_ep_t *ep = weft__team_ep(c->team, rank_of(c, step));
    if (!ep) return why_none(&c->team->member[rank_of(c, step)]);
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
    if (!has_key(c, step_of(c, i))) {
        leave_to_word(c, i);
        return;
    }
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
        weft__team_loses(c->team, rank_of(c, step_of(c, i)), st);
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
void weft__steps_take_slots(struct collective *c) {
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
    if (c->n_slots) weft__count(c->team->reactor)->coll_hierarchical++;
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
        if (c->step[i].reduced) break;
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
static void advance_steps(struct collective *c) {
    while (c->n_ready > 0 && c->status == WEFT_OK) take_step(c, c->ready[--c->n_ready]);
}

/* What came before the collective was begun. */
void weft__steps_hand_over_early(struct collective *c) {
    weft_team_t *team = c->team;
    list_for_each_safe(at, next, &team->early) {
        struct early *early = list_of(at, struct early, of);
        if (early->seq != c->seq || early->stream != c->order->stream) continue;
        if (c->asked && !(early->tag & ASK_TAG)) continue;
        list_remove(&early->of);
        take_in(c, early);
    }
}

static bool begin_steps(struct collective *c) {
    weft__steps_hand_over_early(c);
    advance_steps(c);
    advance_asked(c);
    return is_done(c);
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
static bool needs_steps(const struct collective *c, uint32_t rank) {
    for (uint32_t i = 0; i < n_steps_of(c); i++) {
        const struct step *step = step_of(c, i);
        bool meets = step->verb == STEP_SEND || step->verb == STEP_RECV;
        if (meets && rank_of(c, step) == rank && c->step[i].state < STEP_IN_FLIGHT &&
            !c->step[i].early)
            return true;
    }
    return needs_share(c, rank);
}

bool weft__steps_miss(const struct collective *c, uint32_t rank) {
    for (uint32_t i = 0; i < n_steps_of(c); i++) {
        const struct step *step = step_of(c, i);
        if (step->verb == STEP_RECV && rank_of(c, step) == rank &&
            c->step[i].state < STEP_IN_FLIGHT && !c->step[i].early)
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

const struct coll_engine weft__steps = {
    .prepare = weft__steps_prepare, .advance = begin_steps, .needs = needs_steps, .awaits = awaits};

/* ---- with steps through the segment of this host --------------------------------------------- */

static bool advance_hosted(struct collective *c) {
    weft__steps_hand_over_early(c);
    for (bool moved = true; moved;) {
        moved = false;
        advance_steps(c);
        for (uint32_t k = 0; k < c->n_slots && c->status == WEFT_OK; k++) {
            struct slot_run *run = &c->slots_of[k];
            if (!is_under_way(c, run) || !weft__slots_advance(run)) continue;
            step_done(c, run->step);
            moved = true;
        }
    }
    advance_asked(c);
    if (is_done(c)) c->left = c->n_parts;
    return is_done(c);
}

static bool hosted_may_move(const struct collective *c) {
    for (uint32_t k = 0; k < c->n_slots; k++)
        if (is_under_way(c, &c->slots_of[k]) && weft__slots_may_move(&c->slots_of[k])) return true;
    return false;
}

static bool hosted_needs_space(const struct collective *c) {
    for (uint32_t k = 0; k < c->n_slots; k++)
        if (is_under_way(c, &c->slots_of[k]) && weft__slots_need_space(&c->slots_of[k]))
            return true;
    return false;
}

const struct coll_engine weft__hosted = {.prepare = weft__steps_prepare,
                                         .advance = advance_hosted,
                                         .needs = needs_steps,
                                         .awaits = awaits,
                                         .may_move = hosted_may_move,
                                         .needs_space = hosted_needs_space};
