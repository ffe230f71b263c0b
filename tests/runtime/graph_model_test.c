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
