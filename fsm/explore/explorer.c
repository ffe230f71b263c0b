/* Memory is malloc's: a run ends before anything else begins, and fsm stands above the rooms
 * that own arenas. */
#include "explorer_state.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum move_kind { MOVE_START, MOVE_LOCAL, MOVE_DELIVER, MOVE_REPEAT, MOVE_LOSE, MOVE_LIE };
struct move {
    /* index: of the local event, the message or the event that a liar says */
    uint8_t kind, peer, index, choice;
};

struct node {
    uint32_t parent;
    struct move move;
    places p; /* how the successor's peers were put into this state's places */
};

struct exploration {
    const struct explore_model *model;
    struct explore_result *result;
    struct fsm_port port[EXPLORE_PEERS];
    size_t size;
    unsigned n, room, max;
    unsigned char *kept; /* n states of `size` bytes */
    struct node *nodes;
    uint32_t *table, mask; /* 1 + index, by hash */
    uint32_t (*edge)[2];
    size_t n_edges, room_edges;
    struct live live;
    struct fsm_trace trace; /* of one move */
    bool memory_out;
    const char *cut; /* why something that may happen was not followed, or NULL */

    /* What the last step did. */
    unsigned event, culprit, broken_event;
    enum fsm_verb broken;
    const struct fsm_trace_step *dead; /* came to a dead cell */
    char sent[400];
};

/* The port's functions get a machine only; the rest is here while a step runs. */
static _Thread_local struct exploration *current;

static __attribute__((format(printf, 3, 4))) void add(char *to, size_t size, const char *format,
                                                      ...) {
    size_t len = strlen(to);
    va_list args;
    va_start(args, format);
    vsnprintf(to + len, size - len, format, args);
    va_end(args);
}

/* ---- the port: effects are written down ------------------------------------------------------ */

static bool same_message(const struct explore_message *a, const struct explore_message *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

/* Does a message have bytes that the model does not keep? */
static bool has_more_than(const struct explore_message *msg, unsigned payload) {
    for (unsigned i = payload ? payload : EXPLORE_PAYLOAD; i < EXPLORE_PAYLOAD; i++)
        if (msg->payload[i]) return true;
    return false;
}

static void enqueue(struct exploration *x, const struct explore_message *msg) {
    struct explore_world *w = &x->live.world;
    unsigned queued = 0;
    if ((w->hostile | w->out) >> msg->to & 1) return;
    if (has_more_than(msg, x->model->payload)) x->cut = "a message has more bytes than the model's";
    for (unsigned i = 0; i < w->n_messages; i++) {
        if (x->model->channel.soup && same_message(&w->message[i], msg)) return;
        queued += w->message[i].from == msg->from && w->message[i].to == msg->to;
    }
    if (w->n_messages == live_room(x->model) ||
        (x->model->channel.capacity && queued == x->model->channel.capacity))
        x->live.overflow = true;
    else
        w->message[w->n_messages++] = *msg;
}

static void send_state(struct exploration *x, struct fsm *m, unsigned effect, unsigned event) {
    for (unsigned to = 0; to < x->model->n_peers; to++) {
        struct explore_message msg;
        if (to == m->id) continue;
        memset(&msg, 0, sizeof msg);
        msg.from = m->id, msg.to = to, msg.event = event;
        if (!x->model->send_msg || x->model->send_msg(m, effect, &msg)) enqueue(x, &msg);
    }
}

static void on_effect(struct fsm *m, unsigned effect) {
    struct exploration *x = current;
    const struct explore_effect *e = &x->model->role[m->id]->effects[effect];
    uint8_t *notified = &x->live.world.notified[m->id][effect];
    add(x->sent, sizeof x->sent, " %s", m->port->machine->effect_name[effect]);
    switch (e->kind) {
    case EXPLORE_SEND: send_state(x, m, effect, e->event); break;
    case EXPLORE_ARM: x->live.armed[m->id] |= UINT64_C(1) << e->event; break;
    case EXPLORE_DISARM: x->live.armed[m->id] &= ~(UINT64_C(1) << e->event); break;
    case EXPLORE_NOTIFY: *notified += *notified < 2; break;
    default: break;
    }
}

static void on_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    current->broken = why;
    current->broken_event = event;
    current->culprit = m->id;
}

