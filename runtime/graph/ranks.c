/*
 * A run among members begins with a barrier, and ends with a collective that gives all of them one
 * outcome. In between, results go to the members that need them (results.c). All that concerns
 * tasks of other members is done on the worker's thread, which owns the deque of thread 0.
 */
#include "results.h"

#include <base/alloc.h>
#include <base/check.h>
#include <base/settings.h>
#include <base/status.h>
#include <endpoints/core/link.h>
#include <endpoints/messages/am.h>
#include <endpoints/worker/drive.h>
#include <stdlib.h>
#include <string.h>

/* All graphs of one worker. */
struct graph_registry {
    struct list graphs;
    struct list runs; /* in the order begun, which is that of all members */
};
static const char registry_key;

static struct graph_ranks *ranks_of(struct list *node) {
    return list_of(node, struct graph_ranks, of_registry);
}

weft_worker_t *weft__graph_worker(const weft_graph_t *graph) {
    return graph->ranks->worker;
}

struct graph_wire weft__graph_wire(const struct graph_ranks *ranks, uint32_t task) {
    return (struct graph_wire){
        .team = ranks->team->id, .graph = ranks->number, .task = task, .run = ranks->run};
}

bool weft__graph_is_own(const weft_graph_t *graph, const struct task *task) {
    return !graph->ranks || task->rank == graph->ranks->rank;
}

bool weft__graph_awaits(const weft_graph_t *graph, const struct task *task) {
    if (weft__graph_is_own(graph, task) || task_is_done(&task->core.fsm)) return false;
    for (uint32_t i = graph->first[task->id]; i < graph->first[task->id + 1]; i++) {
        const struct task *successor = graph->task[graph->successor[i]];
        if (weft__graph_is_own(graph, successor) && !successor->finished) return true;
    }
    return false;
}

/* ---- stopping here --------------------------------------------------------------------------- */

/* What other members do not send any more. */
static void abandon_awaited(struct graph_ranks *ranks) {
    weft_graph_t *graph = ranks->graph;
    for (uint32_t i = 0; i < graph->n_tasks; i++) {
        struct task *task = graph->task[i];
        if (weft__graph_awaits(graph, task) && task_is_waiting(&task->core.fsm) && !task->arrives)
            weft__result_lost(task);
    }
}

/* The run does not end until weft__graph_left. False: nothing is left of it here. */
static bool hold_run(weft_graph_t *graph) {
    unsigned n = atomic_load(&graph->n_left);
    while (n > 0)
        if (atomic_compare_exchange_weak(&graph->n_left, &n, n + 1)) return true;
    return false;
}

static void stop_here(struct graph_ranks *ranks, weft_status_t status, uint32_t task) {
    weft_graph_t *graph = ranks->graph;
    unsigned none = WEFT_NO_TASK;
    int ok = WEFT_OK;
    if (!atomic_load(&graph->running) || !hold_run(graph)) return;
    if (atomic_compare_exchange_strong(&graph->stop, &ok, status) && task < graph->n_tasks)
        atomic_compare_exchange_strong(&graph->failed, &none, task);
    abandon_awaited(ranks);
    weft__graph_left(graph);
}

/* Another peer of the worker may know the team's identity. */
static bool is_from(const struct graph_ranks *ranks, const weft_ep_t *ep, uint32_t rank) {
    return ep && ep->link && ep->link->peer && ep->link->peer == ranks->team->member[rank].worker;
}

static bool is_from_any(const struct graph_ranks *ranks, const weft_ep_t *ep) {
    for (uint32_t r = 0; r < ranks->size; r++)
        if (is_from(ranks, ep, r)) return true;
    return false;
}

/* NULL also for what is left of an earlier run, which has stopped. */
static struct graph_ranks *find_graph(struct graph_registry *registry, const weft_am_t *am,
                                      struct graph_wire *wire_p) {
    if (am->header_len != sizeof *wire_p) return NULL;
    memcpy(wire_p, am->header, sizeof *wire_p);
    list_for_each(at, &registry->graphs) {
        struct graph_ranks *ranks = ranks_of(at);
        if (ranks->team->id == wire_p->team && ranks->number == wire_p->graph)
            return ranks->run == wire_p->run ? ranks : NULL;
    }
    return NULL;
}

