/*
 * The port of the recovery's machine (recovery.fsm). What is left of a run are the tasks without a
 * result, of which those of the lost members must be pure. Everything is decided by what all
 * members that are left know, so all decide the same.
 */
#include "results.h"

#include <base/alloc.h>
#include <base/compiler.h>
#include <base/status.h>
#include <string.h>

struct words {
    uint32_t rank;  /* in the team that has failed */
    int32_t status; /* of its run; OK: it only lost a member */
    uint32_t task;  /* that had the status */
};

struct recovery {
    struct recovery_core core;
    struct graph_ranks *ranks;
    struct job act;
    uint32_t n_tasks;           /* that it has memory for, at most */
    enum recovery_effect asked; /* for `act` */
    weft_team_t *team;          /* the new one; NULL: none */
    uint32_t tries;
    weft_status_t status; /* that the run ends with, and of which task */
    uint32_t task;
    struct words mine, *words; /* of all its members */
    bool *needed;              /* each task: it runs again */
    uint32_t *mine_has, *has;  /* of each task: 1 + the highest rank that has its result; 0: none */
};

static bool is_here(const struct task *task) {
    return task_is_done(&task->core.fsm) && !atomic_load(&task->given_back);
}

static void step(struct recovery *r, enum recovery_event event) {
    weft__fsm_step(&r->core.fsm, event);
}

static void refuse(struct recovery *r, weft_status_t status, uint32_t task) {
    r->status = status;
    r->task = task;
    step(r, RECOVERY_EV_REFUSED);
}

/* Another member was lost, unless the reason is this process's own, which may be over: the others
 * wait for this one. */
static void fail(struct recovery *r, weft_status_t status) {
    if (++r->tries < r->ranks->size)
        step(r, RECOVERY_EV_FAIL);
    else
        refuse(r, status, WEFT_NO_TASK);
}

/* ---- the rest of the run --------------------------------------------------------------------- */

/* The new rank of a member of the old team. UINT32_MAX: it is lost. */
static uint32_t new_rank(const struct recovery *r, uint32_t old) {
    for (uint32_t i = 0; i < r->team->size; i++)
        if (r->words[i].rank == old) return i;
    return UINT32_MAX;
}

/* A transient result that was given back has to be made again if a successor is to run. The
 * successors of a task have higher numbers. */
static void find_needed(const struct recovery *r) {
    const weft_graph_t *graph = r->ranks->graph;
    for (uint32_t i = graph->n_tasks; i-- > 0;) {
        r->needed[i] = !graph->task[i]->params.transient || graph->first[i] == graph->first[i + 1];
        for (uint32_t k = graph->first[i]; k < graph->first[i + 1]; k++)
            r->needed[i] |= r->needed[graph->successor[k]];
        r->needed[i] &= r->has[i] == 0;
    }
}

/* A task that no member that is left can finish; WEFT_NO_TASK: there is none. */
static uint32_t find_lost(const struct recovery *r) {
    const weft_graph_t *graph = r->ranks->graph;
    for (uint32_t i = 0; i < graph->n_tasks; i++)
        if (r->needed[i] && new_rank(r, graph->task[i]->rank) == UINT32_MAX &&
            graph->task[i]->params.retries == 0)
            return i;
    return WEFT_NO_TASK;
}

/* Who has its result owns a task; else who had it before; else one of those that are left. */
static void share_tasks(const struct recovery *r) {
    weft_graph_t *graph = r->ranks->graph;
    for (uint32_t i = 0; i < graph->n_tasks; i++) {
        struct task *task = graph->task[i];
        uint32_t rank = r->has[i] ? r->has[i] - 1 : new_rank(r, task->rank);
        task->finished = !r->needed[i];
        task->rank = rank == UINT32_MAX ? i % r->team->size : rank;
        if (!is_here(task)) weft__fsm_step(&task->core.fsm, TASK_EV_RESET);
    }
}

static uint32_t count_missing(const weft_graph_t *graph, const struct task *task) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < task->n_inputs; k++)
        n += !task_is_done(&graph->task[task->params.inputs[k]]->core.fsm);
    return n;
}

