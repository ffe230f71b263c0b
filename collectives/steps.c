/* A plan run over messages: steps become ready, post their message, and make others ready. */
#include <reactor/counters.h>
#include <string.h>

#include "collective.h"

static const struct step *step_of(const struct collective *c, uint32_t i) {
    return &c->plan->schedule->step[i];
}
static uint32_t index_of(const struct step_run *run) {
    return (uint32_t)(run - run->collective->step);
}

static uint8_t *place(const struct collective *c, unsigned buffer, uint64_t offset) {
    return c->buffer[buffer] + offset;
}

static void step_done(struct collective *c, uint32_t i) {
    c->step[i].state = STEP_DONE;
    c->n_left--;
    for (uint32_t edge = c->plan->first[i]; edge; edge = c->plan->next[edge - 1])
        if (--c->step[(edge - 1) / 3].waits == 0) c->ready[c->n_ready++] = (edge - 1) / 3;
}

/* What was in flight for a step is back. After a stop that is all that matters. */
static bool came_back(struct step_run *run, weft_status_t status) {
    struct collective *c = run->collective;
    run->request = NULL;
    c->n_lent--;
    if (c->status < 0) {
        if (c->n_lent == 0) fsm_step(&c->core.fsm, COLL_EV_RETURNED);
        return false;
    }
    if (status < 0) {
        weft__team_fail(c->team, weft__team_outcome(status), step_of(c, index_of(run))->peer);
        return false;
    }
    step_done(c, index_of(run));
    return true;
}

static void advance(struct collective *c);

static void go_on(struct collective *c) {
    advance(c);
    if (c->status == WEFT_OK && c->n_left == 0) weft__collective_finish(c);
}

static void moved(weft_status_t status, void *arg) {
    struct step_run *run = arg;
    if (came_back(run, status)) go_on(run->collective);
}

/* ---- sending ----------------------------------------------------------------------------------------------------- */

weft_status_t weft__coll_send(weft_team_t *team, unsigned id, uint32_t rank, uint32_t seq, uint32_t tag,
                              const void *data, size_t len, const weft_op_t *op) {
    uint8_t header[COLL_WIRE_BYTES];
    weft_iov_t iov = {(void *)data, len};
    weft_ep_t *ep = weft__team_ep(team, rank);
    if (!ep) return WEFT_ERR_PEER_FAILED;
    weft__coll_wire_write(header, &(struct coll_wire){team->id, team->epoch, seq, tag, team->rank});
    weft__count(team->reactor)->coll_messages++;
    return weft__am_send(ep, id, header, sizeof header, &iov, len ? 1 : 0, op);
}

static void send_step(struct collective *c, uint32_t i) {
    const struct step *step = step_of(c, i);
    struct step_run *run = &c->step[i];
    uint32_t how = step->len > c->team->eager ? 0 : WEFT_AM_EAGER;
    weft_op_t op = {.done = moved, .arg = run, .request_p = &run->request, .flags = how};
    weft_status_t st = weft__coll_send(c->team, COLL_WIRE_DATA, step->peer, c->seq, step->tag,
                                       place(c, step->left_buffer, step->left), step->len, &op);
    if (st == WEFT_OK) {
        run->request = NULL;
        step_done(c, i);
    } else if (st == WEFT_IN_PROGRESS) {
        run->state = STEP_LENT;
        c->n_lent++;
    } else {
        weft__team_fail(c->team, weft__team_outcome(st), step->peer);
    }
}

/* A large message waits for its receive, so that nobody has to store it. */
static void begin_send(struct collective *c, uint32_t i) {
    bool asked = c->step[i].state == STEP_ASKED || step_of(c, i)->len <= c->team->eager;
    if (asked)
        send_step(c, i);
    else
        c->step[i].state = STEP_POSTED;
}

void weft__steps_go(struct collective *c, const struct coll_wire *wire) {
    uint32_t i = weft__plan_find(c->plan, STEP_SEND, wire->from, wire->tag);
    if (i == NO_STEP || c->step[i].state > STEP_POSTED) {
        weft__team_fail(c->team, WEFT_ERR_PROTOCOL, wire->from);
    } else if (c->step[i].state == STEP_WAITS) {
        c->step[i].state = STEP_ASKED;
    } else {
        send_step(c, i);
        go_on(c);
    }
}

