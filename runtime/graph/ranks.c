/*
 * A run among members begins with a barrier, and ends with a collective that gives all of them one
 * outcome. In between, results go by active messages, large ones read where they lie. All that
 * concerns tasks of other members is done on the worker's thread, which owns the deque of thread 0.
 */
#include "ranks.h"

#include <base/alloc.h>
#include <base/status.h>
#include <collectives/team.h>
#include <endpoints/messages/am.h>
#include <endpoints/worker/drive.h>
#include <string.h>

enum { GRAPH_WIRE_RESULT = AM_ID_RESERVED + 32, GRAPH_WIRE_STOP };

struct graph_ranks {
    weft_graph_t *graph;
    weft_team_t *team;
    weft_worker_t *worker;
    struct list of_registry;
    struct team_watch watch;
    uint32_t rank, size, number; /* number: among the team's graphs */
    int64_t outcome, agreed;
    bool stopped;
};

/* All graphs of one worker. */
struct graph_registry {
    struct list graphs;
};
static const char registry_key;

/* What each message begins with. */
struct graph_wire {
    uint64_t team;
    uint32_t graph, task;
};

static struct graph_ranks *ranks_of(struct list *node) {
    return list_of(node, struct graph_ranks, of_registry);
}

weft_worker_t *weft__graph_worker(const weft_graph_t *graph) {
    return graph->ranks->worker;
}

bool weft__graph_is_own(const weft_graph_t *graph, const struct task *task) {
    return !graph->ranks || task->rank == graph->ranks->rank;
}

bool weft__graph_awaits(const weft_graph_t *graph, const struct task *task) {
    if (weft__graph_is_own(graph, task)) return false;
    for (uint32_t i = graph->first[task->id]; i < graph->first[task->id + 1]; i++)
        if (weft__graph_is_own(graph, graph->task[graph->successor[i]])) return true;
    return false;
}

/* ---- results go out -------------------------------------------------------------------------- */

static bool has_remote_successor(const struct task *task) {
    const weft_graph_t *graph = task->graph;
    for (uint32_t i = graph->first[task->id]; i < graph->first[task->id + 1]; i++)
        if (graph->task[graph->successor[i]]->rank != task->rank) return true;
    return false;
}

static void sent(weft_status_t status, void *arg) {
    weft__graph_left(arg);
}

static struct graph_wire wire_of(const struct graph_ranks *ranks, uint32_t task) {
    return (struct graph_wire){ranks->team->id, ranks->number, task};
}

/* A member that is not reached is lost, and the team's failure says so. */
static void send_to(struct graph_ranks *ranks, struct task *task, uint32_t rank) {
    struct graph_wire wire = wire_of(ranks, task->id);
    weft_iov_t iov = {task->result, task->result_len};
    weft_op_t op = {.done = sent, .arg = ranks->graph};
    weft_ep_t *ep = weft__team_ep(ranks->team, rank);
    atomic_fetch_add(&ranks->graph->n_left, 1);
    weft_status_t st = ep ? weft__am_send(ep, GRAPH_WIRE_RESULT, &wire, sizeof wire, &iov,
                                          task->result_len > 0, &op)
                          : WEFT_ERR_PEER_FAILED;
    if (st != WEFT_IN_PROGRESS) sent(st, ranks->graph);
}

static bool has_successor_on(const struct task *task, uint32_t rank) {
    const weft_graph_t *graph = task->graph;
    for (uint32_t i = graph->first[task->id]; i < graph->first[task->id + 1]; i++)
        if (graph->task[graph->successor[i]]->rank == rank) return true;
    return false;
}

static void send_result(void *arg) {
    struct task *task = arg;
    struct graph_ranks *ranks = task->graph->ranks;
    for (uint32_t r = 0; r < ranks->size; r++)
        if (r != ranks->rank && has_successor_on(task, r)) send_to(ranks, task, r);
    weft__graph_left(task->graph);
}

void weft__graph_ranks_done(struct task *task) {
    weft_graph_t *graph = task->graph;
    if (!graph->ranks || !has_remote_successor(task)) return;
    atomic_fetch_add(&graph->n_left, 1);
    if (weft_worker_post(graph->ranks->worker, send_result, task) < 0) weft__graph_left(graph);
}

/* ---- results come in ------------------------------------------------------------------------- */

