/* Both ends of an attachment over a socket that breaks at any moment, and each against a peer
 * that says anything. */
#include "../harness.h"
#include "../model.h"
#include <fsm/explore/explorer.h>
#include <transports/shm/attach/attach.h>

enum { DIALER, ACCEPTOR };
#define IN(s) (1u << SHM_ATTACH_##s)

static unsigned state_of(const struct explore_world *w, unsigned peer) {
    return w->peer[peer]->state;
}
static bool is_in(const struct explore_world *w, unsigned peer, unsigned states) {
    return states >> state_of(w, peer) & 1;
}
static bool receives_lies(const struct explore_world *w, unsigned peer) {
    return w->hostile >> !peer & 1;
}

/* The socket is read in these states only. */
static bool listens(const struct explore_world *w, unsigned peer) {
    return is_in(w, peer, IN(DIALING) | IN(HANDSHAKE) | IN(UP) | IN(CLOSING));
}
static bool was_called(const struct explore_world *w, unsigned peer) {
    return receives_lies(w, peer) || !is_in(w, DIALER, IN(NEW));
}
/* The other side closed its socket, and all that it said has been read. */
static bool hung_up(const struct explore_world *w, unsigned peer) {
    for (unsigned i = 0; i < w->n_messages; i++)
        if (w->message[i].to == peer) return false;
    return receives_lies(w, peer) || is_in(w, !peer, IN(DOWN) | IN(CLOSED));
}
static void break_socket(struct explore_world *w, unsigned peer) {
    explore_drop(w, peer, true);
}

static const struct explore_local dialer_locals[] = {
    {.event = SHM_ATTACH_EV_CONNECTED, .budget = 1, .states = IN(NEW)},
    {.event = SHM_ATTACH_EV_FAILED,
     .rescue = true,
     .states = IN(NEW) | IN(DIALING) | IN(UP) | IN(DRAINING) | IN(CLOSING)},
    {.event = SHM_ATTACH_EV_TIMEOUT, .states = IN(NEW) | IN(DIALING) | IN(CLOSING)},
    {.event = SHM_ATTACH_EV_LOST, .states = IN(DIALING) | IN(UP) | IN(CLOSING), .when = hung_up},
    {.event = SHM_ATTACH_EV_LOST,
     .rescue = true,
     .states = IN(DIALING) | IN(UP) | IN(CLOSING),
     .before = break_socket},
    {.event = SHM_ATTACH_EV_EMPTY, .states = IN(DRAINING)},
    {.event = SHM_ATTACH_EV_CLOSE},
    {.event = SHM_ATTACH_EV_ABORT, .rescue = true},
};
#define KNOWN (IN(UP) | IN(DRAINING) | IN(DOWN) | IN(CLOSING) | IN(CLOSED))
static const struct explore_local acceptor_locals[] = {
    {.event = SHM_ATTACH_EV_ACCEPTED, .budget = 1, .states = IN(NEW), .when = was_called},
    {.event = SHM_ATTACH_EV_FAILED,
     .rescue = true,
     .states = IN(HANDSHAKE) | IN(UP) | IN(DRAINING) | IN(CLOSING)},
    {.event = SHM_ATTACH_EV_TIMEOUT, .states = IN(HANDSHAKE) | IN(CLOSING)},
    {.event = SHM_ATTACH_EV_LOST, .states = IN(HANDSHAKE) | IN(UP) | IN(CLOSING), .when = hung_up},
    {.event = SHM_ATTACH_EV_LOST,
     .rescue = true,
     .states = IN(HANDSHAKE) | IN(UP) | IN(CLOSING),
     .before = break_socket},
    {.event = SHM_ATTACH_EV_EMPTY, .states = IN(DRAINING)},
    {.event = SHM_ATTACH_EV_CLOSE, .states = KNOWN},
    {.event = SHM_ATTACH_EV_ABORT, .rescue = true, .states = KNOWN},
};

