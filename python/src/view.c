/* The runtime view: processes, their hardware, finalizers. */
#include "team.h"

struct view {
    PyObject_HEAD weft_view_t *handle; /* NULL: released, or the null view */
    struct worker *worker;
    struct child child;
    struct team *team;
    struct request *ending;       /* its release, in progress */
    struct finalizer *finalizers; /* pushed, and not called yet */
};

/* NULL: it is gone, or may be. */
static weft_view_t *live(const struct view *v) {
    return v->worker->ending ? NULL : v->handle;
}

static int view_open(const struct view *v) {
    if (live(v)) return weft__py_owned(v->worker);
    weft__py_raise(v->worker->state, WEFT_ERR_CLOSED);
    return -1;
}

/* For what is said of a view that is gone, too. -1: WrongThreadError */
static int found(PyObject *self, weft_view_t **handle_p) {
    struct view *v = (struct view *)self;
    *handle_p = live(v);
    return *handle_p ? weft__py_owned(v->worker) : 0;
}

static struct view *view_new(struct worker *w) {
    struct view *v = (struct view *)PyType_GenericAlloc(w->state->view, 0);
    if (!v) return NULL;
    v->worker = (struct worker *)Py_NewRef((PyObject *)w);
    v->team = weft__py_team_new(w);
    if (v->team) {
        v->team->borrowed = true;
        return v;
    }
    Py_DECREF((PyObject *)v);
    return NULL;
}

/* Without the interpreter's lock. */
static void on_ready(weft_view_t *handle, weft_status_t status, void *arg) {
    struct request *r = arg;
    struct view *v = (struct view *)r->keep;
    v->handle = handle;
    if (handle && !v->child.prev) weft__py_adopt(r->worker, &v->child, (void **)&v->handle);
    if (handle && status == WEFT_OK) {
        v->team->handle = weft_view_team(handle);
        weft__py_adopt(r->worker, &v->team->child, (void **)&v->team->handle);
    }
    weft__py_done(status, r);
}

static PyObject *worker_view(PyObject *self, PyObject *args) {
    struct worker *w = (struct worker *)self;
    weft_view_params_t params = {.on_ready = on_ready};
    if (!PyArg_ParseTuple(args, "|zzO&O&I", &params.engine, &params.store, weft__py_u32,
                          &params.rank, weft__py_u32, &params.size, &params.deadline_ms) ||
        weft__py_own(w) < 0) {
        return NULL;
    }
    struct view *v = view_new(w);
    struct request *r = weft__py_awaited(w, (PyObject *)v);
    if (!r) return NULL;
    params.worker = w->handle;
    params.arg = r;
    weft_view_t *handle;
    weft_status_t status = weft_view_create(&params, &handle);
    if (status == WEFT_OK && !v->handle) {
        v->handle = handle;
        weft__py_adopt(w, &v->child, (void **)&v->handle);
    }
    return weft__py_posted(r, status < 0 ? status : WEFT_IN_PROGRESS);
}

PyMethodDef weft__py_view_methods[] = {
    {"post_view", worker_view, METH_VARARGS,
     "post_view(engine=None, store=None, rank=0, size=0, deadline_ms=0) -> Request: a View"},
    {NULL, NULL, 0, NULL}};

/* ---- its end ---- */

static void view_gone(struct view *v) {
    v->handle = NULL;
    if (v->team) v->team->handle = NULL;
}

static void released(struct request *request) {
    ((struct view *)request->keep)->ending = NULL;
    view_gone((struct view *)request->keep);
}

static PyObject *view_release(PyObject *self, PyObject *unused) {
    struct view *v = (struct view *)self;
    if (v->handle && weft__py_owned(v->worker) < 0) return NULL;
    if (v->ending) return Py_NewRef((PyObject *)v->ending);
    if (!live(v)) Py_RETURN_NONE;
    if (weft__py_graphs_end(v->worker, v->team) < 0) return NULL;
    if (!live(v)) Py_RETURN_NONE; /* a callback of a graph has released it */
    struct request *r = weft__py_request(v->worker, GIVES_NONE);
    if (!r) return NULL;
    r->keep = Py_NewRef(self);
    r->over = released;
    weft_op_t op = weft__py_op(r, 0, 0);
    weft_status_t status = weft_view_release(v->handle, &op);
    if (status == WEFT_IN_PROGRESS) v->ending = r;
    if (status < 0) r->over = NULL;
    return weft__py_posted(r, status);
}