/* NULL: no run here waits for that task, or another member has it. */
static struct task *find_awaited(struct graph_registry *registry, const weft_ep_t *ep,
                                 const weft_am_t *am, struct graph_wire *wire_p) {
    const struct graph_ranks *ranks = find_graph(registry, am, wire_p);
    if (!ranks || wire_p->task >= ranks->graph->n_tasks || !atomic_load(&ranks->graph->running))
        return NULL;
    struct task *task = ranks->graph->task[wire_p->task];
    return weft__graph_awaits(ranks->graph, task) && is_from(ranks, ep, task->rank) ? task : NULL;
}

static void on_result(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct graph_wire wire;
    struct task *task = find_awaited(arg, ep, am, &wire);
    if (task) weft__result_take(task, am);
}

static void on_ready(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct graph_wire wire;
    struct task *task = find_awaited(arg, ep, am, &wire);
    if (task) weft__result_ready(task, &wire, am);
}

/* A consumer has a copy of the result. */
static void on_taken(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct graph_wire wire;
    const struct graph_ranks *ranks = find_graph(arg, am, &wire);
    if (!ranks || wire.task >= ranks->graph->n_tasks || !atomic_load(&ranks->graph->running) ||
        !is_from_any(ranks, ep))
        return;
    struct task *task = ranks->graph->task[wire.task];
    if (weft__graph_is_own(ranks->graph, task) && task_is_done(&task->core.fsm))
        weft__result_used(task);
}

static void on_stop(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct graph_wire wire;
    struct graph_ranks *ranks = find_graph(arg, am, &wire);
    if (!ranks || !is_from_any(ranks, ep)) return;
    bool known = wire.status < 0 && wire.status >= WEFT_STATUS_LAST;
    stop_here(ranks, known ? (weft_status_t)wire.status : WEFT_ERR_PROTOCOL, wire.task);
}

/* ---- stopping -------------------------------------------------------------------------------- */

static void notify_stop(struct graph_ranks *ranks) {
    static const weft_op_t none = {.flags = WEFT_AM_EAGER};
    struct graph_wire wire = weft__graph_wire(ranks, atomic_load(&ranks->graph->failed));
    wire.status = atomic_load(&ranks->graph->stop);
    for (uint32_t r = 0; r < ranks->size; r++) {
        weft_ep_t *ep = r == ranks->rank ? NULL : weft__team_ep(ranks->team, r);
        struct am_send_args args = {GRAPH_WIRE_STOP, &wire, sizeof wire, .op = &none};
        if (ep) weft__am_send(ep, &args);
    }
    ranks->stopped = true;
}

/* Before all members have begun, some would not listen. */
static void notify_once(struct graph_ranks *ranks) {
    if (ranks->begun && !ranks->stopped && atomic_load(&ranks->graph->stop) < 0) notify_stop(ranks);
}

static void stop_others(void *arg) {
    weft_graph_t *graph = arg;
    struct graph_ranks *ranks = graph->ranks;
    notify_once(ranks);
    stop_here(ranks, (weft_status_t)atomic_load(&graph->stop), atomic_load(&graph->failed));
    weft__graph_left(graph);
}

/* A stop at a member that has nothing left to do, while others go on. Apart from the graph, which
 * may be destroyed before the worker's turn. */
struct late_stop {
    weft_worker_t *worker;
    const weft_graph_t *graph;
};

static void stop_late(void *arg) {
    struct late_stop late = *(struct late_stop *)arg;
    free(arg);
    const struct graph_registry *registry = weft__worker_attached(late.worker, &registry_key);
    list_for_each(at, &registry->graphs) {
        struct graph_ranks *ranks = ranks_of(at);
        if (ranks->graph != late.graph) continue;
        if (atomic_load(&late.graph->running) && !ranks->recovery) notify_once(ranks);
        return;
    }
}

/* Without memory the others learn of it from the agreement at the end. */
static void post_late_stop(weft_graph_t *graph) {
    struct late_stop *late = malloc(sizeof *late);
    if (!late) return;
    *late = (struct late_stop){graph->ranks->worker, graph};
    if (weft_worker_post(late->worker, stop_late, late) < 0) free(late);
}

void weft__graph_ranks_stop(weft_graph_t *graph) {
    if (!hold_run(graph))
        post_late_stop(graph);
    else if (weft_worker_post(graph->ranks->worker, stop_others, graph) < 0)
        weft__graph_left(graph);
}

