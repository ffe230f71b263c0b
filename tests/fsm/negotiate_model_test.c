/*
 * Negotiation, explored: two sides that may both ask, any number of times that a rest allows, with
 * every answer; whose other lane comes, fails or dies at any moment; and that go back. Words of one
 * direction come in order; reports of the lanes are at no fixed distance from them.
 */
#include "tests/harness.h"

#include "negotiate_effects.h"
#include "shipped.h"

enum { A, B };
#define IN(state) (1u << NEGOTIATE_##state)

/* What the peer of this side will make of its next question; the model decides it when it is
 * asked. */
enum fate { FITS, ROOM, NO, CLAIMED, UNREACHABLE };

struct end {
    struct negotiation n;
    uint8_t fate; /* of this side's question */
    uint8_t lane; /* the epoch of the other lane, while it is there */
};
struct word {
    uint32_t epoch;
    uint8_t fate;
};

static const char *wrong; /* an honest peer was taken for another */

static struct end *end_of(const struct explore_world *w, unsigned peer) {
    return (struct end *)w->peer[peer];
}
static bool is_in(const struct explore_world *w, unsigned peer, unsigned states) {
    return states >> w->peer[peer]->state & 1;
}
static bool is_hostile(const struct explore_world *w, unsigned peer) {
    return w->hostile >> peer & 1;
}

static void init(struct fsm *m, unsigned peer) {
    ((struct end *)m)->n.odd = peer == A;
}

/* ---- what this side does */

#define FATE(name, value)                                      \
    static void name(struct explore_world *w, unsigned peer) { \
        end_of(w, peer)->fate = value;                         \
    }
FATE(fits, FITS)
FATE(room, ROOM)
FATE(no, NO)
FATE(claimed, CLAIMED)
FATE(unreachable, UNREACHABLE)

static bool waits_for_place(const struct explore_world *w, unsigned peer) {
    return end_of(w, peer)->n.place == PLACE_AWAITED;
}
/* Questions are bounded together, by their epochs. */
static uint32_t last_epoch;
static bool may_ask(const struct explore_world *w, unsigned peer) {
    return weft__negotiate_next(&end_of(w, peer)->n) <= last_epoch;
}
static bool is_settled(const struct explore_world *w, unsigned peer) {
    return end_of(w, peer)->n.settled;
}

/* ---- the other lane: there from the dialer's handshake on, at each side when that side knows */

static bool same_question(const struct explore_world *w, unsigned peer) {
    return end_of(w, peer)->n.epoch == end_of(w, !peer)->n.epoch;
}
static bool has_lane(const struct explore_world *w, unsigned peer) {
    return is_in(w, peer, IN(MOVING) | IN(FAST) | IN(LEAVING));
}
/* The dialer sends HELLO; the granter answers, and then the dialer knows. */
static bool handshakes(const struct explore_world *w, unsigned peer) {
    if (is_hostile(w, !peer)) return true;
    if (is_in(w, peer, IN(EXPECT))) return is_in(w, !peer, IN(DIALING)) && same_question(w, peer);
    return has_lane(w, !peer) && end_of(w, !peer)->lane == end_of(w, peer)->n.epoch;
}
static void note_lane(struct explore_world *w, unsigned peer) {
    end_of(w, peer)->lane = (uint8_t)end_of(w, peer)->n.epoch;
}
static bool on_same_lane(const struct explore_world *w, unsigned peer) {
    return has_lane(w, !peer) && end_of(w, peer)->lane == end_of(w, !peer)->lane;
}
/* The other one has it too, and its traffic has moved as well; or, back, it has gone as far, or
 * is gone already. */
static bool moves(const struct explore_world *w, unsigned peer) {
    if (is_hostile(w, !peer)) return true;
    if (is_in(w, peer, IN(MOVING))) return on_same_lane(w, peer);
    return !on_same_lane(w, peer) || is_in(w, !peer, IN(LEAVING));
}
static bool other_lost_it(const struct explore_world *w, unsigned peer) {
    return is_hostile(w, !peer) || !on_same_lane(w, peer);
}
static bool other_is_over(const struct explore_world *w, unsigned peer) {
    return is_hostile(w, !peer) || is_in(w, !peer, IN(OVER));
}

