/* Task graphs: functions in Python on the threads of a graph. weft/graph.py has the contract. */
#include "team.h"

#include <sched.h>
#include <stdio.h>
#include <weft/graph.h>

struct task {
    struct graph *graph;
    PyObject *fn, *result, *raised; /* result: of a graph in this process; raised: the last error */
    size_t size;                    /* of results that go to other members */
    uint32_t number, n_inputs;
    uint32_t *inputs;
    bool on_gpu;
};

struct graph {
    PyObject_HEAD weft_graph_t *handle; /* NULL: destroyed */
    struct graph *next, **prev;         /* of a team: the worker's open ones */
    struct state *state;
    struct team *team; /* NULL: of this process alone */
    PyObject *on_progress;
    PyObject *interrupt;  /* an exit on the thread of run_wait, which raises it: see keep_exit */
    unsigned long waiter; /* that thread, while it waits */
    struct task **task;
    uint32_t n_tasks;
    bool running;
    atomic_flag cancels; /* held while a handle is taken, or another thread cancels by it */
    bool is_left;        /* to its worker, which has the reference */
};

/* ---- on the graph's threads ---- */

static PyObject *arguments_of(struct task *t, const weft_task_call_t *call) {
    PyObject *args = PyTuple_New(call->n_inputs);
    for (uint32_t i = 0; args && i < call->n_inputs; i++) {
        PyObject *input;
        if (t->graph->team) {
            input = PyBytes_FromStringAndSize(call->inputs[i], call->input_lens[i]);
        } else {
            input = Py_NewRef(t->graph->task[t->inputs[i]]->result);
        }
        if (!input || PyTuple_SetItem(args, i, input) < 0) Py_CLEAR(args);
    }
    return args;
}

/* The result of a task whose successors may be run by other members: bytes. */
static int take_bytes(struct task *t, weft_task_call_t *call, PyObject *result) {
    char *bytes;
    Py_ssize_t len;
    if (PyBytes_AsStringAndSize(result, &bytes, &len) < 0) return -1;
    if ((size_t)len > t->size) {
        char text[128];
        snprintf(text, sizeof text, "task %u: its result has %zd bytes, more than result_size, %zu",
                 t->number, len, t->size);
        weft__py_raise_text(t->graph->state, WEFT_ERR_TOO_BIG, text);
        return -1;
    }
    if (len) memcpy(call->result, bytes, len);
    call->result_len = len;
    return 0;
}

static void cancel(struct graph *g);

/* What ends the program, and no try of a task takes: the thread of run_wait runs the handlers of
 * signals, too. It skips what has not begun. False: it is none, or of another thread. */
static bool keep_exit(struct graph *g) {
    if (g->waiter != PyThread_get_thread_ident() || !weft__py_keep_exit(&g->interrupt))
        return false;
    cancel(g);
    return true;
}

static weft_status_t run_task(weft_task_call_t *call) {
    struct task *t = call->arg;
    PyGILState_STATE lock = PyGILState_Ensure();
    PyObject *args = arguments_of(t, call), *kwargs = NULL, *result = NULL;
    if (args && t->on_gpu) kwargs = Py_BuildValue("{sI}", "gpu", call->gpu);
    if (args && (kwargs || !t->on_gpu)) result = PyObject_Call(t->fn, args, kwargs);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    if (result && t->graph->team && take_bytes(t, call, result) < 0) Py_CLEAR(result);
    if (!result) {
        Py_CLEAR(t->raised); /* of an earlier try */
        if (!keep_exit(t->graph)) weft__py_keep_raised(&t->raised);
    } else if (t->graph->team) {
        Py_DECREF(result);
    } else {
        t->result = result;
    }
    PyGILState_Release(lock);
    return result ? WEFT_OK : WEFT_ERR_CANCELLED;
}

