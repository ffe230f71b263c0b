/* The shipped machines of teams and collectives, explored: every order of events within the bounds. */
#include <collectives/machines.h>
#include <fsm/explorer.h>
#include <tests/harness.h>
#include <tests/model.h>

#define IN(state) (1u << (state))

/* ---- collective ------------------------------------------------------------------------------------------------------- */

static bool is_done(const struct explore_world *w) {
    return w->peer[0]->state == COLL_DONE;
}

static const char *settled_once(const struct explore_world *w) {
    if (explore_told(w, 0, COLL_FX_SETTLE) > 1) return "its outcome is told once";
    if ((w->peer[0]->state == COLL_DONE) != (explore_told(w, 0, COLL_FX_LEAVE) == 1))
        return "done is out of the list";
    return NULL;
}

TEST(a_collective_settles_once_whatever_stops_it) {
    static const struct explore_effect effects[COLL_N_EFFECTS] = {
        [COLL_FX_RECALL] = {EXPLORE_ARM, COLL_EV_RETURNED},
        [COLL_FX_SETTLE] = {EXPLORE_TELL, 0},
        [COLL_FX_LEAVE] = {EXPLORE_TELL, 0},
    };
    static const struct explore_local locals[] = {
        {.event = COLL_EV_FINISH, .budget = 1, .states = IN(COLL_RUNNING)},
        {.event = COLL_EV_STOP, .budget = 3, .states = IN(COLL_RUNNING) | IN(COLL_DRAINING) | IN(COLL_SETTLED)},
        {.event = COLL_EV_RETURNED, .budget = 3, .states = IN(COLL_RUNNING)},
        {.event = COLL_EV_RETURNED, .armed = true},
        {.event = COLL_EV_TOLD, .budget = 1, .states = IN(COLL_SETTLED)},
    };
    static const struct explore_role role = {.machine = &weft__collective_machine,
                                             .size = sizeof(struct collective_core),
                                             .start = COLL_RUNNING,
                                             .locals = locals,
                                             .n_locals = sizeof locals / sizeof *locals,
                                             .effects = effects};
    static const struct explore_model model = {
        .name = "collective", .role = {&role}, .n_peers = 1, .invariant = settled_once, .agreed = is_done};
    CHECK(model_holds(&model));
}

/* ---- team ------------------------------------------------------------------------------------------------------------- */

static const struct explore_effect team_effects[TEAM_N_EFFECTS] = {
    [TEAM_FX_CONNECT] = {EXPLORE_ARM, TEAM_EV_AGREED},
    [TEAM_FX_TELL] = {EXPLORE_TELL, 0},
    [TEAM_FX_WARN] = {EXPLORE_SEND, TEAM_EV_NOTICE},
    [TEAM_FX_CLOSE_ALL] = {EXPLORE_ARM, TEAM_EV_QUIET},
    [TEAM_FX_GONE] = {EXPLORE_TELL, 0},
};

static bool agreeing(const struct explore_world *w, unsigned peer) {
    return w->peer[peer]->state == TEAM_AGREE;
}

static const struct explore_local team_locals[] = {
    /* An exchange without a cancel ends even when nobody wants it any more. */
    {.event = TEAM_EV_EXCHANGED, .budget = 1, .states = IN(TEAM_EXCHANGE) | IN(TEAM_FAILED) | IN(TEAM_CLOSING)},
    {.event = TEAM_EV_AGREED, .armed = true, .when = agreeing},
    {.event = TEAM_EV_FAIL, .budget = 2, .states = ~IN(TEAM_CLOSED)},
    {.event = TEAM_EV_CLOSE, .budget = 1, .states = IN(TEAM_READY) | IN(TEAM_FAILED)},
    {.event = TEAM_EV_QUIET, .armed = true},
};
static const struct explore_role team_role = {.machine = &weft__team_machine,
                                              .size = sizeof(struct team_core),
                                              .start = TEAM_EXCHANGE,
                                              .locals = team_locals,
                                              .n_locals = sizeof team_locals / sizeof *team_locals,
                                              .effects = team_effects};

/* Until a member knows the team's identity, notices wait in its room. */
static bool hear_notice(struct fsm *to, const struct explore_message *msg, unsigned *event_p) {
    *event_p = msg->event;
    return to->state != TEAM_EXCHANGE;
}

static const char *told_once(const struct explore_world *w) {
    for (unsigned i = 0; i < w->n_peers; i++) {
        if (w->hostile >> i & 1 || w->out >> i & 1) continue;
        unsigned told = explore_told(w, i, TEAM_FX_TELL), state = w->peer[i]->state;
        if (told > 1) return "on_ready comes once";
        if (told == 0 && state >= TEAM_READY) return "ready, failed and closed are told";
        if (explore_told(w, i, TEAM_FX_GONE) != (state == TEAM_CLOSED)) return "closed is gone";
    }
    return NULL;
}

static bool all_gone(const struct explore_world *w) {
    for (unsigned i = 0; i < w->n_peers; i++)
        if (!(w->hostile >> i & 1) && !(w->out >> i & 1) && w->peer[i]->state != TEAM_CLOSED) return false;
    return true;
}

TEST(members_of_a_team_hear_of_it_once_and_can_always_close) {
    static const struct explore_model model = {.name = "team",
                                               .role = {&team_role, &team_role, &team_role},
                                               .n_peers = 3,
                                               .equal_peers = true,
                                               .channel = {.soup = true},
                                               .hear = hear_notice,
                                               .invariant = told_once,
                                               .agreed = all_gone};
    CHECK(model_holds(&model));
}

TEST(a_hostile_member_ends_nothing_but_the_team) {
    static const struct explore_model model = {.name = "team and a liar",
                                               .role = {&team_role, &team_role},
                                               .n_peers = 2,
                                               .hostile = 2,
                                               .channel = {.soup = true},
                                               .invariant = told_once,
                                               .agreed = all_gone};
    CHECK(model_holds(&model));
}
