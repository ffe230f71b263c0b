/* The shipped machines of a view, explored: every order of events within the bounds. */
#include "../harness.h"
#include "../model.h"
#include <fsm/explore/explorer.h>
#include <runtime/view/machines.h>

#define IN(state) (1u << (state))

/* ---- finalizers ---------------------------------------------------------------------------- */

static const struct explore_effect finalizers_effects[FINALIZERS_N_EFFECTS] = {
    [FINALIZERS_FX_POP] = {EXPLORE_NOTIFY, 0},
    [FINALIZERS_FX_LIMIT] = {EXPLORE_ARM, FINALIZERS_EV_EXPIRED},
    [FINALIZERS_FX_RECORD] = {EXPLORE_NOTIFY, 0},
    [FINALIZERS_FX_DONE] = {EXPLORE_NOTIFY, 0},
};

/* How many of them have ended, beside what the machine knows of it. */
struct finalized {
    struct finalizers_core core;
    uint8_t ended;
};
static void one_ends(struct explore_world *w, unsigned peer) {
    ((struct finalized *)w->peer[peer])->ended++;
}
/* The next one is called, or there is none, each time that it was asked for. */
static bool is_popped(const struct explore_world *w, unsigned peer) {
    return explore_notified(w, peer, FINALIZERS_FX_POP) == 1;
}
static void pop(struct explore_world *w, unsigned peer) {
    w->notified[peer][FINALIZERS_FX_POP] = 0;
}
static void pop_one_that_ends(struct explore_world *w, unsigned peer) {
    pop(w, peer);
    one_ends(w, peer);
}

/* A call ends at once, or begins something that ends later: by itself, or by its deadline. */
static const struct explore_local finalizers_locals[] = {
    {.event = FINALIZERS_EV_RUN, .budget = 2},
    {.event = FINALIZERS_EV_RETURNED, .budget = 2, .when = is_popped, .before = pop_one_that_ends},
    {.event = FINALIZERS_EV_PENDING, .budget = 2, .when = is_popped, .before = pop},
    {.event = FINALIZERS_EV_COMPLETED,
     .budget = 2,
     .states = IN(FINALIZERS_WAITING),
     .before = one_ends},
    {.event = FINALIZERS_EV_EXPIRED,
     .armed = true,
     .states = IN(FINALIZERS_WAITING),
     .before = one_ends},
    {.event = FINALIZERS_EV_EMPTY, .budget = 1, .when = is_popped, .before = pop},
};
static const struct explore_role finalizers_role = {.machine = &weft__finalizers_machine,
                                                    .size = sizeof(struct finalized),
                                                    .start = FINALIZERS_HELD,
                                                    EXPLORE_LOCALS_OF(finalizers_locals),
                                                    .effects = finalizers_effects};

/* The explorer counts to two. */
static const char *over_once(const struct explore_world *w) {
    bool over = w->peer[0]->state == FINALIZERS_OVER;
    unsigned ended = ((const struct finalized *)w->peer[0])->ended;
    if (explore_notified(w, 0, FINALIZERS_FX_RECORD) != (ended < 2 ? ended : 2))
        return "the outcome of each is kept, once";
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
    if ((state == VIEW_READY || state == VIEW_FAILED) && !explore_notified(w, 0, VIEW_FX_NOTIFY))
        return "its outcome is reported";
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
    [STORE_DIAL_FX_DIAL] = {EXPLORE_ARM, STORE_DIAL_EV_GREETED},
    [STORE_DIAL_FX_PAUSE] = {EXPLORE_ARM, STORE_DIAL_EV_RETRY},
    [STORE_DIAL_FX_PASS] = {EXPLORE_NOTIFY, 0},
    [STORE_DIAL_FX_DENY] = {EXPLORE_NOTIFY, 0},
    [STORE_DIAL_FX_RECALL] = {EXPLORE_NOTIFY, 0},
    [STORE_DIAL_FX_HANG_UP] = {EXPLORE_NOTIFY, 0},
    [STORE_DIAL_FX_UNPAUSE] = {EXPLORE_NOTIFY, 0},
};

