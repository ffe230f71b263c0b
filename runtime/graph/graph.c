/* The program's calls: tasks are added, the graph runs and ends. */
#include "graph.h"
#include "results.h"

#include <base/alloc.h>
#include <base/check.h>
#include <base/status.h>
#include <endpoints/worker/drive.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

uint64_t weft__graph_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static weft_status_t check_idle(const weft_graph_t *graph) {
    if (!graph) REFUSE("graph", "NULL");
    if (graph->pid != getpid()) return weft__fail(WEFT_ERR_FORKED, "the graph is the parent's");
    if (atomic_load(&graph->running)) return weft__fail(WEFT_ERR_BUSY, "the graph runs");
    return WEFT_OK;
}

/* ---- functions by name ----------------------------------------------------------------------- */

static struct named {
    struct named *next;
    const char *name;
    weft_task_fn fn;
} * names;
static pthread_mutex_t names_mutex = PTHREAD_MUTEX_INITIALIZER;

/* Within `names_mutex`. */
static weft_task_fn function_of(const char *name) {
    for (const struct named *n = names; n; n = n->next)
        if (strcmp(n->name, name) == 0) return n->fn;
    return NULL;
}

static weft_task_fn find_function(const char *name) {
    pthread_mutex_lock(&names_mutex);
    weft_task_fn fn = function_of(name);
    pthread_mutex_unlock(&names_mutex);
    return fn;
}

weft_status_t weft_graph_register(const char *name, weft_task_fn fn) {
    if (!name || !fn) REFUSE("name or fn", "NULL");
    struct named *own = malloc(sizeof *own);
    if (!own) return WEFT_ERR_NO_MEMORY;
    pthread_mutex_lock(&names_mutex);
    weft_task_fn known = function_of(name);
    if (!known) {
        *own = (struct named){names, name, fn};
        names = own;
    }
    pthread_mutex_unlock(&names_mutex);
    if (known) free(own);
    return !known || known == fn
               ? WEFT_OK
               : weft__fail(WEFT_ERR_EXISTS, "\"%s\" names another function", name);
}

/* ---- a graph and its tasks ------------------------------------------------------------------- */

weft_status_t weft_graph_create_sized(size_t params_size, const weft_graph_params_t *params,
                                      weft_graph_t **graph_p) {
    enum { MOST_THREADS = 4096 };
    weft_graph_params_t known;
    if (!graph_p) REFUSE("graph_p", "NULL");
    weft_status_t st = weft__params_read(&known, sizeof known, params, params_size);
    if (st < 0) return st;
    if (known.n_threads > MOST_THREADS) REFUSE("params->n_threads", "beyond 4096");
    if (known.progress_bar < 0 || known.progress_bar > WEFT_BAR_ALWAYS)
        REFUSE("params->progress_bar", "neither 0, WEFT_BAR_ON_TERMINAL nor WEFT_BAR_ALWAYS");
    weft_graph_t *graph = weft__new(NULL, weft_graph_t);
    if (!graph) return WEFT_ERR_NO_MEMORY;
    graph->params = known;
    graph->pid = getpid();
    atomic_store(&graph->failed, WEFT_NO_TASK);
    pthread_mutex_init(&graph->mutex, NULL);
    pthread_mutex_init(&graph->progress_mutex, NULL);
    pthread_cond_init(&graph->wake, NULL);
    pthread_cond_init(&graph->cores, NULL);
    if (known.team) st = weft__graph_ranks_open(graph);
    if (st == WEFT_OK) st = weft__crew_start(graph);
    if (st < 0) {
        weft_graph_destroy(graph);
        return st;
    }
    *graph_p = graph;
    return WEFT_OK;
}

/* Its threads go on until no task is left, so that a task never loses its graph. False: within a
 * callback of the worker that the end of the run waits for. */
static bool wait_until_idle(weft_graph_t *graph) {
    weft_graph_cancel(graph);
    if (!graph->ranks) weft__crew_help(graph);
    while (atomic_load(&graph->running))
        if (weft_worker_wait(weft__graph_worker(graph), 100) == WEFT_ERR_BUSY) return false;
    return true;
}

/* Its end is the worker's, and so is what it leaves. */
static bool is_of_another_thread(const weft_graph_t *graph) {
    return graph->ranks && weft__worker_check(graph->ranks->worker) == WEFT_ERR_WRONG_THREAD;
}