void explore_send(const struct explore_message *msg) {
    struct explore_message whole;
    memset(&whole, 0, sizeof whole);
    whole.from = msg->from, whole.to = msg->to, whole.event = msg->event;
    memcpy(whole.payload, msg->payload, sizeof whole.payload);
    enqueue(current, &whole);
}

struct explore_world *explore_now(void) {
    return &current->live.world;
}

void explore_drop(struct explore_world *w, unsigned peer, bool from) {
    unsigned n = 0;
    for (unsigned i = 0; i < w->n_messages; i++)
        if (w->message[i].to != peer && !(from && w->message[i].from == peer))
            w->message[n++] = w->message[i];
    memset(&w->message[n], 0, (w->n_messages - n) * sizeof *w->message);
    w->n_messages = n;
}

/* ---- moves ----------------------------------------------------------------------------------- */

static const char *dead_reason(const struct fsm_trace_step *s) {
    for (unsigned i = 0; i < s->machine->n_dead; i++)
        if (s->machine->dead[i].event == s->event && s->machine->dead[i].state == s->from)
            return s->machine->dead[i].why;
    return NULL;
}

/* The first step of a move that came to a dead cell, held events included. What a hostile peer may
 * not say is no claim about the cell. */
static const struct fsm_trace_step *dead_step(const struct exploration *x) {
    unsigned n = x->trace.count < FSM_TRACE_STEPS ? (unsigned)x->trace.count : FSM_TRACE_STEPS;
    for (unsigned i = 0; i < n; i++) {
        const struct fsm_trace_step *s = &x->trace.step[i];
        if (s->verb == FSM_VIOL && x->live.world.hostile) continue;
        if (dead_reason(s)) return s;
    }
    return NULL;
}

static void step_state(struct exploration *x, unsigned peer, unsigned event) {
    struct explore_world *w = &x->live.world;
    struct fsm *m = w->peer[peer];
    x->event = event;
    /* else `receive` has met a fault in another machine */
    if (x->broken == FSM_NO_CELL) weft__fsm_step(m, event);
    if (x->broken != FSM_VIOL || !w->hostile) return;
    x->broken = FSM_NO_CELL;
    if (x->model->role[peer]->after_violation) {
        weft__fsm_step(m, x->model->role[peer]->after_violation - 1u);
    } else {
        w->out |= 1u << peer;
        x->live.armed[peer] = 0;
        explore_drop(w, peer, false);
    }
}

static void do_local(struct exploration *x, unsigned peer, unsigned index) {
    const struct explore_local *local = &x->model->role[peer]->locals[index];
    x->live.used[peer][index] += local->budget != 0;
    if (local->armed) x->live.armed[peer] &= ~(UINT64_C(1) << local->event);
    if (local->before) local->before(&x->live.world, peer);
    step_state(x, peer, local->event);
    if (local->after) local->after(&x->live.world, peer);
}

static void recv_msg(struct exploration *x, const struct explore_message *msg) {
    unsigned event = msg->event;
    x->event = event;
    if (x->model->recv_msg && !x->model->recv_msg(x->live.world.peer[msg->to], msg, &event)) return;
    step_state(x, msg->to, event);
}

static void take_message(struct explore_world *w, unsigned index) {
    memmove(&w->message[index], &w->message[index + 1],
            (w->n_messages - index - 1) * sizeof *w->message);
    memset(&w->message[--w->n_messages], 0, sizeof *w->message);
}

static bool make_lie(struct exploration *x, struct move move, struct explore_message *msg) {
    memset(msg, 0, sizeof *msg);
    msg->to = move.peer, msg->event = move.index;
    msg->from = __builtin_ctz(x->model->hostile);
    return x->model->lie ? x->model->lie(x->live.world.peer[move.peer], move.choice, msg)
                         : move.choice == 0;
}