static void on_progress(uint32_t done, uint32_t total, void *arg) {
    struct graph *g = arg;
    PyGILState_STATE lock = PyGILState_Ensure();
    PyObject *result = PyObject_CallFunction(g->on_progress, "II", done, total);
    if (!result && !keep_exit(g)) PyErr_WriteUnraisable(g->on_progress);
    Py_XDECREF(result);
    PyGILState_Release(lock);
}

/* ---- life ---- */

/* Another thread may drop one of the list at the same time: see leave_to_owner. */
static void enlist(struct graph *g, struct worker *w) {
    weft__py_enable_try_ref((PyObject *)g);
    weft__py_lock_lists(w);
    g->next = w->graphs;
    g->prev = &w->graphs;
    if (g->next) g->next->prev = &g->next;
    w->graphs = g;
    weft__py_unlock_lists(w);
}

static void unlist(struct graph *g) {
    if (!g->team) return;
    weft__py_lock_lists(g->team->worker);
    if (g->prev) *g->prev = g->next;
    if (g->prev && g->next) g->next->prev = g->prev;
    g->prev = NULL;
    weft__py_unlock_lists(g->team->worker);
}

static bool is_of(const struct graph *g, const struct team *team, bool left) {
    return (!team || g->team == team) && (!left || g->is_left);
}

/* A new reference to one of the list: of a team, or of any; left: to its worker. NULL: none. It is
 * waited for that a thread that drops one has left it to the worker. */
static struct graph *find(struct worker *w, const struct team *team, bool left) {
    for (;;) {
        weft__py_lock_lists(w);
        struct graph *g = w->graphs;
        while (g && !is_of(g, team, left)) g = g->next;
        bool goes = g && !weft__py_try_ref((PyObject *)g);
        weft__py_unlock_lists(w);
        if (!goes) return g;
        Py_BEGIN_ALLOW_THREADS sched_yield();
        Py_END_ALLOW_THREADS
    }
}

static void lock(struct graph *g) {
    while (atomic_flag_test_and_set_explicit(&g->cancels, memory_order_acquire)) sched_yield();
}
static void unlock(struct graph *g) {
    atomic_flag_clear_explicit(&g->cancels, memory_order_release);
}

static void cancel(struct graph *g) {
    lock(g);
    if (g->handle) weft_graph_cancel(g->handle);
    unlock(g);
}

static weft_graph_t *take_handle(struct graph *g) {
    lock(g);
    weft_graph_t *handle = g->handle;
    g->handle = NULL;
    unlock(g);
    unlist(g);
    return handle;
}

static PyObject *new (PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    struct state *state = weft__py_state(type);
    PyObject *team, *progress;
    weft_graph_params_t params = {.n_threads = 0};
    long long n_threads, n_gpus;
    if (!PyArg_ParseTuple(args, "OLppLO", &team, &n_threads, &params.pin, &params.trace, &n_gpus,
                          &progress)) {
        return NULL;
    }
    params.n_threads = weft__py_u32_of(n_threads);
    params.n_gpus = weft__py_u32_of(n_gpus);
    if (team != Py_None) {
        if (!PyObject_TypeCheck(team, state->team)) {
            PyErr_SetString(PyExc_TypeError, "team: not a team");
            return NULL;
        }
        if (weft__py_team_open((struct team *)team) < 0) return NULL;
        params.team = ((struct team *)team)->handle;
    }
    struct graph *g = (struct graph *)PyType_GenericAlloc(type, 0);
    if (!g) return NULL;
    g->state = state;
    if (team != Py_None) g->team = (struct team *)Py_NewRef(team);
    g->on_progress = Py_NewRef(progress);
    if (progress != Py_None) params.on_progress = on_progress;
    params.arg = g;
    weft_status_t status;
    Py_BEGIN_ALLOW_THREADS status = weft_graph_create(&params, &g->handle);
    Py_END_ALLOW_THREADS if (status == WEFT_OK) {
        if (g->team) enlist(g, g->team->worker);
        return (PyObject *)g;
    }
    Py_DECREF((PyObject *)g);
    return weft__py_raise(state, status);
}

