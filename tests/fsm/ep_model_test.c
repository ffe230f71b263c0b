/*
 * An endpoint that connects and the halves that its peer makes for it, over links that keep order
 * and may break. A dials; B is the half behind the first link, C the one behind the second, when
 * the first was hung up too early.
 */
#include "tests/harness.h"
#include "tests/model.h"

#include "shipped.h"

#include <endpoints/core/machines.h>
#include <fsm/explore/explorer.h>

enum { A, B, C, NOOP };
enum { OPEN = EP_EV_CONNECT }; /* on the wire; no event of the machine's: it makes a half */
#define IN(state) (1u << EP_##state)

struct side {
    struct ep_core core;
    uint8_t other;   /* A: whose half; B, C: A */
    uint8_t gone;    /* the link, for this side */
    uint8_t closing; /* the user asked */
    uint8_t paused;  /* A: it has left the first link, and not dialed the second */
};
static struct side *side_of(const struct explore_world *w, unsigned peer) {
    return (struct side *)w->peer[peer];
}

static void init(struct fsm *m, unsigned peer) {
    ((struct side *)m)->other = peer == A ? B : A;
}

/* ---- the link */

static bool has_link(const struct explore_world *w, unsigned peer) {
    return !side_of(w, peer)->gone;
}
static bool other_lost_it(const struct explore_world *w, unsigned peer) {
    const struct side *s = side_of(w, peer);
    const struct side *a = side_of(w, A);
    bool cut = peer == A ? side_of(w, s->other)->gone : a->gone || a->other != peer;
    return !s->gone && cut;
}

/* What came so far is lost with the link; what was sent may still arrive. weft__ep_link_gone. */
static void lose_link(struct explore_world *w, unsigned peer) {
    side_of(w, peer)->gone = 1;
    side_of(w, peer)->core.peer = 0;
    explore_drop(w, peer, false);
}

static bool may_redial(const struct explore_world *w, unsigned peer) {
    return !side_of(w, A)->gone && side_of(w, A)->other == B;
}
static void redial(struct explore_world *w, unsigned peer) {
    explore_drop(w, A, false);
    side_of(w, A)->other = C;
}
static bool has_paused(const struct explore_world *w, unsigned peer) {
    return side_of(w, A)->paused;
}
/* Until then it has no link: what came is lost with the one that broke. */
static void pause_before_redial(struct explore_world *w, unsigned peer) {
    redial(w, peer);
    side_of(w, A)->paused = 1;
    side_of(w, A)->gone = 1;
}
static void redial_paused(struct explore_world *w, unsigned peer) {
    side_of(w, A)->paused = 0;
    side_of(w, A)->gone = 0;
}

/* ---- the user */

static bool may_close(const struct explore_world *w, unsigned peer) {
    return !side_of(w, peer)->closing;
}
static void closing(struct explore_world *w, unsigned peer) {
    side_of(w, peer)->closing = 1;
}

/* What either half does. Every user closes what failed. */
#define EITHER_HALF                                                                         \
    {.event = EP_EV_CLOSE,                                                                  \
     .states = MAY_CLOSE,                                                                   \
     .when = may_close,                                                                     \
     .before = closing,                                                                     \
     .rescue = true},                                                                       \
        {.event = EP_EV_ABORT,                                                              \
         .states = MAY_CLOSE,                                                               \
         .when = may_close,                                                                 \
         .before = closing,                                                                 \
         .rescue = true},                                                                   \
        {.event = EP_EV_ABORT,                                                              \
         .states = ~IN(IDLE),                                                               \
         .before = closing,                                                                 \
         .rescue = true}, /* the worker's end, or the user's second call */                 \
        {.event = EP_EV_CLOSE, .states = IN(LOST), .when = may_close, .before = closing},   \
        {.event = EP_EV_DRAINED, .armed = true},                                            \
        {.event = EP_EV_GONE,                                                               \
         .states = HAS_LINK,                                                                \
         .when = has_link,                                                                  \
         .before = lose_link,                                                               \
         .rescue = true},                                                                   \
    {                                                                                       \
        .event = EP_EV_GONE, .states = HAS_LINK, .when = other_lost_it, .before = lose_link \
    }
#define MAY_CLOSE ~(IN(IDLE) | IN(CLOSED) | IN(DRAIN))
#define HAS_LINK  ~(IN(IDLE) | IN(CLOSED))

