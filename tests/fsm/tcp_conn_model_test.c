/* A dialer and an acceptor of the tcp transport, joined by a stream that keeps order and may
 * break. */
#include "tests/harness.h"
#include "tests/model.h"

#include "shipped.h"

#include <fsm/explore/explorer.h>
#include <transports/tcp/tcp_conn.h>

enum { DIALER, ACCEPTOR };
#define IN(state) (1u << TCP_CONN_##state)

static bool has_released(const struct fsm *m) {
    return m->state == TCP_CONN_DOWN || m->state == TCP_CONN_CLOSED;
}
static bool other_has_released(const struct explore_world *w, unsigned peer) {
    return has_released(w->peer[!peer]);
}

/* The kernel throws away what this side has not read; what it wrote may still arrive. */
static void cut(struct explore_world *w, unsigned peer) {
    explore_drop(w, peer, false);
}

/* The socket exists once the kernel has connected, and is read until the machine says stop. */
static bool listens(const struct explore_world *w, unsigned peer) {
    unsigned state = w->peer[peer]->state;
    return state != TCP_CONN_DIAL && state != TCP_CONN_LAST && !has_released(w->peer[peer]);
}

static const struct explore_local locals[] = {
    {.event = TCP_CONN_EV_NEXT, .budget = 1, .states = IN(DIAL)},
    {.event = TCP_CONN_EV_CONNECTED, .states = IN(DIAL)},
    {.event = TCP_CONN_EV_LATE,
     .budget = 1,
     .when = other_has_released,
     .states = IN(AWAIT),
     .after = cut},
    {.event = TCP_CONN_EV_SENT, .states = IN(OPEN) | IN(DRAIN) | IN(LAST)},
    {.event = TCP_CONN_EV_TIMEOUT, .armed = true, .at_start = true, .rescue = true},
    {.event = TCP_CONN_EV_FLUSH,
     .budget = 2,
     .states = ~(IN(HANDSHAKE) | IN(PROVE)),
     .rescue = true},
    {.event = TCP_CONN_EV_ABORT, .budget = 2, .rescue = true},
    {.event = TCP_CONN_EV_BROKEN, .budget = 2, .after = cut, .rescue = true},
    {.event = TCP_CONN_EV_BROKEN,
     .when = other_has_released,
     .states = ~(IN(DOWN) | IN(CLOSED)),
     .after = cut},
};

/* Releasing closes the socket: the peer reads the end. PART says goodbye if it can; that it may
 * fail is BROKEN's. */
static const struct explore_effect effects[TCP_CONN_N_EFFECTS] = {
    [TCP_CONN_FX_SEND_HELLO] = {EXPLORE_SEND, TCP_CONN_EV_HELLO},
    [TCP_CONN_FX_SEND_CHALLENGE] = {EXPLORE_SEND, TCP_CONN_EV_CHALLENGE},
    [TCP_CONN_FX_SEND_PROOF] = {EXPLORE_SEND, TCP_CONN_EV_PROOF},
    [TCP_CONN_FX_SEND_GOODBYE] = {EXPLORE_SEND, TCP_CONN_EV_GOODBYE},
    [TCP_CONN_FX_PART] = {EXPLORE_SEND, TCP_CONN_EV_GOODBYE},
    [TCP_CONN_FX_SEND_END] = {EXPLORE_SEND, TCP_CONN_EV_END},
    [TCP_CONN_FX_RELEASE] = {EXPLORE_SEND, TCP_CONN_EV_END},
    [TCP_CONN_FX_ARM_CLOSE] = {EXPLORE_ARM, TCP_CONN_EV_TIMEOUT},
    [TCP_CONN_FX_DISARM] = {EXPLORE_DISARM, TCP_CONN_EV_TIMEOUT},
    [TCP_CONN_FX_NOTIFY_UP] = {EXPLORE_NOTIFY, 0},
    [TCP_CONN_FX_NOTIFY_ACCEPTED] = {EXPLORE_NOTIFY, 0},
    [TCP_CONN_FX_NOTIFY_DOWN] = {EXPLORE_NOTIFY, 0},
    [TCP_CONN_FX_NOTIFY_CLOSED] = {EXPLORE_NOTIFY, 0},
};