void weft_graph_destroy(weft_graph_t *graph) {
    if (!graph || graph->pid != getpid() || is_of_another_thread(graph)) return;
    if (graph->thread && !wait_until_idle(graph)) {
        graph->unwanted = true;
        return;
    }
    weft__crew_end(graph);
    weft__graph_ranks_close(graph);
    pthread_mutex_destroy(&graph->mutex);
    pthread_mutex_destroy(&graph->progress_mutex);
    pthread_cond_destroy(&graph->wake);
    pthread_cond_destroy(&graph->cores);
    talloc_free(graph);
}

static weft_status_t check_task(weft_graph_t *graph, weft_task_params_t *params) {
    if (!params->fn && !params->function) REFUSE("params->fn", "NULL, and no name");
    if (!params->fn) params->fn = find_function(params->function);
    if (!params->fn)
        return weft__fail(WEFT_ERR_NOT_FOUND, "no function is registered as \"%s\"",
                          params->function);
    if (!params->inputs && params->n_inputs) REFUSE("params->inputs", "NULL");
    for (uint32_t i = 0; i < params->n_inputs; i++)
        if (params->inputs[i] >= graph->n_tasks)
            return weft__fail(WEFT_ERR_INVALID_PARAM, "inputs[%u]: %u is no earlier task", i,
                              params->inputs[i]);
    if (params->on_gpu < 0 || params->on_gpu > WEFT_GPU_PREFERRED)
        REFUSE("params->on_gpu", "neither 0, WEFT_GPU_REQUIRED nor WEFT_GPU_PREFERRED");
    if (!!params->on_cpu + !!params->on_node + !!params->on_gpu + (params->cores > 1) > 1)
        REFUSE("params->on_gpu", "one of on_cpu, on_node, on_gpu and cores");
    return WEFT_OK;
}

static weft_status_t keep_inputs(struct task *task, const weft_task_params_t *params) {
    uint32_t n = params->n_inputs;
    weft_task_t *inputs = weft__alloc(task, n * sizeof *inputs, "inputs");
    task->input = weft__alloc(task, n * sizeof *task->input, "inputs");
    task->input_len = weft__alloc(task, n * sizeof *task->input_len, "inputs");
    if (!inputs || !task->input || !task->input_len) return WEFT_ERR_NO_MEMORY;
    memcpy(inputs, params->inputs, n * sizeof *inputs);
    task->params.inputs = inputs;
    return WEFT_OK;
}

/* The copies are the task's. */
static weft_status_t keep_params(const weft_graph_t *graph, struct task *task,
                                 const weft_task_params_t *params) {
    task->params = *params;
    task->params.name = NULL;
    task->params.inputs = NULL;
    task->n_inputs = params->n_inputs;
    weft_status_t st = params->n_inputs ? keep_inputs(task, params) : WEFT_OK;
    if (st < 0) return st;
    if (params->name) {
        size_t bytes = strlen(params->name) + 1;
        char *name = weft__alloc(task, bytes, "name");
        if (!name) return WEFT_ERR_NO_MEMORY;
        memcpy(name, params->name, bytes);
        task->params.name = name;
    }
    if (params->result_size && !graph->ranks) {
        task->result = weft__alloc(task, params->result_size, "result");
        if (!task->result) return WEFT_ERR_NO_MEMORY;
    }
    return WEFT_OK;
}

static weft_status_t make_room(weft_graph_t *graph) {
    if (graph->n_tasks < graph->room) return WEFT_OK;
    uint32_t room = graph->room ? 2 * graph->room : 64;
    struct task **all = weft__realloc(graph, graph->task, room * sizeof *all, "tasks");
    if (!all) return WEFT_ERR_NO_MEMORY;
    graph->task = all;
    graph->room = room;
    return WEFT_OK;
}

/* What this member lacks is no error for a task of another one, unless that one is lost. */
static weft_status_t find_threads(weft_graph_t *graph, struct task *task) {
    weft_status_t st = weft__crew_pool(graph, &task->params, &task->pool);
    if (st == WEFT_OK) st = weft__cores_make(task);
    if (st != WEFT_ERR_NOT_FOUND || weft__graph_is_own(graph, task)) return st;
    task->lacks = true;
    task->pool = NULL;
    return WEFT_OK;
}

