/* The shipped machine of a task, explored: every order of events within the bounds. */
#include "../harness.h"
#include "../model.h"
#include <fsm/explore/explorer.h>
#include <runtime/graph/machines.h>

#define IN(state) (1u << (state))

static const struct explore_effect effects[TASK_N_EFFECTS] = {
    [TASK_FX_QUEUE] = {EXPLORE_NOTIFY, 0},
    [TASK_FX_RELEASE] = {EXPLORE_NOTIFY, 0},
};

enum { RUNS = 2, TRIES = 2 };
static const struct explore_local locals[] = {
    {.event = TASK_EV_INPUTS, .budget = RUNS, .states = IN(TASK_WAITING)},
    {.event = TASK_EV_TAKE, .budget = RUNS * TRIES, .states = IN(TASK_READY)},
    {.event = TASK_EV_SKIP, .budget = RUNS, .states = IN(TASK_READY)},
    {.event = TASK_EV_RETURNED, .budget = RUNS, .states = IN(TASK_RUNNING)},
    {.event = TASK_EV_AGAIN, .budget = RUNS * (TRIES - 1), .states = IN(TASK_RUNNING)},
    {.event = TASK_EV_ERROR, .budget = RUNS, .states = IN(TASK_RUNNING)},
    {.event = TASK_EV_RESET,
     .budget = RUNS,
     .states = IN(TASK_WAITING) | IN(TASK_DONE) | IN(TASK_FAILED) | IN(TASK_SKIPPED)},
};
static const struct explore_role role = {.machine = &weft__task_machine,
                                         .size = sizeof(struct task_core),
                                         .start = TASK_WAITING,
                                         EXPLORE_LOCALS_OF(locals),
                                         .effects = effects};

/* Every end releases the successors, and nothing else does. It is queued before it is released. */
static const char *released_once_a_run(const struct explore_world *w) {
    unsigned released = explore_notified(w, 0, TASK_FX_RELEASE);
    unsigned queued = explore_notified(w, 0, TASK_FX_QUEUE);
    if (released > queued) return "released before it was queued";
    if (task_is_over(w->peer[0]) && released == 0) return "over, and its successors wait";
    return released > RUNS ? "released twice in a run" : NULL;
}

/* One of another member: its result comes, or does not. */
static const struct explore_local remote_locals[] = {
    {.event = TASK_EV_ARRIVED, .budget = RUNS, .states = IN(TASK_WAITING)},
    {.event = TASK_EV_LOST, .budget = RUNS, .states = IN(TASK_WAITING)},
    {.event = TASK_EV_RESET,
     .budget = RUNS - 1,
     .states = IN(TASK_WAITING) | IN(TASK_DONE) | IN(TASK_FAILED)},
};
static const struct explore_role remote_role = {.machine = &weft__task_machine,
                                                .size = sizeof(struct task_core),
                                                .start = TASK_WAITING,
                                                EXPLORE_LOCALS_OF(remote_locals),
                                                .effects = effects};

static const char *released_and_never_queued(const struct explore_world *w) {
    if (explore_notified(w, 0, TASK_FX_QUEUE)) return "queued at a member that does not run it";
    if (task_is_over(w->peer[0]) && explore_notified(w, 0, TASK_FX_RELEASE) == 0)
        return "over, and its successors wait";
    return explore_notified(w, 0, TASK_FX_RELEASE) > RUNS ? "released twice in a run" : NULL;
}

static bool ended(const struct explore_world *w) {
    return task_is_over(w->peer[0]) || task_is_waiting(w->peer[0]);
}

TEST(a_task_ends_once_in_each_run) {
    static const struct explore_model model = {.name = "task",
                                               .role = {&role},
                                               .n_peers = 1,
                                               .invariant = released_once_a_run,
                                               .agreed = ended};
    CHECK(model_holds(&model));
}

TEST(a_task_of_another_member_ends_once_in_each_run) {
    static const struct explore_model model = {.name = "remote task",
                                               .role = {&remote_role},
                                               .n_peers = 1,
                                               .invariant = released_and_never_queued,
                                               .agreed = ended};
    CHECK(model_holds(&model));
}

/* ---- a run that goes on after a loss --------------------------------------------------------- */

static const struct explore_effect recovery_effects[RECOVERY_N_EFFECTS] = {
    [RECOVERY_FX_DROP] = {EXPLORE_NOTIFY, 0},      [RECOVERY_FX_SHRINK] = {EXPLORE_NOTIFY, 0},
    [RECOVERY_FX_ASK_WORDS] = {EXPLORE_NOTIFY, 0}, [RECOVERY_FX_ASK_RESULTS] = {EXPLORE_NOTIFY, 0},
    [RECOVERY_FX_GO_ON] = {EXPLORE_NOTIFY, 0},     [RECOVERY_FX_END] = {EXPLORE_NOTIFY, 0},
};

/* A step ends once for each time that it was asked for. */
#define IN_STEP (IN(RECOVERY_SHRINKING) | IN(RECOVERY_WORDS) | IN(RECOVERY_RESULTS))
enum { LOSSES = 1 }; /* the explorer counts to two */
static const struct explore_local recovery_locals[] = {
    {.event = RECOVERY_EV_START, .budget = 1},
    {.event = RECOVERY_EV_DONE, .budget = 3 * (LOSSES + 1), .states = IN_STEP},
    {.event = RECOVERY_EV_FAIL, .budget = LOSSES, .states = IN_STEP},
    {.event = RECOVERY_EV_REFUSED, .budget = 1, .states = IN_STEP},
};
static const struct explore_role recovery_role = {.machine = &weft__recovery_machine,
                                                  .size = sizeof(struct recovery_core),
                                                  .start = RECOVERY_IDLE,
                                                  EXPLORE_LOCALS_OF(recovery_locals),
                                                  .effects = recovery_effects};

/* The run goes on or ends, once; each team that was given up is closed; and results are asked for
 * in a team whose members are known. */
static const char *goes_on_or_ends(const struct explore_world *w) {
    unsigned on = explore_notified(w, 0, RECOVERY_FX_GO_ON);
    unsigned ended = explore_notified(w, 0, RECOVERY_FX_END);
    unsigned teams = explore_notified(w, 0, RECOVERY_FX_SHRINK);
    unsigned dropped = explore_notified(w, 0, RECOVERY_FX_DROP);
    bool over = w->peer[0]->state == RECOVERY_OVER;
    if (on + ended != over) return "it goes on or ends, and is over then";
    if (dropped + !over + on != teams + (w->peer[0]->state == RECOVERY_IDLE))
        return "one team is left to a run that goes on, and none to one that ends";
    if (explore_notified(w, 0, RECOVERY_FX_ASK_RESULTS) >
        explore_notified(w, 0, RECOVERY_FX_ASK_WORDS))
        return "results are asked for before it is known who is left";
    return NULL;
}

static bool recovery_over(const struct explore_world *w) {
    return w->peer[0]->state == RECOVERY_OVER;
}

TEST(a_recovery_goes_on_or_ends_once) {
    static const struct explore_model model = {.name = "recovery",
                                               .role = {&recovery_role},
                                               .n_peers = 1,
                                               .invariant = goes_on_or_ends,
                                               .agreed = recovery_over};
    CHECK(model_holds(&model));
    CHECK_EQ(explore_unreached(&weft__recovery_machine, stdout), 0);
}
