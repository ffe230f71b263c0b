/* A dialer and an acceptor through a queue that breaks at any moment, and each against a peer that says anything. */
#include "../harness.h"
#include <fsm/explorer.h>
#include <transports/tcp/tcp_conn.h>

enum { DIALER, ACCEPTOR };

static unsigned state_of(const struct explore_world *w, unsigned peer) {
    return w->peer[peer]->state;
}

/* An acceptor is there as soon as the kernel has connected; until the dialer has heard of it, nothing befalls it. */
static bool is_there(const struct explore_world *w, unsigned peer) {
    return w->hostile & 1 << DIALER || state_of(w, DIALER) != TCP_CONN_DIAL;
}
/* A connection that breaks takes along what is under way; the other side finds out by RELEASE's end. */
static void reset(struct explore_world *w, unsigned peer) {
    explore_drop(w, peer, true);
}

#define IN(s) (1u << TCP_CONN_##s)
static const struct explore_local dialer_locals[] = {
    {.event = TCP_CONN_EV_NEXT, .budget = 1, .states = IN(DIAL)},
    {.event = TCP_CONN_EV_CONNECTED, .states = IN(DIAL)},
    {.event = TCP_CONN_EV_SENT, .states = IN(OPEN) | IN(DRAIN) | IN(LAST)},
    {.event = TCP_CONN_EV_BROKEN, .rescue = true, .before = reset},
    {.event = TCP_CONN_EV_TIMEOUT, .states = IN(DIAL) | IN(AWAIT) | IN(DRAIN) | IN(LAST) | IN(LINGER)},
    {.event = TCP_CONN_EV_FLUSH},
    {.event = TCP_CONN_EV_ABORT, .rescue = true},
};
static const struct explore_local acceptor_locals[] = {
    {.event = TCP_CONN_EV_SENT, .states = IN(OPEN) | IN(DRAIN) | IN(LAST)},
    {.event = TCP_CONN_EV_BROKEN, .rescue = true, .before = reset, .when = is_there},
    {.event = TCP_CONN_EV_TIMEOUT,
     .states = IN(GREET) | IN(PROVE) | IN(DRAIN) | IN(LAST) | IN(LINGER),
     .when = is_there},
    {.event = TCP_CONN_EV_FLUSH, .states = IN(OPEN) | IN(DRAIN) | IN(LAST) | IN(LINGER) | IN(DOWN) | IN(CLOSED)},
    {.event = TCP_CONN_EV_ABORT, .rescue = true, .when = is_there},
};

static const struct explore_effect effects[TCP_CONN_N_EFFECTS] = {
    [TCP_CONN_FX_SAY_HELLO] = {EXPLORE_SEND, TCP_CONN_EV_HELLO},
    [TCP_CONN_FX_SAY_CHALLENGE] = {EXPLORE_SEND, TCP_CONN_EV_CHALLENGE},
    [TCP_CONN_FX_SAY_PROOF] = {EXPLORE_SEND, TCP_CONN_EV_PROOF},
    [TCP_CONN_FX_SAY_GOODBYE] = {EXPLORE_SEND, TCP_CONN_EV_GOODBYE},
    [TCP_CONN_FX_PART] = {EXPLORE_SEND, TCP_CONN_EV_GOODBYE},
    [TCP_CONN_FX_SAY_END] = {EXPLORE_SEND, TCP_CONN_EV_END},
    [TCP_CONN_FX_RELEASE] = {EXPLORE_SEND, TCP_CONN_EV_END},
    [TCP_CONN_FX_TELL_UP] = {EXPLORE_TELL, 0},
    [TCP_CONN_FX_TELL_ACCEPTED] = {EXPLORE_TELL, 0},
    [TCP_CONN_FX_TELL_DOWN] = {EXPLORE_TELL, 0},
    [TCP_CONN_FX_TELL_CLOSED] = {EXPLORE_TELL, 0},
};

static const struct explore_role dialer = {.machine = &weft__tcp_conn_machine,
                                           .size = sizeof(struct tcp_conn),
                                           .start = TCP_CONN_DIAL,
                                           EXPLORE_LOCALS_OF(dialer_locals),
                                           .effects = effects,
                                           .after_violation = 1 + TCP_CONN_EV_BROKEN};
static const struct explore_role acceptor = {.machine = &weft__tcp_conn_machine,
                                             .size = sizeof(struct tcp_conn),
                                             .start = TCP_CONN_GREET,
                                             EXPLORE_LOCALS_OF(acceptor_locals),
                                             .effects = effects,
                                             .after_violation = 1 + TCP_CONN_EV_BROKEN};

static const char *invariant(const struct explore_world *w) {
    for (unsigned i = 0; i < 2; i++) {
        if (w->hostile >> i & 1) continue;
        unsigned up = explore_told(w, i, TCP_CONN_FX_TELL_UP) + explore_told(w, i, TCP_CONN_FX_TELL_ACCEPTED);
        unsigned closed = explore_told(w, i, TCP_CONN_FX_TELL_CLOSED);
        if (up > 1) return "told up once";
        if (explore_told(w, i, TCP_CONN_FX_TELL_DOWN) > 1) return "told down once";
        if (closed != (state_of(w, i) == TCP_CONN_CLOSED)) return "CLOSED if and only if told closed, once";
        if (state_of(w, i) == TCP_CONN_OPEN && !up) return "OPEN implies told up";
    }
    if (!w->hostile && explore_told(w, ACCEPTOR, TCP_CONN_FX_TELL_ACCEPTED) &&
        !explore_told(w, DIALER, TCP_CONN_FX_TELL_UP))
        return "accepted only after the dialer has proved itself";
    return NULL;
}

static bool agreed(const struct explore_world *w) {
    unsigned a = state_of(w, DIALER), b = state_of(w, ACCEPTOR);
    if (w->hostile) return (w->hostile & 1 << DIALER ? b : a) == TCP_CONN_CLOSED;
    return a == b && (a == TCP_CONN_OPEN || a == TCP_CONN_CLOSED);
}

static struct explore_model model_of(uint8_t hostile) {
    return (struct explore_model){.name = "tcp_conn",
                                  .role = {&dialer, &acceptor},
                                  .n_peers = 2,
                                  .hostile = hostile,
                                  .channel = {.capacity = 8},
                                  .invariant = invariant,
                                  .agreed = agreed};
}

static void holds(uint8_t hostile) {
    struct explore_model model = model_of(hostile);
    static struct explore_result result;
    bool ok = explore(&model, &result);
    if (!ok) explore_print(&result, stdout);
    CHECK(ok && result.complete);
    CHECK(result.states >= 7);
    printf("  %u states, %u moves\n", result.states, result.moves);
}

TEST(a_connection_opens_and_ends_from_every_state) {
    holds(0);
}
TEST(a_hostile_acceptor_reaches_no_bug) {
    holds(1 << ACCEPTOR);
}
TEST(a_hostile_dialer_reaches_no_bug) {
    holds(1 << DIALER);
}

TEST(every_cell_is_reached_or_has_a_reason) {
    fsm_coverage_reset();
    bool before = fsm_coverage(true);
    holds(0);
    holds(1 << ACCEPTOR);
    holds(1 << DIALER);
    fsm_coverage(before);
    CHECK_EQ(explore_unreached(&weft__tcp_conn_machine, stdout), 0);
}
