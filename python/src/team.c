/* Teams and collectives. */
#include "team.h"

/* ---- making a team ---- */

/* A program's own exchange: fn(mine, finish), where finish(all) ends one allgather. */
struct exchange {
    struct worker *worker;
    PyObject *fn;
    void *all;
    size_t len;
    weft_done_fn done; /* NULL: none is under way */
    void *done_arg;
};

static PyObject *finish(PyObject *capsule, PyObject *all) {
    struct exchange *x = PyCapsule_GetPointer(capsule, "weft.exchange");
    weft_done_fn done = x ? x->done : NULL;
    if (!x) return NULL;
    if (!done) Py_RETURN_NONE;
    if (!weft__py_is_owner(x->worker))
        return weft__py_raise_text(x->worker->state, WEFT_ERR_WRONG_THREAD,
                                   "the exchange ends on the worker's thread");
    bool whole = PyBytes_Check(all) && (size_t)PyBytes_Size(all) == x->len;
    if (whole) memcpy(x->all, PyBytes_AsString(all), x->len);
    x->done = NULL;
    done(whole ? WEFT_OK : WEFT_ERR_PROTOCOL, x->done_arg);
    /* What that completed outside of a turn is reported by the next one. */
    if (x->worker->handle) weft_worker_wake(x->worker->handle);
    Py_RETURN_NONE;
}

static PyMethodDef finish_method = {"finish", finish, METH_O, "finish(bytes of all ranks)"};

static weft_status_t allgather(void *arg, weft_worker_t *worker, const void *mine, size_t len,
                               void *all, weft_done_fn done, void *done_arg) {
    struct exchange *x = PyCapsule_GetPointer(arg, "weft.exchange");
    const weft_exchange_t *described = PyCapsule_GetContext(arg);
    PyThreadState *was;
    if (!weft__py_enter(x->worker, &was)) return WEFT_ERR_CLOSED;
    weft__py_signals(x->worker);
    x->all = all, x->len = len * described->size, x->done = done, x->done_arg = done_arg;
    PyObject *end = PyCFunction_New(&finish_method, arg);
    PyObject *bytes = PyBytes_FromStringAndSize(mine, len), *result = NULL;
    if (end && bytes) result = PyObject_CallFunctionObjArgs(x->fn, bytes, end, NULL);
    bool finished = !x->done;
    if (!result) {
        weft__py_report(x->worker, x->fn);
        x->done = NULL;
    }
    Py_XDECREF(end);
    Py_XDECREF(bytes);
    weft__py_leave(x->worker, was);
    if (!result) return finished ? WEFT_OK : WEFT_ERR_IO;
    Py_DECREF(result);
    return WEFT_OK;
}

static void cancel(void *arg) {
    struct exchange *x = PyCapsule_GetPointer(arg, "weft.exchange");
    x->done = NULL;
}

static void exchange_gone(PyObject *capsule) {
    struct exchange *x = PyCapsule_GetPointer(capsule, "weft.exchange");
    Py_XDECREF(x->fn);
    free(PyCapsule_GetContext(capsule));
    free(x);
}

/* A capsule that the exchange lives in; its context is what the library sees. */
static PyObject *exchange_of(struct worker *w, unsigned rank, unsigned size, PyObject *fn) {
    struct exchange *x = calloc(1, sizeof *x);
    weft_exchange_t *described = calloc(1, sizeof *described);
    PyObject *capsule = x && described ? PyCapsule_New(x, "weft.exchange", exchange_gone) : NULL;
    if (!capsule) {
        free(x);
        free(described);
        return PyErr_NoMemory();
    }
    x->worker = w;
    x->fn = Py_NewRef(fn);
    *described = (weft_exchange_t){
        .rank = rank, .size = size, .allgather = allgather, .cancel = cancel, .arg = capsule};
    PyCapsule_SetContext(capsule, described);
    return capsule;
}

static void on_ready(weft_team_t *handle, weft_status_t status, void *arg) {
    weft__py_done(status, arg);
}

