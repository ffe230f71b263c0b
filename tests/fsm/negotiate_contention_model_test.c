/*
 * Three workers, a link between each two, and one place for a scarce lane at each: six machines.
 * The links' scores differ, and the better replaces the weaker. No worker ever has more lanes than
 * slots, whichever side asks first, and all comes to rest.
 */
#include "tests/harness.h"

#include "negotiate_effects.h"
#include "shipped.h"

/* The ends of the links AB, BC and CA. */
enum { A_TO_B, B_TO_A, B_TO_C, C_TO_B, C_TO_A, A_TO_C, ENDS };
enum { PLACES = 1 };
#define IN(state) (1u << NEGOTIATE_##state)

struct end {
    struct negotiation n;
    uint8_t lane; /* the epoch of the other lane, while it is there */
};

static struct end *end_of(const struct explore_world *w, unsigned end) {
    return (struct end *)w->peer[end];
}
static bool is_in(const struct explore_world *w, unsigned end, unsigned states) {
    return states >> w->peer[end]->state & 1;
}
static unsigned across(unsigned end) {
    return end ^ 1;
}
/* The other link of the same worker. */
static unsigned beside(unsigned end) {
    static const uint8_t other[] = {A_TO_C, B_TO_C, B_TO_A, C_TO_A, C_TO_B, A_TO_B};
    return other[end];
}
static unsigned score(unsigned end) {
    return end / 2;
}

static void init(struct fsm *m, unsigned end) {
    ((struct end *)m)->n.odd = end % 2 == 0;
}

/* ---- places */

static unsigned held(const struct explore_world *w, unsigned end) {
    return (end_of(w, end)->n.place == PLACE_HELD) +
           (end_of(w, beside(end))->n.place == PLACE_HELD);
}
static bool gives_way(const struct explore_world *w, unsigned end, unsigned to) {
    return is_in(w, end, IN(FAST)) && end_of(w, end)->n.settled && score(to) > score(end);
}
static enum negotiate_answer answer(const struct explore_world *w, unsigned end) {
    return weft__negotiate_answer(
        &(struct negotiate_capacity){.capacity = PLACES,
                                     .held = held(w, end),
                                     .awaited = end_of(w, beside(end))->n.place == PLACE_AWAITED,
                                     .weaker = gives_way(w, beside(end), end)});
}

/* ---- what each does */

static uint32_t last_epoch;
static bool may_ask(const struct explore_world *w, unsigned end) {
    return weft__negotiate_next(&end_of(w, end)->n) <= last_epoch;
}
static bool has_place(const struct explore_world *w, unsigned end) {
    return may_ask(w, end) && answer(w, end) == ANSWER_FITS;
}
static bool would_replace(const struct explore_world *w, unsigned end) {
    return may_ask(w, end) && answer(w, end) == ANSWER_ROOM;
}
static bool place_is_free(const struct explore_world *w, unsigned end) {
    return end_of(w, end)->n.place == PLACE_AWAITED && held(w, end) < PLACES;
}
static bool is_replaced(const struct explore_world *w, unsigned end) {
    return is_in(w, beside(end), IN(CLAIM) | IN(ROOM)) && gives_way(w, end, beside(end));
}
static bool has_lane(const struct explore_world *w, unsigned end) {
    return is_in(w, end, IN(MOVING) | IN(FAST) | IN(LEAVING));
}
static bool on_same_lane(const struct explore_world *w, unsigned end) {
    return has_lane(w, across(end)) && end_of(w, end)->lane == end_of(w, across(end))->lane;
}
static bool handshakes(const struct explore_world *w, unsigned end) {
    bool same = end_of(w, end)->n.epoch == end_of(w, across(end))->n.epoch;
    if (is_in(w, end, IN(EXPECT))) return is_in(w, across(end), IN(DIALING)) && same;
    return has_lane(w, across(end)) && end_of(w, across(end))->lane == end_of(w, end)->n.epoch;
}
static void note_lane(struct explore_world *w, unsigned end) {
    end_of(w, end)->lane = (uint8_t)end_of(w, end)->n.epoch;
}
static bool moves(const struct explore_world *w, unsigned end) {
    if (is_in(w, end, IN(MOVING))) return on_same_lane(w, end);
    return !on_same_lane(w, end) || is_in(w, across(end), IN(LEAVING));
}
static bool other_lost_it(const struct explore_world *w, unsigned end) {
    return !on_same_lane(w, end);
}

