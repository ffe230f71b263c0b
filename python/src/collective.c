/* Collectives on contiguous buffers. What they mean, and types, are in weft/teams.py. */
#include "team.h"

/* The address of a buffer that `keep`, a list, holds from now on. None is NULL. */
static int address_of(struct state *state, PyObject *object, bool writes, PyObject *keep,
                      void **address_p) {
    Py_buffer view;
    bool of_device = false;
    PyObject *held, *unused = NULL;
    *address_p = NULL;
    if (object == Py_None) return 0;
    held = Py_TYPE(object) == state->block ? Py_NewRef(object) : PyMemoryView_FromObject(object);
    if (!held) return -1;
    int failed = weft__py_view(state, held, writes ? PyBUF_WRITABLE : PyBUF_SIMPLE, &view, &unused,
                               &of_device) < 0 ||
                 PyList_Append(keep, held) < 0;
    Py_DECREF(held); /* the list's memoryview, or block, keeps the memory */
    if (failed) return -1;
    *address_p = view.buf;
    PyBuffer_Release(&view);
    return 0;
}

/* The numbers of a tuple, to be freed; NULL for None. */
static int counts_of(PyObject *tuple, uint64_t **counts_p) {
    *counts_p = NULL;
    if (tuple == Py_None) return 0;
    Py_ssize_t n = PyTuple_Size(tuple);
    if (n < 0) return -1;
    *counts_p = calloc(n + 1, sizeof **counts_p);
    if (!*counts_p) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        if (!weft__py_u64(PyTuple_GetItem(tuple, i), &(*counts_p)[i])) return -1;
    }
    return 0;
}

/* One description, and the arrays that it refers to. */
struct described {
    weft_coll_args_t what;
    weft_neighbors_t graph;
    uint64_t *numbers[4];
    uint32_t *sources, *destinations;
};

static void forget(struct described *d) {
    for (int i = 0; i < 4; i++) free(d->numbers[i]);
    free(d->sources);
    free(d->destinations);
}

static int ranks_of(PyObject *tuple, uint32_t **ranks_p, uint32_t *n_p) {
    Py_ssize_t n = PyTuple_Size(tuple);
    uint32_t *ranks = n < 0 ? NULL : calloc(n + 1, sizeof *ranks);
    if (!ranks) {
        if (n >= 0) PyErr_NoMemory();
        return -1;
    }
    *ranks_p = ranks;
    for (Py_ssize_t i = 0; i < n; i++) {
        if (!weft__py_u32(PyTuple_GetItem(tuple, i), &ranks[i])) return -1;
    }
    *n_p = (uint32_t)n;
    return 0;
}

/* (tag, start, stride, size) of a collective with a tag; (sources, destinations) of one with
 * neighbours. Either may be None. */
static int add_form(struct described *d, PyObject *tagged, PyObject *graph) {
    PyObject *sources, *destinations;
    weft_coll_args_t *what = &d->what;
    if (tagged != Py_None) {
        if (!PyArg_ParseTuple(tagged, "O&III", weft__py_u64, &what->tag, &what->members.start,
                              &what->members.stride, &what->members.size)) {
            return -1;
        }
        what->flags = WEFT_COLL_TAGGED;
    }
    if (graph == Py_None) return 0;
    if (!PyArg_ParseTuple(graph, "O!O!", &PyTuple_Type, &sources, &PyTuple_Type, &destinations) ||
        ranks_of(sources, &d->sources, &d->graph.n_sources) < 0 ||
        ranks_of(destinations, &d->destinations, &d->graph.n_destinations) < 0) {
        return -1;
    }
    d->graph.sources = d->sources;
    d->graph.destinations = d->destinations;
    what->graph = &d->graph;
    return 0;
}