/* The member is there, and has refused. */
static bool is_refusal(weft_status_t status) {
    return status == WEFT_ERR_REVOKED || status == WEFT_ERR_INVALID_PARAM ||
           status == WEFT_ERR_UNSUPPORTED || status == WEFT_ERR_QUOTA ||
           status == WEFT_ERR_REJECTED || status == WEFT_ERR_ADDRESS ||
           weft__team_outcome(status) != WEFT_ERR_PEER_FAILED;
}

/* An endpoint that is lost fails the team as well, so all members stop. */
void weft__graph_unreadable(const struct task *task, weft_status_t status) {
    weft_graph_t *graph = task->graph;
    if (is_refusal(status)) {
        weft__graph_stop(graph, status, task->id);
        return;
    }
    if (atomic_load(&graph->stop) == WEFT_OK) graph->ranks->lost = true;
    stop_here(graph->ranks, WEFT_ERR_PEER_FAILED, task->id);
}

/* A member is lost: the first task of its that is waited for is named. */
static void team_failed(struct team_watch *watch) {
    struct graph_ranks *ranks = list_of(watch, struct graph_ranks, watch);
    const weft_graph_t *graph = ranks->graph;
    uint32_t task = WEFT_NO_TASK;
    for (uint32_t i = 0; graph->first && i < graph->n_tasks && task == WEFT_NO_TASK; i++) {
        const struct task *t = graph->task[i];
        if (t->rank == ranks->team->blamed && weft__graph_awaits(graph, t) &&
            task_is_waiting(&t->core.fsm))
            task = i;
    }
    if (atomic_load(&graph->stop) == WEFT_OK) ranks->lost = true;
    stop_here(ranks, ranks->team->status, task);
}

static void deadline_passed(struct timer *timer) {
    struct graph_ranks *ranks = container_of(timer, struct graph_ranks, deadline);
    ranks->expired = true;
    weft__graph_stop(ranks->graph, WEFT_ERR_TIMED_OUT, WEFT_NO_TASK);
}

/* ---- a run ----------------------------------------------------------------------------------- */

static weft_status_t start_deadline(struct graph_ranks *ranks) {
    uint64_t ns = ranks->graph->deadline_ms * UINT64_C(1000000);
    struct reactor *reactor = ranks->team->reactor;
    if (ns == 0) return WEFT_OK;
    ranks->deadline.fire = deadline_passed;
    return weft__timer_start(reactor, &ranks->deadline, weft__now(reactor) + ns);
}

/* Runs end by agreements of the team, of which one is made at a time: in the order of the runs. */
static void join_runs(struct graph_ranks *ranks) {
    struct graph_registry *registry = weft__worker_attached(ranks->worker, &registry_key);
    list_append(&registry->runs, &ranks->of_runs);
    ranks->runs = true;
    ranks->waits = false;
}

static bool is_first(const struct graph_ranks *ranks) {
    const struct graph_registry *registry = weft__worker_attached(ranks->worker, &registry_key);
    list_for_each(at, &registry->runs) {
        const struct graph_ranks *other = container_of(at, struct graph_ranks, of_runs);
        if (other->team == ranks->team) return other == ranks;
    }
    return true;
}

static void end_in_turn(struct graph_ranks *ranks);

static void leave_runs(struct graph_ranks *ranks, const weft_team_t *team) {
    struct graph_registry *registry = weft__worker_attached(ranks->worker, &registry_key);
    if (!ranks->runs || weft__worker_check(ranks->worker) < 0) return;
    list_remove(&ranks->of_runs);
    ranks->runs = false;
    list_for_each(at, &registry->runs) {
        struct graph_ranks *next = container_of(at, struct graph_ranks, of_runs);
        if (next->team != team) continue;
        if (next->waits) end_in_turn(next);
        return;
    }
}

/* A worker that closes has stopped the timer. */
void weft__graph_ranks_ended(struct graph_ranks *ranks) {
    if (weft__worker_check(ranks->worker) == WEFT_OK)
        weft__timer_stop(ranks->team->reactor, &ranks->deadline);
    leave_runs(ranks, ranks->team);
}

/* ---- collectives of a graph ------------------------------------------------------------------ */

/* Matched by a tag of the graph's, so that the program's collectives may stand between. */
static weft_status_t call_tagged(struct graph_ranks *ranks, weft_coll_args_t args,
                                 weft_done_fn done, void *arg) {
    args.flags = WEFT_COLL_TAGGED;
    args.tag = UINT64_C(0x6772617068) << 24 | ranks->number;
    return weft_coll(ranks->team, &args, &(weft_op_t){.done = done, .arg = arg});
}

