/* Both ends of a self pair: closed by either at any moment. */
#include "../harness.h"
#include "../model.h"
#include <fsm/explore/explorer.h>
#include <transports/self/self.h>

#define IN(s) (1u << SELF_LANE_##s)

static bool peer_sent_fin(const struct explore_world *w, unsigned peer) {
    return explore_notified(w, !peer, SELF_LANE_FX_SEND_FIN);
}
/* Ours is read there after the peer was opened, or when it is closed. */
static bool sent_fin(const struct explore_world *w, unsigned peer) {
    return explore_notified(w, peer, SELF_LANE_FX_SEND_FIN);
}

static const struct explore_local locals[] = {
    {.event = SELF_LANE_EV_OPEN, .budget = 1, .states = IN(NEW) | IN(CLOSING)},
    {.event = SELF_LANE_EV_CLOSE},
    {.event = SELF_LANE_EV_ABORT, .rescue = true},
    {.event = SELF_LANE_EV_PEER_FIN,
     .budget = 1,
     .states = IN(NEW) | IN(UP) | IN(CLOSING),
     .when = peer_sent_fin},
    {.event = SELF_LANE_EV_FIN_OUT, .budget = 1, .states = IN(CLOSING), .when = sent_fin},
};
static const struct explore_effect effects[SELF_LANE_N_EFFECTS] = {
    [SELF_LANE_FX_SEND_FIN] = {EXPLORE_NOTIFY, 0},
    [SELF_LANE_FX_NOTIFY_OPEN] = {EXPLORE_NOTIFY, 0},
    [SELF_LANE_FX_NOTIFY_DOWN] = {EXPLORE_NOTIFY, 0},
    [SELF_LANE_FX_NOTIFY_CLOSED] = {EXPLORE_NOTIFY, 0},
};
static const struct explore_role end = {.machine = &weft__self_lane_machine,
                                        .size = sizeof(struct fsm),
                                        .start = SELF_LANE_NEW,
                                        EXPLORE_LOCALS_OF(locals),
                                        .effects = effects};

static const char *invariant(const struct explore_world *w) {
    for (unsigned i = 0; i < 2; i++) {
        if (explore_notified(w, i, SELF_LANE_FX_NOTIFY_OPEN) > 1) return "notified open once";
        if (explore_notified(w, i, SELF_LANE_FX_NOTIFY_DOWN) > 1) return "notified down once";
        if (explore_notified(w, i, SELF_LANE_FX_SEND_FIN) > 1) return "one FIN";
        if (explore_notified(w, i, SELF_LANE_FX_NOTIFY_CLOSED) !=
            (w->peer[i]->state == SELF_LANE_CLOSED))
            return "CLOSED if and only if notified closed, once";
    }
    return NULL;
}
static bool agreed(const struct explore_world *w) {
    unsigned a = w->peer[0]->state, b = w->peer[1]->state;
    return a == b && (a == SELF_LANE_UP || a == SELF_LANE_CLOSED);
}

TEST(a_pair_opens_and_ends_from_every_state_and_every_cell_has_its_reason) {
    static const struct explore_model model = {.name = "self_lane",
                                               .role = {&end, &end},
                                               .n_peers = 2,
                                               .equal_peers = true,
                                               .invariant = invariant,
                                               .agreed = agreed};
    weft__fsm_coverage_reset();
    bool before = weft__fsm_coverage(true), ok = model_holds(&model);
    weft__fsm_coverage(before);
    CHECK(ok);
    CHECK_EQ(explore_unreached(&weft__self_lane_machine, stdout), 0);
}