/* What the program has asked for, beside what the machine knows of it. */
struct dialed {
    struct store_dial_core core;
    uint8_t wants;   /* an allgather that was not cancelled */
    uint8_t answers; /* before it was asked for */
    uint8_t recalls; /* of an allgather that was passed on */
    uint8_t failed;
    uint8_t stays;    /* where it was refused, or was to end */
    uint8_t ended_in; /* the state in which it was to end */
};
static unsigned answers(const struct explore_world *w) {
    return explore_notified(w, 0, STORE_DIAL_FX_PASS) + explore_notified(w, 0, STORE_DIAL_FX_DENY);
}
static bool wants_nothing(const struct explore_world *w, unsigned peer) {
    return !((const struct dialed *)w->peer[peer])->wants;
}
static void want_it(struct explore_world *w, unsigned peer) {
    ((struct dialed *)w->peer[peer])->wants = 1;
    ((struct dialed *)w->peer[peer])->answers = (uint8_t)answers(w);
}
static void want_nothing(struct explore_world *w, unsigned peer) {
    ((struct dialed *)w->peer[peer])->wants = 0;
    ((struct dialed *)w->peer[peer])->recalls += w->peer[peer]->state == STORE_DIAL_UP;
}
static void fail(struct explore_world *w, unsigned peer) {
    ((struct dialed *)w->peer[peer])->failed = 1;
}
static void refused(struct explore_world *w, unsigned peer) {
    ((struct dialed *)w->peer[peer])->stays |= w->peer[peer]->state != STORE_DIAL_PAUSED;
}
static void ended(struct explore_world *w, unsigned peer) {
    ((struct dialed *)w->peer[peer])->stays |= w->peer[peer]->state != STORE_DIAL_ENDED;
}
static void end(struct explore_world *w, unsigned peer) {
    ((struct dialed *)w->peer[peer])->ended_in = w->peer[peer]->state;
}

/* A cancelled allgather may be asked for again. */
#define WATCHED (IN(STORE_DIAL_DIALING) | IN(STORE_DIAL_JOINING))
#define ALIVE   (WATCHED | IN(STORE_DIAL_PAUSED) | IN(STORE_DIAL_UP) | IN(STORE_DIAL_BROKEN))
#define EACH_DIAL                                                                                \
    {.event = STORE_DIAL_EV_ANSWERED, .budget = 1, .states = IN(STORE_DIAL_JOINING)},            \
        {.event = STORE_DIAL_EV_ASK,                                                             \
         .budget = 2,                                                                            \
         .states = ALIVE,                                                                        \
         .when = wants_nothing,                                                                  \
         .before = want_it},                                                                     \
        {.event = STORE_DIAL_EV_CANCEL, .budget = 1, .states = ALIVE, .before = want_nothing}, { \
        .event = STORE_DIAL_EV_STOP, .budget = 1, .before = end, .after = ended, .rescue = true  \
    }

/* It is refused or turned away twice at most. */
static const struct explore_local dial_locals[] = {
    {.event = STORE_DIAL_EV_START, .budget = 1, .states = IN(STORE_DIAL_IDLE)},
    {.event = STORE_DIAL_EV_REFUSED,
     .budget = 2,
     .states = WATCHED,
     .after = refused,
     .rescue = true},
    {.event = STORE_DIAL_EV_RETRY, .armed = true, .states = IN(STORE_DIAL_PAUSED)},
    {.event = STORE_DIAL_EV_GREETED, .armed = true, .states = IN(STORE_DIAL_DIALING)},
    {.event = STORE_DIAL_EV_FAILED, .budget = 1, .states = WATCHED, .before = fail, .rescue = true},
    EACH_DIAL,
};
/* Rank 0 is connected at once. */
static const struct explore_local own_locals[] = {
    {.event = STORE_DIAL_EV_GREETED,
     .budget = 1,
     .states = IN(STORE_DIAL_IDLE),
     .at_start = true,
     .armed = true},
    {.event = STORE_DIAL_EV_FAILED,
     .budget = 1,
     .states = IN(STORE_DIAL_IDLE) | IN(STORE_DIAL_JOINING),
     .before = fail,
     .rescue = true},
    EACH_DIAL,
};
static const struct explore_role dial_role = {.machine = &weft__store_dial_machine,
                                              .size = sizeof(struct dialed),
                                              .start = STORE_DIAL_IDLE,
                                              EXPLORE_LOCALS_OF(dial_locals),
                                              .effects = dial_effects};