/* Carries a move out on the live state. */
static void apply(struct exploration *x, struct move move) {
    struct explore_world *w = &x->live.world;
    struct explore_message msg;
    x->broken = FSM_NO_CELL, x->sent[0] = '\0', x->trace.count = 0;
    current = x;
    switch (move.kind) {
    case MOVE_LOCAL: do_local(x, move.peer, move.index); break;
    case MOVE_LIE:
        make_lie(x, move, &msg);
        if (x->model->lie)
            recv_msg(x, &msg);
        else
            step_state(x, move.peer, move.index);
        break;
    default:
        msg = w->message[move.index];
        x->live.losses += move.kind == MOVE_LOSE;
        x->live.repeats += move.kind == MOVE_REPEAT;
        if (move.kind != MOVE_REPEAT && !x->model->channel.soup) take_message(w, move.index);
        x->event = msg.event;
        if (move.kind != MOVE_LOSE) recv_msg(x, &msg);
    }
    x->dead = dead_step(x);
    current = NULL;
}

static bool local_possible(const struct live *l, const struct explore_local *local, unsigned peer,
                           unsigned index) {
    const struct fsm *m = l->world.peer[peer];
    if (local->budget && l->used[peer][index] == local->budget) return false;
    if (local->armed && !(l->armed[peer] >> local->event & 1)) return false;
    if (local->states && !(local->states >> m->state & 1)) return false;
    return !local->when || local->when(&l->world, peer);
}

static unsigned local_moves(const struct exploration *x, unsigned peer, struct move *moves) {
    const struct explore_role *role = x->model->role[peer];
    unsigned n = 0;
    for (unsigned i = 0; i < role->n_locals; i++)
        if (local_possible(&x->live, &role->locals[i], peer, i))
            moves[n++] = (struct move){MOVE_LOCAL, peer, i, 0};
    return n;
}

/* The first of its queue, or any that differs from the one before. */
static bool is_next(const struct exploration *x, unsigned index) {
    const struct explore_message *m = x->live.world.message;
    if (index == 0) return true;
    if (x->model->channel.soup || x->model->channel.reorder)
        return !same_message(&m[index], &m[index - 1]);
    return m[index].from != m[index - 1].from || m[index].to != m[index - 1].to;
}

static unsigned message_moves(const struct exploration *x, struct move *moves) {
    const struct explore_channel *c = &x->model->channel;
    const struct explore_world *w = &x->live.world;
    unsigned n = 0;
    for (unsigned i = 0; i < w->n_messages; i++) {
        uint8_t to = w->message[i].to;
        if (!is_next(x, i) || (x->model->listens && !x->model->listens(w, to))) continue;
        moves[n++] = (struct move){MOVE_DELIVER, to, i, 0};
        if (c->soup) continue;
        if (x->live.repeats < c->repeats) moves[n++] = (struct move){MOVE_REPEAT, to, i, 0};
        if (x->live.losses < c->losses) moves[n++] = (struct move){MOVE_LOSE, to, i, 0};
    }
    return n;
}

/* More than fits is no silent bound: what is left out cuts the exploration. */
static unsigned lie_moves(struct exploration *x, unsigned peer, struct move *moves, unsigned room) {
    const struct fsm_machine *machine = x->model->role[peer]->machine;
    struct explore_message msg;
    unsigned n = 0;
    if (x->model->listens && !x->model->listens(&x->live.world, peer)) return 0;
    for (unsigned event = 0; event < machine->n_events; event++)
        for (unsigned choice = 0; machine->from_peer >> event & 1 && !x->cut; choice++) {
            struct move move = {MOVE_LIE, peer, event, choice};
            if (choice <= UINT8_MAX && !make_lie(x, move, &msg)) break;
            if (choice > UINT8_MAX || n == room)
                x->cut = "a liar has more to send than is followed";
            else
                moves[n++] = move;
        }
    return n;
}

#define MOST_MOVES (EXPLORE_PEERS * EXPLORE_LOCALS + 3 * EXPLORE_MESSAGES + 512)
static unsigned all_moves(struct exploration *x, struct move moves[MOST_MOVES]) {
    const struct explore_world *w = &x->live.world;
    unsigned n = 0;
    for (unsigned peer = 0; peer < w->n_peers; peer++)
        if (!((w->hostile | w->out) >> peer & 1)) n += local_moves(x, peer, moves + n);
    n += message_moves(x, moves + n);
    for (unsigned peer = 0; peer < w->n_peers; peer++)
        if (w->hostile && !((w->hostile | w->out) >> peer & 1))
            n += lie_moves(x, peer, moves + n, MOST_MOVES - n);
    return n;
}