weft_status_t weft_graph_add_sized(size_t params_size, weft_graph_t *graph,
                                   const weft_task_params_t *params, weft_task_t *task_p) {
    weft_task_params_t known;
    weft_status_t st = check_idle(graph);
    if (st == WEFT_OK) st = weft__params_read(&known, sizeof known, params, params_size);
    if (st == WEFT_OK) st = check_task(graph, &known);
    if (st == WEFT_OK) st = make_room(graph);
    if (st < 0) return st;
    struct task *task = weft__new(graph, struct task);
    st = task ? keep_params(graph, task, &known) : WEFT_ERR_NO_MEMORY;
    if (st < 0) {
        talloc_free(task);
        return st;
    }
    task->graph = graph;
    task->id = graph->n_tasks;
    st = weft__graph_ranks_place(graph, task);
    if (st == WEFT_OK) st = find_threads(graph, task);
    if (st < 0) {
        talloc_free(task);
        return st;
    }
    fsm_init(&task->core.fsm, &weft__task_port, TASK_WAITING, task->id + 1);
    graph->task[graph->n_tasks++] = task;
    graph->sealed = false;
    if (task_p) *task_p = task->id;
    return WEFT_OK;
}

/* ---- a run ----------------------------------------------------------------------------------- */

/* The successors of each task, in the order of their numbers. */
static weft_status_t list_successors(weft_graph_t *graph) {
    uint32_t n = graph->n_tasks, sum = 0;
    uint32_t *first = weft__alloc(graph, (n + 2) * sizeof *first, "first successors");
    for (uint32_t i = 0; first && i < n; i++) sum += graph->task[i]->n_inputs;
    uint32_t *successor =
        first ? weft__alloc(graph, (sum + 1) * sizeof *first, "successors") : NULL;
    if (!successor) {
        talloc_free(first);
        return WEFT_ERR_NO_MEMORY;
    }
    memset(first, 0, (n + 2) * sizeof *first);
    /* counted one place further on, so that filling them moves each to its own place */
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < graph->task[i]->n_inputs; k++)
            first[graph->task[i]->params.inputs[k] + 2]++;
    for (uint32_t i = 0; i < n; i++) first[i + 2] += first[i + 1];
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < graph->task[i]->n_inputs; k++)
            successor[first[graph->task[i]->params.inputs[k] + 1]++] = i;
    talloc_free(graph->first);
    talloc_free(graph->successor);
    graph->first = first;
    graph->successor = successor;
    return WEFT_OK;
}

/* Old rings stay until the graph ends: a thread may still look at one, and finds it empty. */
static weft_status_t make_rings(weft_graph_t *graph) {
    int64_t room = 64;
    while (room < graph->n_tasks) room *= 2;
    for (uint32_t i = 0; i < graph->n_threads; i++) {
        struct deque *deque = &graph->thread[i].deque;
        struct deque_ring *ring = atomic_load(&deque->ring);
        if (ring && ring->mask + 1 >= room) continue;
        ring = weft__alloc(graph, sizeof *ring + (size_t)room * sizeof ring->slot[0], "ring");
        if (!ring) return WEFT_ERR_NO_MEMORY;
        ring->mask = room - 1;
        atomic_store(&deque->ring, ring);
    }
    return WEFT_OK;
}

static weft_status_t seal(weft_graph_t *graph) {
    weft_status_t st = graph->sealed ? WEFT_OK : list_successors(graph);
    if (st == WEFT_OK && !graph->sealed) st = make_rings(graph);
    graph->sealed = st == WEFT_OK;
    return st;
}

static void reset_tasks(weft_graph_t *graph) {
    for (uint32_t i = 0; i < graph->n_tasks; i++) {
        struct task *task = graph->task[i];
        weft__fsm_step(&task->core.fsm, TASK_EV_RESET);
        task->finished = false;
        task->begins = task->n_inputs == 0;
        atomic_store_explicit(&task->missing, task->n_inputs, memory_order_relaxed);
        task->tries = 0;
        task->result_len = 0;
        task->begun = task->ended = 0;
    }
}

/* Returns how many tasks were pushed. The caller's deque holds them, and any thread may steal. */
uint32_t weft__graph_push_first(weft_graph_t *graph) {
    struct graph_thread *t = &graph->thread[0];
    t->n_pushed = 0;
    for (uint32_t i = 0; i < graph->n_tasks; i++)
        if (graph->task[i]->begins && weft__graph_is_own(graph, graph->task[i]))
            weft__task_begin(graph->task[i], t);
    if (t->next) {
        deque_push(&t->deque, t->next);
        t->next = NULL;
        t->n_pushed++;
    }
    return t->n_pushed;
}

/* Apart from the graph, which may be destroyed before a worker's turn. */
struct graph_notice {
    weft_worker_t *worker;
    weft_done_fn done;
    void *arg;
    weft_status_t status;
    uint32_t failed; /* WEFT_NO_TASK: none */
};