/* The arguments that a post and a prepare share; `keep` holds the memory. */
static int describe(struct state *state, PyObject *args, PyObject *keep, struct described *d) {
    PyObject *src, *dst, *counts[4], *tagged, *graph;
    int kind, type, reduction, in_place;
    Py_ssize_t count;
    unsigned root;
    void *from, *to;
    if (!PyArg_ParseTuple(args, "iiiO&OOn(OOOO)pOO", &kind, &type, &reduction, weft__py_u32, &root,
                          &src, &dst, &count, &counts[0], &counts[1], &counts[2], &counts[3],
                          &in_place, &tagged, &graph)) {
        return -1;
    }
    /* A scatter's root in place has its data in `src`. */
    bool scatters = kind == WEFT_COLL_SCATTER || kind == WEFT_COLL_SCATTERV;
    if (address_of(state, src, false, keep, &from) < 0 ||
        address_of(state, dst, true, keep, &to) < 0) {
        return -1;
    }
    for (int i = 0; i < 4; i++) {
        if (counts_of(counts[i], &d->numbers[i]) < 0) return -1;
    }
    if (in_place && scatters) to = WEFT_IN_PLACE;
    if (in_place && !scatters) from = WEFT_IN_PLACE;
    d->what = (weft_coll_args_t){.kind = kind,
                                 .type = type,
                                 .reduction = reduction,
                                 .root = root,
                                 .src = from,
                                 .dst = to,
                                 .count = count,
                                 .src_counts = d->numbers[0],
                                 .src_displs = d->numbers[1],
                                 .dst_counts = d->numbers[2],
                                 .dst_displs = d->numbers[3]};
    return add_form(d, tagged, graph);
}

/* post(what, deadline_ms, flags) -> None, or a Request. `what` is as in `describe`. */
PyObject *weft__py_coll(PyObject *self, PyObject *args) {
    struct team *t = (struct team *)self;
    PyObject *what, *result = NULL;
    unsigned long deadline_ms, flags;
    struct described d = {.what = {0}};
    if (!PyArg_ParseTuple(args, "O!kk", &PyTuple_Type, &what, &deadline_ms, &flags) ||
        weft__py_team_open(t) < 0) {
        return NULL;
    }
    struct request *r = weft__py_awaited(t->worker, PyList_New(0));
    if (!r) return NULL;
    r->gives = GIVES_NONE;
    /* The team outlives its collectives: so do its types and reductions. */
    if (PyList_Append(r->keep, self) < 0 || describe(t->worker->state, what, r->keep, &d) < 0) {
        weft__py_dropped(r);
    } else {
        weft_op_t op = weft__py_op(r, deadline_ms, flags);
        if (flags & WEFT_COLL_SAFE) op.request_p = NULL;
        result = weft__py_posted(r, weft_coll(t->handle, &d.what, &op));
    }
    forget(&d);
    return result;
}

/* ---- persistent ones ---- */

struct coll {
    PyObject_HEAD weft_coll_t *handle; /* NULL: freed */
    struct child child;
    struct team *team;
    PyObject *keep; /* its memory */
    int reduction, type;
    bool taken; /* both, of the team's callables, until it ends */
};

static void give_back(struct coll *c) {
    if (c->taken) weft__py_callable_give_back(c->team, &c->team->reductions, c->reduction);
    if (c->taken) weft__py_callable_give_back(c->team, &c->team->datatypes, c->type);
    c->taken = false;
}

