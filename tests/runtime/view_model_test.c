/* The shipped machines of a view, explored: every order of events within the bounds. */
#include "../harness.h"
#include "../model.h"
#include <fsm/explore/explorer.h>
#include <runtime/view/machines.h>

#define IN(state) (1u << (state))

/* ---- finalizers ---------------------------------------------------------------------------- */

static const struct explore_effect finalizers_effects[FINALIZERS_N_EFFECTS] = {
    [FINALIZERS_FX_LIMIT] = {EXPLORE_ARM, FINALIZERS_EV_EXPIRED},
    [FINALIZERS_FX_RECORD] = {EXPLORE_NOTIFY, 0},
    [FINALIZERS_FX_DONE] = {EXPLORE_NOTIFY, 0},
};

/* A call ends at once, or begins something that ends later: by itself, or by its deadline. */
static const struct explore_local finalizers_locals[] = {
    {.event = FINALIZERS_EV_RUN, .budget = 2},
    {.event = FINALIZERS_EV_RETURNED, .budget = 2, .states = IN(FINALIZERS_NEXT)},
    {.event = FINALIZERS_EV_PENDING, .budget = 2, .states = IN(FINALIZERS_NEXT)},
    {.event = FINALIZERS_EV_COMPLETED, .budget = 2, .states = IN(FINALIZERS_WAITING)},
    {.event = FINALIZERS_EV_EXPIRED, .armed = true, .states = IN(FINALIZERS_WAITING)},
    {.event = FINALIZERS_EV_EMPTY, .budget = 1, .states = IN(FINALIZERS_NEXT)},
};
static const struct explore_role finalizers_role = {.machine = &weft__finalizers_machine,
                                                    .size = sizeof(struct finalizers_core),
                                                    .start = FINALIZERS_HELD,
                                                    EXPLORE_LOCALS_OF(finalizers_locals),
                                                    .effects = finalizers_effects};

static const char *over_once(const struct explore_world *w) {
    bool over = w->peer[0]->state == FINALIZERS_OVER;
    return explore_notified(w, 0, FINALIZERS_FX_DONE) == over ? NULL : "the end is reported once";
}

static bool finalizers_over(const struct explore_world *w) {
    return w->peer[0]->state == FINALIZERS_OVER;
}

TEST(finalizers_end_whatever_each_of_them_does) {
    static const struct explore_model model = {.name = "finalizers",
                                               .role = {&finalizers_role},
                                               .n_peers = 1,
                                               .invariant = over_once,
                                               .agreed = finalizers_over};
    CHECK(model_holds(&model));
}

/* ---- the view ------------------------------------------------------------------------------ */

static const struct explore_effect view_effects[VIEW_N_EFFECTS] = {
    [VIEW_FX_NOTIFY] = {EXPLORE_NOTIFY, 0},
    [VIEW_FX_FINALIZE] = {EXPLORE_ARM, VIEW_EV_FINALIZED},
    [VIEW_FX_CLOSE] = {EXPLORE_ARM, VIEW_EV_CLOSED},
    [VIEW_FX_STOP] = {EXPLORE_NOTIFY, 0},
};

/* The team reports its creation once, at the latest when its close begins. */
static bool not_reported(const struct explore_world *w, unsigned peer) {
    return explore_notified(w, peer, VIEW_FX_NOTIFY) == 0;
}

static const struct explore_local view_locals[] = {
    {.event = VIEW_EV_FORMED,
     .budget = 1,
     .states = IN(VIEW_STARTING) | IN(VIEW_FINALIZING) | IN(VIEW_CLOSING),
     .when = not_reported},
    {.event = VIEW_EV_FAIL,
     .budget = 1,
     .states = IN(VIEW_STARTING) | IN(VIEW_FINALIZING) | IN(VIEW_CLOSING),
     .when = not_reported},
    {.event = VIEW_EV_RELEASE,
     .budget = 1,
     .states = IN(VIEW_STARTING) | IN(VIEW_READY) | IN(VIEW_FAILED)},
    {.event = VIEW_EV_FINALIZED, .armed = true},
    {.event = VIEW_EV_CLOSED, .armed = true},
};
static const struct explore_role view_role = {.machine = &weft__view_machine,
                                              .size = sizeof(struct view_core),
                                              .start = VIEW_STARTING,
                                              EXPLORE_LOCALS_OF(view_locals),
                                              .effects = view_effects};

static const char *notified_once(const struct explore_world *w) {
    unsigned state = w->peer[0]->state;
    if (explore_notified(w, 0, VIEW_FX_NOTIFY) > 1) return "on_ready comes once";
    if ((state == VIEW_GONE) != (explore_notified(w, 0, VIEW_FX_STOP) == 1))
        return "the engine ends once, with the view";
    return NULL;
}