/* What a call or callback reports is described by this alone. */
static void explain_run(weft_status_t status, uint32_t failed) {
    weft__causes_clear();
    if (status < 0 && failed != WEFT_NO_TASK) weft__fail(status, "task %u of the graph", failed);
}

static void notify_done(void *arg) {
    struct graph_notice notice = *(struct graph_notice *)arg;
    free(arg);
    explain_run(notice.status, notice.failed);
    notice.done(notice.status, notice.arg);
}

static void destroy_unwanted(void *graph) {
    weft_graph_destroy(graph);
}

static void report_progress(weft_graph_t *graph, uint32_t done, bool last) {
    if (!graph->params.on_progress && !graph->bar.shown) return;
    if (last)
        pthread_mutex_lock(&graph->progress_mutex);
    else if (pthread_mutex_trylock(&graph->progress_mutex) != 0)
        return; /* another thread reports just now; a later number says more */
    if (done > graph->reported) {
        graph->reported = done;
        if (graph->params.on_progress)
            graph->params.on_progress(done, graph->n_own, graph->params.arg);
        /* after an error, tasks that are skipped end, too */
        if (atomic_load(&graph->stop) == WEFT_OK) weft__bar_draw(&graph->bar, done, graph->n_own);
    }
    pthread_mutex_unlock(&graph->progress_mutex);
}

void weft__graph_end_run(weft_graph_t *graph) {
    struct graph_notice *notice = graph->notice;
    weft_worker_t *unwanted_by = graph->unwanted ? weft__graph_worker(graph) : NULL;
    graph->notice = NULL;
    if (graph->ranks) weft__graph_ranks_ended(graph->ranks);
    weft__bar_end(&graph->bar, (weft_status_t)atomic_load(&graph->stop));
    if (notice) {
        notice->status = (weft_status_t)atomic_load(&graph->stop);
        notice->failed = atomic_load(&graph->failed);
    }
    pthread_mutex_lock(&graph->mutex);
    atomic_store(&graph->running, false);
    pthread_cond_broadcast(&graph->wake);
    pthread_mutex_unlock(&graph->mutex);
    /* A worker that ends takes no more functions; its program is notified here. */
    if (notice && (!notice->worker || weft_worker_post(notice->worker, notify_done, notice) < 0))
        notify_done(notice);
    if (unwanted_by) (void)weft_worker_post(unwanted_by, destroy_unwanted, graph);
}

bool weft__graph_end_empty(weft_graph_t *graph) {
    if (!atomic_load(&graph->empty) || !atomic_exchange(&graph->empty, false)) return false;
    weft__graph_end_run(graph);
    return true;
}

void weft__graph_task_ended(weft_graph_t *graph) {
    uint32_t ended = atomic_fetch_add(&graph->n_ended, 1) + 1;
    report_progress(graph, ended, ended == graph->n_own);
    weft__graph_left(graph);
}

void weft__graph_left(weft_graph_t *graph) {
    if (atomic_fetch_sub(&graph->n_left, 1) != 1) return;
    if (graph->ranks)
        weft__graph_ranks_over(graph);
    else
        weft__graph_end_run(graph);
}

void weft__graph_stop(weft_graph_t *graph, weft_status_t status, weft_task_t task) {
    unsigned none = WEFT_NO_TASK;
    int ok = WEFT_OK;
    if (!atomic_compare_exchange_strong(&graph->stop, &ok, status)) return;
    atomic_compare_exchange_strong(&graph->failed, &none, task);
    if (graph->ranks) weft__graph_ranks_stop(graph);
}

uint32_t weft__graph_count(weft_graph_t *graph) {
    uint32_t left = 0;
    graph->n_own = 0;
    for (uint32_t i = 0; i < graph->n_tasks; i++) {
        const struct task *task = graph->task[i];
        bool own = weft__graph_is_own(graph, task);
        graph->n_own += own;
        left += (own && !task->finished) + weft__graph_awaits(graph, task);
    }
    return left;
}