struct team *weft__py_team_new(struct worker *w) {
    struct team *t = (struct team *)PyType_GenericAlloc(w->state->team, 0);
    if (t) t->worker = (struct worker *)Py_NewRef((PyObject *)w);
    return t;
}

/* The request that gives the object when it is ready; the object is the request's. */
struct request *weft__py_awaited(struct worker *w, PyObject *made) {
    struct request *r = made ? weft__py_request(w, GIVES_KEPT) : NULL;
    if (!r) {
        Py_XDECREF(made);
        return NULL;
    }
    r->keep = made;
    return r;
}

static PyObject *worker_team(PyObject *self, PyObject *args) {
    struct worker *w = (struct worker *)self;
    PyObject *how, *capsule = NULL, *fn;
    weft_team_params_t params = {.on_ready = on_ready};
    long long rank, size, ranks_per_core = 0;
    if (!PyArg_ParseTuple(args, "O|IIzzL", &how, &params.deadline_ms,
                          &params.collective_deadline_ms, &params.algorithms, &params.transports,
                          &ranks_per_core) ||
        weft__py_own(w) < 0) {
        return NULL;
    }
    params.ranks_per_core = weft__py_u32_of(ranks_per_core);
    const weft_exchange_t *exchange = how == Py_None ? weft_self_exchange() : weft_run_exchange();
    if (PyTuple_Check(how)) {
        if (!PyArg_ParseTuple(how, "LLO", &rank, &size, &fn)) return NULL;
        capsule = exchange_of(w, weft__py_u32_of(rank), weft__py_u32_of(size), fn);
        if (!capsule) return NULL;
        exchange = PyCapsule_GetContext(capsule);
    }
    if (!exchange) return weft__py_raise(w->state, WEFT_ERR_INVALID_PARAM);
    struct team *t = weft__py_team_new(w);
    struct request *r = weft__py_awaited(w, (PyObject *)t);
    if (!r) {
        Py_XDECREF(capsule);
        return NULL;
    }
    t->exchange = capsule;
    t->texts = Py_NewRef(args);
    params.exchange = exchange;
    params.arg = r;
    weft_status_t status = weft_team_create(w->handle, &params, &t->handle);
    if (status < 0) return weft__py_posted(r, status);
    weft__py_adopt(w, &t->child, (void **)&t->handle);
    return weft__py_posted(r, WEFT_IN_PROGRESS);
}

/* ---- teams whose handle comes when they are ready ---- */

static void on_made(weft_team_t *handle, weft_status_t status, void *arg) {
    struct request *r = arg;
    struct team *t = (struct team *)r->keep;
    t->handle = handle;
    if (handle) weft__py_adopt(r->worker, &t->child, (void **)&t->handle);
    weft__py_done(status, r);
}

/* The request that gives the team that a call with `params` makes. */
static struct request *await_made(struct worker *w, weft_team_params_t *params) {
    struct request *r = weft__py_awaited(w, (PyObject *)weft__py_team_new(w));
    params->on_ready = on_made;
    params->arg = r;
    return r;
}

static PyObject *made(struct request *r, weft_status_t status) {
    return weft__py_posted(r, status < 0 ? status : WEFT_IN_PROGRESS);
}

static PyObject *worker_join(PyObject *self, PyObject *args) {
    struct worker *w = (struct worker *)self;
    const char *invitation;
    Py_ssize_t len;
    unsigned deadline_ms = 0;
    if (!PyArg_ParseTuple(args, "y#|I", &invitation, &len, &deadline_ms) || weft__py_own(w) < 0)
        return NULL;
    weft_team_params_t params = {.deadline_ms = deadline_ms};
    struct request *r = await_made(w, &params);
    return r ? made(r, weft_team_join(w->handle, invitation, (size_t)len, &params)) : NULL;
}

/* ---- the team ---- */

