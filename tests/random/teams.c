/* Teams: their members ask the same in the same order, each when it comes to it, and all see
 * what all put in. */
#include <stdlib.h>
#include <string.h>

#include "world.h"

static uint32_t rank_of(const struct member *m) {
    return (uint32_t)(m - m->circle->member);
}

static bool is_over(const struct member *m) {
    return m->closing || m->node->closing;
}

/* ---- why one may fail ------------------------------------------------------------------------ */

/* No operation gave it a cause to. */
static bool is_safe(const struct circle *c) {
    bool safe = !world->killed && !world->ending && !c->cancelled && !c->hurried && !c->closed;
    for (uint32_t r = 0; r < c->size; r++) safe &= !is_over(&c->member[r]);
    return safe;
}

bool turn_may_end(const struct asked *a, weft_status_t status) {
    const struct circle *c = a->member->circle;
    switch (status) {
    case WEFT_ERR_PEER_FAILED: return !is_safe(c);
    case WEFT_ERR_CANCELLED: return c->cancelled;
    case WEFT_ERR_TIMED_OUT: return c->hurried || world->may & MAY_KILL;
    case WEFT_ERR_CLOSED: return is_over(a->member);
    default: return false;
    }
}

/* ---- the exchange: who has come waits until all have, or one never will ---------------------- */

static weft_status_t allgather(void *arg, weft_worker_t *worker, const void *mine, size_t len,
                               void *all, weft_done_fn done, void *done_arg) {
    struct member *m = arg;
    if (m->waits) wrong("an exchange is asked twice at once");
    m->waits = true;
    m->mine = mine;
    m->all = all;
    m->len = len;
    m->done = done;
    m->done_arg = done_arg;
    return WEFT_IN_PROGRESS;
}

static void cancel(void *arg) {
    struct member *m = arg;
    if (!m->waits) wrong("an exchange that is over is cancelled");
    m->waits = false;
}