static bool view_gone(const struct explore_world *w) {
    return w->peer[0]->state == VIEW_GONE;
}

TEST(a_view_can_always_be_released) {
    static const struct explore_model model = {.name = "view",
                                               .role = {&view_role},
                                               .n_peers = 1,
                                               .invariant = notified_once,
                                               .agreed = view_gone};
    CHECK(model_holds(&model));
}

/* ---- dialing the store --------------------------------------------------------------------- */

static const struct explore_effect dial_effects[STORE_DIAL_N_EFFECTS] = {
    [STORE_DIAL_FX_DIAL] = {EXPLORE_NOTIFY, 0},
    [STORE_DIAL_FX_PAUSE] = {EXPLORE_ARM, STORE_DIAL_EV_RETRY},
    [STORE_DIAL_FX_PASS] = {EXPLORE_NOTIFY, 0},
    [STORE_DIAL_FX_DENY] = {EXPLORE_NOTIFY, 0},
    [STORE_DIAL_FX_RECALL] = {EXPLORE_NOTIFY, 0},
    [STORE_DIAL_FX_HANG_UP] = {EXPLORE_NOTIFY, 0},
    [STORE_DIAL_FX_UNPAUSE] = {EXPLORE_NOTIFY, 0},
};

/* Rank 0 is connected at once; the others dial. A cancelled allgather may be asked for again. */
#define WATCHED (IN(STORE_DIAL_DIALING) | IN(STORE_DIAL_JOINING))
#define ALIVE   (WATCHED | IN(STORE_DIAL_PAUSED) | IN(STORE_DIAL_UP) | IN(STORE_DIAL_BROKEN))
static const struct explore_local dial_locals[] = {
    {.event = STORE_DIAL_EV_START, .budget = 1, .states = IN(STORE_DIAL_IDLE)},
    {.event = STORE_DIAL_EV_REFUSED, .budget = 2, .states = WATCHED},
    {.event = STORE_DIAL_EV_RETRY, .armed = true, .states = IN(STORE_DIAL_PAUSED)},
    {.event = STORE_DIAL_EV_GREETED,
     .budget = 3,
     .states = IN(STORE_DIAL_IDLE) | IN(STORE_DIAL_DIALING)},
    {.event = STORE_DIAL_EV_ANSWERED, .budget = 1, .states = IN(STORE_DIAL_JOINING)},
    {.event = STORE_DIAL_EV_FAILED, .budget = 1, .states = IN(STORE_DIAL_IDLE) | WATCHED},
    {.event = STORE_DIAL_EV_ASK, .budget = 1, .states = ALIVE},
    {.event = STORE_DIAL_EV_CANCEL, .budget = 1, .states = ALIVE},
    {.event = STORE_DIAL_EV_STOP, .budget = 1},
};
static const struct explore_role dial_role = {.machine = &weft__store_dial_machine,
                                              .size = sizeof(struct store_dial_core),
                                              .start = STORE_DIAL_IDLE,
                                              EXPLORE_LOCALS_OF(dial_locals),
                                              .effects = dial_effects};

/* What is asked for is answered once: passed on when the connection is there, or denied. */
static const char *answered_once(const struct explore_world *w) {
    const struct store_dial_core *core = (const struct store_dial_core *)w->peer[0];
    unsigned answers =
        explore_notified(w, 0, STORE_DIAL_FX_PASS) + explore_notified(w, 0, STORE_DIAL_FX_DENY);
    if (answers > 1) return "an allgather is answered twice";
    if (core->asked && answers) return "an allgather waits that was answered";
    if (core->asked && (IN(core->fsm.state) & (IN(STORE_DIAL_UP) | IN(STORE_DIAL_BROKEN))))
        return "an allgather waits for what has come";
    return NULL;
}

static bool dial_ended(const struct explore_world *w) {
    return w->peer[0]->state == STORE_DIAL_ENDED;
}

TEST(an_allgather_at_the_store_is_answered_once_whenever_the_connection_comes) {
    static const struct explore_model model = {.name = "store_dial",
                                               .role = {&dial_role},
                                               .n_peers = 1,
                                               .invariant = answered_once,
                                               .agreed = dial_ended};
    CHECK(model_holds(&model));
}

TEST(every_cell_of_the_views_machines_is_reached) {
    CHECK_EQ(explore_unreached(&weft__store_dial_machine, stdout), 0);
    CHECK_EQ(explore_unreached(&weft__finalizers_machine, stdout), 0);
    CHECK_EQ(explore_unreached(&weft__view_machine, stdout), 0);
}