PyMethodDef weft__py_team_methods[] = {
    {"post_team", worker_team, METH_VARARGS,
     "post_team(exchange, deadline_ms=0, collective_deadline_ms=0, algorithms=None, "
     "transports=None, ranks_per_core=0) -> Request that gives a Team. "
     "exchange: True (weft-run's), None (this process alone), or (rank, size, fn)"},
    {"post_join", worker_join, METH_VARARGS,
     "post_join(invitation, deadline_ms=0) -> Request that gives a Team"},
    {NULL, NULL, 0, NULL}};

int weft__py_team_open(struct team *t) {
    if (live_team(t)) return weft__py_owned(t->worker);
    weft__py_raise(t->worker->state, WEFT_ERR_CLOSED);
    return -1;
}

static void closed(struct request *request) {
    struct team *t = (struct team *)request->keep;
    t->handle = NULL;
    t->ending = NULL;
}

static PyObject *team_close(PyObject *self, PyObject *unused) {
    struct team *t = (struct team *)self;
    if (t->handle && weft__py_owned(t->worker) < 0) return NULL;
    if (t->ending) return Py_NewRef((PyObject *)t->ending);
    if (!live_team(t) || t->borrowed) Py_RETURN_NONE;
    if (weft__py_graphs_end(t->worker, t) < 0) return NULL;
    if (!live_team(t)) Py_RETURN_NONE; /* a callback of a graph has closed it */
    struct request *r = weft__py_request(t->worker, GIVES_NONE);
    if (!r) return NULL;
    r->keep = Py_NewRef(self);
    r->over = closed;
    weft_op_t op = weft__py_op(r, 0, 0);
    weft_status_t status = weft_team_close(t->handle, &op);
    if (status == WEFT_IN_PROGRESS) t->ending = r;
    if (status < 0) r->over = NULL;
    return weft__py_posted(r, status);
}

static PyObject *team_split(PyObject *self, PyObject *args) {
    struct team *t = (struct team *)self;
    unsigned colour, key, deadline_ms = 0;
    if (!PyArg_ParseTuple(args, "O&O&|I", weft__py_u32, &colour, weft__py_u32, &key,
                          &deadline_ms) ||
        weft__py_team_open(t) < 0) {
        return NULL;
    }
    weft_team_params_t params = {.deadline_ms = deadline_ms};
    struct request *r = await_made(t->worker, &params);
    return r ? made(r, weft_team_split(t->handle, colour, key, &params)) : NULL;
}

static PyObject *team_subset(PyObject *self, PyObject *args) {
    struct team *t = (struct team *)self;
    PyObject *ranks;
    unsigned deadline_ms = 0;
    if (!PyArg_ParseTuple(args, "O!|I", &PyTuple_Type, &ranks, &deadline_ms) ||
        weft__py_team_open(t) < 0) {
        return NULL;
    }
    weft_team_params_t params = {.deadline_ms = deadline_ms};
    weft_team_map_t map = {.kind = WEFT_MAP_LIST, .n = (uint32_t)PyTuple_Size(ranks)};
    uint32_t *list = malloc((map.n + 1) * sizeof *list);
    if (!list) return PyErr_NoMemory();
    for (uint32_t i = 0; i < map.n; i++)
        if (!weft__py_u32(PyTuple_GetItem(ranks, i), &list[i])) {
            free(list);
            return NULL;
        }
    map.list = list;
    struct request *r = await_made(t->worker, &params);
    PyObject *result = r ? made(r, weft_team_subset(t->handle, &map, &params)) : NULL;
    free(list);
    return result;
}

/* ---- workers that join ---- */

static PyObject *team_invite(PyObject *self, PyObject *unused) {
    struct team *t = (struct team *)self;
    char invitation[WEFT_TEAM_INVITATION_MAX];
    size_t len = sizeof invitation;
    if (weft__py_team_open(t) < 0) return NULL;
    weft_status_t status = weft_team_invite(t->handle, invitation, &len);
    if (status < 0) return weft__py_raise(t->worker->state, status);
    return PyBytes_FromStringAndSize(invitation, len);
}