/* ---- the set of states ----------------------------------------------------------------------- */

static uint64_t hash(const unsigned char *bytes, size_t n) {
    uint64_t h = 0x9e3779b97f4a7c15;
    for (; n >= 8; bytes += 8, n -= 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        h = (h ^ word) * 0xff51afd7ed558ccd;
        h ^= h >> 32;
    }
    for (; n; n--) h = (h ^ *bytes++) * 0x100000001b3;
    return h ^ h >> 29;
}

static uint32_t *slot_of(struct exploration *x, const unsigned char *kept) {
    uint32_t at = hash(kept, x->size) & x->mask;
    while (x->table[at] && memcmp(&x->kept[(x->table[at] - 1) * x->size], kept, x->size) != 0)
        at = (at + 1) & x->mask;
    return &x->table[at];
}

static bool grow_state(struct exploration *x) {
    unsigned room = x->room ? 2 * x->room : 1024;
    unsigned char *kept = realloc(x->kept, room * x->size);
    if (kept) x->kept = kept;
    struct node *nodes = realloc(x->nodes, room * sizeof *nodes);
    if (nodes) x->nodes = nodes;
    uint32_t *table = calloc(4 * (size_t)room, sizeof *table);
    if (!kept || !nodes || !table) {
        free(table);
        return false;
    }
    free(x->table);
    x->table = table, x->room = room, x->mask = 4 * room - 1;
    for (unsigned i = 0; i < x->n; i++) *slot_of(x, &x->kept[i * x->size]) = i + 1;
    return true;
}

/* Keeps the live state as a successor of `parent`, unless it is known; returns its index. */
static uint32_t keep_state(struct exploration *x, uint32_t parent, struct move move, bool *is_new) {
    places p;
    if (x->n == x->room && !grow_state(x)) {
        x->memory_out = true;
        return parent;
    }
    live_keep(&x->live, x->model, &x->kept[x->n * x->size], p);
    uint32_t *slot = slot_of(x, &x->kept[x->n * x->size]);
    *is_new = *slot == 0;
    if (*slot) return *slot - 1;
    x->nodes[x->n] = (struct node){.parent = parent, .move = move};
    memcpy(x->nodes[x->n].p, p, sizeof p);
    *slot = ++x->n;
    return x->n - 1;
}

static void note_edge(struct exploration *x, uint32_t from, uint32_t to) {
    if (x->n_edges == x->room_edges) {
        size_t room = x->room_edges ? 2 * x->room_edges : 4096;
        void *edge = realloc(x->edge, room * sizeof *x->edge);
        if (!edge) {
            x->memory_out = true;
            return;
        }
        x->edge = edge, x->room_edges = room;
    }
    x->edge[x->n_edges][0] = from, x->edge[x->n_edges][1] = to;
    x->n_edges++;
}

static void load_state(struct exploration *x, uint32_t node) {
    stats_load(&x->live, x->model, x->port, &x->kept[node * x->size]);
}

/* ---- the trace ------------------------------------------------------------------------------- */

static void print_move(struct exploration *x, struct move move, const places name,
                       char from_state[32]) {
    static const char *const form[] = {"",          "%c:%s", "%c:%s", "%c:%s(again)", "%c:%s(lost)",
                                       "%c:%s(lie)"};
    struct explore_result *r = x->result;
    struct fsm *m = x->live.world.peer[move.peer];
    char label[80];
    snprintf(from_state, 32, "%s", fsm_state_name(m));
    apply(x, move);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(label, sizeof label, form[move.kind], 'A' + name[move.peer],
             m->port->machine->event_name[x->event]);
#pragma GCC diagnostic pop
    add(r->trace, sizeof r->trace, "%s%s", r->trace[0] ? " " : "", label);
    add(r->steps, sizeof r->steps, "%-24s %s", label, from_state);
    if (strcmp(from_state, fsm_state_name(m)) != 0)
        add(r->steps, sizeof r->steps, " -> %s", fsm_state_name(m));
    add(r->steps, sizeof r->steps, "%s%s\n", x->sent[0] ? " :" : "", x->sent);
}