static const struct explore_local locals[] = {
    {.event = EP_EV_CONNECT, .budget = 1, .states = IN(IDLE), .when = NULL, .rescue = true},
    {.event = EP_EV_LINK_UP, .states = IN(WAIT), .when = has_link},
    {.event = EP_EV_LINK_UP, .states = IN(DRAIN) | IN(LOST), .when = has_link},
    EITHER_HALF,
    {.event = EP_EV_REDIAL,
     .states = IN(WAIT) | IN(OPENING) | IN(DRAIN) | IN(LOST),
     .when = may_redial,
     .before = redial,
     .rescue = true},
    {.event = EP_EV_PAUSE,
     .states = IN(WAIT),
     .when = may_redial,
     .before = pause_before_redial,
     .rescue = true},
    {.event = EP_EV_REDIAL, .states = IN(PAUSED), .when = has_paused, .before = redial_paused},
    {.event = EP_EV_GONE, .states = IN(PAUSED), .rescue = true}, /* the dial was refused */
    {.event = EP_EV_TIMEOUT,
     .states = IN(WAIT) | IN(PAUSED) | IN(OPENING) | IN(DRAIN) | IN(LOST),
     .rescue = true},
};
/* The peer's half is made by OPEN, and has no dial of its own to repeat. */
static const struct explore_local half_locals[] = {
    EITHER_HALF,
    {.event = EP_EV_TIMEOUT, .states = IN(READY) | IN(DRAIN), .rescue = true},
};

static const struct explore_effect effects[EP_N_EFFECTS] = {
    [EP_FX_SEND_OPEN] = {EXPLORE_SEND, OPEN},
    [EP_FX_SEND_ACCEPT] = {EXPLORE_SEND, EP_EV_ACCEPT},
    [EP_FX_SEND_CLOSE] = {EXPLORE_SEND, EP_EV_FIN},
    [EP_FX_WATCH] = {EXPLORE_ARM, EP_EV_DRAINED},
    [EP_FX_NOTIFY_READY] = {EXPLORE_NOTIFY, 0},
    [EP_FX_NOTIFY_ENDPOINT] = {EXPLORE_NOTIFY, 0},
    [EP_FX_NOTIFY_ERROR] = {EXPLORE_NOTIFY, 0},
    [EP_FX_GO] = {EXPLORE_NOTIFY, 0},
    [EP_FX_END] = {EXPLORE_NOTIFY, 0},
};

/* send_one: without a link nothing is said. */
static bool send_msg(const struct fsm *from, unsigned effect, struct explore_message *msg) {
    const struct side *s = (const struct side *)from;
    return msg->to == s->other && !s->gone;
}

static void answer(const struct explore_message *msg, uint8_t event) {
    explore_send(&(struct explore_message){.from = msg->to, .to = msg->from, .event = event});
}

/* weft__ep_on_open, _accept, _reject, _close: a handle that is gone is not found by its id. */
static bool recv_as(struct fsm *to, const struct explore_message *msg, unsigned *event_p,
                    bool admit) {
    struct side *s = (struct side *)to;
    bool found = to->state != EP_IDLE && to->state != EP_CLOSED;
    if (msg->from != s->other) return false; /* of a link that is no more */
    switch (msg->event) {
    case OPEN:
        if (to->id == A || to->state != EP_IDLE)
            return false; /* the peer would make one half more, which is one like this */
        if (!admit) {
            answer(msg, EP_EV_REJECT);
            return false;
        }
        s->core.peer = 1 + msg->from;
        *event_p = EP_EV_PASSIVE;
        return true;
    case EP_EV_ACCEPT:
        if (!found) {
            answer(msg, EP_EV_FIN);
            return false;
        }
        if (!s->core.peer) s->core.peer = 1 + msg->from;
        return true;
    case EP_EV_FIN:
        if (found) s->core.peer = 0;
        return found;
    default: return found;
    }
}
static bool recv_msg(struct fsm *to, const struct explore_message *msg, unsigned *event_p) {
    return recv_as(to, msg, event_p, true);
}
static bool recv_and_reject(struct fsm *to, const struct explore_message *msg, unsigned *event_p) {
    return recv_as(to, msg, event_p, false);
}

/* Over the link that there is: any message, and an OPEN. */
static bool lie(const struct fsm *to, unsigned choice, struct explore_message *msg) {
    msg->from = ((const struct side *)to)->other;
    if (choice == 1) msg->event = OPEN;
    return choice < 2;
}