static int graph_open(struct graph *g) {
    if (g->handle && (!g->team || g->team->handle)) return 0;
    weft__py_raise(g->state, WEFT_ERR_CLOSED);
    return -1;
}

static void drop_results(struct graph *g) {
    for (uint32_t i = 0; i < g->n_tasks; i++) {
        Py_CLEAR(g->task[i]->result);
        Py_CLEAR(g->task[i]->raised);
    }
}

/* A run of a team goes on until it has ended: the worker is driven, and its callbacks enter Python.
 * What ended meanwhile is reported by the next turn. */
static void destroy_running(weft_graph_t *handle, struct worker *w) {
    w->turning = true;
    w->unlocked = PyEval_SaveThread();
    weft_graph_destroy(handle);
    PyEval_RestoreThread(w->unlocked);
    w->unlocked = NULL;
    w->turning = false;
    if (w->handle) weft_worker_wake(w->handle);
}

static void destroy(struct graph *g);

void weft__py_graphs_drop(struct worker *w) {
    for (struct graph *g; (g = find(w, NULL, true)) != NULL;) {
        destroy(g); /* which may call the program */
        Py_DECREF((PyObject *)g);
    }
}

int weft__py_graphs_traverse(struct worker *w, visitproc visit, void *arg) {
    for (struct graph *g = w->graphs; g; g = g->next)
        if (g->is_left) Py_VISIT((PyObject *)g);
    return 0;
}

static void drop_on_owner(void *arg) {
    struct worker *w = arg;
    PyThreadState *was;
    if (!weft__py_enter(w, &was)) return;
    weft__py_graphs_drop(w);
    weft__py_leave(w, was);
}

/* A team's graph is its worker's to destroy. Another graph object takes its place until the
 * worker's next turn. False: the worker takes no more functions, or there is no memory. */
static bool leave_to_owner(struct graph *g) {
    struct worker *w = g->team->worker;
    struct graph *other = (struct graph *)PyType_GenericAlloc(g->state->graph, 0);
    if (!other) PyErr_Clear();
    if (!other || !weft__py_post(w, drop_on_owner, w)) {
        Py_XDECREF((PyObject *)other);
        return false;
    }
    other->state = g->state;
    other->team = (struct team *)Py_NewRef((PyObject *)g->team);
    other->is_left = true;
    other->handle = take_handle(g);
    enlist(other, w);
    return true;
}

static bool is_elsewhere(const struct graph *g) {
    struct worker *w = g->team ? g->team->worker : NULL;
    return g->handle && w && w->handle && !g->running && !g->is_left && !weft__py_is_owner(w);
}

/* The threads may wait for the interpreter's lock. */
static void destroy(struct graph *g) {
    if (is_elsewhere(g) && leave_to_owner(g)) {
        drop_results(g);
        return;
    }
    weft_graph_t *handle = take_handle(g);
    if (!handle) return;
    if (g->team && g->running) {
        destroy_running(handle, g->team->worker);
    } else {
        Py_BEGIN_ALLOW_THREADS weft_graph_destroy(handle);
        Py_END_ALLOW_THREADS
    }
    drop_results(g);
    bool was_left = g->is_left;
    g->is_left = false;
    if (was_left) Py_DECREF((PyObject *)g); /* the caller has one, too */
}

static PyObject *graph_destroy(PyObject *self, PyObject *unused) {
    struct graph *g = (struct graph *)self;
    if (g->team && g->running) { /* its end drives the worker */
        struct worker *w = g->team->worker;
        if (w->handle && weft__py_own(w) < 0) return NULL;
        if (w->turning) return weft__py_raise(g->state, WEFT_ERR_BUSY);
    }
    destroy(g);
    if (g->team && weft__py_is_owner(g->team->worker) && !g->team->worker->turning &&
        weft__py_interrupted(g->team->worker) < 0) /* it may have driven the worker */
        return NULL;
    Py_RETURN_NONE;
}

