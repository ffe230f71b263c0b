/*
 * Tasks that need several threads. The thread that takes such a task collects the others: each
 * comes when it has ended what it runs, and sleeps until the task returns. One task at a time
 * collects, so that two never wait for threads of each other; when it has them, the next may begin.
 */
#include "graph.h"

#include <base/alloc.h>
#include <base/status.h>

weft_status_t weft__cores_make(struct task *task) {
    uint32_t n = task->params.cores, own = task->graph->n_threads - 1;
    if (n < 2) return WEFT_OK;
    if (n > own)
        return weft__fail(WEFT_ERR_NOT_FOUND, "cores: %u, and the graph has %u threads", n, own);
    task->cores = weft__alloc(task, sizeof *task->cores + n * sizeof(int), "cores");
    if (!task->cores) return WEFT_ERR_NO_MEMORY;
    task->cores->n = n;
    return WEFT_OK;
}

static void come(struct task_cores *cores, struct graph_thread *t) {
    cores->cpu[cores->here++] = t->cpu;
    if (cores->here < cores->n) return;
    atomic_store(&t->graph->collecting, NULL);
    pthread_cond_broadcast(&t->graph->cores);
}

/* Sleeps until the other task has returned. */
static void help(struct task_cores *cores, struct graph_thread *t) {
    uint32_t round = cores->round;
    come(cores, t);
    while (cores->round == round) pthread_cond_wait(&t->graph->cores, &t->graph->mutex);
}

/* A task that collects already may need this thread, too. */
void weft__cores_collect(struct task *task, struct graph_thread *t) {
    weft_graph_t *graph = task->graph;
    struct task_cores *cores = task->cores;
    pthread_mutex_lock(&graph->mutex);
    while (atomic_load(&graph->collecting)) help(atomic_load(&graph->collecting), t);
    atomic_store(&graph->collecting, cores);
    come(cores, t);
    pthread_cond_broadcast(&graph->wake);
    while (cores->here < cores->n) pthread_cond_wait(&graph->cores, &graph->mutex);
    pthread_mutex_unlock(&graph->mutex);
}

void weft__cores_release(struct task *task) {
    weft_graph_t *graph = task->graph;
    pthread_mutex_lock(&graph->mutex);
    task->cores->here = 0;
    task->cores->round++;
    pthread_cond_broadcast(&graph->cores);
    pthread_mutex_unlock(&graph->mutex);
}

void weft__cores_join(struct graph_thread *t) {
    weft_graph_t *graph = t->graph;
    if (t->index == 0 || !atomic_load(&graph->collecting)) return;
    pthread_mutex_lock(&graph->mutex);
    struct task_cores *cores = atomic_load(&graph->collecting);
    if (cores) help(cores, t);
    pthread_mutex_unlock(&graph->mutex);
}