static const char *invariant(const struct explore_world *w) {
    for (unsigned i = A; i <= C; i++) {
        const struct side *s = side_of(w, i);
        unsigned state = s->core.fsm.state, ready = explore_notified(w, i, EP_FX_NOTIFY_READY);
        unsigned made = explore_notified(w, i, EP_FX_NOTIFY_ENDPOINT),
                 end = explore_notified(w, i, EP_FX_END);
        if (w->hostile >> i & 1) continue;
        if (ready > 1 || made > 1 || explore_notified(w, i, EP_FX_NOTIFY_ERROR) > 1)
            return "each is notified once";
        if ((i == A ? made : ready) > 0) return "notified what the other side is notified";
        if (end != (state == EP_CLOSED))
            return "CLOSED if and only if the close was notified, once";
        if (state == EP_READY && !explore_notified(w, i, EP_FX_GO))
            return "READY implies that sends go";
        if (explore_notified(w, i, EP_FX_GO) > 1) return "sends begin to go once";
        if (state == EP_READY && s->core.peer == 0) return "READY without a peer";
        if ((state == EP_DRAIN || state == EP_CLOSED) && s->core.peer && s->gone)
            return "a peer behind a lost link";
        if (state == EP_CLOSED && !s->closing) return "closed, and not asked to";
    }
    return NULL;
}

static bool rests(const struct explore_world *w, unsigned i) {
    unsigned state = w->peer[i]->state;
    return state == EP_IDLE || state == EP_LOST || state == EP_CLOSED;
}
static bool agreed(const struct explore_world *w) {
    unsigned other = side_of(w, A)->other;
    bool up = w->peer[A]->state == EP_READY && w->peer[other]->state == EP_READY &&
              rests(w, B + C - other);
    for (unsigned i = 0; i < w->n_messages; i++)
        if (has_link(w, w->message[i].to)) return false;
    return (up || (rests(w, A) && rests(w, B) && rests(w, C)));
}

static const struct explore_role dialer = {.machine = &weft__ep_machine,
                                           .size = sizeof(struct side),
                                           .start = EP_IDLE,
                                           EXPLORE_LOCALS_OF(locals),
                                           .effects = effects,
                                           .init = init,
                                           .after_violation = 1 + EP_EV_GONE};
static const struct explore_role half = {.machine = &weft__ep_machine,
                                         .size = sizeof(struct side),
                                         .start = EP_IDLE,
                                         EXPLORE_LOCALS_OF(half_locals),
                                         .effects = effects,
                                         .init = init,
                                         .after_violation = 1 + EP_EV_GONE};

static const struct explore_model model = {.name = "ep",
                                           .role = {&dialer, &half, &half},
                                           .n_peers = 3,
                                           .channel = {.room = 8},
                                           .payload = 1,
                                           .send_msg = send_msg,
                                           .recv_msg = recv_msg,
                                           .listens = has_link,
                                           .invariant = invariant,
                                           .agreed = agreed};

TEST(open_and_close_agree) {
    weft__fsm_coverage_reset();
    CHECK(model_holds(&model));
}

TEST(a_rejected_open_agrees) {
    struct explore_model rejecting = model;
    rejecting.recv_msg = recv_and_reject;
    CHECK(model_holds(&rejecting));
}

TEST(hostile_halves_break_nothing) {
    struct explore_model hostile = model;
    hostile.hostile = 1 << B | 1 << C, hostile.agreed = NULL, hostile.lie = lie;
    CHECK(model_holds(&hostile));
}

TEST(a_hostile_dialer_breaks_nothing) {
    struct explore_model hostile = model;
    hostile.hostile = 1 << A, hostile.agreed = NULL, hostile.lie = lie;
    CHECK(model_holds(&hostile));
}

/* After the explorations above. */
TEST(every_cell_is_reached_or_has_a_reason) {
    CHECK_EQ(explore_unreached(&weft__ep_machine, stdout), 0);
}

static bool recv_and_keep_silent(struct fsm *to, const struct explore_message *msg,
                                 unsigned *event_p) {
    if (msg->event == EP_EV_ACCEPT && to->state == EP_CLOSED) return false;
    return recv_msg(to, msg, event_p);
}

/* The model can see: if an ACCEPT is not answered for a handle that is gone, the peer's half
 * waits for ever. */
TEST(an_accept_that_no_one_answers_is_found) {
    struct explore_model silent = model;
    struct explore_result result;
    silent.recv_msg = recv_and_keep_silent;
    CHECK(!explore(&silent, &result));
    CHECK(strcmp(result.why, "no agreed state can be reached any more") == 0);
    printf("  %s\n", result.trace);
}

TEST(the_explored_table_is_the_shipped_one) {
    CHECK(links_shipped("ep", "machines.c"));
}