/* Says how `node` is reached, and then by `last` (MOVE_START: not at all) to the fault. */
static void print_way(struct exploration *x, uint32_t node, struct move last) {
    unsigned depth = 0;
    char from_state[32];
    for (uint32_t i = node; i; i = x->nodes[i].parent) depth++;
    uint32_t *way = calloc(depth + 1, sizeof *way);
    if (!way) return;
    unsigned at = depth;
    for (uint32_t i = node; i; i = x->nodes[i].parent) way[at--] = i;
    places name = {0, 1, 2, 3, 4, 5}, before;
    for (unsigned i = 1; i <= depth; i++) {
        load_state(x, way[i - 1]);
        print_move(x, x->nodes[way[i]].move, name, from_state);
        memcpy(before, name, sizeof name);
        for (unsigned k = 0; k < x->model->n_peers; k++) name[k] = before[x->nodes[way[i]].p[k]];
    }
    load_state(x, way[depth]);
    if (last.kind != MOVE_START) print_move(x, last, name, from_state);
    free(way);
}

static __attribute__((format(printf, 4, 5))) bool
refute(struct exploration *x, uint32_t node, struct move last, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(x->result->why, sizeof x->result->why, format, args);
    va_end(args);
    print_way(x, node, last);
    return false;
}

/* ---- the search ------------------------------------------------------------------------------ */

/* Also of a move that found the channel full: what a step came to was no matter of what it sent. */
static bool check_cells(struct exploration *x, uint32_t node, struct move move) {
    struct explore_world *w = &x->live.world;
    const struct fsm_machine *machine = x->model->role[x->culprit]->machine;
    const char *event = machine->event_name[x->broken_event],
               *state = fsm_state_name(w->peer[x->culprit]);
    if (x->broken != FSM_NO_CELL)
        return refute(x, node, move, "%s: %s in %s is a %s", machine->name, event, state,
                      x->broken == FSM_VIOL ? "violation among honest peers"
                                            : "bug that is reached");
    return !x->dead ||
           refute(x, node, move, "%s: %s came to a dead cell (\"%s\")", x->dead->machine->name,
                  x->dead->machine->event_name[x->dead->event], dead_reason(x->dead));
}

static bool check_state(struct exploration *x, uint32_t node, struct move move) {
    const char *broken = x->model->invariant ? x->model->invariant(&x->live.world) : NULL;
    return !broken || refute(x, node, move, "broken: %s", broken);
}

static bool is_rescue(const struct exploration *x, struct move move) {
    return move.kind == MOVE_LOCAL && x->model->role[move.peer]->locals[move.index].rescue;
}

static bool visit(struct exploration *x, uint32_t node) {
    struct move moves[MOST_MOVES];
    load_state(x, node);
    unsigned n = all_moves(x, moves);
    for (unsigned i = 0; i < n; i++) {
        bool is_new = false;
        if (i) load_state(x, node);
        apply(x, moves[i]);
        if (!check_cells(x, node, moves[i])) return false;
        if (x->live.overflow) {
            x->result->truncated++;
            continue;
        }
        if (!check_state(x, node, moves[i])) return false;
        uint32_t next = keep_state(x, node, moves[i], &is_new);
        if (!is_rescue(x, moves[i])) note_edge(x, node, next);
        if (x->memory_out) return true;
    }
    x->result->moves += n;
    return true;
}

static void mark_agreed(struct exploration *x, uint8_t *good) {
    for (uint32_t i = 0; i < x->n; i++) {
        load_state(x, i);
        good[i] = x->model->agreed(&x->live.world);
    }
}

/* Goodness flows back along edges, in turns: states lie in breadth-first order, so few turns do. */
static bool check_agreed(struct exploration *x) {
    uint8_t *good = calloc(x->n + 1, 1);
    bool moved = true;
    if (!good) return x->memory_out = true;
    mark_agreed(x, good);
    while (moved) {
        moved = false;
        for (size_t i = x->n_edges; i-- > 0;)
            if (!good[x->edge[i][0]] && good[x->edge[i][1]]) good[x->edge[i][0]] = moved = true;
    }
    const uint8_t *bad = memchr(good, false, x->n);
    uint32_t node = bad ? (uint32_t)(bad - good) : 0;
    free(good);
    return !bad || refute(x, node, (struct move){0}, "no agreed state can be reached any more");
}