static PyObject *team_grow(PyObject *self, PyObject *args) {
    struct team *t = (struct team *)self;
    unsigned inviter, n, deadline_ms = 0;
    if (!PyArg_ParseTuple(args, "O&O&|I", weft__py_u32, &inviter, weft__py_u32, &n, &deadline_ms) ||
        weft__py_team_open(t) < 0) {
        return NULL;
    }
    weft_team_params_t params = {.deadline_ms = deadline_ms};
    struct request *r = await_made(t->worker, &params);
    return r ? made(r, weft_team_grow(t->handle, inviter, n, &params)) : NULL;
}

/* ---- after a failure ---- */

static PyObject *team_shrink(PyObject *self, PyObject *args) {
    struct team *t = (struct team *)self;
    unsigned deadline_ms = 0;
    if (!PyArg_ParseTuple(args, "|I", &deadline_ms) || weft__py_team_open(t) < 0) return NULL;
    weft_team_params_t params = {.deadline_ms = deadline_ms};
    struct request *r = await_made(t->worker, &params);
    return r ? made(r, weft_team_shrink(t->handle, &params)) : NULL;
}

static PyObject *team_agree(PyObject *self, PyObject *args) {
    struct team *t = (struct team *)self;
    unsigned long long flags;
    unsigned long deadline_ms = 0;
    if (!PyArg_ParseTuple(args, "K|k", &flags, &deadline_ms) || weft__py_team_open(t) < 0) {
        return NULL;
    }
    size_t words = (weft_team_size(t->handle) + 63) / 64;
    PyObject *lost = PyBytes_FromStringAndSize(NULL, words * sizeof(uint64_t));
    struct request *r = weft__py_awaited(t->worker, lost);
    if (!r) return NULL;
    r->gives = GIVES_AGREED;
    r->old = flags;
    weft_op_t op = weft__py_op(r, deadline_ms, 0);
    op.request_p = NULL;
    /* No other code sees the bytes object before the operation has ended. */
    uint64_t *bits = (uint64_t *)PyBytes_AsString(lost);
    return weft__py_posted(r, weft_team_agree(t->handle, &r->old, bits, &op));
}

static PyObject *team_revoke(PyObject *self, PyObject *unused) {
    struct team *t = (struct team *)self;
    if (weft__py_team_open(t) < 0) return NULL;
    return weft__py_checked(t->worker->state, weft_team_revoke(t->handle));
}

static PyObject *team_describe(PyObject *self, PyObject *unused) {
    struct team *t = (struct team *)self;
    weft_team_info_t info;
    if (weft__py_team_open(t) < 0) return NULL;
    weft_status_t status = weft_team_describe(t->handle, &info);
    if (status < 0) return weft__py_raise(t->worker->state, status);
    return Py_BuildValue("{sIsIsIsisIsO&sIsIsi}", "rank", info.rank, "size", info.size, "epoch",
                         info.epoch, "status", (int)info.status, "blamed", info.blamed, "why",
                         weft__py_text, info.why ? info.why : "", "n_hosts", info.n_hosts,
                         "ranks_per_core", info.ranks_per_core, "shares_memory",
                         info.shares_memory);
}

static PyObject *team_take(PyObject *self, PyObject *args) {
    struct team *t = (struct team *)self;
    int reduction, type;
    if (!PyArg_ParseTuple(args, "ii", &reduction, &type) || weft__py_team_open(t) < 0) return NULL;
    int of_reduction = weft__py_callable_take(t->reductions, reduction, weft__py_reduction_another);
    if (of_reduction < 0) return NULL;
    int of_type = weft__py_callable_take(t->datatypes, type, weft__py_datatype_another);
    if (of_type >= 0) return Py_BuildValue("(ii)", of_reduction, of_type);
    weft__py_callable_give_back(t, &t->reductions, of_reduction);
    return NULL;
}

static PyObject *team_give_back(PyObject *self, PyObject *args) {
    struct team *t = (struct team *)self;
    int reduction, type;
    if (!PyArg_ParseTuple(args, "ii", &reduction, &type)) return NULL;
    weft__py_callable_give_back(t, &t->reductions, reduction);
    weft__py_callable_give_back(t, &t->datatypes, type);
    Py_RETURN_NONE;
}

