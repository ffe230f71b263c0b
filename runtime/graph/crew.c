/*
 * The threads of a graph. A thread takes, in this order: the task that it was left with, one that
 * only it may run, one of its own deque, one of another's. It sleeps when there is none.
 *
 * No wake-up is lost: who pushes a task looks at `n_sleeping` afterwards, and who goes to sleep
 * looks at all deques after it has counted itself there.
 */
#include "graph.h"

#include <base/affinity.h>
#include <base/alloc.h>
#include <base/settings.h>
#include <base/status.h>
#include <collectives/team.h>
#include <endpoints/core/worker.h>
#include <errno.h>
#include <runtime/view/topology.h>
#include <signal.h>
#include <string.h>

/* ---- tasks to run ---------------------------------------------------------------------------- */

static struct task *take_from(struct task_pool *pool) {
    if (!pool || !atomic_load(&pool->first)) return NULL;
    pthread_mutex_lock(&pool->mutex);
    struct task *task = atomic_load(&pool->first);
    if (task) atomic_store(&pool->first, task->next);
    pthread_mutex_unlock(&pool->mutex);
    return task;
}

static struct task *take_own(struct graph_thread *t) {
    struct task *task = take_from(&t->own);
    if (!task) task = take_from(t->gpus);
    if (!task) task = take_from(t->node);
    return task || t->index == 0 ? task : take_from(&t->graph->wide);
}

static bool has_tasks(struct task_pool *pool) {
    return pool && atomic_load(&pool->first);
}

static struct task *steal(struct graph_thread *t) {
    weft_graph_t *graph = t->graph;
    for (uint32_t i = 0; i < graph->n_threads; i++) {
        struct graph_thread *victim = &graph->thread[(t->victim + i) % graph->n_threads];
        struct task *task = victim == t ? NULL : deque_steal(&victim->deque);
        if (!task) continue;
        t->victim = victim->index;
        return task;
    }
    return NULL;
}

static struct task *crew_take(struct graph_thread *t) {
    struct task *task = t->next;
    t->next = NULL;
    if (!task) weft__cores_join(t);
    if (!task) task = take_own(t);
    if (!task) task = deque_pop(&t->deque);
    return task ? task : steal(t);
}

static bool anything_for(struct graph_thread *t) {
    if (has_tasks(&t->own) || has_tasks(t->gpus) || has_tasks(t->node)) return true;
    if (t->index > 0 && (has_tasks(&t->graph->wide) || atomic_load(&t->graph->collecting) ||
                         atomic_load(&t->graph->empty)))
        return true;
    for (uint32_t i = 0; i < t->graph->n_threads; i++)
        if (!deque_is_empty(&t->graph->thread[i].deque)) return true;
    return false;
}

void weft__crew_give(weft_graph_t *graph, struct task *task) {
    struct task_pool *pool = task->pool;
    pthread_mutex_lock(&pool->mutex);
    task->next = atomic_load(&pool->first);
    atomic_store(&pool->first, task);
    pthread_mutex_unlock(&pool->mutex);
    weft__crew_wake(graph, graph->n_threads); /* those that may run it are among them */
}

/* ---- wishes ---------------------------------------------------------------------------------- */

static struct task_pool *of_cpu(weft_graph_t *graph, int cpu) {
    for (uint32_t i = 1; i < graph->n_threads && cpu >= 0; i++)
        if (graph->thread[i].cpu == cpu) return &graph->thread[i].own;
    return NULL;
}

static struct task_pool *of_node(weft_graph_t *graph, int number) {
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        if (graph->node[i].number == number) return &graph->node[i].pool;
    return NULL;
}

weft_status_t weft__crew_pool(weft_graph_t *graph, const weft_task_params_t *params,
                              struct task_pool **pool_p) {
    *pool_p = NULL;
    if (params->on_cpu) {
        *pool_p = of_cpu(graph, params->cpu);
        return *pool_p ? WEFT_OK
                       : weft__fail(WEFT_ERR_NOT_FOUND,
                                    "no thread of the graph is bound to processor %d", params->cpu);
    }
    if (params->cores > 1) {
        *pool_p = &graph->wide;
        return WEFT_OK;
    }
    if (params->on_gpu == WEFT_GPU_PREFERRED && graph->params.n_gpus == 0) return WEFT_OK;
    if (params->on_gpu && graph->params.n_gpus == 0)
        return weft__fail(WEFT_ERR_NOT_FOUND, "on_gpu: the graph has no GPUs (n_gpus)");
    if (params->on_gpu)
        *pool_p = &graph->gpus;
    else if (params->on_node)
        *pool_p = of_node(graph, params->node);
    return WEFT_OK;
}

/* A graph of this process alone has no context, and so no settings. */
static const struct topology *topology_of(const weft_graph_t *graph) {
    const weft_team_t *team = graph->params.team;
    return weft__topology(team ? weft__setting_str(team->worker->context, SETTING_HARDWARE_TOPOLOGY)
                               : "auto");
}

/* The node of the processor that the thread is bound to. */
static void find_node(weft_graph_t *graph, struct graph_thread *t) {
    if (t->cpu < 0 || t->cpu >= WEFT_MAX_CPUS) return;
    int number = topology_of(graph)->cpu[t->cpu].node;
    t->node = number < 0 ? NULL : of_node(graph, number);
    if (number < 0 || t->node) return;
    struct node_pool *node = &graph->node[graph->n_nodes++];
    node->number = number;
    pthread_mutex_init(&node->pool.mutex, NULL);
    t->node = &node->pool;
}