static const struct explore_local locals[] = {
    {.event = NEGOTIATE_EV_WANT, .states = IN(BASE), .when = has_place, .rescue = true},
    {.event = NEGOTIATE_EV_WANT_ROOM, .states = IN(BASE), .when = would_replace, .rescue = true},
    {.event = NEGOTIATE_EV_FREED,
     .states = IN(ASKED) | IN(CLAIM) | IN(ROOM),
     .when = place_is_free},
    {.event = NEGOTIATE_EV_TIMEOUT, .armed = true},
    {.event = NEGOTIATE_EV_DEMOTE, .states = IN(FAST), .when = is_replaced},
    {.event = NEGOTIATE_EV_JOINED,
     .states = IN(DIALING) | IN(EXPECT),
     .when = handshakes,
     .after = note_lane},
    {.event = NEGOTIATE_EV_FAILED, .states = IN(DIALING)},
    {.event = NEGOTIATE_EV_SWITCHED, .states = IN(MOVING) | IN(LEAVING), .when = moves},
    {.event = NEGOTIATE_EV_LOST,
     .states = IN(MOVING) | IN(FAST) | IN(LEAVING),
     .when = other_lost_it},
};

/* ---- what they say */

static bool send_msg(const struct fsm *from, unsigned effect, struct explore_message *msg) {
    msg->payload[0] = (uint8_t)((const struct end *)from)->n.epoch;
    return msg->to == across(msg->from);
}

static unsigned question_received(struct fsm *to, uint8_t epoch) {
    static const uint8_t event[] = {[ANSWER_FITS] = NEGOTIATE_EV_ASK_FITS,
                                    [ANSWER_ROOM] = NEGOTIATE_EV_ASK_ROOM,
                                    [ANSWER_FULL] = NEGOTIATE_EV_ASK_NO,
                                    [ANSWER_BUSY] = NEGOTIATE_EV_ASK_NO};
    if (to->state == NEGOTIATE_ASKED) weft__fsm_step(to, NEGOTIATE_EV_YIELD);
    ((struct end *)to)->n.epoch = epoch;
    if (!((IN(BASE) | IN(REST)) >> to->state & 1)) return NEGOTIATE_EV_ASK_NO;
    return event[answer(explore_now(), to->id)];
}

static bool recv_msg(struct fsm *to, const struct explore_message *msg, unsigned *event_p) {
    struct negotiation *n = &((struct end *)to)->n;
    bool question = msg->event == NEGOTIATE_EV_ASK_FITS;
    uint8_t epoch = msg->payload[0];
    if ((question ? weft__negotiate_question(n, epoch) : weft__negotiate_word(n, epoch)) !=
        EPOCH_CURRENT)
        return false;
    if (question) *event_p = question_received(to, epoch);
    bool late = msg->event == NEGOTIATE_EV_GRANT && to->state == NEGOTIATE_ASKED &&
                n->place == PLACE_AWAITED;
    if (late) *event_p = NEGOTIATE_EV_GRANT_ROOM;
    return true;
}

/* ---- what must hold */

static const char *invariant(const struct explore_world *w) {
    for (unsigned i = 0; i < ENDS; i++) {
        if (held(w, i) > PLACES) return "more lanes than places";
        if (end_of(w, i)->n.place == PLACE_AWAITED &&
            end_of(w, beside(i))->n.place == PLACE_AWAITED)
            return "two wait for one place";
        if (is_in(w, i, IN(FAST)) && is_in(w, across(i), IN(FAST)) &&
            end_of(w, i)->lane != end_of(w, across(i))->lane)
            return "two other lanes";
    }
    return NULL;
}