static const char *invariant(const struct explore_world *w) {
    for (unsigned i = 0; i < 2; i++) {
        const struct fsm *m = w->peer[i];
        unsigned up = explore_notified(
            w, i, i == DIALER ? TCP_CONN_FX_NOTIFY_UP : TCP_CONN_FX_NOTIFY_ACCEPTED);
        unsigned down = explore_notified(w, i, TCP_CONN_FX_NOTIFY_DOWN),
                 closed = explore_notified(w, i, TCP_CONN_FX_NOTIFY_CLOSED);
        if (w->hostile >> i & 1) continue;
        if (up > 1 || down > 1 || closed > 1) return "each is notified once";
        if (explore_notified(w, i,
                             i == DIALER ? TCP_CONN_FX_NOTIFY_ACCEPTED : TCP_CONN_FX_NOTIFY_UP))
            return "notified the other's";
        if (closed != (m->state == TCP_CONN_CLOSED))
            return "CLOSED if and only if the owner was notified, once";
        if (down && m->state != TCP_CONN_DOWN && m->state != TCP_CONN_CLOSED)
            return "down is the end";
        if (m->state == TCP_CONN_OPEN && !up) return "OPEN implies that the owner was notified";
        if (i == ACCEPTOR && down && !up) return "an acceptor that no owner knows is notified down";
    }
    /* The key is proved before anything is believed. */
    if (!w->hostile && explore_notified(w, ACCEPTOR, TCP_CONN_FX_NOTIFY_ACCEPTED) &&
        !explore_notified(w, DIALER, TCP_CONN_FX_NOTIFY_UP))
        return "the acceptor is up before the dialer";
    return NULL;
}

static bool rests(const struct fsm *m) {
    return has_released(m);
}
static bool agreed(const struct explore_world *w) {
    bool open = w->peer[0]->state == TCP_CONN_OPEN && w->peer[1]->state == TCP_CONN_OPEN &&
                w->n_messages == 0;
    return open || (rests(w->peer[0]) && rests(w->peer[1]));
}

#define ROLE(state)                                                               \
    {                                                                             \
        .machine = &weft__tcp_conn_machine, .size = sizeof(struct tcp_conn),      \
        .start = TCP_CONN_##state, EXPLORE_LOCALS_OF(locals), .effects = effects, \
        .after_violation = 1 + TCP_CONN_EV_BROKEN                                 \
    }
static const struct explore_role dialer = ROLE(DIAL), acceptor = ROLE(HANDSHAKE);

static const struct explore_model model = {.name = "tcp_conn",
                                           .role = {&dialer, &acceptor},
                                           .n_peers = 2,
                                           .channel = {.room = 16},
                                           .payload = 1,
                                           .listens = listens,
                                           .invariant = invariant,
                                           .agreed = agreed};

TEST(dialer_and_acceptor_agree) {
    weft__fsm_coverage_reset();
    CHECK(model_holds(&model));
}

TEST(a_hostile_acceptor_breaks_nothing) {
    struct explore_model hostile = model;
    hostile.hostile = 1 << ACCEPTOR, hostile.agreed = NULL,
    hostile.listens = NULL; /* even what would not be read */
    CHECK(model_holds(&hostile));
}

TEST(a_hostile_dialer_breaks_nothing) {
    struct explore_model hostile = model;
    /* even what would not be read */
    hostile.hostile = 1 << DIALER, hostile.agreed = NULL, hostile.listens = NULL;
    CHECK(model_holds(&hostile));
}

/* After the three explorations above. */
TEST(every_cell_is_reached_or_has_a_reason) {
    CHECK_EQ(explore_unreached(&weft__tcp_conn_machine, stdout), 0);
}

/* The model can see: without the end of a closing peer, who lingers waits for his timer. */
TEST(a_lingerer_that_misses_the_end_is_found) {
    static struct fsm_cell cells[TCP_CONN_N_EVENTS * TCP_CONN_N_STATES];
    struct fsm_machine draft = weft__tcp_conn_machine;
    struct explore_role bad_dialer = dialer, bad_acceptor = acceptor;
    struct explore_model bad = model;
    struct explore_result result;
    memcpy(cells, draft.cells, sizeof cells);
    cells[TCP_CONN_EV_END * TCP_CONN_N_STATES + TCP_CONN_LINGER].verb = FSM_SKIP;
    cells[TCP_CONN_EV_GOODBYE * TCP_CONN_N_STATES + TCP_CONN_LINGER].verb = FSM_SKIP;
    draft.cells = cells;
    bad_dialer.machine = bad_acceptor.machine = &draft;
    bad.role[0] = &bad_dialer, bad.role[1] = &bad_acceptor;
    CHECK(!explore(&bad, &result));
    CHECK(strcmp(result.why, "no agreed state can be reached any more") == 0);
    printf("  %s\n", result.trace);
}

TEST(the_explored_table_is_the_shipped_one) {
    CHECK(links_shipped("tcp_conn", "tcp_conn.c"));
}