weft_status_t weft__graph_ranks_meet(struct graph_ranks *ranks, weft_done_fn done) {
    return call_tagged(ranks, (weft_coll_args_t){.kind = WEFT_COLL_BARRIER}, done, ranks->graph);
}

/* ---- the begin ------------------------------------------------------------------------------- */

/* After a loss: there are tasks that other members may run, and other members. */
static bool may_go_on(const struct graph_ranks *ranks) {
    return ranks->n_pure > 0 && ranks->size > 1;
}

void weft__graph_ranks_began(weft_status_t status, void *arg) {
    weft_graph_t *graph = arg;
    struct graph_ranks *ranks = graph->ranks;
    ranks->begun = true;
    if (status < 0 && atomic_load(&graph->stop) == WEFT_OK) ranks->lost = true;
    if (status < 0) stop_here(ranks, status, WEFT_NO_TASK);
    if (status == WEFT_OK && atomic_load(&graph->stop) < 0 && !ranks->stopped) notify_stop(ranks);
    if (atomic_load(&graph->cancelled)) weft__graph_stop(graph, WEFT_ERR_CANCELLED, WEFT_NO_TASK);
    if (ranks->expired) weft__graph_stop(graph, WEFT_ERR_TIMED_OUT, WEFT_NO_TASK);
    weft__crew_wake(graph, weft__graph_push_first(graph));
    weft__graph_left(graph);
}