static PyObject *team_raised(PyObject *self, PyObject *args) {
    struct team *t = (struct team *)self;
    int reduction, type;
    if (!PyArg_ParseTuple(args, "ii", &reduction, &type)) return NULL;
    if (!weft__py_is_owner(t->worker)) Py_RETURN_NONE; /* its coroutine is collected there */
    PyObject *raised = weft__py_callable_raised(t->datatypes, type);
    PyObject *other = weft__py_callable_raised(t->reductions, reduction);
    if (raised) Py_XDECREF(other);
    if (!raised) raised = other;
    return raised ? raised : Py_NewRef(Py_None);
}

/* ---- members ---- */

static PyObject *team_member(PyObject *self, PyObject *args) {
    struct team *t = (struct team *)self;
    weft_team_member_t member;
    unsigned rank;
    if (!PyArg_ParseTuple(args, "O&", weft__py_u32, &rank) || weft__py_team_open(t) < 0)
        return NULL;
    weft_status_t status = weft_team_member(t->handle, rank, &member);
    if (status < 0) return weft__py_raise(t->worker->state, status);
    return Py_BuildValue("{sKsIsIsIsIsy#sOsIsK}", "host", (unsigned long long)member.host, "leader",
                         member.leader, "host_rank", member.host_rank, "ranks_of_host",
                         member.ranks_of_host, "cores", member.cores, "address", member.address,
                         (Py_ssize_t)member.address_len, "left", member.left ? Py_True : Py_False,
                         "n_late", member.n_late, "late_ms", (unsigned long long)member.late_ms);
}

static PyObject *team_algorithm(PyObject *self, PyObject *args) {
    struct team *t = (struct team *)self;
    unsigned kind, flags;
    uint64_t bytes;
    const char *name;
    if (!PyArg_ParseTuple(args, "IO&I", &kind, weft__py_u64, &bytes, &flags) ||
        weft__py_team_open(t) < 0) {
        return NULL;
    }
    weft_status_t status =
        weft_team_algorithm(t->handle, (weft_coll_kind_t)kind, bytes, flags, &name);
    return status < 0 ? weft__py_raise(t->worker->state, status) : PyUnicode_FromString(name);
}

/* A further object of the same endpoint takes the place of the earlier one in callbacks. */
static PyObject *team_endpoint(PyObject *self, PyObject *args) {
    struct team *t = (struct team *)self;
    unsigned rank;
    if (!PyArg_ParseTuple(args, "O&", weft__py_u32, &rank) || weft__py_team_open(t) < 0)
        return NULL;
    weft_ep_t *handle = weft_team_ep(t->handle, rank);
    if (!handle) return weft__py_raise(t->worker->state, WEFT_ERR_INVALID_PARAM);
    PyObject *ep = weft__py_ep_new(t->worker, handle);
    if (ep) ((struct ep *)ep)->team = (struct team *)Py_NewRef(self);
    return ep;
}

static PyObject *get_rank(PyObject *self, void *unused) {
    struct team *t = (struct team *)self;
    if (weft__py_team_open(t) < 0) return NULL;
    return PyLong_FromUnsignedLong(weft_team_rank(live_team(t)));
}

static PyObject *get_size(PyObject *self, void *unused) {
    struct team *t = (struct team *)self;
    if (weft__py_team_open(t) < 0) return NULL;
    return PyLong_FromUnsignedLong(weft_team_size(live_team(t)));
}

static PyObject *get_closed(PyObject *self, void *unused) {
    return PyBool_FromLong(!live_team((struct team *)self));
}

static PyObject *get_worker(PyObject *self, void *unused) {
    return Py_NewRef((PyObject *)((struct team *)self)->worker);
}