static void exchange(struct circle *c) {
    bool all = true, never = false;
    for (uint32_t r = 0; r < c->size; r++)
        all &= c->member[r].waits, never |= is_over(&c->member[r]);
    for (uint32_t r = 0; all && r < c->size; r++)
        for (uint32_t k = 0; k < c->size; k++)
            memcpy((char *)c->member[r].all + k * c->member[r].len, c->member[k].mine,
                   c->member[k].len);
    for (uint32_t r = 0; (all || never) && r < c->size; r++) {
        struct member *m = &c->member[r];
        if (!m->waits) continue;
        m->waits = false;
        m->done(all ? WEFT_OK : WEFT_ERR_PEER_FAILED, m->done_arg);
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

static void on_ready(weft_team_t *team, weft_status_t status, void *arg) {
    struct member *m = arg;
    CALLED((uint64_t)(m->circle - world->circle) << 16 | rank_of(m) << 8 | 15);
    trace("node %u's team %zu is ready: %s", m->node->n, m->circle - world->circle,
          weft_status_name(status));
    if (m->ready != WEFT_IN_PROGRESS) wrong("a team is ready twice");
    if (status == WEFT_ERR_TIMED_OUT && world->may & (MAY_CLOSE | MAY_KILL))
        m->circle->closed = m->circle->hurried =
            true; /* "team.timeout" is short there, and the machine may be slow */
    if (status < 0 && is_safe(m->circle))
        wrong("a team is not ready: %s", weft_status_name(status));
    if (status == WEFT_OK &&
        (weft_team_rank(team) != rank_of(m) || weft_team_size(team) != m->circle->size))
        wrong("a team's member is another");
    m->ready = status;
    act_within();
    RETURNS;
}

static void make(struct member *m) {
    weft_exchange_t by = {.rank = rank_of(m),
                          .size = m->circle->size,
                          .allgather = allgather,
                          .cancel = cancel,
                          .arg = m};
    weft_team_params_t params = {
        .exchange = &by, .on_ready = on_ready, .arg = m, .ranks_per_core = m->circle->per_core};
    weft_status_t st = weft_team_create(m->node->worker, &params, &m->team);
    trace("node %u makes team %zu: %s", m->node->n, m->circle - world->circle,
          weft_status_name(st));
    if (st != WEFT_OK) wrong("no team: %s", weft_status_name(st));
    m->made = true;
}

static void closed(weft_status_t status, void *arg) {
    struct member *m = arg;
    CALLED((uint64_t)(m->circle - world->circle) << 16 | rank_of(m) << 8 | 16);
    if (m->gone) wrong("a team is closed twice");
    m->gone = true;
    world->waiting--;
    act_within();
    RETURNS;
}

static void team_close(struct member *m) {
    weft_status_t st = weft_team_close(m->team, &(weft_op_t){.done = closed, .arg = m});
    trace("node %u closes team %zu: %s", m->node->n, m->circle - world->circle,
          weft_status_name(st));
    if (st != WEFT_IN_PROGRESS) wrong("a team's close answers %s", weft_status_name(st));
    if (weft_team_close(m->team, NULL) != WEFT_ERR_BUSY) wrong("a team closes twice");
    m->closing = m->circle->closed = true;
    world->waiting++;
}

static void circle_new(struct circle *c) {
    uint32_t first = below(NODES);
    c->size = percent(80) ? NODES : 1 + below(NODES);
    c->per_core = below(3);
    for (uint32_t r = 0; r < c->size; r++)
        c->member[r] = (struct member){
            .circle = c, .node = &world->node[(first + r) % NODES], .ready = WEFT_IN_PROGRESS};
}

/* ---- what members put in: numbers so small that every type has room for what becomes of them */

static uint32_t part(const struct turn *t, uint32_t rank, size_t i) {
    return (uint32_t)(chance_mix(t->name + rank * 104729 + i * 31) % 4);
}

static uint32_t reduced(const struct circle *c, const struct turn *t, size_t i) {
    uint32_t value = part(t, 0, i);
    for (uint32_t r = 1; r < c->size; r++) {
        uint32_t other = part(t, r, i);
        switch (t->reduction) {
        case WEFT_SUM: value += other; break;
        case WEFT_PROD: value *= other; break;
        case WEFT_MIN: value = value < other ? value : other; break;
        case WEFT_MAX: value = value > other ? value : other; break;
        case WEFT_BAND: value &= other; break;
        case WEFT_BOR: value |= other; break;
        default: value ^= other; break;
        }
    }
    return value;
}

static uint16_t half_of(uint32_t value) {
    uint32_t exponent = 0;
    if (value == 0) return 0;
    while (value >> exponent > 1) exponent++;
    return (uint16_t)((exponent + 15) << 10 | (value << (10 - exponent) & 0x3ff));
}

static void put_value(const struct turn *t, uint8_t *to, size_t i, uint32_t value) {
    size_t width = weft_datatype_size(t->type);
    uint64_t bits = value;
    float single = (float)value;
    double twice = (double)value;
    uint32_t of_single;
    memcpy(&of_single, &single, sizeof of_single);
    if (t->type == WEFT_FLOAT16) bits = half_of(value);
    if (t->type == WEFT_BFLOAT16) bits = of_single >> 16;
    if (t->type == WEFT_FLOAT32) bits = of_single;
    if (t->type == WEFT_FLOAT64) memcpy(&bits, &twice, sizeof bits);
    memcpy(to + i * width, &bits, width);
}

static size_t bytes_out(const struct circle *c, const struct turn *t) {
    return t->count * weft_datatype_size(t->type) * (t->kind == TURN_ALLGATHER ? c->size : 1);
}

/* What everybody has to see. */
static void fill_expected(const struct circle *c, const struct turn *t, uint8_t *to) {
    for (size_t i = 0; t->kind == TURN_BCAST && i < t->count; i++)
        put_value(t, to, i, part(t, t->root, i));
    for (size_t i = 0; t->kind == TURN_ALLREDUCE && i < t->count; i++)
        put_value(t, to, i, reduced(c, t, i));
    for (uint32_t r = 0; t->kind == TURN_ALLGATHER && r < c->size; r++)
        for (size_t i = 0; i < t->count; i++) put_value(t, to, r * t->count + i, part(t, r, i));
}

/* ---- asked ----------------------------------------------------------------------------------- */

static void turn_new(struct circle *c) {
    struct turn *t = &c->turn[c->n_turns++];
    *t = (struct turn){.kind = (enum turn_kind)below(TURN_KINDS),
                       .name = chance(),
                       .root = below(c->size),
                       .type = (weft_datatype_t)below(WEFT_FLOAT64 + 1),
                       .count = below(percent(60)   ? 50
                                      : percent(80) ? 5000
                                                    : 100000)};
    t->flags = t->kind == TURN_ALLREDUCE && percent(30) ? WEFT_COLL_FIXED_ORDER : 0;
    t->reduction = (weft_reduction_t)below(t->type < WEFT_FLOAT16 ? WEFT_BXOR + 1 : WEFT_BAND);
}

/* What was not put in yet is seen by none. */
static void check_called(const struct circle *c, const struct turn *t) {
    uint32_t all = (1u << c->size) - 1, needed = t->kind == TURN_BCAST ? 1u << t->root : all;
    if (t->kind != TURN_BARRIER && t->count == 0) return;
    if (needed & ~t->called) wrong("a collective is done before all have come");
}

static void turn_ended(struct asked *a) {
    struct member *m = a->member;
    struct circle *c = m->circle;
    const struct turn *t = a->turn;
    size_t len = bytes_out(c, t);
    if (a->status == WEFT_OK) {
        uint8_t *expected = malloc(len + 1);
        if (!expected) abort();
        check_called(c, t);
        fill_expected(c, t, expected);
        if (t->kind != TURN_BARRIER && memcmp(a->out, expected, len) != 0)
            wrong("collective %u brings node %u something else", a->n, m->node->n);
        free(expected);
        world->n_checked += len;
    } else if (!m->failed && !a->group) {
        m->failed = a->status;
    }
    if (a->in != a->out) free(a->in);
    free(a->out);
    a->in = a->out = NULL;
}

static weft_status_t call(struct asked *a) {
    const struct turn *t = a->turn;
    weft_team_t *team = a->member->team;
    size_t own = rank_of(a->member) * t->count * weft_datatype_size(t->type);
    switch (t->kind) {
    case TURN_BARRIER: return weft_barrier(team, a->op_p);
    case TURN_BCAST: return weft_bcast(team, a->out, t->count, t->type, t->root, a->op_p);
    case TURN_ALLREDUCE:
        return weft_allreduce(team, a->in, a->out, t->count, t->type, t->reduction, a->op_p);
    default:
        return weft_allgather(team, a->in == a->out ? a->out + own : a->in, a->out, t->count,
                              t->type, a->op_p);
    }
}

/* From and to the same memory, or not; a root's is what it sends. */
static void lay_out(struct asked *a) {
    const struct turn *t = a->turn;
    uint32_t rank = rank_of(a->member);
    size_t len = bytes_out(a->member->circle, t);
    bool in_place = t->kind == TURN_BCAST || percent(40);
    a->out = malloc(len + 1);
    a->in = in_place ? a->out : malloc(t->count * weft_datatype_size(t->type) + 1);
    if (!a->in || !a->out) abort();
    memset(a->out, 0x5a, len);
    uint8_t *from =
        a->in + (in_place && t->kind == TURN_ALLGATHER ? len / a->member->circle->size * rank : 0);
    for (size_t i = 0; i < t->count; i++)
        if (t->kind != TURN_BCAST || rank == t->root) put_value(t, from, i, part(t, rank, i));
}

static void take_turn(struct member *m) {
    struct circle *c = m->circle;
    struct asked *a = ask(ASKED_COLLECTIVE, m->node, NULL);
    weft_status_t failed = m->failed;
    a->member = m;
    a->turn = &c->turn[m->next++];
    a->turn->called |= 1u << rank_of(m);
    a->then = turn_ended;
    lay_out(a);
    ask_op(a, a->turn->flags);
    /* where sockets die a member may wait for another as long as it is allowed to */
    if (world->may & MAY_KILL && a->op.deadline_ms == UINT32_MAX) a->op.deadline_ms = 0;
    c->hurried |= a->op.deadline_ms && a->op.deadline_ms != UINT32_MAX;
    ASK(a, call(a));
    if (failed && a->status != failed)
        wrong("a team that failed as %s answers %s", weft_status_name(failed),
              weft_status_name(a->status));
}

void team_act(void) {
    if (!world->has_teams) return;
    struct circle *c = &world->circle[below(CIRCLES)];
    if (!c->size && percent(30)) circle_new(c);
    if (!c->size) return;
    struct member *m = &c->member[below(c->size)];
    if (is_over(m)) return;
    if (!m->made) return make(m);
    if (may(MAY_CLOSE) && percent(3)) return team_close(m);
    if (m->ready != WEFT_OK || (m->failed && percent(70))) return;
    if (m->next == c->n_turns && c->n_turns < TURNS) turn_new(c);
    if (m->next < c->n_turns) take_turn(m);
}

/* Outside of all callbacks. */
void teams_exchange(void) {
    for (struct circle *c = world->circle; c < world->circle + CIRCLES; c++) exchange(c);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Who is behind catches up. */
void teams_drain(void) {
    for (struct circle *c = world->circle; c < world->circle + CIRCLES; c++)
        for (struct member *m = c->member; m < c->member + c->size; m++) {
            if (is_over(m)) continue;
            if (!m->made) make(m);
            if (m->ready == WEFT_OK && !m->failed && m->next < c->n_turns) take_turn(m);
        }
}

bool teams_rest(void) {
    bool rest = true;
    for (const struct circle *c = world->circle; c < world->circle + CIRCLES; c++)
        for (const struct member *m = c->member; m < c->member + c->size; m++)
            rest &= is_over(m) || m->ready < 0 || m->failed ||
                    (m->ready == WEFT_OK && m->next == c->n_turns);
    return rest;
}

/* They are gone with their worker. */
void teams_gone(const struct node *node) {
    for (struct circle *c = world->circle; c < world->circle + CIRCLES; c++)
        for (struct member *m = c->member; m < c->member + c->size; m++) {
            if (m->node != node) continue;
            if (m->closing && !m->gone) wrong("a team closed less than its worker");
            if (m->waits) wrong("an exchange survives its worker");
            m->team = NULL;
        }
}
