/*
 * Resending, explored: two windows send three frames each over a channel that reorders, loses two
 * and repeats one, and whose timers may fire too early once. The numbers of A pass the end of their
 * range.
 */
#include "tests/harness.h"
#include "tests/model.h"

#include "shipped.h"

#include <fsm/explore/explorer.h>
#include <transports/reliable/window.h>

enum { A, B };
static const uint32_t first[] = {UINT32_MAX - 1, 5};

struct payload {
    uint32_t number; /* of the frame, or what is expected */
    uint32_t held;
};

static struct window *window_of(const struct explore_world *w, unsigned peer) {
    return (struct window *)w->peer[peer];
}

static void init(struct fsm *m, unsigned peer) {
    struct window *w = (struct window *)m;
    w->una = w->next = w->end = first[peer];
    w->expected = first[!peer];
}

/* ---- what happens here */

static void one_more(struct explore_world *w, unsigned peer) {
    window_of(w, peer)->end++;
}

/* A timer that is set well fires when nothing is under way any more. */
static bool all_is_quiet(const struct explore_world *w, unsigned peer) {
    return w->n_messages == 0;
}

/* A budget, and the states for it: all but STOPPED, or, for a budget of 0, none. */
#define AT_MOST(times)               \
    .budget = (times) ? (times) : 1, \
    .states = (times) ? ~(UINT32_C(1) << WINDOW_STOPPED) : UINT32_C(1) << 31
#define LOCALS(frames, early)                                                            \
    {                                                                                    \
        {.event = WINDOW_EV_SEND, AT_MOST(frames), .before = one_more, .rescue = true},  \
            {.event = WINDOW_EV_TIMEOUT, .armed = true, .when = all_is_quiet},           \
            {.event = WINDOW_EV_TIMEOUT, .armed = true, AT_MOST(early), .rescue = true}, \
    }

/* With one more event at the end: nothing was received for long. */
#define LOCALS_THAT_ASK(frames)                                                         \
    {                                                                                   \
        {.event = WINDOW_EV_SEND, AT_MOST(frames), .before = one_more, .rescue = true}, \
            {.event = WINDOW_EV_TIMEOUT, .armed = true, .when = all_is_quiet},          \
            {.event = WINDOW_EV_TIMEOUT, .armed = true, AT_MOST(1), .rescue = true},    \
            {.event = WINDOW_EV_SILENT, AT_MOST(1), .rescue = true},                    \
    }

static const struct explore_effect effects[WINDOW_N_EFFECTS] = {
    [WINDOW_FX_SEND] = {EXPLORE_SEND, WINDOW_EV_FRAME},
    [WINDOW_FX_ASK] = {EXPLORE_SEND, WINDOW_EV_FRAME},
    [WINDOW_FX_ARM] = {EXPLORE_ARM, WINDOW_EV_TIMEOUT},
    [WINDOW_FX_DISARM] = {EXPLORE_DISARM, WINDOW_EV_TIMEOUT},
    [WINDOW_FX_BACK_OFF] = {EXPLORE_ARM, WINDOW_EV_TIMEOUT},
    [WINDOW_FX_ACK_SOON] = {EXPLORE_SEND, WINDOW_EV_ACK},
    [WINDOW_FX_ACK_NOW] = {EXPLORE_SEND, WINDOW_EV_ACK}};

/* ---- what is on the way: a frame's number, or what is expected and held */

/* Of equal acknowledgements on the way one is enough: the second would say nothing. */
static bool is_sent(const struct explore_message *msg) {
    const struct explore_world *w = explore_now();
    for (unsigned i = 0; i < w->n_messages; i++)
        if (w->message[i].event == msg->event && w->message[i].to == msg->to &&
            memcmp(w->message[i].payload, msg->payload, sizeof(struct payload)) == 0)
            return true;
    return false;
}

static bool send_msg(const struct fsm *from, unsigned effect, struct explore_message *msg) {
    const struct window *w = (const struct window *)from;
    struct payload p = {.number = w->out};
    if (effect == WINDOW_FX_ASK)
        p.number = w->una - 1;
    else if (effect != WINDOW_FX_SEND)
        p = (struct payload){.number = w->expected, .held = (uint32_t)w->held};
    memcpy(msg->payload, &p, sizeof p);
    return effect == WINDOW_FX_SEND || !is_sent(msg);
}

static bool recv_msg(struct fsm *to, const struct explore_message *msg, unsigned *event_p) {
    struct window *w = (struct window *)to;
    struct payload p;
    memcpy(&p, msg->payload, sizeof p);
    if (msg->event == WINDOW_EV_FRAME) {
        *event_p = weft__window_frame(w, p.number);
        return true;
    }
    *event_p = weft__window_ack(w, p.number, p.held);
    /* its arguments: unused */
    if (*event_p == WINDOW_EV_ACK_OLD) w->acked = 0, w->sack = 0;
    return true;
}

/* ---- what must hold */

static const char *one_way(const struct window *from, const struct window *to) {
    uint32_t delivered = to->expected - from->una, known = from->next - to->expected;
    if ((int32_t)delivered < 0) return "acknowledged what was not delivered";
    if ((int32_t)known < 0) return "delivered what was not sent";
    if (known < 64 && to->held >> known) return "keeps what was not sent";
    return NULL;
}