static void end(struct worker *unused, void *handle, void *arg) {
    if (handle) weft_view_release(handle, NULL);
}

/*
 * The library refers to the function of a finalizer, and the function may refer to its view. So the
 * collector is shown it: as the view's until the view ends, and then as the worker's, which calls
 * it.
 */
struct finalizer {
    struct finalizer *next, **prev;
    struct worker *worker;
    PyObject *fn; /* NULL: collected with its worker */
};

static void link_finalizer(struct finalizer *f, struct finalizer **first_p) {
    f->next = *first_p;
    f->prev = first_p;
    if (f->next) f->next->prev = &f->next;
    *first_p = f;
}

static void unlink_finalizer(struct finalizer *f) {
    *f->prev = f->next;
    if (f->next) f->next->prev = f->prev;
}

/* Gives its function to the caller. */
static PyObject *end_finalizer(struct finalizer *f) {
    PyObject *fn = f->fn;
    weft__py_lock_lists(f->worker);
    unlink_finalizer(f);
    weft__py_unlock_lists(f->worker);
    free(f);
    return fn;
}

static void leave_finalizers(struct view *v) {
    weft__py_lock_lists(v->worker);
    for (struct finalizer *f; (f = v->finalizers) != NULL;) {
        unlink_finalizer(f);
        link_finalizer(f, &v->worker->finalizers);
    }
    weft__py_unlock_lists(v->worker);
}

int weft__py_finalizers_traverse(struct finalizer *first, visitproc visit, void *arg) {
    for (struct finalizer *f = first; f; f = f->next) Py_VISIT(f->fn);
    return 0;
}

void weft__py_finalizers_clear(struct finalizer **first_p) {
    for (;;) {
        struct finalizer *f = *first_p;
        while (f && !f->fn) f = f->next;
        if (!f) return;
        Py_CLEAR(f->fn); /* the list may change in it */
    }
}

