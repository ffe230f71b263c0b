/*
 * Two workers, A and B, with three lanes between them: one that A dials, one that B dials, and one
 * more that either dials when it has no link that it could use (any more). Lanes die at any time.
 * The rules by which links of one worker meet are those of endpoints/link*.c: weft__link_duplicate,
 * meet_duplicate, yield_to_standby. A has the smaller id.
 *
 * There is no TIMEOUT here: it does what LOST does, and no progress may depend on it. Agreement
 * must be reachable by the outstanding messages of the two alone.
 */
#include "tests/harness.h"

#include "shipped.h"

#include <endpoints/core/machines.h>
#include <fsm/explore/explorer.h>

enum { A, B, N_LINKS = 6 };
#define IN(state) (1u << LINK_##state)
#define JOINABLE  (IN(DIALING) | IN(HANDSHAKE) | IN(UP))

static unsigned third_dialer;

/* Links 2n and 2n + 1 are the ends of lane n: who dialed, and the accepted link at the other
 * worker. */
static bool is_dialed(unsigned link) {
    return link % 2 == 0;
}
static unsigned across(unsigned link) {
    return link ^ 1;
}
static unsigned worker_of(unsigned link) {
    unsigned dialer = link / 2 == 2 ? third_dialer : link / 2;
    return is_dialed(link) ? dialer : !dialer;
}
static bool is_in(const struct explore_world *w, unsigned link, unsigned states) {
    return states >> w->peer[link]->state & 1;
}
/* Another link of the same worker in one of these states, or N_LINKS. */
static unsigned beside(const struct explore_world *w, unsigned link, unsigned states) {
    unsigned i = 0;
    while (i < N_LINKS && (i == link || worker_of(i) != worker_of(link) || !is_in(w, i, states)))
        i++;
    return i;
}

/* ---- what happens to a link */

/* weft__link_to_peer found none; the third lane comes after the dialer's first. */
static bool may_dial(const struct explore_world *w, unsigned link) {
    if (!is_dialed(link) || beside(w, link, JOINABLE) < N_LINKS) return false;
    return link / 2 != 2 || !is_in(w, 2 * third_dialer, IN(IDLE));
}
static bool is_dialed_to(const struct explore_world *w, unsigned link) {
    return !is_dialed(link) && !is_in(w, across(link), IN(IDLE));
}
static bool dials(const struct explore_world *w, unsigned link) {
    return is_dialed(link);
}

static bool spares_yield = true; /* the rule; without it the model must find something */
static void yield_to_standby(struct explore_world *w, unsigned link) {
    unsigned standby = beside(w, link, IN(SPARE));
    if (spares_yield && is_in(w, link, JOINABLE) && standby < N_LINKS)
        weft__fsm_step(w->peer[standby], LINK_EV_ADOPT);
}

static bool listens(const struct explore_world *w, unsigned link) {
    return !is_in(w, link, IN(IDLE));
}

/* What comes to a lane after its last word is lost. */
static void forget(struct explore_world *w, unsigned link) {
    explore_drop(w, link, false);
}

static const struct explore_local locals[] = {
    {.event = LINK_EV_DIAL, .states = IN(IDLE), .when = may_dial, .rescue = true},
    {.event = LINK_EV_ACCEPTED, .states = IN(IDLE), .when = is_dialed_to},
    {.event = LINK_EV_LANE_UP, .states = IN(DIALING) | IN(CLOSING), .when = dials},
    {.event = LINK_EV_LANE_CLOSED, .states = IN(CLOSING), .after = forget},
    {.event = LINK_EV_LOST,
     .states = ~(IN(IDLE) | IN(CLOSING) | IN(CLOSED)),
     .before = yield_to_standby,
     .rescue = true},
    {.event = LINK_EV_UNUSED,
     .states = ~(IN(IDLE) | IN(CLOSING) | IN(CLOSED)),
     .when = dials,
     .before = yield_to_standby,
     .rescue = true},
};

/* A lane that is closed is read to its end, and lost, at the other side. */
static const struct explore_effect effects[LINK_N_EFFECTS] = {
    [LINK_FX_SEND_HELLO] = {EXPLORE_SEND, LINK_EV_HELLO},
    [LINK_FX_NOTIFY_UP] = {EXPLORE_NOTIFY, 0},
    [LINK_FX_LANE_FLUSH] = {EXPLORE_SEND, LINK_EV_LOST},
    [LINK_FX_LANE_ABORT] = {EXPLORE_SEND, LINK_EV_LOST},
    [LINK_FX_END] = {EXPLORE_NOTIFY, 0},
};