static bool agreed(const struct explore_world *w) {
    if (w->n_messages > 0) return false;
    for (unsigned i = 0; i < ENDS; i += 2) {
        bool fast = is_in(w, i, IN(FAST)) && is_in(w, across(i), IN(FAST));
        bool base = is_in(w, i, IN(BASE)) && is_in(w, across(i), IN(BASE));
        if ((!fast && !base) || end_of(w, i)->n.epoch != end_of(w, across(i))->n.epoch)
            return false;
    }
    return true;
}

static const struct explore_role role = {.machine = &weft__negotiate_machine,
                                         .size = sizeof(struct end),
                                         .start = NEGOTIATE_BASE,
                                         EXPLORE_LOCALS_OF(locals),
                                         .effects = negotiate_effects,
                                         .init = init};

TEST(three_workers_with_one_place_each_come_to_rest_within_their_places) {
    static struct explore_result result;
    const struct explore_model model = {.name = "negotiate_contention",
                                        .role = {&role, &role, &role, &role, &role, &role},
                                        .n_peers = ENDS,
                                        .payload = 1,
                                        .channel = {.room = 12},
                                        .max_states = 6000000,
                                        .send_msg = send_msg,
                                        .recv_msg = recv_msg,
                                        .invariant = invariant,
                                        .agreed = agreed};
    last_epoch = 1;
    CHECK(links_shipped("negotiate", "negotiate_machine.c"));
    bool ok = explore(&model, &result);
    printf("  "), explore_print(&result, stdout);
    CHECK(ok && result.complete && result.truncated == 0);
}

/* ---- those that never get one: questions and denials go in no circle, since each makes the
 * rest before the next one longer */

static uint64_t rests_ms;
static unsigned questions, denials;

static void effect(struct fsm *m, unsigned fx) {
    questions += fx == NEGOTIATE_FX_SEND_ASK;
    if (fx == NEGOTIATE_FX_REST)
        rests_ms = weft__negotiate_backoff(&((struct end *)m)->n, 500, 60000);
}
static void fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    denials = UINT32_MAX; /* a cell that must not be reached */
}

TEST(two_that_deny_each_other_forever_ask_ever_more_slow) {
    static const struct fsm_port port = {&weft__negotiate_machine, effect, fail};
    static struct end ends[2];
    uint64_t now = 0, due[2] = {0};
    for (unsigned i = 0; i < 2; i++) {
        ends[i].n.odd = i == 0;
        fsm_init(&ends[i].n.fsm, &port, NEGOTIATE_BASE, i);
    }
    for (; now < 3600000; now++) /* ms: an hour in which both want one whenever they may */
        for (unsigned i = 0; i < 2; i++) {
            struct negotiation *asks = &ends[i].n, *denies = &ends[i ^ 1].n;
            if (now < due[i]) continue;
            if (asks->fsm.state == NEGOTIATE_REST) weft__fsm_step(&asks->fsm, NEGOTIATE_EV_TIMEOUT);
            CHECK_EQ(asks->fsm.state, NEGOTIATE_BASE);
            weft__fsm_step(&asks->fsm, NEGOTIATE_EV_WANT);
            CHECK_EQ(weft__negotiate_question(denies, asks->epoch), EPOCH_CURRENT);
            denies->epoch = asks->epoch;
            weft__fsm_step(&denies->fsm, NEGOTIATE_EV_ASK_NO);
            denials++;
            weft__fsm_step(&asks->fsm, NEGOTIATE_EV_DENY);
            CHECK(rests_ms >= 500 && rests_ms <= 60000);
            due[i] = now + rests_ms;
        }
    printf("  %u questions of both in an hour, %u denials\n", questions, denials);
    CHECK_EQ(questions, denials);
    /* 500 ms doubled seven times, then a minute each */
    CHECK(questions <= 2 * (7 + 3600000 / 60000));
}