/* Returns in *n_first_p how many tasks can begin at once. */
static weft_status_t begin_run(weft_graph_t *graph, struct graph_notice *notice,
                               uint32_t *n_first_p) {
    weft_status_t st = check_idle(graph);
    if (st == WEFT_OK) st = seal(graph);
    if (st < 0) return st;
    graph->notice = notice;
    graph->reported = 0;
    atomic_store(&graph->stop, WEFT_OK);
    atomic_store(&graph->failed, WEFT_NO_TASK);
    atomic_store(&graph->cancelled, false);
    graph->deadline = graph->deadline_ms && !graph->ranks
                          ? weft__graph_now() + graph->deadline_ms * UINT64_C(1000000)
                          : 0;
    reset_tasks(graph);
    weft__results_count_uses(graph);
    atomic_store(&graph->n_ended, 0);
    atomic_store(&graph->n_left, weft__graph_count(graph) + (graph->ranks != NULL));
    atomic_store(&graph->running, graph->n_tasks > 0 || graph->ranks || notice);
    *n_first_p = 0;
    weft__bar_begin(&graph->bar,
                    graph->ranks && graph->ranks->rank > 0 ? 0 : graph->params.progress_bar);
    if (graph->ranks) {
        st = weft__graph_ranks_begin(graph);
        if (st < 0) atomic_store(&graph->running, false);
        return st;
    }
    *n_first_p = weft__graph_push_first(graph);
    return WEFT_OK;
}

weft_status_t weft_graph_run(weft_graph_t *graph, weft_worker_t *worker, weft_done_fn done,
                             void *arg) {
    uint32_t n;
    if (!done) REFUSE("done", "NULL");
    struct graph_notice *notice = malloc(sizeof *notice);
    if (!notice) return WEFT_ERR_NO_MEMORY;
    *notice = (struct graph_notice){worker, done, arg, WEFT_OK, WEFT_NO_TASK};
    weft_status_t st = begin_run(graph, notice, &n);
    if (st < 0) {
        free(notice);
        return st;
    }
    bool empty = graph->n_tasks == 0 && !graph->ranks;
    if (empty) atomic_store(&graph->empty, true);
    weft__crew_wake(graph, empty ? graph->n_threads : n);
    return WEFT_IN_PROGRESS;
}

static void note_end(weft_status_t status, void *arg) {
    *(weft_status_t *)arg = status;
}

/* The caller drives the worker, and runs no tasks. */
static weft_status_t run_among_ranks(weft_graph_t *graph) {
    weft_status_t outcome = WEFT_IN_PROGRESS;
    weft_worker_t *worker = weft__graph_worker(graph);
    weft_status_t st = weft__worker_check_wait(worker);
    if (st == WEFT_OK) st = weft_graph_run(graph, worker, note_end, &outcome);
    return st < 0 ? st : weft__worker_wait_for(worker, &outcome);
}

weft_status_t weft_graph_run_wait(weft_graph_t *graph) {
    uint32_t n;
    if (graph && graph->ranks) return run_among_ranks(graph);
    weft_status_t st = begin_run(graph, NULL, &n);
    if (st < 0) return st;
    weft__crew_wake(graph, n > 1 ? n - 1 : 0);
    weft__crew_help(graph);
    st = (weft_status_t)atomic_load(&graph->stop);
    explain_run(st, atomic_load(&graph->failed));
    return st;
}

weft_status_t weft_graph_set_deadline(weft_graph_t *graph, uint32_t deadline_ms) {
    weft_status_t st = check_idle(graph);
    if (st == WEFT_OK) graph->deadline_ms = deadline_ms;
    return st;
}

void weft_graph_cancel(weft_graph_t *graph) {
    if (!graph || !atomic_load(&graph->running)) return;
    atomic_store(&graph->cancelled, true);
    weft__graph_stop(graph, WEFT_ERR_CANCELLED, WEFT_NO_TASK);
}

weft_status_t weft_graph_result(weft_graph_t *graph, weft_task_t task, const void **data_p,
                                size_t *len_p) {
    weft_status_t st = check_idle(graph);
    if (st < 0) return st;
    if (task >= graph->n_tasks || !data_p || !len_p)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "no task %u, or data_p or len_p is NULL", task);
    const struct task *t = graph->task[task];
    if (!task_is_done(&t->core.fsm))
        return weft__fail(WEFT_ERR_NOT_FOUND, "task %u is %s", task, fsm_state_name(&t->core.fsm));
    if (atomic_load(&t->given_back))
        return weft__fail(WEFT_ERR_NOT_FOUND, "the result of task %u was transient", task);
    *data_p = t->result;
    *len_p = t->result_len;
    return WEFT_OK;
}

weft_task_t weft_graph_failed(const weft_graph_t *graph, const char **name_p,
                              weft_status_t *status_p) {
    weft_task_t task = graph ? atomic_load(&graph->failed) : WEFT_NO_TASK;
    if (name_p) *name_p = task == WEFT_NO_TASK ? NULL : graph->task[task]->params.name;
    if (status_p) *status_p = graph ? (weft_status_t)atomic_load(&graph->stop) : WEFT_OK;
    return task;
}