/* On the worker's thread, which is thread 0 of the graph. */
static void end_remote(struct task *task, unsigned event) {
    struct graph_thread *t = &task->graph->thread[0];
    t->n_pushed = 0;
    task->by = t;
    weft__fsm_step(&task->core.fsm, event);
    if (t->next) {
        deque_push(&t->deque, t->next);
        t->next = NULL;
        t->n_pushed++;
    }
    weft__crew_wake(task->graph, t->n_pushed);
}

static void received(weft_status_t status, void *arg) {
    struct task *task = arg;
    bool good = status == WEFT_OK && atomic_load(&task->graph->stop) == WEFT_OK;
    task->arrives = false;
    end_remote(task, good ? TASK_EV_ARRIVED : TASK_EV_LOST);
}

static void take_result(struct task *task, weft_am_t *am) {
    if (!task_is_waiting(&task->core.fsm) || task->arrives) return;
    if (am->len > task->params.result_size) {
        received(WEFT_ERR_PROTOCOL, task);
        return;
    }
    weft_iov_t iov = {task->result, am->len};
    task->result_len = am->len;
    task->arrives = true;
    if (am->data) memcpy(task->result, am->data, am->len);
    weft_status_t st = am->data || am->len == 0
                           ? WEFT_OK
                           : weft_am_recv(am, &iov, 1, &(weft_op_t){.done = received, .arg = task});
    if (st != WEFT_IN_PROGRESS) received(st, task);
}