static bool send_msg(const struct fsm *from, unsigned effect, struct explore_message *msg) {
    return msg->to == across(msg->from) && !is_in(explore_now(), msg->to, IN(CLOSED));
}

/* hello_from_dialer and meet_duplicate. */
static unsigned hello_from_dialer(struct explore_world *w, unsigned accepted) {
    unsigned duplicate = beside(w, accepted, JOINABLE);
    if (duplicate == N_LINKS) return LINK_EV_HELLO;
    if (worker_of(accepted) == A || is_in(w, duplicate, IN(UP))) return LINK_EV_HELLO_LOSES;
    weft__fsm_step(w->peer[duplicate], LINK_EV_SUPERSEDED);
    return LINK_EV_HELLO_WINS;
}

static bool recv_msg(struct fsm *to, const struct explore_message *msg, unsigned *event_p) {
    struct explore_world *w = explore_now();
    if (msg->event == LINK_EV_LOST) yield_to_standby(w, to->id);
    if (msg->event == LINK_EV_HELLO && !is_dialed(to->id)) *event_p = hello_from_dialer(w, to->id);
    return true;
}

/* ---- what must hold */

static const char *invariant(const struct explore_world *w) {
    unsigned joinable[2] = {0, 0}, spares[2] = {0, 0};
    for (unsigned i = 0; i < N_LINKS; i++) {
        if (explore_notified(w, i, LINK_FX_NOTIFY_UP) > 1 ||
            explore_notified(w, i, LINK_FX_END) > 1)
            return "each is notified once";
        joinable[worker_of(i)] += is_in(w, i, JOINABLE);
        spares[worker_of(i)] += is_in(w, i, IN(SPARE));
    }
    if (joinable[A] > 1 || joinable[B] > 1) return "two links that both believe to be the link";
    if ((spares[A] && !joinable[A]) || (spares[B] && !joinable[B]))
        return "a spare, and nothing that it is spare to";
    return NULL;
}

static bool agreed(const struct explore_world *w) {
    if (w->n_messages) return false;
    for (unsigned i = 0; i < N_LINKS; i += 2) {
        bool up = is_in(w, i, IN(UP)) && is_in(w, i + 1, IN(UP));
        bool none = is_in(w, i, IN(IDLE) | IN(CLOSED)) && is_in(w, i + 1, IN(IDLE) | IN(CLOSED));
        if (!up && !none) return false;
    }
    return true;
}

static const struct explore_role role = {.machine = &weft__link_machine,
                                         .size = sizeof(struct link_core),
                                         .start = LINK_IDLE,
                                         EXPLORE_LOCALS_OF(locals),
                                         .effects = effects,
                                         .after_violation = 1 + LINK_EV_LOST};
static const struct explore_model model = {.name = "links",
                                           .role = {&role, &role, &role, &role, &role, &role},
                                           .n_peers = N_LINKS,
                                           .channel = {.room = 14},
                                           .max_states = 3000000,
                                           .send_msg = send_msg,
                                           .recv_msg = recv_msg,
                                           .listens = listens,
                                           .invariant = invariant,
                                           .agreed = agreed};

static struct explore_result result;
static bool holds(void) {
    bool ok = explore(&model, &result);
    printf("  "), explore_print(&result, stdout);
    return ok && result.truncated == 0;
}

TEST(a_worker_with_the_smaller_id_dials_again) {
    third_dialer = A;
    CHECK(holds());
}

TEST(a_worker_with_the_larger_id_dials_again) {
    third_dialer = B;
    CHECK(holds());
}

/* The model can see. */
TEST(a_spare_that_never_takes_over_is_found) {
    third_dialer = A;
    spares_yield = false;
    bool ok = explore(&model, &result);
    spares_yield = true;
    CHECK(!ok);
    printf("  %s: %s\n", result.why, result.trace);
}

TEST(the_explored_table_is_the_shipped_one) {
    CHECK(links_shipped("link", "machines.c"));
}