#define WITH_LANE (IN(MOVING) | IN(FAST) | IN(LEAVING))
#define ASKS(ev, how)                                                                   \
    {                                                                                   \
        .event = NEGOTIATE_EV_##ev, .states = IN(BASE), .when = may_ask, .before = how, \
        .rescue = true                                                                  \
    }
#define TALK                                                                                    \
    ASKS(WANT, fits), ASKS(WANT, room), ASKS(WANT, no), ASKS(WANT, unreachable),                \
        ASKS(WANT_ROOM, claimed),                                                               \
        {.event = NEGOTIATE_EV_FREED,                                                           \
         .states = IN(ASKED) | IN(CLAIM) | IN(ROOM),                                            \
         .when = waits_for_place},                                                              \
        {.event = NEGOTIATE_EV_TIMEOUT, .armed = true},                                         \
        {.event = NEGOTIATE_EV_DEMOTE,                                                          \
         .states = ~(IN(OVER) | IN(FAST)),                                                      \
         .budget = 1,                                                                           \
         .rescue = true},                                                                       \
        {.event = NEGOTIATE_EV_DEMOTE, .states = IN(FAST), .when = is_settled, .rescue = true}, \
        {.event = NEGOTIATE_EV_JOINED,                                                          \
         .states = IN(DIALING) | IN(EXPECT),                                                    \
         .when = handshakes,                                                                    \
         .after = note_lane},                                                                   \
        {.event = NEGOTIATE_EV_FAILED, .states = IN(DIALING) | IN(EXPECT)},                     \
        {.event = NEGOTIATE_EV_SWITCHED, .states = IN(MOVING) | IN(LEAVING), .when = moves}, {  \
        .event = NEGOTIATE_EV_LOST, .states = WITH_LANE, .when = other_lost_it                  \
    }
#define LOSE \
    { .event = NEGOTIATE_EV_LOST, .states = WITH_LANE, .rescue = true }
#define END                                                                            \
    {.event = NEGOTIATE_EV_CLOSE, .states = ~IN(OVER), .budget = 1, .rescue = true}, { \
        .event = NEGOTIATE_EV_CLOSE, .states = ~IN(OVER), .when = other_is_over        \
    }
static const struct explore_local talk[] = {TALK}, talk_and_lose[] = {TALK, LOSE},
                                  all[] = {TALK, LOSE, END};

/* ---- what they say */

static bool send_msg(const struct fsm *from, unsigned effect, struct explore_message *msg) {
    const struct end *e = (const struct end *)from;
    struct word word = {.epoch = e->n.epoch, .fate = effect == NEGOTIATE_FX_SEND_ASK ? e->fate : 0};
    memcpy(msg->payload, &word, sizeof word);
    return true;
}

static enum epoch_check check_of(const struct negotiation *n, unsigned event,
                                 const struct word *word) {
    bool question = event <= NEGOTIATE_EV_ASK_NO && event >= NEGOTIATE_EV_ASK_FITS;
    return question ? weft__negotiate_question(n, word->epoch)
                    : weft__negotiate_word(n, word->epoch);
}

static unsigned question_received(struct fsm *to, const struct word *word) {
    static const unsigned fate[] = {[FITS] = NEGOTIATE_EV_ASK_FITS,
                                    [ROOM] = NEGOTIATE_EV_ASK_ROOM,
                                    [NO] = NEGOTIATE_EV_ASK_NO,
                                    [CLAIMED] = NEGOTIATE_EV_ASK_FITS,
                                    [UNREACHABLE] = NEGOTIATE_EV_ASK_FITS};
    if (to->state == NEGOTIATE_ASKED) weft__fsm_step(to, NEGOTIATE_EV_YIELD);
    ((struct end *)to)->n.epoch = word->epoch;
    if ((WITH_LANE | IN(DIALING)) >> to->state & 1) return NEGOTIATE_EV_ASK_NO;
    return fate[word->fate];
}

