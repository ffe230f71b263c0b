/*
 * A run goes on after the loss of members. The members that are left (1) make a team of themselves,
 * (2) exchange who they were and why they stopped, (3) find out who has which results, and
 * (4) begin again with what is left: tasks without a result, of which those of the lost members
 * must be pure. Everything is decided by what all of them know, so all decide the same.
 */
#include "results.h"

#include <base/alloc.h>
#include <base/status.h>
#include <string.h>

struct words {
    uint32_t rank;  /* in the team that has failed */
    int32_t status; /* of its run; OK: it only lost a member */
    uint32_t task;  /* that had the status */
};

struct recovery {
    struct graph_ranks *ranks;
    weft_team_t *team; /* the new one */
    uint32_t tries;
    struct words mine, *words; /* of all its members */
    bool *needed;              /* each task: it runs again */
    uint32_t *mine_has, *has;  /* of each task: 1 + the highest rank that has its result; 0: none */
};

static bool is_here(const struct task *task) {
    return task_is_done(&task->core.fsm) && !atomic_load(&task->given_back);
}

static void end(struct recovery *r, weft_status_t status, uint32_t task) {
    weft_graph_t *graph = r->ranks->graph;
    atomic_store(&graph->stop, status);
    atomic_store(&graph->failed, task);
    r->ranks->recovery = NULL;
    talloc_free(r);
    weft__graph_end_run(graph);
}

/* ---- (4) the rest of the run ----------------------------------------------------------------- */

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
    weft_op_t op = {.done = begun_again, .arg = graph};
    share_tasks(r);
    count_inputs(graph);
    weft__graph_ranks_join(ranks, r->team);
    ranks->shrunken = r->team;
    ranks->recovery = NULL;
    talloc_free(r);
    if (before) weft_team_close(before, NULL);
    ranks->lost = ranks->stopped = ranks->begun = false;
    weft__results_count_uses(graph);
    atomic_store(&graph->stop, WEFT_OK);
    atomic_store(&graph->failed, WEFT_NO_TASK);
    atomic_store(&graph->n_ended, count_finished(graph));
    atomic_store(&graph->n_left, weft__graph_count(graph) + 1);
    weft_status_t st = weft__results_reserve(graph);
    if (st < 0) weft__graph_stop(graph, st, WEFT_NO_TASK);
    st = weft_barrier(ranks->team, &op);
    if (st != WEFT_IN_PROGRESS) begun_again(st, graph);
}

/* ---- (3) who has which results --------------------------------------------------------------- */

static void shrink(struct recovery *r);

/* Another member was lost meanwhile. The team that was to be is given up. */
static void again(struct recovery *r, weft_status_t status) {
    if (r->team) weft_team_close(r->team, NULL);
    r->team = NULL;
    if (++r->tries < r->ranks->size)
        shrink(r);
    else
        end(r, status, WEFT_NO_TASK);
}

static void results_known(weft_status_t status, void *arg) {
    struct recovery *r = arg;
    if (status < 0) {
        again(r, status);
        return;
    }
    find_needed(r);
    uint32_t lost = find_lost(r);
    if (lost == WEFT_NO_TASK) {
        go_on(r);
        return;
    }
    if (r->ranks->shrunken) weft_team_close(r->ranks->shrunken, NULL);
    weft__graph_ranks_join(r->ranks, r->team); /* tasks keep their ranks of before: it ends here */
    r->ranks->shrunken = r->team;
    end(r, WEFT_ERR_PEER_FAILED, lost);
}

static void find_results(struct recovery *r) {
    const weft_graph_t *graph = r->ranks->graph;
    weft_op_t op = {.done = results_known, .arg = r};
    for (uint32_t i = 0; i < graph->n_tasks; i++)
        r->mine_has[i] = is_here(graph->task[i]) ? r->team->rank + 1 : 0;
    weft_status_t st =
        weft_allreduce(r->team, r->mine_has, r->has, graph->n_tasks, WEFT_UINT32, WEFT_MAX, &op);
    if (st != WEFT_IN_PROGRESS) results_known(st, r);
}

/* ---- (2) who they were, and why they stopped ------------------------------------------------- */

static void words_known(weft_status_t status, void *arg) {
    struct recovery *r = arg;
    if (status < 0) {
        again(r, status);
        return;
    }
    for (uint32_t i = 0; i < r->team->size; i++) {
        if (r->words[i].status == WEFT_OK) continue;
        weft_team_close(r->team, NULL);
        end(r, (weft_status_t)r->words[i].status, r->words[i].task);
        return;
    }
    find_results(r);
}

static void exchange_words(struct recovery *r) {
    const weft_graph_t *graph = r->ranks->graph;
    weft_op_t op = {.done = words_known, .arg = r};
    weft_status_t stop = (weft_status_t)atomic_load(&graph->stop);
    r->mine = (struct words){r->ranks->rank, r->ranks->lost ? WEFT_OK : stop,
                             atomic_load(&graph->failed)};
    weft_status_t st = weft_allgather(r->team, &r->mine, r->words, sizeof r->mine, WEFT_UINT8, &op);
    if (st != WEFT_IN_PROGRESS) words_known(st, r);
}

/* ---- (1) a team of those that are left ------------------------------------------------------- */

static void shrunk(weft_team_t *team, weft_status_t status, void *arg) {
    struct recovery *r = arg;
    r->team = team;
    if (status < 0)
        again(r, status);
    else
        exchange_words(r);
}

static void shrink(struct recovery *r) {
    weft_team_params_t params = {.on_ready = shrunk, .arg = r};
    weft_status_t st = weft_team_shrink(r->ranks->team, &params);
    if (st < 0) end(r, st, WEFT_NO_TASK);
}

static struct recovery *new_recovery(struct graph_ranks *ranks) {
    uint32_t n = ranks->graph->n_tasks + 1;
    struct recovery *r = weft__new(ranks, struct recovery);
    if (!r) return NULL;
    r->ranks = ranks;
    r->words = weft__alloc(r, ranks->size * sizeof *r->words, "members");
    r->mine_has = weft__alloc(r, n * sizeof *r->mine_has, "results");
    r->has = weft__alloc(r, n * sizeof *r->has, "results");
    r->needed = weft__alloc(r, n * sizeof *r->needed, "tasks");
    if (r->words && r->mine_has && r->has && r->needed) return r;
    talloc_free(r);
    return NULL;
}

void weft__graph_recover(struct graph_ranks *ranks) {
    weft_graph_t *graph = ranks->graph;
    ranks->recovery = new_recovery(ranks);
    if (ranks->recovery) {
        shrink(ranks->recovery);
        return;
    }
    atomic_store(&graph->stop, WEFT_ERR_NO_MEMORY);
    weft__graph_end_run(graph);
}