/* ---- receiving --------------------------------------------------------------------------------------------------- */

static void ask_for(struct collective *c, uint32_t i) {
    const struct step *step = step_of(c, i);
    weft_status_t st = weft__coll_send(c->team, COLL_WIRE_GO, step->peer, c->seq, step->tag, NULL, 0, NULL);
    if (st < 0) weft__team_fail(c->team, weft__team_outcome(st), step->peer);
}

static void take_early(struct collective *c, uint32_t i) {
    struct early *early = c->step[i].early;
    const struct step *step = step_of(c, i);
    if (step->len) memcpy(place(c, step->to_buffer, step->to), early->data, step->len);
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

static weft_status_t receive(struct collective *c, uint32_t i, weft_am_t *am) {
    const struct step *step = step_of(c, i);
    struct step_run *run = &c->step[i];
    if (am->data || step->len == 0) {
        if (step->len) memcpy(place(c, step->to_buffer, step->to), am->data, step->len);
        step_done(c, i);
        return WEFT_OK;
    }
    weft_iov_t iov = {place(c, step->to_buffer, step->to), step->len};
    weft_op_t op = {.done = moved, .arg = run, .request_p = &run->request};
    weft_status_t st = weft_am_recv(am, &iov, 1, &op);
    if (st == WEFT_OK) step_done(c, i);
    if (st != WEFT_IN_PROGRESS) return st;
    run->state = STEP_LENT;
    c->n_lent++;
    return WEFT_OK;
}

static weft_status_t keep_early(struct collective *c, uint32_t i, const struct coll_wire *wire, weft_am_t *am) {
    struct early *early;
    weft_status_t st = weft__early_new(c->team, COLL_WIRE_DATA, wire, am, &early);
    if (st < 0) return st;
    c->team->unexpected_bytes += early->len;
    c->step[i].early = early;
    return WEFT_OK;
}

void weft__steps_data(struct collective *c, const struct coll_wire *wire, weft_am_t *am) {
    uint32_t i = weft__plan_find(c->plan, STEP_RECV, wire->from, wire->tag);
    weft_status_t st = WEFT_ERR_PROTOCOL;
    if (i != NO_STEP && step_of(c, i)->len == am->len) {
        if (c->step[i].state == STEP_POSTED)
            st = receive(c, i, am);
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
    uint32_t i = weft__plan_find(c->plan, data ? STEP_RECV : STEP_SEND, early->from, early->tag);
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

/* ---- running ----------------------------------------------------------------------------------------------------- */

static void take_step(struct collective *c, uint32_t i) {
    const struct step *step = step_of(c, i);
    uint8_t *to = place(c, step->to_buffer, step->to), *left = place(c, step->left_buffer, step->left);
    switch ((enum step_verb)step->verb) {
    case STEP_SEND: begin_send(c, i); return;
    case STEP_RECV: begin_recv(c, i); return;
    case STEP_REDUCE:
        c->call.reduce(to, left, place(c, step->right_buffer, step->right), step->len / c->call.width);
        break;
    case STEP_COPY:
        if (to != left) memcpy(to, left, step->len);
        break;
    }
    step_done(c, i);
}

/* A failure stops the collective, from wherever it is: nothing is begun after that. */
static void advance(struct collective *c) {
    while (c->n_ready > 0 && c->status == WEFT_OK) take_step(c, c->ready[--c->n_ready]);
}

/* What came before the collective was begun. */
static void hand_over_early(struct collective *c) {
    weft_team_t *team = c->team;
    for (struct list *at = team->early.next, *next; at != &team->early; at = next) {
        struct early *early = list_of(at, struct early, of);
        next = at->next;
        if (early->seq != c->seq) continue;
        list_remove(&early->of);
        take_in(c, early);
    }
}

static bool begin(struct collective *c) {
    hand_over_early(c);
    advance(c);
    return c->status == WEFT_OK && c->n_left == 0;
}

/* Fresh memory costs a fault a page, more than the work that is done in it: the team keeps the last one's, if it is not
 * too much. */
enum { SPARE_MOST = 4 << 20 };

static bool take_scratch(struct collective *c, uint64_t bytes) {
    weft_team_t *team = c->team;
    if (bytes == 0) return true;
    if (team->spare && team->spare_bytes >= bytes) {
        c->buffer[COLL_SCRATCH] = team->spare;
        c->scratch_bytes = team->spare_bytes;
        team->spare = NULL;
        return true;
    }
    c->buffer[COLL_SCRATCH] = weft__realloc(team, NULL, bytes, "scratch");
    c->scratch_bytes = bytes;
    return c->buffer[COLL_SCRATCH] != NULL;
}

static void give_scratch_back(struct collective *c) {
    weft_team_t *team = c->team;
    void *memory = c->buffer[COLL_SCRATCH], *surplus = memory;
    if (memory && c->scratch_bytes <= SPARE_MOST && (!team->spare || team->spare_bytes < c->scratch_bytes)) {
        surplus = team->spare;
        team->spare = memory;
        team->spare_bytes = c->scratch_bytes;
    }
    talloc_free(surplus);
}

static weft_status_t prepare(struct collective *c) {
    weft_team_t *team = c->team;
    const struct coll_call *call = &c->call;
    struct coll_shape shape = {.kind = call->kind,
                               .size = team->size,
                               .rank = team->rank,
                               .root = call->root,
                               .count = call->count,
                               .width = call->width,
                               .segment = team->segment_bytes,
                               .joined = call->kind == COLL_BCAST && team->unjoined + 1 >= 32};
    weft_status_t st = weft__plan_get(team, &team->plans, (enum coll_algorithm)call->algorithm, &shape, &c->plan);
    if (st < 0) return st;
    uint32_t n = c->plan->schedule->n_steps;
    c->step = weft__alloc(c, (n + 1) * sizeof *c->step, "steps");
    c->ready = weft__alloc(c, (n + 1) * sizeof *c->ready, "ready");
    if (!c->step || !c->ready || !take_scratch(c, c->plan->schedule->scratch)) {
        weft__plan_put(&team->plans, c->plan);
        return WEFT_ERR_NO_MEMORY;
    }
    c->buffer[COLL_SRC] = (uint8_t *)call->src; /* never written to: the checker proves it */
    c->buffer[COLL_DST] = call->dst;
    c->n_left = n;
    for (uint32_t i = n; i-- > 0;) {
        c->step[i] = (struct step_run){.collective = c, .waits = c->plan->waits[i]};
        if (c->step[i].waits == 0) c->ready[c->n_ready++] = i;
    }
    c->seq = team->next_seq++;
    team->unjoined = call->kind == COLL_BCAST && !shape.joined ? team->unjoined + 1 : 0;
    return WEFT_OK;
}

void weft__steps_recall(struct collective *c) {
    for (uint32_t i = 0; i < c->plan->schedule->n_steps; i++)
        if (c->step[i].request) weft_request_cancel(c->step[i].request);
}

/* Is there anything that only `rank` can still give or take? */
static bool needs(const struct collective *c, uint32_t rank) {
    for (uint32_t i = 0; i < c->plan->schedule->n_steps; i++) {
        const struct step *step = step_of(c, i);
        bool meets = step->verb == STEP_SEND || step->verb == STEP_RECV;
        if (meets && step->peer == rank && c->step[i].state != STEP_DONE && !c->step[i].early) return true;
    }
    return false;
}

void weft__steps_release(struct collective *c) {
    for (uint32_t i = 0; i < c->plan->schedule->n_steps; i++) {
        if (!c->step[i].early) continue;
        c->team->unexpected_bytes -= c->step[i].early->len;
        weft__early_drop(c->team->worker, c->step[i].early);
    }
    give_scratch_back(c);
    weft__plan_put(&c->team->plans, c->plan);
}

const struct coll_engine weft__steps = {.prepare = prepare, .advance = begin, .needs = needs};