static unsigned grant_received(const struct end *to) {
    if (to->n.fsm.state != NEGOTIATE_ASKED) return NEGOTIATE_EV_GRANT;
    if (to->fate == UNREACHABLE) return NEGOTIATE_EV_GRANT_NO;
    return to->n.place == PLACE_HELD ? NEGOTIATE_EV_GRANT : NEGOTIATE_EV_GRANT_ROOM;
}

static bool recv_msg(struct fsm *to, const struct explore_message *msg, unsigned *event_p) {
    struct end *e = (struct end *)to;
    struct word word;
    memcpy(&word, msg->payload, sizeof word);
    if (to->state == NEGOTIATE_OVER) return false;
    enum epoch_check verdict = check_of(&e->n, msg->event, &word);
    if (verdict == EPOCH_INVALID && !explore_now()->hostile)
        wrong = "an honest word is taken for a violation";
    if (verdict != EPOCH_CURRENT) return false;
    if (msg->event == NEGOTIATE_EV_ASK_FITS) *event_p = question_received(to, &word);
    if (msg->event == NEGOTIATE_EV_GRANT) *event_p = grant_received(e);
    return true;
}

/* ---- what must hold */

static const char *invariant(const struct explore_world *w) {
    if (wrong && !w->hostile) return wrong;
    if (!w->hostile && is_in(w, A, IN(FAST)) && is_in(w, B, IN(FAST)) &&
        end_of(w, A)->lane != end_of(w, B)->lane)
        return "two other lanes";
    for (unsigned i = 0; i < 2; i++) {
        if (is_hostile(w, i)) continue;
        if (is_in(w, i, IN(FAST)) && !w->hostile && is_in(w, !i, IN(EXPECT) | IN(DIALING)) &&
            same_question(w, i))
            return "arrived before the other one set out";
        if (has_lane(w, i) && end_of(w, i)->n.place != PLACE_HELD) return "a lane without a place";
    }
    return NULL;
}

static bool agreed(const struct explore_world *w) {
    if (w->n_messages > 0) return false;
    if (is_in(w, A, IN(OVER)) || is_in(w, B, IN(OVER)))
        return is_in(w, A, IN(OVER)) && is_in(w, B, IN(OVER));
    if (is_in(w, A, IN(FAST)))
        return is_in(w, B, IN(FAST)) && end_of(w, A)->lane == end_of(w, B)->lane &&
               same_question(w, A);
    return is_in(w, A, IN(BASE)) && is_in(w, B, IN(BASE)) && same_question(w, A);
}

static bool holds(const struct explore_model *model) {
    static struct explore_result result;
    wrong = NULL;
    bool ok = explore(model, &result);
    printf("  "), explore_print(&result, stdout);
    return ok && result.complete && result.truncated == 0;
}

#define ROLE(list)                                                                                \
    {                                                                                             \
        .machine = &weft__negotiate_machine, .size = sizeof(struct end), .start = NEGOTIATE_BASE, \
        EXPLORE_LOCALS_OF(list), .effects = negotiate_effects, .init = init,                      \
        .after_violation = 1 + NEGOTIATE_EV_CLOSE                                                 \
    }
static const struct explore_role talks = ROLE(talk), loses = ROLE(talk_and_lose), ends = ROLE(all);

static bool explored(const struct explore_role *role, uint32_t epochs) {
    const struct explore_model model = {.name = "negotiate",
                                        .role = {role, role},
                                        .n_peers = 2,
                                        .payload = sizeof(struct word),
                                        .channel = {.room = 10},
                                        .max_states = 8000000,
                                        .send_msg = send_msg,
                                        .recv_msg = recv_msg,
                                        .invariant = invariant,
                                        .agreed = agreed};
    last_epoch = epochs;
    return holds(&model);
}

TEST(both_sides_end_with_the_same_lane_whichever_asks) {
    weft__fsm_coverage_reset();
    CHECK(links_shipped("negotiate", "negotiate_machine.c"));
    CHECK(explored(&talks, 3));
}