static void count_inputs(weft_graph_t *graph) {
    for (uint32_t i = 0; i < graph->n_tasks; i++) {
        struct task *task = graph->task[i];
        uint32_t missing = task->finished ? 0 : count_missing(graph, task);
        atomic_store(&task->missing, missing);
        task->begins = missing == 0 && !task->finished;
        if (!task->finished) task->tries = 0;
        task->arrives = false;
    }
}

static uint32_t count_finished(const weft_graph_t *graph) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < graph->n_tasks; i++)
        n += graph->task[i]->finished && weft__graph_is_own(graph, graph->task[i]);
    return n;
}

/* All have begun again: the results that this member has go where they are missing. */
static void begun_again(weft_status_t status, void *arg) {
    weft_graph_t *graph = arg;
    for (uint32_t i = 0; i < graph->n_tasks && status == WEFT_OK; i++)
        if (graph->task[i]->finished && weft__graph_is_own(graph, graph->task[i]))
            weft__graph_ranks_done(graph->task[i]);
    weft__graph_ranks_began(status, graph);
}

static void go_on(struct recovery *r) {
    struct graph_ranks *ranks = r->ranks;
    weft_graph_t *graph = ranks->graph;
    weft_team_t *before = ranks->shrunken;
    share_tasks(r);
    count_inputs(graph);
    weft__graph_ranks_join(ranks, r->team);
    ranks->shrunken = r->team;
    ranks->recovery = NULL;
    if (before) weft_team_close(before, NULL);
    ranks->lost = ranks->stopped = ranks->begun = false;
    weft__results_count_uses(graph);
    atomic_store(&graph->stop, WEFT_OK);
    atomic_store(&graph->failed, WEFT_NO_TASK);
    atomic_store(&graph->n_ended, count_finished(graph));
    atomic_store(&graph->n_left, weft__graph_count(graph) + 1);
    weft_status_t st = weft__results_reserve(graph);
    if (st < 0) weft__graph_stop(graph, st, WEFT_NO_TASK);
    st = weft__graph_ranks_meet(ranks, begun_again);
    if (st != WEFT_IN_PROGRESS) begun_again(st, graph);
}

/* ---- steps, each of which has one outcome for all that are left ------------------------------ */

static void results_known(weft_status_t status, void *arg) {
    struct recovery *r = arg;
    if (status < 0) {
        fail(r, status);
        return;
    }
    find_needed(r);
    uint32_t lost = find_lost(r);
    if (lost == WEFT_NO_TASK)
        step(r, RECOVERY_EV_DONE);
    else
        refuse(r, WEFT_ERR_PEER_FAILED, lost);
}

static void ask_results(struct recovery *r) {
    const weft_graph_t *graph = r->ranks->graph;
    weft_op_t op = {.done = results_known, .arg = r, .flags = WEFT_COLL_SAFE};
    for (uint32_t i = 0; i < graph->n_tasks; i++)
        r->mine_has[i] = is_here(graph->task[i]) ? r->team->rank + 1 : 0;
    weft_status_t st =
        weft_allreduce(r->team, r->mine_has, r->has, graph->n_tasks, WEFT_UINT32, WEFT_MAX, &op);
    if (st != WEFT_IN_PROGRESS) results_known(st, r);
}

static void words_known(weft_status_t status, void *arg) {
    struct recovery *r = arg;
    if (status < 0) {
        fail(r, status);
        return;
    }
    for (uint32_t i = 0; i < r->team->size; i++) {
        if (r->words[i].status == WEFT_OK) continue;
        refuse(r, (weft_status_t)r->words[i].status, r->words[i].task);
        return;
    }
    step(r, RECOVERY_EV_DONE);
}

static void ask_words(struct recovery *r) {
    const weft_graph_t *graph = r->ranks->graph;
    weft_op_t op = {.done = words_known, .arg = r, .flags = WEFT_COLL_SAFE};
    weft_status_t stop = (weft_status_t)atomic_load(&graph->stop);
    r->mine = (struct words){r->ranks->rank, r->ranks->lost ? WEFT_OK : stop,
                             atomic_load(&graph->failed)};
    weft_status_t st = weft_allgather(r->team, &r->mine, r->words, sizeof r->mine, WEFT_UINT8, &op);
    if (st != WEFT_IN_PROGRESS) words_known(st, r);
}