weft_status_t weft__graph_ranks_begin(weft_graph_t *graph) {
    struct graph_ranks *ranks = graph->ranks;
    weft_status_t st = weft__results_reserve(graph);
    if (st < 0) return st;
    ranks->stopped = ranks->lost = ranks->begun = ranks->expired = false;
    ranks->n_pure = ranks->n_refused = 0;
    for (uint32_t i = 0; i < graph->n_tasks; i++)
        ranks->n_pure += graph->task[i]->params.retries > 0;
    if (may_go_on(ranks)) st = weft__graph_recovery_reserve(ranks);
    if (st == WEFT_OK) st = start_deadline(ranks);
    if (st < 0) return st;
    st = weft__graph_ranks_meet(ranks, weft__graph_ranks_began);
    if (st < 0 && !may_go_on(ranks)) {
        weft__timer_stop(ranks->team->reactor, &ranks->deadline);
        return st;
    }
    ranks->run++; /* one that was refused is none, as at the others */
    join_runs(ranks);
    if (st != WEFT_IN_PROGRESS) weft__graph_ranks_began(st, graph);
    return WEFT_OK;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* The lowest status of all members, with a task that had it. */
static void outcome_known(weft_status_t status, void *arg) {
    struct graph_ranks *ranks = arg;
    weft_graph_t *graph = ranks->graph;
    if (status == WEFT_OK && ranks->agreed < 0) {
        status = (weft_status_t)(ranks->agreed >> 32);
        atomic_store(&graph->failed, (uint32_t)ranks->agreed);
    }
    if (status < 0) atomic_store(&graph->stop, status);
    weft__graph_end_run(graph);
}

static void find_outcome(struct graph_ranks *ranks) {
    int64_t status = atomic_load(&ranks->graph->stop), task = atomic_load(&ranks->graph->failed);
    ranks->outcome = status < 0 ? status * (INT64_C(1) << 32) + task : 0;
    weft_coll_args_t args = {.kind = WEFT_COLL_ALLREDUCE,
                             .type = WEFT_INT64,
                             .reduction = WEFT_MIN,
                             .src = &ranks->outcome,
                             .dst = &ranks->agreed,
                             .count = 1};
    weft_status_t st = call_tagged(ranks, args, outcome_known, ranks);
    if (st != WEFT_IN_PROGRESS) outcome_known(st, ranks);
}

/* What a member says at the end: it has seen no loss; its run has no error. */
enum { NO_LOSS = 1, NO_ERROR = 2 };

static bool any_missed(const struct graph_ranks *ranks) {
    for (uint32_t i = 0; i < (ranks->size + 63) / 64; i++)
        if (ranks->missed[i]) return true;
    return false;
}

/* A loss ends the run where nothing can run again. If all say that there was none, and no error, a
 * stop that came here since then is too late. */
static void ends_agreed(weft_status_t status, void *arg) {
    struct graph_ranks *ranks = arg;
    bool loss = status == WEFT_OK && (!(ranks->fine & NO_LOSS) || any_missed(ranks));
    if (loss && may_go_on(ranks)) {
        weft__graph_recover(ranks);
    } else if (status == WEFT_OK && !loss && !(ranks->fine & NO_ERROR)) {
        find_outcome(ranks);
    } else {
        if (loss) status = WEFT_ERR_PEER_FAILED;
        if (status == WEFT_OK) atomic_store(&ranks->graph->failed, WEFT_NO_TASK);
        atomic_store(&ranks->graph->stop, status);
        weft__graph_end_run(ranks->graph);
    }
}

/* The others wait for this member: in a later turn of the worker there may be memory again. */
enum { REFUSED_MOST = 100 };
static bool ends_later(struct graph_ranks *ranks) {
    if (ranks->n_refused++ >= REFUSED_MOST) return false;
    weft__job_post(ranks->team->reactor, &ranks->over);
    return true;
}

/* Also a member that knows of a loss takes part, so that all make the same agreements. */
static void end_in_turn(struct graph_ranks *ranks) {
    weft_op_t op = {.done = ends_agreed, .arg = ranks};
    bool lost = ranks->lost || ranks->team->status < 0;
    ranks->waits = false;
    ranks->fine = (lost ? 0 : NO_LOSS) | (atomic_load(&ranks->graph->stop) < 0 ? 0 : NO_ERROR);
    weft_status_t st = weft_team_agree(ranks->team, &ranks->fine, ranks->missed, &op);
    if (st == WEFT_ERR_NO_MEMORY && ends_later(ranks)) return;
    if (st != WEFT_IN_PROGRESS) ends_agreed(st, ranks);
}

static void run_over(void *arg) {
    struct graph_ranks *ranks = ((weft_graph_t *)arg)->ranks;
    if (is_first(ranks))
        end_in_turn(ranks);
    else
        ranks->waits = true;
}

static void run_over_here(struct job *job) {
    run_over(container_of(job, struct graph_ranks, over)->graph);
}

/* A worker that ends takes no more functions. On its own thread no memory is needed. */
void weft__graph_ranks_over(weft_graph_t *graph) {
    struct graph_ranks *ranks = graph->ranks;
    weft_status_t st = weft_worker_post(ranks->worker, run_over, graph);
    if (st == WEFT_ERR_NO_MEMORY && weft__worker_check(ranks->worker) == WEFT_OK)
        weft__job_post(ranks->team->reactor, &ranks->over);
    else if (st < 0)
        weft__graph_end_run(graph);
}

/* ---- whose task it is ------------------------------------------------------------------------ */

/* Where the largest of its inputs is made. */
static uint32_t place_of_data(const weft_graph_t *graph, const struct task *task) {
    uint32_t rank = task->id % graph->ranks->size;
    size_t most = 0;
    for (uint32_t i = 0; i < task->n_inputs; i++) {
        const struct task *input = graph->task[task->params.inputs[i]];
        if (input->params.result_size < most) continue;
        if (input->params.result_size > most || i == 0) rank = input->rank;
        most = input->params.result_size;
    }
    return rank;
}

/* Of the members on the host of member `of`: the one that the data is at, else one by the task's
 * number. */
static uint32_t place_on_host(const weft_graph_t *graph, const struct task *task, uint32_t of) {
    const weft_team_t *team = graph->ranks->team;
    uint32_t by_data = place_of_data(graph, task), n = 0;
    if (team->host_of[by_data] == team->host_of[of]) return by_data;
    for (uint32_t r = 0; r < graph->ranks->size; r++) n += team->host_of[r] == team->host_of[of];
    uint32_t left = task->id % n;
    for (uint32_t r = 0; r < graph->ranks->size; r++)
        if (team->host_of[r] == team->host_of[of] && left-- == 0) return r;
    return of;
}

weft_status_t weft__graph_ranks_place(weft_graph_t *graph, struct task *task) {
    const weft_task_params_t *params = &task->params;
    if (!graph->ranks)
        return params->on_rank || params->on_host
                   ? weft__fail(WEFT_ERR_INVALID_PARAM,
                                "params->on_rank or on_host: the graph has no team")
                   : WEFT_OK;
    if (params->on_rank && params->on_host)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "params: on_rank and on_host");
    if (params->on_rank && params->rank >= graph->ranks->size)
        return weft__fail_rank("params->rank", params->rank, graph->ranks->size);
    if (params->on_host && params->host >= graph->ranks->size)
        return weft__fail_rank("params->host", params->host, graph->ranks->size);
    task->rank = params->on_rank   ? params->rank
                 : params->on_host ? place_on_host(graph, task, params->host)
                                   : place_of_data(graph, task);
    return WEFT_OK;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void worker_closes(weft_worker_t *worker, void *object,
                          void (*closed)(weft_worker_t *worker)) {
    struct graph_registry *registry = object;
    while (!list_empty(&registry->graphs)) {
        struct graph_ranks *ranks = ranks_of(registry->graphs.next);
        weft__timer_stop(ranks->team->reactor, &ranks->deadline);
        list_remove(&ranks->of_registry);
    }
    weft__am_handler_set(worker, GRAPH_WIRE_RESULT, NULL, NULL);
    weft__am_handler_set(worker, GRAPH_WIRE_STOP, NULL, NULL);
    weft__am_handler_set(worker, GRAPH_WIRE_READY, NULL, NULL);
    weft__am_handler_set(worker, GRAPH_WIRE_TAKEN, NULL, NULL);
    closed(worker);
}

static weft_status_t registry_of(weft_worker_t *worker, struct graph_registry **registry_p) {
    struct graph_registry *registry = weft__worker_attached(worker, &registry_key);
    if (!registry) {
        registry = weft__new(worker, struct graph_registry);
        if (!registry) return WEFT_ERR_NO_MEMORY;
        list_init(&registry->graphs);
        list_init(&registry->runs);
        weft_status_t st = weft__worker_attach(worker, &registry_key, registry, worker_closes);
        if (st < 0) {
            talloc_free(registry);
            return st;
        }
        weft__am_handler_set(worker, GRAPH_WIRE_RESULT, on_result, registry);
        weft__am_handler_set(worker, GRAPH_WIRE_STOP, on_stop, registry);
        weft__am_handler_set(worker, GRAPH_WIRE_READY, on_ready, registry);
        weft__am_handler_set(worker, GRAPH_WIRE_TAKEN, on_taken, registry);
    }
    *registry_p = registry;
    return WEFT_OK;
}

weft_status_t weft__graph_ranks_open(weft_graph_t *graph) {
    struct graph_registry *registry = NULL;
    weft_team_t *team = graph->params.team;
    weft_status_t st = weft__worker_check(team->worker);
    if (st == WEFT_OK) st = weft__team_usable(team);
    if (st == WEFT_OK) st = registry_of(team->worker, &registry);
    if (st < 0) return st;
    struct graph_ranks *ranks = weft__new(graph, struct graph_ranks);
    if (!ranks) return WEFT_ERR_NO_MEMORY;
    ranks->graph = graph;
    ranks->worker = team->worker;
    ranks->over.run = run_over_here;
    ranks->inline_most = weft__setting_u64(team->worker->context, SETTING_GRAPH_INLINE);
    ranks->pinned = weft__results_pinned(team->worker);
    list_init(&ranks->regions);
    list_init(&ranks->keys);
    list_append(&registry->graphs, &ranks->of_registry);
    graph->ranks = ranks;
    weft__graph_ranks_join(ranks, team);
    ranks->missed = weft__alloc(ranks, (team->size + 63) / 64 * 8, "members");
    return ranks->missed ? WEFT_OK : WEFT_ERR_NO_MEMORY;
}

void weft__graph_ranks_join(struct graph_ranks *ranks, weft_team_t *team) {
    weft_team_t *before = ranks->team;
    if (ranks->team) list_remove(&ranks->watch.of_team);
    weft__results_forget_keys(ranks);
    ranks->team = team;
    ranks->run = 0;
    ranks->rank = team->rank;
    ranks->size = team->size;
    ranks->number = team->n_graphs++;
    ranks->watch.failed = team_failed;
    list_append(&team->watches, &ranks->watch.of_team);
    if (!before) return;
    leave_runs(ranks, before); /* and the next run of that team may end */
    join_runs(ranks);
}

void weft__graph_ranks_close(weft_graph_t *graph) {
    struct graph_ranks *ranks = graph->ranks;
    if (!ranks) return;
    list_remove(&ranks->of_registry);
    list_remove(&ranks->watch.of_team);
    weft__results_release(ranks);
    if (ranks->shrunken) weft_team_close(ranks->shrunken, NULL);
}
