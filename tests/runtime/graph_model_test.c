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

/* What has happened to it in this run, beside what the machine knows of it. */
struct run_task {
    struct task_core core;
    uint8_t came;  /* its inputs, or the end of another member's */
    uint8_t taken; /* a thread has it */
};
static struct run_task *task_of(const struct explore_world *w) {
    return (struct run_task *)w->peer[0];
}

/* What was asked for is counted for each run. */
static void next_run(struct explore_world *w, unsigned peer) {
    w->notified[peer][TASK_FX_QUEUE] = w->notified[peer][TASK_FX_RELEASE] = 0;
    task_of(w)->came = 0;
}
static void come(struct explore_world *w, unsigned peer) {
    task_of(w)->came = 1;
}
static bool is_queued(const struct explore_world *w, unsigned peer) {
    return explore_notified(w, peer, TASK_FX_QUEUE) == 1;
}
static void unqueue(struct explore_world *w, unsigned peer) {
    w->notified[peer][TASK_FX_QUEUE] = 0;
}
static void take(struct explore_world *w, unsigned peer) {
    unqueue(w, peer);
    task_of(w)->taken = 1;
}
static void give_up(struct explore_world *w, unsigned peer) {
    task_of(w)->taken = 0;
}

static const struct explore_local locals[] = {
    {.event = TASK_EV_INPUTS, .budget = RUNS, .states = IN(TASK_WAITING), .before = come},
    {.event = TASK_EV_TAKE, .budget = RUNS * TRIES, .when = is_queued, .before = take},
    {.event = TASK_EV_SKIP, .budget = RUNS, .when = is_queued, .before = unqueue},
    {.event = TASK_EV_RETURNED, .budget = RUNS, .states = IN(TASK_RUNNING), .before = give_up},
    {.event = TASK_EV_AGAIN,
     .budget = RUNS * (TRIES - 1),
     .states = IN(TASK_RUNNING),
     .before = give_up},
    {.event = TASK_EV_ERROR, .budget = RUNS, .states = IN(TASK_RUNNING), .before = give_up},
    {.event = TASK_EV_RESET,
     .budget = RUNS,
     .states = IN(TASK_WAITING) | IN(TASK_DONE) | IN(TASK_FAILED) | IN(TASK_SKIPPED),
     .before = next_run},
};
static const struct explore_role role = {.machine = &weft__task_machine,
                                         .size = sizeof(struct run_task),
                                         .start = TASK_WAITING,
                                         EXPLORE_LOCALS_OF(locals),
                                         .effects = effects};

/* Every end releases the successors, and nothing else does. */
static const char *ends_once(const struct explore_world *w) {
    unsigned released = explore_notified(w, 0, TASK_FX_RELEASE);
    if (released > 1) return "released twice in a run";
    if (released != task_is_over(w->peer[0])) return "over if and only if its successors know";
    return task_of(w)->came && task_is_waiting(w->peer[0]) ? "it waits for what has come" : NULL;
}
static const char *queued_and_released(const struct explore_world *w) {
    unsigned state = w->peer[0]->state;
    if (explore_notified(w, 0, TASK_FX_QUEUE) != (state == TASK_READY))
        return "ready if and only if it is in a queue, once";
    if (task_of(w)->taken != (state == TASK_RUNNING)) return "it runs if and only if it is taken";
    return ends_once(w);
}

/* One of another member: its result comes, or does not. */
static const struct explore_local remote_locals[] = {
    {.event = TASK_EV_ARRIVED, .budget = RUNS, .states = IN(TASK_WAITING), .before = come},
    {.event = TASK_EV_LOST, .budget = RUNS, .states = IN(TASK_WAITING), .before = come},
    {.event = TASK_EV_RESET,
     .budget = RUNS - 1,
     .states = IN(TASK_WAITING) | IN(TASK_DONE) | IN(TASK_FAILED),
     .before = next_run},
};
static const struct explore_role remote_role = {.machine = &weft__task_machine,
                                                .size = sizeof(struct run_task),
                                                .start = TASK_WAITING,
                                                EXPLORE_LOCALS_OF(remote_locals),
                                                .effects = effects};

static const char *released_and_never_queued(const struct explore_world *w) {
    if (explore_notified(w, 0, TASK_FX_QUEUE)) return "queued at a member that does not run it";
    return ends_once(w);
}

static bool ended(const struct explore_world *w) {
    return task_is_over(w->peer[0]) || task_is_waiting(w->peer[0]);
}

TEST(a_task_ends_once_in_each_run) {
    static const struct explore_model model = {.name = "task",
                                               .role = {&role},
                                               .n_peers = 1,
                                               .invariant = queued_and_released,
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
