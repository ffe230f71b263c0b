/*
 * Two workers, A and B, that may both dial: four links on two lanes. A has the smaller id, so that
 * the lane that A dialed is to win. Links of one worker meet in meet_duplicate() and
 * yield_to_standby(), which the model repeats.
 */
#include "tests/harness.h"
#include "tests/model.h"

#include "shipped.h"

#include <endpoints/core/machines.h>
#include <fsm/explore/explorer.h>

enum { A_DIALED, A_ACCEPTED, B_DIALED, B_ACCEPTED };
#define IN(state) (1u << LINK_##state)

static unsigned across(unsigned link) {
    return 3 - link;
} /* the other end of its lane */
static unsigned beside(unsigned link) {
    return link ^ 1;
} /* of the same worker */
static bool is_dialed(unsigned link) {
    return link % 2 == 0;
}
static bool is_in(const struct explore_world *w, unsigned link, unsigned states) {
    return states >> w->peer[link]->state & 1;
}

/* ---- what happens to a link */

static bool may_dial(const struct explore_world *w, unsigned link) {
    return is_dialed(link) && !is_in(w, beside(link), IN(UP));
}
static bool is_dialed_to(const struct explore_world *w, unsigned link) {
    return !is_dialed(link) &&
           (w->hostile >> across(link) & 1 || !is_in(w, across(link), IN(IDLE)));
}
static bool dials(const struct explore_world *w, unsigned link) {
    return is_dialed(link);
}

/* The spare takes over before the link ends. */
static void yield_to_standby(struct explore_world *w, unsigned link) {
    if (is_in(w, link, IN(DIALING) | IN(HANDSHAKE) | IN(UP)) && is_in(w, beside(link), IN(SPARE)))
        weft__fsm_step(w->peer[beside(link)], LINK_EV_ADOPT);
}

static bool listens(const struct explore_world *w, unsigned link) {
    return !is_in(w, link, IN(IDLE) | IN(CLOSED));
}

static const struct explore_local locals[] = {
    {.event = LINK_EV_DIAL, .states = IN(IDLE), .when = may_dial, .rescue = true},
    {.event = LINK_EV_ACCEPTED, .states = IN(IDLE), .when = is_dialed_to},
    {.event = LINK_EV_LANE_UP, .states = IN(DIALING) | IN(CLOSING), .when = dials},
    {.event = LINK_EV_LANE_CLOSED, .states = IN(CLOSING)},
    {.event = LINK_EV_LOST,
     .states = ~(IN(IDLE) | IN(CLOSED)),
     .before = yield_to_standby,
     .rescue = true},
    {.event = LINK_EV_TIMEOUT, .armed = true, .before = yield_to_standby},
    {.event = LINK_EV_UNUSED,
     .states = ~(IN(IDLE) | IN(CLOSED)),
     .when = dials,
     .before = yield_to_standby,
     .rescue = true},
    {.event = LINK_EV_CLOSE, .states = ~(IN(IDLE) | IN(CLOSED)), .rescue = true},
};

/* A lane that is closed is read to its end, and lost, at the other side. */
static const struct explore_effect effects[LINK_N_EFFECTS] = {
    [LINK_FX_SEND_HELLO] = {EXPLORE_SEND, LINK_EV_HELLO},
    [LINK_FX_TIMER_START] = {EXPLORE_ARM, LINK_EV_TIMEOUT},
    [LINK_FX_TIMER_STOP] = {EXPLORE_DISARM, LINK_EV_TIMEOUT},
    [LINK_FX_NOTIFY_UP] = {EXPLORE_NOTIFY, 0},
    [LINK_FX_LANE_FLUSH] = {EXPLORE_SEND, LINK_EV_LOST},
    [LINK_FX_LANE_ABORT] = {EXPLORE_SEND, LINK_EV_LOST},
    [LINK_FX_END] = {EXPLORE_NOTIFY, 0},
};

static bool send_msg(const struct fsm *from, unsigned effect, struct explore_message *msg) {
    return msg->to == across(msg->from);
}

/* hello_from_dialer and meet_duplicate. */
static unsigned hello_from_dialer(struct explore_world *w, unsigned accepted) {
    unsigned duplicate = beside(accepted);
    if (!is_in(w, duplicate, IN(DIALING) | IN(HANDSHAKE) | IN(UP))) return LINK_EV_HELLO;
    if (accepted != B_ACCEPTED || is_in(w, duplicate, IN(UP))) return LINK_EV_HELLO_LOSES;
    weft__fsm_step(w->peer[duplicate], LINK_EV_SUPERSEDED);
    return LINK_EV_HELLO_WINS;
}

static bool recv_msg(struct fsm *to, const struct explore_message *msg, unsigned *event_p) {
    struct explore_world *w = explore_now();
    if (msg->event == LINK_EV_LOST) yield_to_standby(w, to->id);
    if (msg->payload[0] == 1) return true; /* it claims to be another worker */
    if (msg->event != LINK_EV_HELLO || is_dialed(to->id)) return true;
    bool resumes = msg->payload[0] && to->state == LINK_AWAIT;
    if (resumes)
        *event_p = msg->payload[0] == 2 ? LINK_EV_HELLO_STALE : LINK_EV_GIVEN;
    else
        *event_p = hello_from_dialer(w, to->id);
    return true;
}