static int traverse(PyObject *self, visitproc visit, void *arg) {
    struct view *v = (struct view *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(v->worker);
    Py_VISIT(v->team);
    return weft__py_finalizers_traverse(v->finalizers, visit, arg);
}

/* Nothing refers to it any more, or only what it refers to itself. */
static void give_up(PyObject *self) {
    struct view *v = (struct view *)self;
    bool here = v->handle && !v->worker->dead && weft__py_is_owner(v->worker);
    if (here && v->team && weft__py_graphs_end(v->worker, v->team) < 0) PyErr_WriteUnraisable(NULL);
    leave_finalizers(v);
    weft__py_end(v->worker, &v->child, end, NULL);
    view_gone(v);
}

static void dealloc(PyObject *self) {
    struct view *v = (struct view *)self;
    PyObject_GC_UnTrack(self);
    give_up(self);
    Py_XDECREF((PyObject *)v->team);
    Py_XDECREF((PyObject *)v->worker);
    weft__py_free(self);
}

/* ---- finalizers ---- */

static weft_status_t run(weft_finalizer_t *unused, void *arg) {
    struct finalizer *f = arg;
    struct worker *w = f->worker;
    PyThreadState *was;
    if (!weft__py_enter(w, &was)) { /* within the end of the worker, which is without the lock */
        PyGILState_STATE held = PyGILState_Ensure();
        PyObject *fn = end_finalizer(f);
        Py_XDECREF(fn);
        PyGILState_Release(held);
        return WEFT_ERR_CANCELLED;
    }
    weft__py_signals(w);
    PyObject *fn = end_finalizer(f);
    PyObject *result = fn ? PyObject_CallFunctionObjArgs(fn, NULL) : NULL;
    if (fn && !result) weft__py_report(w, fn);
    weft_status_t status = result ? WEFT_OK : WEFT_ERR_CANCELLED;
    Py_XDECREF(result);
    Py_XDECREF(fn);
    weft__py_leave(w, was);
    return status;
}

static PyObject *view_push(PyObject *self, PyObject *args) {
    struct view *v = (struct view *)self;
    PyObject *fn;
    weft_finalizer_params_t params = {0};
    if (!PyArg_ParseTuple(args, "O|zI", &fn, &params.name, &params.deadline_ms)) return NULL;
    if (view_open(v) < 0) return NULL;
    struct finalizer *f = malloc(sizeof *f);
    if (!f) return PyErr_NoMemory();
    *f = (struct finalizer){.worker = v->worker, .fn = Py_NewRef(fn)};
    weft__py_lock_lists(v->worker);
    link_finalizer(f, &v->finalizers);
    weft__py_unlock_lists(v->worker);
    weft_status_t status = weft_view_push_finalizer(v->handle, run, f, &params, NULL);
    if (status == WEFT_OK) Py_RETURN_NONE;
    Py_DECREF(end_finalizer(f));
    return weft__py_raise(v->worker->state, status);
}

/* ---- processes and resource sets ---- */

static PyObject *devices_of(const weft_device_info_t *devices, uint32_t n) {
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list && i < n; i++) {
        PyObject *row = Py_BuildValue(
            "{sO&sO&sKsKsi}", "name", weft__py_text, devices[i].name, "address", weft__py_text,
            devices[i].address, "memory", (unsigned long long)devices[i].memory, "id",
            (unsigned long long)devices[i].id, "numa_node", (int)devices[i].numa_node);
        if (!row || PyList_Append(list, row) < 0) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

static PyObject *cpus_of(const weft_resource_set_t *set) {
    PyObject *list = PyList_New(0);
    for (long cpu = 0; list && cpu < WEFT_MAX_CPUS; cpu++) {
        if (!(set->cpus[cpu / 64] >> (cpu % 64) & 1)) continue;
        PyObject *number = PyLong_FromLong(cpu);
        if (!number || PyList_Append(list, number) < 0) Py_CLEAR(list);
        Py_XDECREF(number);
    }
    return list;
}

static PyObject *nodes_of(const weft_resource_set_t *set) {
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list && i < set->n_numa_nodes; i++) {
        const weft_node_info_t *node = &set->node[i];
        PyObject *row = Py_BuildValue(
            "{sisisIsKsKsK}", "number", (int)node->number, "package", (int)node->package, "n_cpus",
            node->n_cpus, "ram_total", (unsigned long long)node->ram_total, "ram_free",
            (unsigned long long)node->ram_free, "ram_id", (unsigned long long)node->ram_id);
        if (!row || PyList_Append(list, row) < 0) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

static PyObject *caches_of(const weft_resource_set_t *set) {
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list && i < set->n_caches; i++) {
        const weft_cache_info_t *cache = &set->cache[i];
        PyObject *row = Py_BuildValue("{sIsIsK}", "level", cache->level, "n", cache->n, "size",
                                      (unsigned long long)cache->size);
        if (!row || PyList_Append(list, row) < 0) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

static PyObject *dict_of(const weft_resource_set_t *s) {
    if (!s) Py_RETURN_NONE;
    return Py_BuildValue(
        "{sIsisKsO&sKsNsIsIsIsIsisisNsNsO&sKsKsKsKsNsNsN}", "rank", s->rank, "pid", (int)s->pid,
        "process_id", (unsigned long long)s->process_id, "host", weft__py_text, s->host, "host_id",
        (unsigned long long)s->host_id, "cpus", cpus_of(s), "n_cpus", s->n_cpus, "n_cores",
        s->n_cores, "n_packages", s->n_packages, "n_numa_nodes", s->n_numa_nodes, "package",
        (int)s->package, "numa_node", (int)s->numa_node, "nodes", nodes_of(s), "caches",
        caches_of(s), "topology", weft__py_text, s->topology, "ram_total",
        (unsigned long long)s->ram_total, "ram_free", (unsigned long long)s->ram_free, "ram_used",
        (unsigned long long)s->ram_used, "ram_id", (unsigned long long)s->ram_id, "gpus",
        devices_of(s->gpu, s->n_gpus), "rdma_devices",
        devices_of(s->rdma_device, s->n_rdma_devices), "network_devices",
        devices_of(s->network_device, s->n_network_devices));
}

static PyObject *view_at(PyObject *self, PyObject *args) {
    struct view *v = (struct view *)self;
    unsigned rank;
    int refresh = 0;
    const weft_resource_set_t *set = NULL;
    if (!PyArg_ParseTuple(args, "O&|p", weft__py_u32, &rank, &refresh)) return NULL;
    if (view_open(v) < 0) return NULL;
    struct worker *w = v->worker;
    bool turned = w->turning; /* called within a callback: the library refuses it */
    w->turning = true;
    w->unlocked = PyEval_SaveThread();
    weft_status_t status = weft_view_at_wait(v->handle, rank, refresh, &set);
    PyEval_RestoreThread(w->unlocked);
    w->unlocked = NULL;
    w->turning = turned;
    /* The set is read before the program is called, which may end the view. */
    PyObject *dict = status < 0 ? weft__py_raise(w->state, status) : dict_of(set), *raised = NULL;
    if (!dict) weft__py_keep_raised(&raised);
    weft__py_deliver(w);
    if (raised) PyErr_SetObject((PyObject *)Py_TYPE(raised), raised);
    Py_XDECREF(raised);
    if (weft__py_interrupted(w) < 0) Py_CLEAR(dict);
    return dict;
}

/* Gives None; the set is there for `at`. */
static PyObject *view_fetch(PyObject *self, PyObject *args) {
    struct view *v = (struct view *)self;
    unsigned rank;
    int refresh = 0;
    unsigned long deadline_ms = 0;
    if (!PyArg_ParseTuple(args, "O&|pk", weft__py_u32, &rank, &refresh, &deadline_ms)) return NULL;
    if (view_open(v) < 0) return NULL;
    struct request *r = weft__py_request(v->worker, GIVES_NONE);
    if (!r) return NULL;
    weft_op_t op = weft__py_op(r, deadline_ms, 0);
    return weft__py_posted(r, weft_view_fetch(v->handle, rank, refresh, &op));
}

static PyObject *view_mine(PyObject *self, PyObject *unused) {
    weft_view_t *view;
    return found(self, &view) < 0 ? NULL : dict_of(weft_view_mine(view));
}

static PyObject *view_split(PyObject *self, PyObject *args) {
    struct view *v = (struct view *)self;
    weft_view_split_params_t params = {.on_ready = on_ready};
    if (!PyArg_ParseTuple(args, "O&O&|I", weft__py_u32, &params.colour, weft__py_u32, &params.key,
                          &params.deadline_ms)) {
        return NULL;
    }
    if (view_open(v) < 0) return NULL;
    struct request *r = weft__py_awaited(v->worker, (PyObject *)view_new(v->worker));
    if (!r) return NULL;
    params.arg = r;
    weft_status_t status = weft_view_split(v->handle, &params);
    return weft__py_posted(r, status < 0 ? status : WEFT_IN_PROGRESS);
}

static PyObject *get_rank(PyObject *self, void *unused) {
    weft_view_t *view;
    return found(self, &view) < 0 ? NULL : PyLong_FromUnsignedLong(weft_view_rank(view));
}

static PyObject *get_size(PyObject *self, void *unused) {
    weft_view_t *view;
    return found(self, &view) < 0 ? NULL : PyLong_FromUnsignedLong(weft_view_size(view));
}

static PyObject *get_engine(PyObject *self, void *unused) {
    weft_view_t *view;
    return found(self, &view) < 0 ? NULL : PyUnicode_FromString(weft_view_engine(view));
}

static PyObject *get_team(PyObject *self, void *unused) {
    return Py_NewRef((PyObject *)((struct view *)self)->team);
}

static PyObject *get_worker(PyObject *self, void *unused) {
    return Py_NewRef((PyObject *)((struct view *)self)->worker);
}

static PyMethodDef methods[] = {
    {"post_release", view_release, METH_NOARGS, "Runs finalizers, and ends the view."},
    {"post_split", view_split, METH_VARARGS,
     "post_split(colour, key, deadline_ms=0) -> Request: a View"},
    {"push_finalizer", view_push, METH_VARARGS,
     "push_finalizer(fn, name=None, deadline_ms=0): fn() is called before the view ends; the last "
     "pushed is the first."},
    {"at", view_at, METH_VARARGS,
     "at(rank, refresh=False) -> dict: a member's hardware. Drives the worker until it is here."},
    {"post_fetch", view_fetch, METH_VARARGS,
     "post_fetch(rank, refresh=False, deadline_ms=0) -> Request or None: brings the set for `at`."},
    {"mine", view_mine, METH_NOARGS, "This process's hardware, measured now."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef members[] = {{"rank", get_rank, NULL, "of this process", NULL},
                                {"size", get_size, NULL, "processes; 0 of the null view", NULL},
                                {"engine", get_engine, NULL, "what brought them together", NULL},
                                {"team", get_team, NULL, "for collectives", NULL},
                                {"worker", get_worker, NULL, "the view's worker", NULL},
                                {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot slots[] = {{Py_tp_dealloc, dealloc},   {Py_tp_finalize, give_up},
                              {Py_tp_traverse, traverse}, {Py_tp_methods, methods},
                              {Py_tp_getset, members},    {0, NULL}};

PyType_Spec weft__py_view_spec = {
    "weft._core.View", sizeof(struct view), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