/* What other members do not send any more. */
static void abandon_awaited(struct graph_ranks *ranks) {
    weft_graph_t *graph = ranks->graph;
    for (uint32_t i = 0; i < graph->n_tasks; i++) {
        struct task *task = graph->task[i];
        if (weft__graph_awaits(graph, task) && task_is_waiting(&task->core.fsm) && !task->arrives)
            end_remote(task, TASK_EV_LOST);
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

static struct graph_ranks *find_graph(struct graph_registry *registry, const weft_am_t *am,
                                      struct graph_wire *wire_p) {
    if (am->header_len != sizeof *wire_p) return NULL;
    memcpy(wire_p, am->header, sizeof *wire_p);
    list_for_each(at, &registry->graphs) {
        struct graph_ranks *ranks = ranks_of(at);
        if (ranks->team->id == wire_p->team && ranks->number == wire_p->graph) return ranks;
    }
    return NULL;
}

static void on_result(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct graph_wire wire;
    struct graph_ranks *ranks = find_graph(arg, am, &wire);
    if (!ranks || wire.task >= ranks->graph->n_tasks || !atomic_load(&ranks->graph->running))
        return;
    struct task *task = ranks->graph->task[wire.task];
    if (weft__graph_awaits(ranks->graph, task)) take_result(task, am);
}

/* The payload is the status. */
static void on_stop(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct graph_wire wire;
    struct graph_ranks *ranks = find_graph(arg, am, &wire);
    int32_t status;
    if (!ranks || am->len != sizeof status || !am->data) return;
    memcpy(&status, am->data, sizeof status);
    bool known = status < 0 && status >= WEFT_STATUS_LAST;
    stop_here(ranks, known ? (weft_status_t)status : WEFT_ERR_PROTOCOL, wire.task);
}

/* ---- stopping -------------------------------------------------------------------------------- */

static void stop_others(void *arg) {
    weft_graph_t *graph = arg;
    struct graph_ranks *ranks = graph->ranks;
    static const weft_op_t copied = {.flags = WEFT_AM_EAGER};
    struct graph_wire wire = wire_of(ranks, atomic_load(&graph->failed));
    int32_t status = atomic_load(&graph->stop);
    weft_iov_t iov = {&status, sizeof status};
    for (uint32_t r = 0; r < ranks->size && !ranks->stopped && status < 0; r++) {
        weft_ep_t *ep = r == ranks->rank ? NULL : weft__team_ep(ranks->team, r);
        if (ep) weft__am_send(ep, GRAPH_WIRE_STOP, &wire, sizeof wire, &iov, 1, &copied);
    }
    ranks->stopped = true;
    stop_here(ranks, (weft_status_t)status, wire.task);
    weft__graph_left(graph);
}

void weft__graph_ranks_stop(weft_graph_t *graph) {
    if (!hold_run(graph)) return;
    if (weft_worker_post(graph->ranks->worker, stop_others, graph) < 0) weft__graph_left(graph);
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
    stop_here(ranks, ranks->team->status, task);
}

/* ---- a run ----------------------------------------------------------------------------------- */

static void all_began(weft_status_t status, void *arg) {
    weft_graph_t *graph = arg;
    if (status < 0) stop_here(graph->ranks, status, WEFT_NO_TASK);
    weft__crew_wake(graph, weft__graph_push_first(graph));
    weft__graph_left(graph);
}

weft_status_t weft__graph_ranks_begin(weft_graph_t *graph) {
    struct graph_ranks *ranks = graph->ranks;
    ranks->stopped = false;
    weft_status_t st = weft_barrier(ranks->team, &(weft_op_t){.done = all_began, .arg = graph});
    if (st == WEFT_OK) all_began(st, graph);
    return st < 0 ? st : WEFT_OK;
}

/* The lowest status of all members, with a task that had it. */
static void all_ended(weft_status_t status, void *arg) {
    struct graph_ranks *ranks = arg;
    weft_graph_t *graph = ranks->graph;
    if (status == WEFT_OK && ranks->agreed < 0) {
        status = (weft_status_t)(ranks->agreed >> 32);
        atomic_store(&graph->failed, (uint32_t)ranks->agreed);
    }
    if (status < 0) atomic_store(&graph->stop, status);
    weft__graph_end_run(graph);
}

static void run_over(void *arg) {
    weft_graph_t *graph = arg;
    struct graph_ranks *ranks = graph->ranks;
    int64_t status = atomic_load(&graph->stop), task = atomic_load(&graph->failed);
    ranks->outcome = status < 0 ? status * (INT64_C(1) << 32) + task : 0;
    weft_op_t op = {.done = all_ended, .arg = ranks, .flags = WEFT_COLL_SAFE};
    weft_status_t st =
        weft_allreduce(ranks->team, &ranks->outcome, &ranks->agreed, 1, WEFT_INT64, WEFT_MIN, &op);
    if (st != WEFT_IN_PROGRESS) all_ended(st, ranks);
}

/* A worker that ends takes no more functions. */
void weft__graph_ranks_over(weft_graph_t *graph) {
    if (weft_worker_post(graph->ranks->worker, run_over, graph) < 0) weft__graph_end_run(graph);
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

weft_status_t weft__graph_ranks_place(weft_graph_t *graph, struct task *task) {
    if (!graph->ranks) {
        return task->params.on_rank
                   ? weft__fail(WEFT_ERR_INVALID_PARAM, "params->on_rank: the graph has no team")
                   : WEFT_OK;
    }
    if (task->params.on_rank && task->params.rank >= graph->ranks->size)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "params->rank: not below the team's size");
    task->rank = task->params.on_rank ? task->params.rank : place_of_data(graph, task);
    return WEFT_OK;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void worker_closes(weft_worker_t *worker, void *object,
                          void (*closed)(weft_worker_t *worker)) {
    struct graph_registry *registry = object;
    while (!list_empty(&registry->graphs)) list_remove(registry->graphs.next);
    weft__am_handler_set(worker, GRAPH_WIRE_RESULT, NULL, NULL);
    weft__am_handler_set(worker, GRAPH_WIRE_STOP, NULL, NULL);
    closed(worker);
}

static weft_status_t registry_of(weft_worker_t *worker, struct graph_registry **registry_p) {
    struct graph_registry *registry = weft__worker_attached(worker, &registry_key);
    if (!registry) {
        registry = weft__new(worker, struct graph_registry);
        if (!registry) return WEFT_ERR_NO_MEMORY;
        list_init(&registry->graphs);
        weft_status_t st = weft__worker_attach(worker, &registry_key, registry, worker_closes);
        if (st < 0) {
            talloc_free(registry);
            return st;
        }
        weft__am_handler_set(worker, GRAPH_WIRE_RESULT, on_result, registry);
        weft__am_handler_set(worker, GRAPH_WIRE_STOP, on_stop, registry);
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
    ranks->team = team;
    ranks->worker = team->worker;
    ranks->rank = team->rank;
    ranks->size = team->size;
    ranks->number = team->n_graphs++;
    ranks->watch.failed = team_failed;
    list_append(&registry->graphs, &ranks->of_registry);
    list_append(&team->watches, &ranks->watch.of_team);
    graph->ranks = ranks;
    return WEFT_OK;
}

void weft__graph_ranks_close(weft_graph_t *graph) {
    if (!graph->ranks) return;
    list_remove(&graph->ranks->of_registry);
    list_remove(&graph->ranks->watch.of_team);
}