TEST(both_sides_end_without_the_lane_that_was_lost) {
    CHECK(explored(&loses, 3));
}

TEST(a_link_that_ends_takes_its_negotiation_with_it) {
    CHECK(explored(&ends, 2));
}

/* ---- no circle of questions and denials: a side that was denied rests first, and longer each
 * time */

/* Asks for ever, is denied for ever, and rests twice: the explorer would never end if a question
 * needed no rest before it. */
static const struct explore_local stubborn[] = {
    {.event = NEGOTIATE_EV_WANT, .states = IN(BASE), .before = no},
    {.event = NEGOTIATE_EV_TIMEOUT, .armed = true, .states = IN(REST), .budget = 2},
};
static const struct explore_role asks_for_ever = ROLE(stubborn);

static const char *refused_as_often_as_rested(const struct explore_world *w) {
    if (wrong) return wrong;
    for (unsigned i = 0; i < 2; i++)
        if (end_of(w, i)->n.refused > 3) return "more denials than rests";
    return NULL;
}

TEST(denials_and_questions_go_in_no_circle_without_rests) {
    const struct explore_model model = {.name = "negotiate_denied",
                                        .role = {&asks_for_ever, &asks_for_ever},
                                        .n_peers = 2,
                                        .payload = sizeof(struct word),
                                        .channel = {.room = 10},
                                        .send_msg = send_msg,
                                        .recv_msg = recv_msg,
                                        .invariant = refused_as_often_as_rested};
    CHECK(holds(&model));
}

TEST(rests_grow_with_each_refusal_up_to_the_longest) {
    struct negotiation n = {0};
    uint64_t before = 0;
    for (n.refused = 1; n.refused < NEGOTIATE_REFUSED_MAX; n.refused++) {
        uint64_t rest = weft__negotiate_backoff(&n, 500, 60000);
        CHECK(rest >= before && rest <= 60000);
        CHECK(rest == 60000 || rest == 2 * before || before == 0);
        before = rest;
    }
    CHECK_EQ(before, 60000);
    CHECK_EQ(weft__negotiate_backoff(&(struct negotiation){0}, 500, 60000), 500);
}

/* ---- a peer that says anything --------------------------------------------------------------- */

static const struct explore_local under_attack[] = {TALK, LOSE};
static const struct explore_role victim = ROLE(under_attack);

static bool lie(const struct fsm *to, unsigned choice, struct explore_message *msg) {
    static const int32_t offset[] = {0, -1, 1, 2, 3, 1 << 20};
    enum { OFFSETS = sizeof offset / sizeof *offset };
    const struct end *e = (const struct end *)to;
    if (choice >= OFFSETS * 3) return false;
    struct word word = {.epoch = e->n.epoch + (uint32_t)offset[choice % OFFSETS],
                        .fate = (uint8_t)(choice / OFFSETS)};
    memcpy(msg->payload, &word, sizeof word);
    return msg->event != NEGOTIATE_EV_ASK_ROOM && msg->event != NEGOTIATE_EV_ASK_NO &&
           msg->event != NEGOTIATE_EV_GRANT_ROOM && msg->event != NEGOTIATE_EV_GRANT_NO;
}

static bool few_epochs(const struct explore_world *w, unsigned peer) {
    return end_of(w, A)->n.epoch < 7;
}

TEST(a_hostile_peer_gets_no_lane_without_a_place) {
    const struct explore_model model = {.name = "negotiate_hostile",
                                        .role = {&victim, &victim},
                                        .n_peers = 2,
                                        .hostile = 1 << B,
                                        .payload = sizeof(struct word),
                                        .channel = {.room = 1},
                                        .max_states = 4000000,
                                        .send_msg = send_msg,
                                        .recv_msg = recv_msg,
                                        .lie = lie,
                                        .listens = few_epochs,
                                        .invariant = invariant};
    last_epoch = 7;
    CHECK(holds(&model));
}

/* After the explorations above. */
TEST(every_other_cell_is_reached_or_has_a_reason) {
    CHECK_EQ(explore_unreached(&weft__negotiate_machine, stdout), 0);
}
