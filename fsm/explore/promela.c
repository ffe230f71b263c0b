/* A model of the explorer, written for spin from the same tables. */
#include <fsm/explore/explorer.h>
#include <stdlib.h>
#include <string.h>

/* What the action of one cell asks for: found by running it on an empty struct. */
struct asked {
    unsigned n;
    uint8_t effect[32];
};
/* The port of the machine that is asked, and what it asked for. */
struct asking {
    struct fsm_port port;
    struct asked answer;
};

static void on_effect(struct fsm *m, unsigned effect) {
    struct asked *asked = &((struct asking *)(uintptr_t)m->port)->answer;
    if (asked->n < sizeof asked->effect) asked->effect[asked->n++] = effect;
}
static void on_fail(struct fsm *m, unsigned event, enum fsm_verb why) {}

static struct asked ask_promela(const struct explore_role *role, const struct fsm_cell *cell) {
    struct asking asking = {{role->machine, on_effect, on_fail}, {0}};
    struct {
        _Alignas(16) unsigned char bytes[EXPLORE_STRUCT];
    } memory;
    struct fsm *m = (struct fsm *)(void *)memory.bytes;
    memset(&memory, 0, sizeof memory);
    m->port = &asking.port, m->state = cell->next;
    role->machine->actions[cell->action](m);
    return asking.answer;
}

static bool can_be_printed(const struct explore_model *model) {
    const struct explore_role *role = model->role[0];
    if (model->n_peers != 2 || model->role[1] != role || model->equal_peers || model->hostile)
        return false;
    if (!model->channel.soup || model->send_msg || model->recv_msg || model->listens ||
        role->init || role->size > EXPLORE_STRUCT)
        return false;
    for (unsigned i = 0; i < role->n_locals; i++)
        if (role->locals[i].when || role->locals[i].before || role->locals[i].after ||
            role->locals[i].at_start)
            return false;
    for (unsigned i = 0; i < (unsigned)role->machine->n_events * role->machine->n_states; i++)
        if (role->machine->cells[i].verb == FSM_HOLD) return false;
    return true;
}

static void print_effect(const struct explore_role *role, unsigned effect, FILE *out) {
    const struct explore_effect *e = &role->effects[effect];
    const char *event = role->machine->event_name[e->event],
               *name = role->machine->effect_name[effect];
    switch (e->kind) {
    case EXPLORE_SEND: fprintf(out, " sent[q * N_EVENTS + EV_%s] = true;", event); break;
    case EXPLORE_ARM: fprintf(out, " armed[p * N_EVENTS + EV_%s] = true;", event); break;
    case EXPLORE_DISARM: fprintf(out, " armed[p * N_EVENTS + EV_%s] = false;", event); break;
    case EXPLORE_NOTIFY: fprintf(out, " notify(p * N_EFFECTS + FX_%s);", name); break;
    default: break;
    }
}

static void print_cell(const struct explore_role *role, unsigned event, unsigned state, FILE *out) {
    const struct fsm_machine *m = role->machine;
    const struct fsm_cell *cell = &m->cells[event * m->n_states + state];
    fprintf(out, "    :: state[p] == %s ->", m->state_name[state]);
    if (cell->verb == FSM_DO) {
        struct asked a = ask_promela(role, cell);
        fprintf(out, " state[p] = %s;", m->state_name[cell->next]);
        for (unsigned i = 0; i < a.n; i++) print_effect(role, a.effect[i], out);
        fprintf(out, "\n");
    } else {
        fprintf(out, " %s\n", cell->verb == FSM_SKIP ? "skip" : "assert(false)");
    }
}

static void print_names(const char *prefix, const char *const *names, unsigned n, FILE *out) {
    for (unsigned i = 0; i < n; i++) fprintf(out, "#define %s%s %u\n", prefix, names[i], i);
}

static void print_steps(const struct explore_role *role, FILE *out) {
    const struct fsm_machine *m = role->machine;
    for (unsigned e = 0; e < m->n_events; e++) {
        fprintf(out, "inline step_%s(p, q) {\n    if\n", m->event_name[e]);
        for (unsigned s = 0; s < m->n_states; s++) print_cell(role, e, s, out);
        fprintf(out, "    fi\n}\n");
    }
}

static void print_local(const struct explore_role *role, unsigned i, unsigned p, FILE *out) {
    const struct explore_local *local = &role->locals[i];
    const struct fsm_machine *m = role->machine;
    const char *event = m->event_name[local->event];
    fprintf(out, "    :: d_step { (true");
    if (local->budget) fprintf(out, " && used_%s[%u] < %u", event, p, local->budget);
    if (local->armed) fprintf(out, " && armed[%u * N_EVENTS + EV_%s]", p, event);
    if (local->states) {
        fprintf(out, " && (false");
        for (unsigned s = 0; s < m->n_states; s++)
            if (local->states >> s & 1) fprintf(out, " || state[%u] == %s", p, m->state_name[s]);
        fprintf(out, ")");
    }
    fprintf(out, ") ->");
    if (local->budget) fprintf(out, " used_%s[%u]++;", event, p);
    if (local->armed) fprintf(out, " armed[%u * N_EVENTS + EV_%s] = false;", p, event);
    fprintf(out, " step_%s(%u, %u); assert(INVARIANT) }\n", event, p, 1 - p);
}

bool weft__explore_promela(const struct explore_model *model, const char *invariant, FILE *out) {
    if (!can_be_printed(model)) return false;
    const struct explore_role *role = model->role[0];
    const struct fsm_machine *m = role->machine;
    fprintf(out, "/* %s: two peers in a channel that holds every message ever sent. */\n",
            model->name);
    fprintf(out, "#define N_EVENTS %u\n#define N_EFFECTS %u\n", m->n_events, m->n_effects);
    print_names("", m->state_name, m->n_states, out);
    print_names("EV_", m->event_name, m->n_events, out);
    print_names("FX_", m->effect_name, m->n_effects, out);
    fprintf(out, "byte state[2] = %u;\nbyte notified[2 * N_EFFECTS];\n", role->start);
    fprintf(out, "bool sent[2 * N_EVENTS];\nbool armed[2 * N_EVENTS];\n");
    for (unsigned i = 0; i < role->n_locals; i++)
        if (role->locals[i].budget)
            fprintf(out, "byte used_%s[2];\n", m->event_name[role->locals[i].event]);
    fprintf(out, "#define INVARIANT (%s)\n", invariant);
    fprintf(out, "inline notify(what) { if :: notified[what] < 2 -> notified[what]++ :: else -> "
                 "skip fi }\n");
    print_steps(role, out);
    fprintf(out, "active proctype peers() {\n    do\n");
    for (unsigned p = 0; p < 2; p++) {
        for (unsigned i = 0; i < role->n_locals; i++) print_local(role, i, p, out);
        for (unsigned e = 0; e < m->n_events; e++)
            if (m->from_peer >> e & 1)
                fprintf(out,
                        "    :: d_step { sent[%u * N_EVENTS + EV_%s] -> step_%s(%u, %u); "
                        "assert(INVARIANT) }\n",
                        p, m->event_name[e], m->event_name[e], p, 1 - p);
    }
    fprintf(out, "    od\n}\n");
    return true;
}