/* A hello by its own name, by another's, to resume a link that is not there, or that is, or in
 * another version; who wins is not on the wire. */
static bool lie(const struct fsm *to, unsigned choice, struct explore_message *msg) {
    msg->payload[0] = choice;
    return choice < 4 && msg->event != LINK_EV_HELLO_WINS && msg->event != LINK_EV_HELLO_LOSES &&
           msg->event != LINK_EV_HELLO_STALE;
}

/* ---- what must hold */

static const char *invariant(const struct explore_world *w) {
    unsigned up[2] = {0, 0};
    for (unsigned i = 0; i < 4; i++) {
        unsigned notified = explore_notified(w, i, LINK_FX_NOTIFY_UP),
                 end = explore_notified(w, i, LINK_FX_END);
        if (w->hostile >> i & 1) continue;
        up[i / 2] += is_in(w, i, IN(UP));
        if (notified > 1 || end > 1) return "each is notified once";
        if (is_in(w, i, IN(UP)) && !notified) return "UP implies that endpoints were notified";
        if (end != is_in(w, i, IN(CLOSED))) return "CLOSED if and only if the link was forgotten";
        if (is_dialed(i) && is_in(w, i, IN(SPARE) | IN(AWAIT)))
            return "a dialed link acts as an accepted one";
        if (!is_dialed(i) && is_in(w, i, IN(DIALING) | IN(HANDSHAKE)))
            return "an accepted link dials";
    }
    return !w->hostile && (up[0] > 1 || up[1] > 1) ? "two links are up between the same two workers"
                                                   : NULL;
}

static bool rest_alike(const struct explore_world *w, unsigned link) {
    unsigned other = across(link);
    if (is_in(w, link, IN(UP))) return is_in(w, other, IN(UP));
    return is_in(w, link, IN(IDLE) | IN(CLOSED)) && is_in(w, other, IN(IDLE) | IN(CLOSED));
}
static bool agreed(const struct explore_world *w) {
    for (unsigned i = 0; i < w->n_messages; i++)
        if (!is_in(w, w->message[i].to, IN(CLOSED))) return false;
    return rest_alike(w, A_DIALED) && rest_alike(w, A_ACCEPTED);
}

static const struct explore_role role = {.machine = &weft__link_machine,
                                         .size = sizeof(struct link_core),
                                         .start = LINK_IDLE,
                                         EXPLORE_LOCALS_OF(locals),
                                         .effects = effects,
                                         .after_violation = 1 + LINK_EV_LOST};
static const struct explore_model model = {.name = "link",
                                           .role = {&role, &role, &role, &role},
                                           .n_peers = 4,
                                           .channel = {.room = 12},
                                           .payload = 1,
                                           .send_msg = send_msg,
                                           .recv_msg = recv_msg,
                                           .listens = listens,
                                           .invariant = invariant,
                                           .agreed = agreed};

TEST(workers_that_both_dial_end_with_one_link) {
    weft__fsm_coverage_reset();
    CHECK(model_holds(&model));
}

/* B says anything: on the lane that it dialed and on the one that it accepted. */
TEST(a_hostile_worker_breaks_nothing) {
    struct explore_model hostile = model;
    hostile.hostile = 1 << B_DIALED | 1 << B_ACCEPTED, hostile.agreed = NULL, hostile.lie = lie,
    hostile.payload = 1;
    CHECK(model_holds(&hostile));
}

TEST(another_hostile_worker_breaks_nothing) {
    struct explore_model hostile = model;
    hostile.hostile = 1 << A_DIALED | 1 << A_ACCEPTED, hostile.agreed = NULL, hostile.lie = lie,
    hostile.payload = 1;
    CHECK(model_holds(&hostile));
}

/* ---- a link that is to outlive its lanes, whose first one breaks before its HELLO, and the
 * accepted links of both lanes */

enum { DIALER, FIRST_ACCEPTED, SECOND_ACCEPTED };

static unsigned accepted_in_use(const struct explore_world *w) {
    return FIRST_ACCEPTED + explore_notified(w, DIALER, LINK_FX_LANE_AGAIN);
}
static bool its_lane_is_there(const struct explore_world *w, unsigned accepted) {
    return accepted <= accepted_in_use(w) && !is_in(w, DIALER, IN(IDLE));
}
static bool its_lane_broke(const struct explore_world *w, unsigned accepted) {
    return accepted != accepted_in_use(w);
}

