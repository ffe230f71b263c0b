/*
 * A link that outlives its lanes, explored: a dialer and the other side send three messages each,
 * lanes die twice under either of them, and the other side may crash and come back as another
 * else. Each message is delivered once and in order, or the link is lost to both.
 */
#include "tests/harness.h"
#include "tests/model.h"

#include "shipped.h"

#include <endpoints/failover/resume.h>
#include <fsm/explore/explorer.h>

enum { DIALER, OTHER };
#define IN(state) (1u << RESUME_##state)

/* Lanes are distinguished by the try that made them; the first is of none. */
struct payload {
    uint8_t lane, number; /* of a message; or what has come */
};
static const char *fault; /* found while something is received */

static struct resume *of(const struct explore_world *w, unsigned peer) {
    return (struct resume *)w->peer[peer];
}
static bool is_in(const struct explore_world *w, unsigned peer, unsigned states) {
    return states >> w->peer[peer]->state & 1;
}

/* ---- lanes that die -------------------------------------------------------------------------- */

/* What was on the way here is lost; what was said may still arrive. */
static void lane_dies(struct explore_world *w, unsigned peer) {
    explore_drop(w, peer, false);
}

/* The same, but a handshake on a new lane may still arrive. */
static void lane_in_use_dies(struct explore_world *w, unsigned peer) {
    const uint32_t lane = of(w, peer)->epoch;
    unsigned n = 0;
    for (unsigned i = 0; i < w->n_messages; i++)
        if (w->message[i].to != peer || w->message[i].payload[0] > lane)
            w->message[n++] = w->message[i];
    memset(&w->message[n], 0, (w->n_messages - n) * sizeof *w->message);
    w->n_messages = n;
}

/* The other end is not on this lane any more, and never will be. */
static bool is_alone(const struct explore_world *w, unsigned peer) {
    const struct resume *mine = of(w, peer), *other = of(w, !peer);
    if (peer == OTHER)
        return !is_in(w, DIALER, IN(STEADY) | IN(HANDSHAKE)) || other->epoch != mine->epoch;
    return !is_in(w, OTHER, IN(STEADY)) || other->epoch != mine->epoch;
}

/* Nothing of this try is on the way any more. */
static bool no_one_answers(const struct explore_world *w, unsigned peer) {
    for (unsigned i = 0; i < w->n_messages; i++)
        if (w->message[i].payload[0] == of(w, peer)->epoch) return false;
    return true;
}

/* All that it knew is gone, and with it what was on the way to it. */
static void crashes(struct explore_world *w, unsigned peer) {
    struct resume *r = of(w, peer);
    explore_drop(w, peer, false);
    r->sent = r->acked = r->delivered = 0;
}

/* What is on the way to this peer by the lane that comes next is held up, until all that other
 * lanes bring has come. */
static void stalls(struct explore_world *w, unsigned peer) {
    struct explore_message held[EXPLORE_MESSAGES];
    unsigned first = 0, n_held = 0, n = 0;
    while (first < w->n_messages && w->message[first].to != peer) first++;
    if (first == w->n_messages) return;
    const uint8_t lane = w->message[first].payload[0];
    for (unsigned i = 0; i < w->n_messages; i++) {
        const struct explore_message msg = w->message[i];
        if (msg.to == peer && msg.payload[0] == lane)
            held[n_held++] = msg;
        else
            w->message[n++] = msg;
    }
    for (unsigned i = 0; i < n_held; i++) w->message[n++] = held[i];
}

static void send_ack(struct explore_world *w, unsigned peer) {
    const struct resume *r = of(w, peer);
    struct explore_message msg = {.from = (uint8_t)peer, .to = !peer, .event = RESUME_EV_ACK};
    const struct payload p = {.lane = (uint8_t)r->epoch, .number = (uint8_t)r->delivered};
    memcpy(msg.payload, &p, sizeof p);
    explore_send(&msg);
}

/* A budget, and the states for it; none for a budget of 0. */
#define AT_MOST(times, where) \
    .budget = (times) ? (times) : 1, .states = (times) ? (where) : UINT32_C(1) << 31
#define BOTH(messages, acks, deaths)                                                              \
    {.event = RESUME_EV_SEND, AT_MOST(messages, IN(STEADY)), .rescue = true},                     \
        {.event = RESUME_EV_STALE, AT_MOST(acks, IN(STEADY)), .after = send_ack, .rescue = true}, \
        {.event = RESUME_EV_LOST,                                                                 \
         AT_MOST(deaths, IN(STEADY)),                                                             \
         .before = lane_dies,                                                                     \
         .rescue = true},                                                                         \
        {.event = RESUME_EV_LOST, .states = IN(STEADY), .when = is_alone, .before = lane_dies}, { \
        .event = RESUME_EV_GIVE_UP, .armed = true                                                 \
    }