int weft__py_graphs_end(struct worker *w, const struct team *team) {
    for (struct graph *g; (g = find(w, team, false)) != NULL;) {
        bool runs = g->running && w->turning;
        if (runs) {
            weft__py_raise_text(g->state, WEFT_ERR_BUSY, "a graph of the team runs");
        } else {
            destroy(g);
        }
        Py_DECREF((PyObject *)g);
        if (runs) return -1;
    }
    return 0;
}

/* At the interpreter's end. The threads of functions that run need the graph as long as the process
 * lives. */
static PyObject *graph_abandon(PyObject *self, PyObject *unused) {
    struct graph *g = (struct graph *)self;
    if (!g->running || !g->handle) return graph_destroy(self, NULL);
    weft_graph_cancel(take_handle(g));
    Py_INCREF(self); /* for them */
    Py_RETURN_NONE;
}

static int traverse(PyObject *self, visitproc visit, void *arg) {
    struct graph *g = (struct graph *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(g->team);
    Py_VISIT(g->on_progress);
    /* The threads of a run set results at any time. */
    for (uint32_t i = 0; i < g->n_tasks && !g->running; i++) {
        Py_VISIT(g->task[i]->fn);
        Py_VISIT(g->task[i]->result);
        Py_VISIT(g->task[i]->raised);
    }
    return 0;
}

static int clear(PyObject *self) {
    struct graph *g = (struct graph *)self;
    destroy(g);
    for (uint32_t i = 0; i < g->n_tasks; i++) Py_CLEAR(g->task[i]->fn);
    Py_CLEAR(g->on_progress);
    return 0;
}

static void dealloc(PyObject *self) {
    struct graph *g = (struct graph *)self;
    PyObject_GC_UnTrack(self);
    clear(self);
    for (uint32_t i = 0; i < g->n_tasks; i++) {
        free(g->task[i]->inputs);
        free(g->task[i]);
    }
    free(g->task);
    Py_XDECREF((PyObject *)g->team);
    weft__py_free(self);
}

/* ---- tasks ---- */

static struct task *task_new(struct graph *g, PyObject *inputs) {
    Py_ssize_t n = PyTuple_Size(inputs);
    struct task **all = n < 0 ? NULL : realloc(g->task, (g->n_tasks + 1) * sizeof *all);
    if (all) g->task = all;
    struct task *t = all ? calloc(1, sizeof *t) : NULL;
    if (t) t->inputs = calloc(n + 1, sizeof *t->inputs);
    if (!t || !t->inputs) {
        free(t);
        if (n >= 0) PyErr_NoMemory();
        return NULL;
    }
    t->graph = g;
    t->n_inputs = (uint32_t)n;
    t->number = g->n_tasks;
    for (Py_ssize_t i = 0; i < n; i++) {
        unsigned long input = PyLong_AsUnsignedLong(PyTuple_GetItem(inputs, i));
        t->inputs[i] = input < WEFT_NO_TASK ? (uint32_t)input : WEFT_NO_TASK;
    }
    if (!PyErr_Occurred()) return t;
    free(t->inputs);
    free(t);
    return NULL;
}

static PyObject *graph_add(PyObject *self, PyObject *args) {
    struct graph *g = (struct graph *)self;
    PyObject *fn, *inputs;
    Py_ssize_t size;
    int cpu, node, on_gpu;
    long long rank, host, retries;
    weft_task_t number;
    weft_task_params_t params = {.fn = run_task};
    if (!PyArg_ParseTuple(args, "OO!nzLiipLL", &fn, &PyTuple_Type, &inputs, &size, &params.name,
                          &retries, &cpu, &node, &on_gpu, &rank, &host) ||
        graph_open(g) < 0) {
        return NULL;
    }
    if (size < 0 || retries < 0 || retries > UINT32_MAX)
        return weft__py_raise_text(g->state, WEFT_ERR_INVALID_PARAM,
                                   "result_size or retries is out of range");
    if (g->running) return weft__py_raise(g->state, WEFT_ERR_BUSY); /* its threads read the array */
    struct task *t = task_new(g, inputs);
    if (!t) return NULL;
    t->size = g->team ? size : 0;
    t->on_gpu = on_gpu;
    params.arg = t;
    params.inputs = t->inputs, params.n_inputs = t->n_inputs;
    params.result_size = t->size;
    params.retries = (uint32_t)retries;
    params.on_cpu = cpu >= 0, params.cpu = cpu;
    params.on_node = node >= 0, params.node = node;
    params.on_gpu = on_gpu;
    params.on_rank = rank >= 0, params.rank = weft__py_u32_of(rank);
    params.on_host = host >= 0, params.host = weft__py_u32_of(host);
    weft_status_t status = weft_graph_add(g->handle, &params, &number);
    if (status < 0) {
        free(t->inputs);
        free(t);
        return weft__py_raise(g->state, status);
    }
    t->fn = Py_NewRef(fn);
    g->task[g->n_tasks++] = t;
    return PyLong_FromUnsignedLong(number);
}

/* ---- runs ---- */

static int begin(struct graph *g, unsigned deadline_ms) {
    if (graph_open(g) < 0) return -1;
    weft_status_t status =
        g->running ? WEFT_ERR_BUSY : weft_graph_set_deadline(g->handle, deadline_ms);
    if (status < 0) {
        weft__py_raise(g->state, status);
        return -1;
    }
    g->running = true;
    return 0;
}

static void over(struct request *request) {
    ((struct graph *)request->keep)->running = false;
}

static PyObject *graph_run(PyObject *self, PyObject *args) {
    struct graph *g = (struct graph *)self;
    struct worker *w;
    unsigned deadline_ms = 0;
    if (!PyArg_ParseTuple(args, "O!|I", g->state->worker, &w, &deadline_ms) ||
        weft__py_own(w) < 0 || begin(g, deadline_ms) < 0) {
        return NULL;
    }
    struct request *r = weft__py_awaited(w, Py_NewRef(self));
    if (!r) {
        g->running = false;
        return NULL;
    }
    r->gives = GIVES_NONE;
    r->over = over;
    drop_results(g);
    weft_status_t status = weft_graph_run(g->handle, w->handle, weft__py_done, r);
    if (status < 0) over(r), r->over = NULL;
    return weft__py_posted(r, status);
}

static PyObject *graph_run_wait(PyObject *self, PyObject *args) {
    struct graph *g = (struct graph *)self;
    unsigned deadline_ms = 0;
    if (!PyArg_ParseTuple(args, "|I", &deadline_ms)) return NULL;
    if (g->team) return weft__py_raise(g->state, WEFT_ERR_UNSUPPORTED);
    if (begin(g, deadline_ms) < 0) return NULL;
    drop_results(g);
    weft_status_t status;
    g->waiter = PyThread_get_thread_ident();
    Py_BEGIN_ALLOW_THREADS status = weft_graph_run_wait(g->handle);
    Py_END_ALLOW_THREADS g->running = false;
    g->waiter = 0;
    PyObject *interrupt = g->interrupt;
    g->interrupt = NULL;
    if (!interrupt) return weft__py_checked(g->state, status);
    PyErr_SetObject((PyObject *)Py_TYPE(interrupt), interrupt);
    Py_DECREF(interrupt);
    return NULL;
}

static PyObject *graph_cancel(PyObject *self, PyObject *unused) {
    cancel((struct graph *)self);
    Py_RETURN_NONE;
}

static PyObject *graph_result(PyObject *self, PyObject *args) {
    struct graph *g = (struct graph *)self;
    long long task;
    const void *data;
    size_t len;
    if (!PyArg_ParseTuple(args, "L", &task) || graph_open(g) < 0) return NULL;
    weft_task_t number = weft__py_u32_of(task);
    weft_status_t status = weft_graph_result(g->handle, number, &data, &len);
    if (status < 0) return weft__py_raise(g->state, status);
    if (g->team) return PyBytes_FromStringAndSize(data, len);
    PyObject *result = g->task[number]->result;
    if (!result)
        return weft__py_raise_text(g->state, WEFT_ERR_NOT_FOUND,
                                   "the results were dropped for a run that did not begin");
    return Py_NewRef(result);
}

static PyObject *graph_failed(PyObject *self, PyObject *unused) {
    struct graph *g = (struct graph *)self;
    weft_status_t status;
    const char *name;
    if (graph_open(g) < 0) return NULL;
    weft_task_t number = weft_graph_failed(g->handle, &name, &status);
    if (number == WEFT_NO_TASK) Py_RETURN_NONE;
    PyObject *raised = g->task[number]->raised;
    return Py_BuildValue("(IziO)", number, name, (int)status, raised ? raised : Py_None);
}

static PyObject *graph_write_trace(PyObject *self, PyObject *args) {
    struct graph *g = (struct graph *)self;
    const char *path;
    if (!PyArg_ParseTuple(args, "s", &path) || graph_open(g) < 0) return NULL;
    return weft__py_checked(g->state, weft_graph_write_trace(g->handle, path));
}

static PyObject *graph_critical_path(PyObject *self, PyObject *unused) {
    struct graph *g = (struct graph *)self;
    uint64_t ns;
    if (graph_open(g) < 0) return NULL;
    uint32_t n = g->n_tasks;
    weft_task_t *tasks = calloc(n + 1, sizeof *tasks);
    if (!tasks) return PyErr_NoMemory();
    weft_status_t status = weft_graph_critical_path(g->handle, tasks, &n, &ns);
    PyObject *list = status < 0 ? weft__py_raise(g->state, status) : PyList_New(n);
    for (uint32_t i = 0; list && i < n; i++) {
        PyObject *task = PyLong_FromUnsignedLong(tasks[i]);
        if (!task || PyList_SetItem(list, i, task) < 0) Py_CLEAR(list);
    }
    free(tasks);
    return list ? Py_BuildValue("(NK)", list, (unsigned long long)ns) : NULL;
}

static PyMethodDef methods[] = {
    {"add", graph_add, METH_VARARGS,
     "add(fn, inputs, result_size, name, retries, cpu, node, on_gpu, rank, host) -> int; -1: any"},
    {"post_run", graph_run, METH_VARARGS, "post_run(worker, deadline_ms=0) -> Request"},
    {"run_wait", graph_run_wait, METH_VARARGS,
     "run_wait(deadline_ms=0): runs all tasks; this thread helps."},
    {"cancel", graph_cancel, METH_NOARGS, "Skips the tasks that have not begun."},
    {"result", graph_result, METH_VARARGS, "result(task): the object, or bytes with a team"},
    {"failed", graph_failed, METH_NOARGS, "(task, name, status, exception or None), or None"},
    {"write_trace", graph_write_trace, METH_VARARGS, "write_trace(path)"},
    {"critical_path", graph_critical_path, METH_NOARGS, "([task, ...], nanoseconds)"},
    {"abandon", graph_abandon, METH_NOARGS,
     "As destroy; a graph whose functions still run is kept until the process ends."},
    {"destroy", graph_destroy, METH_NOARGS, "Cancels, and waits until no task runs."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {{Py_tp_new, new},           {Py_tp_dealloc, dealloc},
                              {Py_tp_traverse, traverse}, {Py_tp_clear, clear},
                              {Py_tp_methods, methods},   {0, NULL}};

PyType_Spec weft__py_graph_spec = {"weft._core.Graph", sizeof(struct graph), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