static const char *invariant(const struct explore_world *w) {
    const char *why = one_way(window_of(w, A), window_of(w, B));
    return why ? why : one_way(window_of(w, B), window_of(w, A));
}

static bool settled(const struct window *from, const struct window *to) {
    return from->fsm.state == WINDOW_QUIET && from->una == from->end && to->expected == from->end &&
           !to->held;
}

static bool agreed(const struct explore_world *w) {
    return settled(window_of(w, A), window_of(w, B)) && settled(window_of(w, B), window_of(w, A));
}

static void explored(const struct explore_role *a, const struct explore_role *b,
                     struct explore_channel channel) {
    const struct explore_model model = {.name = "resend",
                                        .role = {a, b},
                                        .n_peers = 2,
                                        .channel = channel,
                                        .payload = sizeof(struct payload),
                                        .max_states = 1500000,
                                        .send_msg = send_msg,
                                        .recv_msg = recv_msg,
                                        .invariant = invariant,
                                        .agreed = agreed};
    CHECK(model_holds(&model));
}

#define ROLE(list, n)                                                                           \
    {                                                                                           \
        .machine = &weft__window_machine, .size = sizeof(struct window), .start = WINDOW_QUIET, \
        .locals = list, .n_locals = n, .effects = effects, .init = init                         \
    }

static void explored_between(const struct explore_local *a, unsigned n_a,
                             const struct explore_local *b, unsigned n_b,
                             struct explore_channel channel) {
    const struct explore_role role_a = ROLE(a, n_a), role_b = ROLE(b, n_b);
    explored(&role_a, &role_b, channel);
}

TEST(three_frames_each_way_with_two_losses_and_a_repeat) {
    static const struct explore_local three[] = LOCALS(3, 0);
    CHECK(links_shipped("window", "window.c"));
    explored_between(
        three, 3, three, 3,
        (struct explore_channel){.reorder = true, .losses = 2, .repeats = 1, .room = 6});
}

TEST(three_frames_each_way_in_order_of_sending) {
    static const struct explore_local three[] = LOCALS(3, 0);
    explored_between(three, 3, three, 3, (struct explore_channel){.losses = 2, .repeats = 1});
}

TEST(three_frames_one_way_and_a_timer_that_fires_too_early) {
    static const struct explore_local three[] = LOCALS(3, 1), none[] = LOCALS(0, 0);
    explored_between(three, 3, none, 3,
                     (struct explore_channel){.reorder = true, .losses = 2, .repeats = 1});
}

TEST(a_side_that_receives_nothing_asks_and_comes_to_rest_when_it_is_answered) {
    static const struct explore_local one[] = LOCALS_THAT_ASK(1), none[] = LOCALS_THAT_ASK(0);
    explored_between(one, 4, one, 4, (struct explore_channel){.losses = 1, .repeats = 1});
    explored_between(
        one, 4, none, 4,
        (struct explore_channel){.reorder = true, .losses = 2, .repeats = 1, .room = 5});
}

/* ---- a peer that says anything: the window stays in its bounds, or stops */

static bool lie(const struct fsm *to, unsigned choice, struct explore_message *msg) {
    static const uint32_t offset[] = {0, 1, 2, 63, 64, UINT32_MAX, 1u << 31};
    static const uint32_t held[] = {0, 2, UINT32_MAX};
    enum { OFFSETS = sizeof offset / sizeof *offset, HELDS = sizeof held / sizeof *held };
    const struct window *w = (const struct window *)to;
    bool frame = choice < OFFSETS;
    if (!frame) choice -= OFFSETS;
    if (choice >= OFFSETS * HELDS) return false;
    struct payload p = {.number = (frame ? w->expected : w->una) + offset[choice % OFFSETS],
                        .held = frame ? 0 : held[choice / OFFSETS]};
    msg->event = frame ? WINDOW_EV_FRAME : WINDOW_EV_ACK;
    memcpy(msg->payload, &p, sizeof p);
    return true;
}

/* What it lets us believe to be delivered was sent, and what it makes us keep is near. */
static const char *within_bounds(const struct explore_world *w) {
    const struct window *a = window_of(w, A);
    if ((int32_t)(a->next - a->una) < 0 || (int32_t)(a->una - first[A]) < 0)
        return "acknowledged what was not sent";
    if (a->expected - first[B] > 200) return "delivered more than a window at once";
    return NULL;
}

static bool few_came(const struct explore_world *w, unsigned peer) {
    return window_of(w, A)->expected - first[B] < 2;
}

static void hostile(const struct explore_local *does, unsigned n) {
    struct explore_role role = ROLE(does, n);
    role.after_violation = 1 + WINDOW_EV_STOP;
    const struct explore_model model = {.name = "resend_hostile",
                                        .role = {&role, &role},
                                        .n_peers = 2,
                                        .hostile = 1 << B,
                                        .payload = sizeof(struct payload),
                                        .channel = {.room = 1},
                                        .send_msg = send_msg,
                                        .recv_msg = recv_msg,
                                        .listens = few_came,
                                        .lie = lie,
                                        .invariant = within_bounds};
    CHECK(model_holds(&model));
}

TEST(a_hostile_peer_acknowledges_nothing_that_was_not_sent) {
    static const struct explore_local two[] = LOCALS(2, 1);
    hostile(two, 3);
}

TEST(nor_does_one_that_is_asked) {
    static const struct explore_local one[] = LOCALS_THAT_ASK(1);
    hostile(one, 4);
}