/* What was under way when the link was given up. */
#define LATE(e) \
    { .event = RESUME_EV_##e, .budget = 1, .states = IN(OVER), .rescue = true }
#define TRIES(due, missed)                                                                         \
    {.event = RESUME_EV_DUE, .budget = (due), .armed = true},                                      \
        {.event = RESUME_EV_LANE_UP, .states = IN(DIALING)},                                       \
        {.event = RESUME_EV_MISSED, AT_MOST(missed, IN(DIALING) | IN(HANDSHAKE)), .rescue = true}, \
    {                                                                                              \
        .event = RESUME_EV_MISSED, .states = IN(HANDSHAKE), .when = no_one_answers                 \
    }
#define DIALER_TRIES(missed) TRIES(3, missed)
#define DIALER_DOES(messages, acks, deaths, missed) \
    { BOTH(messages, acks, deaths), DIALER_TRIES(missed) }
#define OTHER_DOES(messages, acks, deaths, crash)                                                  \
    {                                                                                              \
        BOTH(messages, acks, deaths), {                                                            \
            .event = RESUME_EV_GIVE_UP, AT_MOST(crash, IN(STEADY) | IN(ADRIFT)), .after = crashes, \
            .rescue = true                                                                         \
        }                                                                                          \
    }

/* Neither side gives up: there is no failover timeout, and no crash. */
#define SENDS(messages, deaths)                                               \
    {.event = RESUME_EV_SEND, AT_MOST(messages, IN(STEADY)), .rescue = true}, \
        {.event = RESUME_EV_LOST,                                             \
         AT_MOST(deaths, IN(STEADY)),                                         \
         .before = lane_in_use_dies,                                          \
         .rescue = true},                                                     \
        {.event = RESUME_EV_LOST,                                             \
         .states = IN(STEADY),                                                \
         .when = is_alone,                                                    \
         .before = lane_in_use_dies},
#define PATIENT_DIALER_DOES(messages, deaths, missed) \
    { SENDS(messages, deaths) TRIES(6, missed) }
#define PATIENT_OTHER_DOES(messages, deaths, stalled)                                              \
    {                                                                                              \
        SENDS(messages, deaths) {                                                                  \
            .event = RESUME_EV_STALE, AT_MOST(stalled, IN(STEADY) | IN(ADRIFT)), .before = stalls, \
            .rescue = true                                                                         \
        }                                                                                          \
    }

/* DROP_TRY: the end of that lane reaches the other side as a goodbye. */
static const struct explore_effect dialer_effects[RESUME_N_EFFECTS] = {
    [RESUME_FX_DROP_TRY] = {EXPLORE_SEND, RESUME_EV_LOST},
    [RESUME_FX_CONFIRM] = {EXPLORE_SEND, RESUME_EV_ACK},
    [RESUME_FX_TRANSMIT] = {EXPLORE_SEND, RESUME_EV_MESSAGE},
    [RESUME_FX_RESEND] = {EXPLORE_SEND, RESUME_EV_MESSAGE},
    [RESUME_FX_SEND_RESUME] = {EXPLORE_SEND, RESUME_EV_RESUME},
    [RESUME_FX_ARM] = {EXPLORE_ARM, RESUME_EV_GIVE_UP},
    [RESUME_FX_DISARM] = {EXPLORE_DISARM, RESUME_EV_GIVE_UP},
    [RESUME_FX_AGAIN] = {EXPLORE_ARM, RESUME_EV_DUE},
    [RESUME_FX_FAIL] = {EXPLORE_NOTIFY, 0}};
static const struct explore_effect other_effects[RESUME_N_EFFECTS] = {
    [RESUME_FX_TRANSMIT] = {EXPLORE_SEND, RESUME_EV_MESSAGE},
    [RESUME_FX_RESEND] = {EXPLORE_SEND, RESUME_EV_MESSAGE},
    [RESUME_FX_SEND_RESUMED] = {EXPLORE_SEND, RESUME_EV_RESUMED},
    [RESUME_FX_ARM] = {EXPLORE_ARM, RESUME_EV_GIVE_UP},
    [RESUME_FX_DISARM] = {EXPLORE_DISARM, RESUME_EV_GIVE_UP},
    [RESUME_FX_FAIL] = {EXPLORE_NOTIFY, 0}};

/* ---- what is on the way ---------------------------------------------------------------------- */

static bool send_msg(const struct fsm *from, unsigned effect, struct explore_message *msg) {
    const struct resume *r = (const struct resume *)from;
    bool message = effect == RESUME_FX_TRANSMIT || effect == RESUME_FX_RESEND;
    const struct payload p = {.lane = (uint8_t)r->epoch,
                              .number = (uint8_t)(message ? r->out : r->delivered)};
    const struct explore_world *w = explore_now();
    memcpy(msg->payload, &p, sizeof p);
    /* A lane that the other end has left is not gone back to: what is said there need not be on
     * the way. */
    bool listened_to =
        of(w, msg->to)->epoch == p.lane && is_in(w, msg->to, IN(STEADY) | IN(HANDSHAKE));
    return effect == RESUME_FX_SEND_RESUME || effect == RESUME_FX_DROP_TRY || listened_to;
}

/* A handshake comes on a new lane, to the worker that is there; one that knows no such link says
 * so. */
static bool recv_resume(struct resume *r, const struct payload *p, unsigned *event_p) {
    if (r->fsm.state == RESUME_OVER) {
        const struct explore_message no = {
            .from = OTHER, .to = DIALER, .event = RESUME_EV_REFUSED, .payload = {p->lane}};
        explore_send(&no);
    }
    *event_p = weft__resume_asked(r, p->lane, p->number);
    return true;
}

static bool recv_msg(struct fsm *to, const struct explore_message *msg, unsigned *event_p) {
    struct resume *r = (struct resume *)to;
    bool hostile = explore_now()->hostile;
    struct payload p;
    memcpy(&p, msg->payload, sizeof p);
    if (msg->event == RESUME_EV_RESUME) return to->id == OTHER && recv_resume(r, &p, event_p);
    if (p.lane != r->epoch || !((IN(STEADY) | IN(HANDSHAKE) | IN(OVER)) >> to->state & 1))
        return false; /* by a lane that is gone */
    if (msg->event == RESUME_EV_LOST) {
        *event_p = weft__resume_closed(r);
        return to->state == RESUME_STEADY;
    }
    if (msg->event == RESUME_EV_RESUMED) *event_p = weft__resume_answered(r, p.number);
    if (msg->event == RESUME_EV_ACK) *event_p = weft__resume_acked(r, p.number);
    bool delivered = msg->event == RESUME_EV_MESSAGE && to->state == RESUME_STEADY;
    if (delivered && p.number != r->delivered && !hostile)
        fault = p.number < r->delivered ? "a message was delivered twice" : "a message was lost";
    return true;
}

/* ---- what must hold -------------------------------------------------------------------------- */

static const char *one_way(const struct resume *from, const struct resume *to) {
    if (to->delivered > from->sent) return "delivered what was not sent";
    if (from->acked > to->delivered) return "forgot what was not delivered";
    return NULL;
}

static const char *invariant(const struct explore_world *w) {
    const char *why = NULL;
    bool both = !is_in(w, DIALER, IN(OVER)) && !is_in(w, OTHER, IN(OVER));
    if (fault) return fault;
    for (unsigned i = 0; i < 2; i++)
        if (explore_notified(w, i, RESUME_FX_FAIL) != is_in(w, i, IN(OVER)))
            return "lost, and notified once, are the same";
    if (both) why = one_way(of(w, DIALER), of(w, OTHER));
    return both && !why ? one_way(of(w, OTHER), of(w, DIALER)) : why;
}

static const char *none_is_lost(const struct explore_world *w) {
    if (is_in(w, DIALER, IN(OVER)) || is_in(w, OTHER, IN(OVER))) return "gave up a peer that lives";
    return invariant(w);
}

static bool agreed(const struct explore_world *w) {
    if (is_in(w, DIALER, IN(OVER)) && is_in(w, OTHER, IN(OVER))) return true;
    return is_in(w, DIALER, IN(STEADY)) && is_in(w, OTHER, IN(STEADY)) &&
           of(w, DIALER)->epoch == of(w, OTHER)->epoch &&
           of(w, DIALER)->delivered == of(w, OTHER)->sent &&
           of(w, OTHER)->delivered == of(w, DIALER)->sent;
}

#define ROLE(does, fx)                                                                           \
    {                                                                                            \
        .machine = &weft__resume_machine, .size = sizeof(struct resume), .start = RESUME_STEADY, \
        EXPLORE_LOCALS_OF(does), .effects = fx, .after_violation = 1 + RESUME_EV_GIVE_UP         \
    }
static const struct explore_model honest = {.name = "retain",
                                            .n_peers = 2,
                                            .channel = {.room = 12},
                                            .payload = sizeof(struct payload),
                                            .max_states = 2000000,
                                            .send_msg = send_msg,
                                            .recv_msg = recv_msg,
                                            .invariant = invariant,
                                            .agreed = agreed};

static void explored(const struct explore_model *model) {
    fault = NULL;
    CHECK(model_holds(model));
}

static void explored_as(const struct explore_local *dialer_does, unsigned n_dialer,
                        const struct explore_local *other_does, unsigned n_other,
                        const char *(*invariant_of)(const struct explore_world *w)) {
    struct explore_role dialer = ROLE(((const struct explore_local[]){{0}}), dialer_effects),
                        other = dialer;
    dialer.locals = dialer_does, dialer.n_locals = n_dialer;
    other.locals = other_does, other.n_locals = n_other, other.effects = other_effects;
    struct explore_model model = honest;
    model.role[0] = &dialer, model.role[1] = &other, model.invariant = invariant_of;
    explored(&model);
}
static void explored_between(const struct explore_local *dialer_does, unsigned n_dialer,
                             const struct explore_local *other_does, unsigned n_other) {
    explored_as(dialer_does, n_dialer, other_does, n_other, invariant);
}

/* Without acknowledgements of their own: handshakes say the same. */
TEST(three_messages_each_way_survive_two_lanes) {
    static const struct explore_local d[] = DIALER_DOES(3, 0, 1, 0), o[] = OTHER_DOES(3, 0, 1, 0);
    weft__fsm_coverage_reset();
    explored_between(EXPLORE_LIST(d), EXPLORE_LIST(o));
}

TEST(two_messages_each_way_two_lanes_and_a_crash_end_for_both_or_for_none) {
    static const struct explore_local d[] = DIALER_DOES(2, 0, 1, 1), o[] = OTHER_DOES(2, 0, 1, 1);
    explored_between(EXPLORE_LIST(d), EXPLORE_LIST(o));
}

TEST(acknowledgements_forget_only_what_has_come) {
    static const struct explore_local d[] = DIALER_DOES(2, 1, 1, 0), o[] = OTHER_DOES(2, 1, 1, 0);
    explored_between(EXPLORE_LIST(d), EXPLORE_LIST(o));
}

/* Any try may be given up at any time, and what was said by it may come before, between or
 * behind what later ones say. */
TEST(a_try_that_comes_late_is_a_lost_try_and_no_goodbye) {
    static const struct explore_local d[] = PATIENT_DIALER_DOES(1, 1, 2),
                                      o[] = PATIENT_OTHER_DOES(1, 1, 3);
    explored_as(EXPLORE_LIST(d), EXPLORE_LIST(o), none_is_lost);
}

/* ---- a peer that says anything --------------------------------------------------------------- */

/* By the lane in use, or by another; counts that can be, and some that cannot. */
static bool lie(const struct fsm *to, unsigned choice, struct explore_message *msg) {
    const struct resume *r = (const struct resume *)to;
    static const uint8_t number[] = {0, 1, 2, 3, 9};
    enum { NUMBERS = sizeof number };
    if (choice >= 2 * NUMBERS) return false;
    const struct payload p = {.lane = (uint8_t)(r->epoch + choice / NUMBERS),
                              .number = number[choice % NUMBERS]};
    memcpy(msg->payload, &p, sizeof p);
    return msg->event != RESUME_EV_STALE && msg->event != RESUME_EV_FALSE;
}

static const char *within_bounds(const struct explore_world *w) {
    unsigned honest_one = w->hostile & 1 ? OTHER : DIALER;
    const struct resume *r = of(w, honest_one);
    if (r->acked > r->sent) return "forgot what was never sent";
    if (explore_notified(w, honest_one, RESUME_FX_FAIL) != is_in(w, honest_one, IN(OVER)))
        return "lost, and notified once";
    return NULL;
}
static bool few_came(const struct explore_world *w, unsigned peer) {
    return of(w, peer)->delivered < 2 && of(w, peer)->epoch < 4;
}

static void hostile(unsigned who, const struct explore_local *does, unsigned n,
                    const struct explore_effect *effects) {
    struct explore_role role = ROLE(((const struct explore_local[]){{0}}), effects);
    role.locals = does, role.n_locals = n;
    struct explore_model model = honest;
    model.role[0] = model.role[1] = &role;
    model.hostile = (uint8_t)(1 << who);
    model.invariant = within_bounds, model.agreed = NULL, model.lie = lie, model.listens = few_came;
    explored(&model);
}

TEST(a_hostile_peer_makes_the_dialer_forget_nothing_that_was_not_sent) {
    static const struct explore_local d[] = {BOTH(3, 1, 2), DIALER_TRIES(2), LATE(LOST),
                                             LATE(LANE_UP), LATE(MISSED),    LATE(GIVE_UP)};
    hostile(OTHER, EXPLORE_LIST(d), dialer_effects);
}

TEST(nor_does_a_hostile_dialer) {
    static const struct explore_local o[] = OTHER_DOES(3, 1, 2, 0);
    hostile(DIALER, EXPLORE_LIST(o), other_effects);
}

TEST(the_explored_table_is_the_shipped_one) {
    CHECK(links_shipped("resume", "resume_machine.c"));
}

/* After the explorations above. */
TEST(every_cell_is_reached_or_has_a_reason) {
    CHECK_EQ(explore_unreached(&weft__resume_machine, stdout), 0);
}