static const struct explore_role own_role = {.machine = &weft__store_dial_machine,
                                             .size = sizeof(struct dialed),
                                             .start = STORE_DIAL_IDLE,
                                             EXPLORE_LOCALS_OF(own_locals),
                                             .effects = dial_effects};

/* What is asked for waits until it is answered, once: passed on when the connection is there, or
 * denied. */
static const char *answered_once(const struct explore_world *w) {
    const struct dialed *d = (const struct dialed *)w->peer[0];
    bool ended = d->core.fsm.state == STORE_DIAL_ENDED;
    unsigned now = answers(w) - d->answers;
    if (now > 1) return "an allgather is answered twice";
    if (d->core.asked && now) return "an allgather waits that was answered";
    if (d->core.asked && !d->wants) return "an allgather waits that was cancelled";
    if (d->wants && !d->core.asked && !now && !ended) return "an allgather is forgotten";
    if (d->core.asked && (IN(d->core.fsm.state) & (IN(STORE_DIAL_UP) | IN(STORE_DIAL_BROKEN))))
        return "an allgather waits for what has come";
    return NULL;
}

/* Nothing is left of a dial that ends, and of one that failed nothing goes on. */
static const char *dialed_well(const struct explore_world *w) {
    const struct dialed *d = (const struct dialed *)w->peer[0];
    unsigned state = d->core.fsm.state, last = state == STORE_DIAL_ENDED ? d->ended_in : state;
    unsigned hung_up = explore_notified(w, 0, STORE_DIAL_FX_HANG_UP);
    unsigned unpaused = explore_notified(w, 0, STORE_DIAL_FX_UNPAUSE);
    bool ended = state == STORE_DIAL_ENDED;
    if (hung_up != (ended && (IN(last) & WATCHED) != 0))
        return "a socket that is watched is closed";
    if (unpaused != (ended && last == STORE_DIAL_PAUSED)) return "a timer that runs is stopped";
    if (explore_notified(w, 0, STORE_DIAL_FX_RECALL) != d->recalls)
        return "what was passed on is recalled";
    if (d->stays) return "a pause follows a refusal, and an end a stop";
    if (d->failed != (last == STORE_DIAL_BROKEN)) return "broken if and only if it failed";
    return answered_once(w);
}

/* There is a connection, or there will be none. */
static bool dial_decided(const struct explore_world *w) {
    unsigned state = w->peer[0]->state;
    return state == STORE_DIAL_UP || state == STORE_DIAL_BROKEN || state == STORE_DIAL_ENDED;
}

static void dial_holds(const struct explore_role *role) {
    struct explore_model model = {.name = "store_dial",
                                  .role = {role},
                                  .n_peers = 1,
                                  .invariant = dialed_well,
                                  .agreed = dial_decided};
    CHECK(model_holds(&model));
}

TEST(an_allgather_at_the_store_is_answered_once_whenever_the_connection_comes) {
    dial_holds(&dial_role);
}
TEST(so_it_is_at_the_process_that_has_the_store) {
    dial_holds(&own_role);
}

TEST(every_cell_of_the_views_machines_is_reached) {
    CHECK_EQ(explore_unreached(&weft__store_dial_machine, stdout), 0);
    CHECK_EQ(explore_unreached(&weft__finalizers_machine, stdout), 0);
    CHECK_EQ(explore_unreached(&weft__view_machine, stdout), 0);
}