static const struct explore_effect effects[SHM_ATTACH_N_EFFECTS] = {
    [SHM_ATTACH_FX_SEND_HELLO] = {EXPLORE_SEND, SHM_ATTACH_EV_HELLO},
    [SHM_ATTACH_FX_SEND_WELCOME] = {EXPLORE_SEND, SHM_ATTACH_EV_WELCOME},
    [SHM_ATTACH_FX_SEND_NO] = {EXPLORE_SEND, SHM_ATTACH_EV_NO},
    [SHM_ATTACH_FX_SEND_BYE] = {EXPLORE_SEND, SHM_ATTACH_EV_BYE},
    [SHM_ATTACH_FX_SEND_QUIT] = {EXPLORE_SEND, SHM_ATTACH_EV_QUIT},
    [SHM_ATTACH_FX_NOTIFY_UP] = {EXPLORE_NOTIFY, 0},
    [SHM_ATTACH_FX_NOTIFY_ACCEPTED] = {EXPLORE_NOTIFY, 0},
    [SHM_ATTACH_FX_NOTIFY_DOWN] = {EXPLORE_NOTIFY, 0},
    [SHM_ATTACH_FX_FINISH] = {EXPLORE_NOTIFY, 0},
    [SHM_ATTACH_FX_FORGET] = {EXPLORE_NOTIFY, 0},
};

#define ROLE(side)                                                                 \
    static const struct explore_role side = {.machine = &weft__shm_attach_machine, \
                                             .size = sizeof(struct fsm),           \
                                             .start = SHM_ATTACH_NEW,              \
                                             EXPLORE_LOCALS_OF(side##_locals),     \
                                             .effects = effects,                   \
                                             .after_violation = 1 + SHM_ATTACH_EV_FAILED};
ROLE(dialer)
ROLE(acceptor)

static const char *invariant(const struct explore_world *w) {
    for (unsigned i = 0; i < 2; i++) {
        if (w->hostile >> i & 1) continue;
        unsigned known = explore_notified(w, i, SHM_ATTACH_FX_NOTIFY_ACCEPTED),
                 down = explore_notified(w, i, SHM_ATTACH_FX_NOTIFY_DOWN);
        unsigned finished = explore_notified(w, i, SHM_ATTACH_FX_FINISH),
                 forgotten = explore_notified(w, i, SHM_ATTACH_FX_FORGET);
        bool closed = state_of(w, i) == SHM_ATTACH_CLOSED;
        if (explore_notified(w, i, SHM_ATTACH_FX_NOTIFY_UP) > 1 || known > 1)
            return "notified up once";
        if (down > 1) return "notified down once";
        if (finished + forgotten != closed)
            return "CLOSED if and only if it was finished or forgotten, once";
        if (forgotten && known) return "whom the owner knows is not forgotten";
        if (i == ACCEPTOR && (finished || down) && !known)
            return "an owner learns of no lane that it was not given";
    }
    if (!w->hostile && explore_notified(w, DIALER, SHM_ATTACH_FX_NOTIFY_UP) &&
        !explore_notified(w, ACCEPTOR, SHM_ATTACH_FX_NOTIFY_ACCEPTED))
        return "up only after the other side accepted";
    return NULL;
}

static bool agreed(const struct explore_world *w) {
    if (w->hostile) return is_in(w, w->hostile & 1 << DIALER ? ACCEPTOR : DIALER, IN(CLOSED));
    if (is_in(w, DIALER, IN(UP))) return is_in(w, ACCEPTOR, IN(UP));
    return is_in(w, DIALER, IN(CLOSED)) && is_in(w, ACCEPTOR, IN(CLOSED) | IN(NEW));
}

static void holds(uint8_t hostile) {
    struct explore_model model = {.name = "shm_attach",
                                  .role = {&dialer, &acceptor},
                                  .n_peers = 2,
                                  .hostile = hostile,
                                  .channel = {.capacity = 8},
                                  .listens = listens,
                                  .invariant = invariant,
                                  .agreed = agreed};
    CHECK(model_holds(&model));
}

TEST(an_attachment_opens_and_ends_from_every_state) {
    holds(0);
}
TEST(a_hostile_acceptor_reaches_no_bug) {
    holds(1 << ACCEPTOR);
}
TEST(a_hostile_dialer_reaches_no_bug) {
    holds(1 << DIALER);
}

TEST(every_cell_is_reached_or_has_a_reason) {
    weft__fsm_coverage_reset();
    bool before = weft__fsm_coverage(true);
    holds(0);
    holds(1 << ACCEPTOR);
    holds(1 << DIALER);
    weft__fsm_coverage(before);
    CHECK_EQ(explore_unreached(&weft__shm_attach_machine, stdout), 0);
}