static void start_state(struct exploration *x) {
    const struct explore_model *model = x->model;
    struct explore_world *w = &x->live.world;
    memset(&x->live, 0, sizeof x->live);
    w->n_peers = model->n_peers;
    w->hostile = model->hostile;
    for (unsigned i = 0; i < model->n_peers; i++) {
        const struct explore_role *role = model->role[i];
        x->port[i] = (struct fsm_port){role->machine, on_effect, on_fail};
        w->peer[i] = (struct fsm *)(void *)x->live.memory[i].bytes;
        fsm_init(w->peer[i], &x->port[i], role->start, i);
        for (unsigned k = 0; k < role->n_locals; k++)
            x->live.armed[i] |= (uint64_t)role->locals[k].at_start << role->locals[k].event;
        if (role->init) role->init(w->peer[i], i);
    }
}

static bool search(struct exploration *x) {
    bool is_new;
    uint32_t last = 0; /* of the layer that is being visited */
    start_state(x);
    const char *broken = x->model->invariant ? x->model->invariant(&x->live.world) : NULL;
    keep_state(x, 0, (struct move){0}, &is_new);
    if (x->memory_out) return true;
    if (broken) return refute(x, 0, (struct move){0}, "broken at the start: %s", broken);
    for (uint32_t i = 0; i < x->n && x->n < x->max && !x->memory_out && !x->cut; i++) {
        if (!visit(x, i)) return false;
        if (i == last && x->n > i + 1) last = x->n - 1, x->result->depth++;
    }
    bool all = x->n < x->max && !x->memory_out && !x->cut;
    bool holds = !x->model->agreed || !all || check_agreed(x);
    x->result->complete = all && !x->memory_out;
    return holds;
}

static bool fits_state(const struct explore_model *model) {
    for (unsigned i = 0; i < model->n_peers && i < EXPLORE_PEERS; i++) {
        const struct explore_role *role = model->role[i];
        if (role->size > EXPLORE_STRUCT || role->n_locals > EXPLORE_LOCALS ||
            role->machine->n_effects > 64)
            return false;
    }
    return model->n_peers <= EXPLORE_PEERS && model->channel.room <= EXPLORE_MESSAGES &&
           model->payload <= EXPLORE_PAYLOAD;
}

bool explore(const struct explore_model *model, struct explore_result *result) {
    memset(result, 0, sizeof *result);
    if (!fits_state(model)) {
        snprintf(result->why, sizeof result->why, "%s: beyond the explorer's bounds", model->name);
        return false;
    }
    struct exploration *x = calloc(1, sizeof *x);
    if (!x) return false;
    x->model = model, x->result = result, x->size = stats_size(model);
    x->max = model->max_states ? model->max_states : 1000000;
    bool counted = weft__fsm_coverage(true);
    struct fsm_trace *trace = fsm_trace_use(&x->trace);
    result->ok = search(x);
    fsm_trace_use(trace);
    weft__fsm_coverage(counted);
    result->states = x->n;
    if (result->ok && !result->complete)
        snprintf(result->why, sizeof result->why, "not all states were visited%s%s",
                 x->cut ? ": " : "", x->cut ? x->cut : "");
    result->ok = result->ok && result->complete;
    free(x->kept), free(x->nodes), free(x->table), free(x->edge), free(x);
    return result->ok;
}

void explore_print(const struct explore_result *r, FILE *out) {
    fprintf(out, "%u states, %u moves, depth %u%s\n", r->states, r->moves, r->depth,
            r->complete ? "" : ", incomplete");
    if (r->truncated)
        fprintf(out, "%u moves found the channel full and were not followed\n", r->truncated);
    if (!r->ok) fprintf(out, "%s\n%s\n%s", r->why, r->trace, r->steps);
}

unsigned explore_unreached(const struct fsm_machine *m, FILE *out) {
    unsigned n = 0;
    for (unsigned i = 0; i < (unsigned)m->n_events * m->n_states; i++) {
        bool listed = m->hits[i] != 0;
        for (unsigned d = 0; d < m->n_dead; d++)
            listed |= (unsigned)m->dead[d].event * m->n_states + m->dead[d].state == i;
        if (listed) continue;
        fprintf(out, "%s %s\n", m->event_name[i / m->n_states], m->state_name[i % m->n_states]);
        n++;
    }
    return n;
}