static const struct explore_local begins_again[] = {
    {.event = LINK_EV_DIAL, .states = IN(IDLE), .rescue = true},
    {.event = LINK_EV_LANE_UP, .states = IN(DIALING) | IN(CLOSING)},
    {.event = LINK_EV_LANE_CLOSED, .states = IN(CLOSING)},
    {.event = LINK_EV_AGAIN, .states = IN(DIALING) | IN(HANDSHAKE), .budget = 1, .rescue = true},
    {.event = LINK_EV_LOST, .states = ~(IN(IDLE) | IN(CLOSED)), .rescue = true},
    {.event = LINK_EV_TIMEOUT, .armed = true},
    {.event = LINK_EV_CLOSE, .states = ~(IN(IDLE) | IN(CLOSED)), .rescue = true},
};
static const struct explore_local is_found[] = {
    {.event = LINK_EV_ACCEPTED, .states = IN(IDLE), .when = its_lane_is_there},
    {.event = LINK_EV_LANE_CLOSED, .states = IN(CLOSING)},
    {.event = LINK_EV_LOST, .states = ~(IN(IDLE) | IN(CLOSED)), .when = its_lane_broke},
    {.event = LINK_EV_LOST, .states = ~(IN(IDLE) | IN(CLOSED)), .rescue = true},
    {.event = LINK_EV_TIMEOUT, .armed = true},
    {.event = LINK_EV_CLOSE, .states = ~(IN(IDLE) | IN(CLOSED)), .rescue = true},
};

static const struct explore_effect effects_again[LINK_N_EFFECTS] = {
    [LINK_FX_SEND_HELLO] = {EXPLORE_SEND, LINK_EV_HELLO},
    [LINK_FX_TIMER_START] = {EXPLORE_ARM, LINK_EV_TIMEOUT},
    [LINK_FX_TIMER_STOP] = {EXPLORE_DISARM, LINK_EV_TIMEOUT},
    [LINK_FX_NOTIFY_UP] = {EXPLORE_NOTIFY, 0},
    [LINK_FX_LANE_AGAIN] = {EXPLORE_NOTIFY, 0},
    [LINK_FX_LANE_FLUSH] = {EXPLORE_SEND, LINK_EV_LOST},
    [LINK_FX_LANE_ABORT] = {EXPLORE_SEND, LINK_EV_LOST},
    [LINK_FX_END] = {EXPLORE_NOTIFY, 0},
};

/* What was said by the lane that broke may come to the accepted link still; the dialer has left
 * it. */
static bool send_by_lane(const struct fsm *from, unsigned effect, struct explore_message *msg) {
    unsigned accepted = accepted_in_use(explore_now());
    return from->id == DIALER ? msg->to == accepted : msg->to == DIALER && from->id == accepted;
}
static bool recv_by_lane(struct fsm *to, const struct explore_message *msg, unsigned *event_p) {
    return to->id != DIALER || msg->from == accepted_in_use(explore_now());
}

static const char *notified_once(const struct explore_world *w) {
    for (unsigned i = 0; i < 3; i++) {
        if (explore_notified(w, i, LINK_FX_NOTIFY_UP) > 1) return "notified up twice";
        if (explore_notified(w, i, LINK_FX_END) != is_in(w, i, IN(CLOSED)))
            return "CLOSED if and only if it was forgotten";
    }
    bool lone = is_in(w, DIALER, IN(UP)) && is_in(w, accepted_in_use(w), IN(IDLE) | IN(AWAIT));
    return lone ? "up without a handshake" : NULL;
}

static bool agreed_by_lane(const struct explore_world *w) {
    const unsigned rest = IN(IDLE) | IN(CLOSED), accepted = accepted_in_use(w);
    for (unsigned i = 0; i < w->n_messages; i++)
        if (!is_in(w, w->message[i].to, IN(CLOSED)) && w->message[i].from != FIRST_ACCEPTED)
            return false;
    if (accepted == SECOND_ACCEPTED && !is_in(w, FIRST_ACCEPTED, rest)) return false;
    return is_in(w, DIALER, IN(UP)) ? is_in(w, accepted, IN(UP))
                                    : is_in(w, DIALER, rest) && is_in(w, accepted, rest);
}

#define ROLE_AGAIN(list)                                                                       \
    {                                                                                          \
        .machine = &weft__link_machine, .size = sizeof(struct link_core), .start = LINK_IDLE,  \
        EXPLORE_LOCALS_OF(list), .effects = effects_again, .after_violation = 1 + LINK_EV_LOST \
    }

TEST(a_lane_that_breaks_before_its_handshake_is_replaced) {
    static const struct explore_role dialer = ROLE_AGAIN(begins_again),
                                     accepted = ROLE_AGAIN(is_found);
    const struct explore_model again = {.name = "link_again",
                                        .role = {&dialer, &accepted, &accepted},
                                        .n_peers = 3,
                                        .channel = {.room = 8},
                                        .payload = 1,
                                        .send_msg = send_by_lane,
                                        .recv_msg = recv_by_lane,
                                        .listens = listens,
                                        .invariant = notified_once,
                                        .agreed = agreed_by_lane};
    CHECK(model_holds(&again));
}

TEST(the_explored_table_is_the_shipped_one) {
    CHECK(links_shipped("link", "machines.c"));
}

/* After the explorations above. The one that is left needs a worker that dials a second time;
 * here each dials once. */
TEST(every_other_cell_is_reached_or_has_a_reason) {
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    explore_unreached(&weft__link_machine, out);
    fclose(out);
    bool as_sent = strcmp(text, "HELLO_WINS SPARE\n") == 0;
    if (!as_sent) printf("%s", text);
    free(text);
    CHECK(as_sent);
}
