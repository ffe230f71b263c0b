#include "example_model.h"

static void open_it(struct explore_world *w, unsigned peer) {
    ((struct example *)w->peer[peer])->opened = 1;
}

static void lose_it(struct explore_world *w, unsigned peer) {
    ((struct example *)w->peer[peer])->lost = 1;
}
static bool other_is_lost(const struct explore_world *w, unsigned peer) {
    return ((const struct example *)w->peer[!peer])->lost;
}

static const struct explore_local locals[] = {
    {.event = EXAMPLE_EV_OPEN,
     .budget = 1,
     .rescue = true,
     .states = 1 << EXAMPLE_IDLE | 1 << EXAMPLE_READY | 1 << EXAMPLE_CLOSED,
     .before = open_it},
    {.event = EXAMPLE_EV_CLOSE, .rescue = true},
    {.event = EXAMPLE_EV_TIMEOUT, .states = 1 << EXAMPLE_DIAL | 1 << EXAMPLE_DRAIN},
    {.event = EXAMPLE_EV_LOST, .rescue = true, .after = lose_it},
    {.event = EXAMPLE_EV_LOST, .when = other_is_lost, .after = lose_it},
};

static bool all_is_received(const struct explore_world *w, unsigned peer) {
    return w->n_messages == 0;
}

static const struct explore_local queue_locals[] = {
    {.event = EXAMPLE_EV_OPEN,
     .budget = 1,
     .rescue = true,
     .states = 1 << EXAMPLE_IDLE | 1 << EXAMPLE_READY | 1 << EXAMPLE_CLOSED,
     .before = open_it},
    {.event = EXAMPLE_EV_CLOSE, .rescue = true},
    {.event = EXAMPLE_EV_TIMEOUT,
     .states = 1 << EXAMPLE_DIAL | 1 << EXAMPLE_DRAIN,
     .when = all_is_received},
    {.event = EXAMPLE_EV_LOST, .rescue = true, .after = lose_it},
    {.event = EXAMPLE_EV_LOST, .when = other_is_lost, .after = lose_it},
};

static const struct explore_effect effects[EXAMPLE_N_EFFECTS] = {
    [EXAMPLE_FX_SEND_HELLO] = {EXPLORE_SEND, EXAMPLE_EV_HELLO},
    [EXAMPLE_FX_SEND_WELCOME] = {EXPLORE_SEND, EXAMPLE_EV_WELCOME},
    [EXAMPLE_FX_SEND_FIN] = {EXPLORE_SEND, EXAMPLE_EV_FIN},
    [EXAMPLE_FX_SEND_GONE] = {EXPLORE_SEND, EXAMPLE_EV_GONE},
    [EXAMPLE_FX_NOTIFY_UP] = {EXPLORE_NOTIFY, 0},
    [EXAMPLE_FX_NOTIFY_DOWN] = {EXPLORE_NOTIFY, 0},
};

static const char *invariant(const struct explore_world *w) {
    for (unsigned i = 0; i < w->n_peers; i++) {
        const struct example *e = (const struct example *)w->peer[i];
        unsigned down = explore_notified(w, i, EXAMPLE_FX_NOTIFY_DOWN),
                 up = explore_notified(w, i, EXAMPLE_FX_NOTIFY_UP);
        if (w->hostile >> i & 1) continue;
        if (down != (e->fsm.state == EXAMPLE_CLOSED))
            return "CLOSED if and only if the user was notified down, once";
        if (e->opened && e->fsm.state == EXAMPLE_READY && !up)
            return "opened and READY implies notified up";
        if (up > 1) return "notified up once";
    }
    return NULL;
}

/* `notified` counts effects, and `opened` is OPEN_USED in what spin sees. */
const char example_invariant[] = "(notified[0 * N_EFFECTS + FX_NOTIFY_DOWN] == (state[0] == "
                                 "CLOSED)) && (notified[1 * N_EFFECTS + "
                                 "FX_NOTIFY_DOWN] == "
                                 "(state[1] == "
                                 "CLOSED)) && notified[0 * N_EFFECTS + FX_NOTIFY_UP] < 2 && "
                                 "notified[1 * N_EFFECTS + FX_NOTIFY_UP] < 2 && "
                                 "(!used_OPEN[0] || "
                                 "state[0] != READY || notified[0 * N_EFFECTS + FX_NOTIFY_UP]) && "
                                 "(!used_OPEN[1] || state[1] != READY || "
                                 "notified[1 * "
                                 "N_EFFECTS "
                                 "+ FX_NOTIFY_UP])";

/* Both are up, or neither is and neither waits: one who closed before the other began is a
 * stable end too. */
static bool agreed(const struct explore_world *w) {
    unsigned a = w->peer[0]->state, b = w->peer[1]->state;
    bool a_rests = a == EXAMPLE_IDLE || a == EXAMPLE_CLOSED,
         b_rests = b == EXAMPLE_IDLE || b == EXAMPLE_CLOSED;
    return (a == EXAMPLE_READY && b == EXAMPLE_READY) || (a_rests && b_rests);
}

void example_model(struct example_model *e, const struct fsm_machine *machine) {
    *e = (struct example_model){.role = {.machine = machine,
                                         .size = sizeof(struct example),
                                         .start = EXAMPLE_IDLE,
                                         EXPLORE_LOCALS_OF(locals),
                                         .effects = effects},
                                .model = {.name = "example",
                                          .role = {&e->role, &e->role},
                                          .n_peers = 2,
                                          .channel = {.soup = true},
                                          .invariant = invariant,
                                          .agreed = agreed}};
}

void example_queues(struct example_model *e) {
    e->role.locals = queue_locals;
    e->role.n_locals = sizeof queue_locals / sizeof *queue_locals;
    e->model.channel = (struct explore_channel){.losses = 1, .repeats = 1, .capacity = 8};
}