/* ---- sleep ----------------------------------------------------------------------------------- */

void weft__crew_wake(weft_graph_t *graph, uint32_t n) {
    if (n == 0 || atomic_load(&graph->n_sleeping) == 0) return;
    pthread_mutex_lock(&graph->mutex);
    if (n == 1)
        pthread_cond_signal(&graph->wake);
    else
        pthread_cond_broadcast(&graph->wake);
    pthread_mutex_unlock(&graph->mutex);
}

/* `helps`: it is the caller's thread, which leaves when the run has ended. */
static void sleep_until_woken(struct graph_thread *t, bool helps) {
    weft_graph_t *graph = t->graph;
    pthread_mutex_lock(&graph->mutex);
    atomic_fetch_add(&graph->n_sleeping, 1);
    bool over = helps ? !atomic_load(&graph->running) : atomic_load(&graph->ends);
    if (!over && !anything_for(t)) pthread_cond_wait(&graph->wake, &graph->mutex);
    atomic_fetch_sub(&graph->n_sleeping, 1);
    pthread_mutex_unlock(&graph->mutex);
}

/* Pushed tasks are for others: the thread itself goes on with `next`. */
static void run_one(struct graph_thread *t, struct task *task) {
    t->n_pushed = 0;
    weft__task_run(task, t);
    weft__crew_wake(t->graph, t->n_pushed);
}

void weft__crew_help(weft_graph_t *graph) {
    struct graph_thread *t = &graph->thread[0];
    while (atomic_load(&graph->running)) {
        struct task *task = crew_take(t);
        if (task)
            run_one(t, task);
        else
            sleep_until_woken(t, true);
    }
}

static void *thread_main(void *arg) {
    struct graph_thread *t = arg;
    while (!atomic_load(&t->graph->ends)) {
        if (weft__graph_end_empty(t->graph)) continue;
        struct task *task = crew_take(t);
        if (task)
            run_one(t, task);
        else
            sleep_until_woken(t, false);
    }
    return NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

static int create_thread(struct graph_thread *t) {
    pthread_attr_t attr;
    struct affinity one;
    pthread_attr_init(&attr);
    if (t->cpu >= 0) {
        weft__affinity_only(&one, t->cpu);
        pthread_attr_setaffinity_np(&attr, sizeof one, one.set);
    }
    int error = pthread_create(&t->thread, &attr, thread_main, t);
    pthread_attr_destroy(&attr);
    return error;
}

static void init_threads(weft_graph_t *graph, const struct affinity *cpus) {
    for (uint32_t i = 0; i < graph->n_threads; i++) {
        struct graph_thread *t = &graph->thread[i];
        t->graph = graph;
        t->index = i;
        t->cpu = graph->params.pin && i > 0 ? weft__affinity_nth(cpus, i - 1) : -1;
        t->gpus = i > 0 && i <= graph->params.n_gpus ? &graph->gpus : NULL;
        pthread_mutex_init(&t->own.mutex, NULL);
        find_node(graph, t);
    }
}

/* Signals are the program's: all are blocked while threads start, so none comes to these. */
static weft_status_t start_threads(weft_graph_t *graph) {
    sigset_t all, before;
    int error = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (uint32_t i = 1; i < graph->n_threads && !error; i++) {
        error = create_thread(&graph->thread[i]);
        graph->n_started += !error;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error ? weft__fail(WEFT_ERR_NO_MEMORY, "could not create a thread: %s", strerror(error))
                 : WEFT_OK;
}

weft_status_t weft__crew_start(weft_graph_t *graph) {
    struct affinity cpus;
    (void)weft__affinity_read(&cpus);
    uint32_t n_cpus = weft__affinity_count(&cpus);
    uint32_t own = graph->params.n_threads ? graph->params.n_threads : n_cpus > 1 ? n_cpus - 1 : 1;
    size_t bytes = (own + 1) * sizeof *graph->thread;
    /* cache lines of its own for each deque, which talloc does not give */
    graph->thread = aligned_alloc(_Alignof(struct graph_thread), bytes);
    if (!graph->thread) return WEFT_ERR_NO_MEMORY;
    memset(graph->thread, 0, bytes);
    graph->n_threads = own + 1;
    pthread_mutex_init(&graph->gpus.mutex, NULL);
    pthread_mutex_init(&graph->wide.mutex, NULL);
    graph->node = weft__alloc(graph, (own + 1) * sizeof *graph->node, "NUMA nodes");
    if (!graph->node) return WEFT_ERR_NO_MEMORY;
    if (graph->params.n_gpus > own)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "params->n_gpus: more than threads");
    init_threads(graph, &cpus);
    return start_threads(graph);
}

void weft__crew_end(weft_graph_t *graph) {
    if (!graph->thread) return;
    pthread_mutex_lock(&graph->mutex);
    atomic_store(&graph->ends, true);
    pthread_cond_broadcast(&graph->wake);
    pthread_mutex_unlock(&graph->mutex);
    for (uint32_t i = 1; i <= graph->n_started; i++) pthread_join(graph->thread[i].thread, NULL);
    for (uint32_t i = 0; i < graph->n_threads; i++)
        pthread_mutex_destroy(&graph->thread[i].own.mutex);
    for (uint32_t i = 0; i < graph->n_nodes; i++) pthread_mutex_destroy(&graph->node[i].pool.mutex);
    pthread_mutex_destroy(&graph->gpus.mutex);
    pthread_mutex_destroy(&graph->wide.mutex);
    free(graph->thread);
}