static int traverse(PyObject *self, visitproc visit, void *arg) {
    struct team *t = (struct team *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(t->worker);
    Py_VISIT(t->exchange);
    Py_VISIT(t->texts);
    int stop = weft__py_callables_traverse(t->datatypes, visit, arg);
    return stop ? stop : weft__py_callables_traverse(t->reductions, visit, arg);
}

static void end(struct worker *unused, void *handle, void *arg) {
    if (handle) weft_team_close(handle, NULL);
}

/* A collective in progress holds the team: no function of the program is called any more. */
static int clear(PyObject *self) {
    struct team *t = (struct team *)self;
    if (t->borrowed) {
        weft__py_disown(t->worker, &t->child);
    } else {
        weft__py_end(t->worker, &t->child, end, NULL);
    }
    t->handle = NULL;
    weft__py_callables_free(&t->reductions);
    weft__py_callables_free(&t->datatypes);
    return 0;
}

static void dealloc(PyObject *self) {
    struct team *t = (struct team *)self;
    PyObject_GC_UnTrack(self);
    clear(self);
    Py_XDECREF(t->exchange);
    Py_XDECREF(t->texts);
    Py_XDECREF((PyObject *)t->worker);
    weft__py_free(self);
}

static PyMethodDef methods[] = {
    {"post_close", team_close, METH_NOARGS, "Closes the team on this side."},
    {"post_split", team_split, METH_VARARGS,
     "post_split(colour, key, deadline_ms=0) -> Request that gives a Team"},
    {"post_subset", team_subset, METH_VARARGS,
     "post_subset(ranks, deadline_ms=0) -> Request that gives a Team"},
    {"invite", team_invite, METH_NOARGS, "Bytes with which workers join at this member."},
    {"post_grow", team_grow, METH_VARARGS,
     "post_grow(inviter, n, deadline_ms=0) -> Request that gives a Team with n workers more"},
    {"post_shrink", team_shrink, METH_VARARGS,
     "post_shrink(deadline_ms=0) -> Request that gives a Team of the members that are left"},
    {"post_agree", team_agree, METH_VARARGS,
     "post_agree(flags, deadline_ms=0) -> (flags of all ANDed, bits of lost ranks), or a Request"},
    {"revoke", team_revoke, METH_NOARGS, "Ends the team for all members."},
    {"describe", team_describe, METH_NOARGS, "A dict: status, blamed, why, n_hosts and more."},
    {"member", team_member, METH_VARARGS, "member(rank) -> a dict: host, leader, address and more"},
    {"algorithm", team_algorithm, METH_VARARGS,
     "algorithm(kind, bytes, flags) -> the name of the one that a collective takes"},
    {"endpoint", team_endpoint, METH_VARARGS,
     "endpoint(rank) -> Endpoint to a member; it ends with the team"},
    {"post", weft__py_coll, METH_VARARGS,
     "post(what, deadline_ms, flags) -> None, or a Request: a collective (weft/teams.py)"},
    {"prepare", weft__py_coll_prepare, METH_VARARGS, "prepare(what, init_flags) -> Collective"},
    {"datatype", weft__py_datatype, METH_VARARGS,
     "datatype(size, extent, block, stride, count, make) -> int; make(memory, count) or None"},
    {"reduction", weft__py_reduction, METH_VARARGS,
     "reduction(fn, size, commutes) -> int; fn(left, right, out) for elements of `size` bytes"},
    {"take", team_take, METH_VARARGS,
     "take(reduction, datatype) -> (int, int), for one collective until give_back"},
    {"give_back", team_give_back, METH_VARARGS, "give_back(reduction, datatype) of take"},
    {"raised", team_raised, METH_VARARGS,
     "raised(reduction, datatype) -> the first exception of one of these since the last call, or "
     "None"},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef members[] = {
    {"rank", get_rank, NULL, "this member's", NULL},
    {"size", get_size, NULL, "the number of members", NULL},
    {"closed", get_closed, NULL, "whether there is no team any more, or none was made", NULL},
    {"worker", get_worker, NULL, "the team's worker", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot slots[] = {{Py_tp_dealloc, dealloc}, {Py_tp_traverse, traverse},
                              {Py_tp_clear, clear},     {Py_tp_methods, methods},
                              {Py_tp_getset, members},  {0, NULL}};

PyType_Spec weft__py_team_spec = {
    "weft._core.Team", sizeof(struct team), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