static void shrunk(weft_team_t *team, weft_status_t status, void *arg) {
    struct recovery *r = arg;
    r->team = team;
    if (status < 0)
        fail(r, status);
    else
        step(r, RECOVERY_EV_DONE);
}

static void shrink(struct recovery *r) {
    weft_team_params_t params = {.on_ready = shrunk, .arg = r};
    weft_status_t st = weft_team_shrink(r->ranks->team, &params);
    if (st == WEFT_ERR_NO_MEMORY)
        fail(r, st);
    else if (st < 0)
        refuse(r, st, WEFT_NO_TASK);
}

static void drop(struct recovery *r) {
    if (r->team) weft_team_close(r->team, NULL);
    r->team = NULL;
}

/* ---- its machine ----------------------------------------------------------------------------- */

static void end(struct recovery *r) {
    weft_graph_t *graph = r->ranks->graph;
    atomic_store(&graph->stop, r->status);
    atomic_store(&graph->failed, r->task);
    r->ranks->recovery = NULL;
    weft__graph_end_run(graph);
}

/* What the last step asked for. It may step the machine in turn. */
static void act(struct job *job) {
    struct recovery *r = container_of(job, struct recovery, act);
    switch (r->asked) {
    case RECOVERY_FX_SHRINK: shrink(r); break;
    case RECOVERY_FX_ASK_WORDS: ask_words(r); break;
    case RECOVERY_FX_ASK_RESULTS: ask_results(r); break;
    case RECOVERY_FX_GO_ON: go_on(r); break;
    case RECOVERY_FX_END: end(r); break;
    case RECOVERY_FX_DROP:
    case RECOVERY_N_EFFECTS: break;
    }
}

static void recovery_ask(struct recovery *r, enum recovery_effect effect) {
    r->asked = effect;
    weft__job_post(weft__worker_reactor(r->ranks->worker), &r->act);
}

static void on_effect(struct fsm *m, unsigned effect) {
    struct recovery *r = container_of(m, struct recovery, core.fsm);
    if (effect == RECOVERY_FX_DROP)
        drop(r);
    else
        recovery_ask(r, (enum recovery_effect)effect);
}

/* All events are this process's own: one that does not fit is a defect. */
static void on_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    struct recovery *r = container_of(m, struct recovery, core.fsm);
    (void)event, (void)why;
    r->status = WEFT_ERR_INTERNAL;
    r->task = WEFT_NO_TASK;
    drop(r);
    recovery_ask(r, RECOVERY_FX_END);
}

static const struct fsm_port port = {&weft__recovery_machine, on_effect, on_fail};

static struct recovery *new_recovery(struct graph_ranks *ranks) {
    uint32_t n = ranks->graph->n_tasks + 1;
    struct recovery *r = weft__new(ranks, struct recovery);
    if (!r) return NULL;
    r->ranks = ranks;
    r->act.run = act;
    r->n_tasks = ranks->graph->n_tasks;
    r->words = weft__alloc(r, ranks->size * sizeof *r->words, "members");
    r->mine_has = weft__alloc(r, n * sizeof *r->mine_has, "results");
    r->has = weft__alloc(r, n * sizeof *r->has, "results");
    r->needed = weft__alloc(r, n * sizeof *r->needed, "tasks");
    if (r->words && r->mine_has && r->has && r->needed) return r;
    talloc_free(r);
    return NULL;
}

/* The members do not become more. */
weft_status_t weft__graph_recovery_reserve(struct graph_ranks *ranks) {
    if (ranks->reserved && ranks->reserved->n_tasks >= ranks->graph->n_tasks) return WEFT_OK;
    struct recovery *made = new_recovery(ranks);
    if (!made) return WEFT_ERR_NO_MEMORY;
    talloc_free(ranks->reserved);
    ranks->reserved = made;
    return WEFT_OK;
}

void weft__graph_recover(struct graph_ranks *ranks) {
    struct recovery *r = ranks->recovery = ranks->reserved;
    r->team = NULL;
    r->tries = 0;
    r->status = WEFT_OK;
    fsm_init(&r->core.fsm, &port, RECOVERY_IDLE, ranks->number + 1);
    step(r, RECOVERY_EV_START);
}