/* prepare(what, init_flags) -> Collective. It gives back what `take` gave for it. */
PyObject *weft__py_coll_prepare(PyObject *self, PyObject *args) {
    struct team *t = (struct team *)self;
    struct state *state = t->worker->state;
    PyObject *what;
    unsigned flags;
    struct described d = {.what = {0}};
    if (!PyArg_ParseTuple(args, "O!I", &PyTuple_Type, &what, &flags) || weft__py_team_open(t) < 0) {
        return NULL;
    }
    struct coll *c = (struct coll *)PyType_GenericAlloc(state->coll, 0);
    if (!c) return NULL;
    c->team = (struct team *)Py_NewRef(self);
    c->keep = PyList_New(0);
    weft_status_t status = WEFT_OK;
    bool described = c->keep && describe(state, what, c->keep, &d) == 0;
    if (described) status = weft_coll_init(t->handle, &d.what, flags, &c->handle);
    forget(&d);
    if (described && status == WEFT_OK) {
        weft__py_adopt(t->worker, &c->child, (void **)&c->handle);
        c->reduction = d.what.reduction, c->type = d.what.type, c->taken = true;
        return (PyObject *)c;
    }
    Py_DECREF((PyObject *)c);
    return described ? weft__py_raise(state, status) : NULL;
}

static int coll_open(struct coll *c) {
    if (c->handle && weft__py_team_open(c->team) == 0) return 0;
    if (!PyErr_Occurred()) weft__py_raise(c->team->worker->state, WEFT_ERR_CLOSED);
    return -1;
}

static PyObject *coll_start(PyObject *self, PyObject *args) {
    struct coll *c = (struct coll *)self;
    unsigned long deadline_ms = 0;
    if (!PyArg_ParseTuple(args, "|k", &deadline_ms) || coll_open(c) < 0) return NULL;
    struct request *r = weft__py_awaited(c->team->worker, Py_NewRef(self));
    if (!r) return NULL;
    r->gives = GIVES_NONE;
    weft_op_t op = weft__py_op(r, deadline_ms, 0);
    return weft__py_posted(r, weft_coll_start(c->handle, &op));
}

static PyObject *coll_free(PyObject *self, PyObject *unused) {
    struct coll *c = (struct coll *)self;
    struct state *state = c->team->worker->state;
    if (c->handle && weft__py_owned(c->team->worker) < 0) return NULL;
    weft_status_t status = c->handle && live_team(c->team) ? weft_coll_free(c->handle) : WEFT_OK;
    if (status < 0) return weft__py_raise(state, status);
    weft__py_disown(c->team->worker, &c->child);
    c->handle = NULL;
    give_back(c);
    Py_CLEAR(c->keep);
    Py_RETURN_NONE;
}

/* It ends with its team, too. */
static void coll_end(struct worker *worker, void *handle, void *arg) {
    struct team *t = arg;
    if (handle && live_team(t)) weft_coll_free(handle);
    weft__py_forget(worker, (PyObject *)t);
}

/* A worker, or a function of the team, may hold it. */
static int coll_traverse(PyObject *self, visitproc visit, void *arg) {
    struct coll *c = (struct coll *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(c->team);
    Py_VISIT(c->keep);
    return 0;
}

/* None is under way: a start holds the object. */
static void coll_dealloc(PyObject *self) {
    struct coll *c = (struct coll *)self;
    PyObject_GC_UnTrack(self);
    Py_XDECREF(c->keep);
    give_back(c);
    weft__py_end(c->team->worker, &c->child, coll_end, c->team);
    weft__py_free(self);
}

static PyObject *coll_worker(PyObject *self, void *unused) {
    return Py_NewRef((PyObject *)((struct coll *)self)->team->worker);
}

static PyMethodDef coll_methods[] = {
    {"post_start", coll_start, METH_VARARGS, "post_start(deadline_ms=0) -> None, or a Request"},
    {"free", coll_free, METH_NOARGS, "Gives its memory back. BusyError while it is under way."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef coll_members[] = {{"worker", coll_worker, NULL, "the team's worker", NULL},
                                     {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot coll_slots[] = {{Py_tp_dealloc, coll_dealloc},
                                   {Py_tp_traverse, coll_traverse},
                                   {Py_tp_methods, coll_methods},
                                   {Py_tp_getset, coll_members},
                                   {0, NULL}};

PyType_Spec weft__py_coll_spec = {
    "weft._core.Collective", sizeof(struct coll), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, coll_slots};
