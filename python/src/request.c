/*
 * Requests: operations in progress. The library's callback marks one as complete, and
 * weft__py_deliver reports all that one wake-up completed.
 */
#include "core.h"

static PyObject *value_of(struct request *r) {
    switch (r->gives) {
    case GIVES_LENGTH: return PyLong_FromSize_t(r->len);
    case GIVES_TAGGED:
        return Py_BuildValue("(nK)", (Py_ssize_t)r->info.len, (unsigned long long)r->info.tag);
    case GIVES_OLD_32: return PyLong_FromUnsignedLong((uint32_t)r->old);
    case GIVES_OLD_64: return PyLong_FromUnsignedLongLong(r->old);
    case GIVES_AGREED: return Py_BuildValue("(KO)", (unsigned long long)r->old, r->keep);
    case GIVES_KEPT: return Py_NewRef(r->keep);
    case GIVES_SENT:
    case GIVES_NONE: break;
    }
    Py_RETURN_NONE;
}

/* A fetched word of 4 bytes lies at the beginning of `old`. */
static void settle_old(struct request *r) {
    uint32_t word;
    if (r->gives != GIVES_OLD_32) return;
    memcpy(&word, &r->old, sizeof word);
    r->old = word;
}

struct request *weft__py_request(struct worker *worker, enum result gives) {
    struct request *r = worker->spare;
    worker->spare = NULL;
    if (!r) {
        r = (struct request *)PyType_GenericAlloc(worker->state->request, 0);
        if (!r) return NULL;
    }
    r->worker = (struct worker *)Py_NewRef((PyObject *)worker);
    r->buffers.worker = worker;
    r->gives = gives;
    r->status = WEFT_IN_PROGRESS;
    return r;
}

struct request *weft__py_request_with(struct worker *worker, enum result gives, PyObject *buffer,
                                      bool writes) {
    struct request *r = weft__py_request(worker, gives);
    if (!r) return NULL;
    if (weft__py_hold_buffer(worker->state, &r->buffers, buffer, writes) < 0) {
        weft__py_dropped(r);
        return NULL;
    }
    return r;
}

weft_op_t weft__py_op(struct request *r, unsigned long deadline_ms, uint32_t flags) {
    return (weft_op_t){.done = weft__py_done,
                       .arg = r,
                       .request_p = &r->handle,
                       .deadline_ms = deadline_ms < UINT32_MAX ? (uint32_t)deadline_ms : UINT32_MAX,
                       .flags = flags,
                       .layout = r->buffers.plan.kind ? &r->buffers.plan : NULL};
}

/* The exception of a request that failed: a new reference, or NULL and an error. */
static PyObject *failure_of(struct request *r) {
    if (r->raised) return Py_NewRef(r->raised);
    PyObject *exception = weft__py_exception(r->worker->state, r->status, r->why);
    PyObject *sent = exception && r->gives == GIVES_SENT ? PyLong_FromSize_t(r->len) : NULL;
    if (sent) PyObject_SetAttrString(exception, "sent", sent);
    Py_XDECREF(sent);
    return exception;
}

static PyObject *raise(struct request *r) {
    PyObject *exception = failure_of(r);
    if (exception) PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
    Py_XDECREF(exception);
    return NULL;
}

/* One that has no other reference serves the next operation; meanwhile it holds no reference. */
void weft__py_dropped(struct request *r) {
    struct worker *worker = r->worker;
    weft__py_give_back(&r->buffers);
    if (weft__py_references((PyObject *)r) > 1) { /* who has one reads its result */
        Py_DECREF((PyObject *)r);
        return;
    }
    Py_CLEAR(r->keep);
    Py_CLEAR(r->raised);
    if (worker->spare || worker->dead) {
        Py_DECREF((PyObject *)r);
        return;
    }
    r->handle = NULL, r->over = NULL, r->len = 0, r->old = 0, r->reported = false;
    r->buffers.plan.kind = 0;
    memset(&r->info, 0, sizeof r->info);
    worker->spare = r;
    r->worker = NULL;
    Py_DECREF((PyObject *)worker);
}

/* Other threads get the interpreter's lock now and then, and signals their handlers. */
static int breathe(void) {
    Py_BEGIN_ALLOW_THREADS Py_END_ALLOW_THREADS return PyErr_CheckSignals();
}

/*
 * Drives the worker until the operation has ended; takes the request, and gives its result. A wait
 * spins before it sleeps, and its looks at memory cost no system call, while each progress of a
 * worker whose descriptor a loop watches asks the kernel and arms the descriptor again.
 */
static PyObject *polled(struct request *r) {
    enum { TURNS = 4096, WAIT_MS = 1 };
    struct worker *worker = r->worker;
    PyObject *value = NULL;
    int n = 0;
    for (unsigned turns = 1; r->status == WEFT_IN_PROGRESS && !worker->raised; turns++) {
        n = weft__py_wait(worker, WAIT_MS);
        bool late = n == WEFT_ERR_TIMED_OUT;
        if (late) n = 0;
        if (n < 0 || ((late || turns % TURNS == 0) && breathe() < 0)) break;
    }
    if (n < 0) {
        weft__py_raise(worker->state, n);
    } else if (r->status == WEFT_IN_PROGRESS) { /* a signal's handler, or a callback, has raised */
        if (r->handle) weft_request_cancel(r->handle);
    } else if (weft__py_deliver(worker), r->status >= 0) {
        value = value_of(r);
    } else {
        raise(r);
    }
    if (weft__py_interrupted(worker) < 0) Py_CLEAR(value);
    if (r->reported && !r->why) {
        weft__py_dropped(r);
    } else {
        Py_DECREF((PyObject *)r);
    }
    return value;
}

PyObject *weft__py_posted(struct request *r, weft_status_t status) {
    if (status == WEFT_IN_PROGRESS) {
        Py_INCREF((PyObject *)r); /* the library's */
        if (r->worker->polls && !r->worker->turning) return polled(r);
        /* What ended within the call, and an exit, is reported as all else is: by the next turn. */
        if (r->status != WEFT_IN_PROGRESS || r->worker->raised) weft_worker_wake(r->worker->handle);
        return (PyObject *)r;
    }
    PyObject *value = NULL;
    if (status == WEFT_OK) {
        if (r->over) r->over(r);
        settle_old(r);
        value = value_of(r);
    } else {
        r->status = status;
        r->why = weft__py_describe(status);
        raise(r);
        free(r->why);
        r->why = NULL;
    }
    if (!r->worker->turning && weft__py_interrupted(r->worker) < 0) Py_CLEAR(value);
    weft__py_dropped(r);
    return value;
}

/* Without the interpreter's lock. */
void weft__py_done(weft_status_t status, void *arg) {
    struct request *r = arg;
    struct worker *worker = r->worker;
    if (status < 0) r->why = weft__py_describe(status);
    r->status = status;
    r->handle = NULL;
    if (r->over) r->over(r);
    r->next = NULL;
    *worker->last = r;
    worker->last = &r->next;
}

/* The future gets what is raised, so that who waits for it goes on. */
static PyObject *fail(struct state *state, PyObject *future) {
    PyObject *raised = NULL, *result = NULL;
    weft__py_keep_raised(&raised);
    if (raised) result = PyObject_CallMethodObjArgs(future, state->set_exception, raised, NULL);
    Py_XDECREF(raised);
    return result;
}

static bool is_done(struct worker *worker, PyObject *future) {
    PyObject *done = PyObject_CallMethodObjArgs(future, worker->state->done, NULL);
    bool is_true = done == Py_True;
    if (!done) weft__py_report(worker, future);
    Py_XDECREF(done);
    return is_true;
}

/* What the future gets, NULL and an error. The class of a failure is made by code of Python. */
static PyObject *outcome_of(struct request *r) {
    return r->status < 0 ? failure_of(r) : value_of(r);
}

/*
 * Signals run their handlers before code of Python, which they would interrupt. One that comes
 * later may. What its handler raises then is the driving call's, as the future may have no reader,
 * and the code is called again.
 */
static void resolve(struct request *r, PyObject *future) {
    struct worker *worker = r->worker;
    struct state *state = worker->state;
    weft__py_signals(worker);
    if (is_done(worker, future)) return;
    PyObject *method = r->status < 0 ? state->set_exception : state->set_result;
    PyObject *value = outcome_of(r), *result = NULL;
    if (!value && weft__py_keeps_exit(worker)) value = outcome_of(r);
    if (value) result = PyObject_CallMethodObjArgs(future, method, value, NULL);
    if (!value) result = fail(state, future);
    if (value && !result) {
        weft__py_report(worker, future);
        result = is_done(worker, future) ? Py_NewRef(Py_None)
                                         : PyObject_CallMethodObjArgs(future, method, value, NULL);
    }
    if (!result) weft__py_report(worker, future);
    Py_XDECREF(result);
    Py_XDECREF(value);
}

/* The result is there; the future that is to get it, or NULL. The collector may set one on any
 * thread, where it ends a coroutine. */
static PyObject *report(struct request *r) {
    PyObject *future;
    WEFT__PY_LOCK(r);
    r->reported = true;
    future = r->future;
    r->future = NULL;
    WEFT__PY_UNLOCK();
    return future;
}

static bool is_reported(struct request *r) {
    bool reported;
    WEFT__PY_LOCK(r);
    reported = r->reported;
    WEFT__PY_UNLOCK();
    return reported;
}

Py_ssize_t weft__py_deliver(struct worker *worker) {
    Py_ssize_t n = 0;
    if (!worker->handle && !worker->was_closed && !worker->dead) {
        worker->was_closed = true;
        weft__py_notify_object(worker, (PyObject *)worker, worker->state->gone, NULL);
    }
    while (worker->first) {
        struct request *r = worker->first;
        worker->first = r->next;
        if (!worker->first) worker->last = &worker->first;
        r->next = NULL;
        weft__py_give_back(&r->buffers);
        if (r->gives != GIVES_KEPT && r->gives != GIVES_AGREED) Py_CLEAR(r->keep);
        settle_old(r);
        PyObject *future = report(r);
        if (future) resolve(r, future);
        Py_XDECREF(future);
        Py_DECREF((PyObject *)r);
        n++;
    }
    return n;
}

/* ---- the type ---- */

static PyObject *request_cancel(PyObject *self, PyObject *unused) {
    struct request *r = (struct request *)self;
    /* The collector may end on any thread what waits for the operation. A spare request has no
     * worker. */
    if (r->worker && weft__py_is_owner(r->worker) && r->handle && r->worker->handle)
        weft_request_cancel(r->handle);
    Py_RETURN_NONE;
}

/* A spare one belongs to no operation. Only the garbage collector shows it to a program. */
static PyObject *request_result(PyObject *self, PyObject *unused) {
    struct request *r = (struct request *)self;
    if (!r->worker) {
        PyErr_SetString(PyExc_ReferenceError, "the operation of this request is over");
        return NULL;
    }
    if (!is_reported(r)) return weft__py_raise(r->worker->state, WEFT_ERR_BUSY);
    return r->status >= 0 ? value_of(r) : raise(r);
}

static PyObject *get_done(PyObject *self, void *unused) {
    return PyBool_FromLong(is_reported((struct request *)self));
}

static PyObject *get_worker(PyObject *self, void *unused) {
    struct worker *worker = ((struct request *)self)->worker;
    return Py_NewRef(worker ? (PyObject *)worker : Py_None);
}

static PyObject *get_status(PyObject *self, void *unused) {
    return PyLong_FromLong(((struct request *)self)->status);
}

static PyObject *get_future(PyObject *self, void *unused) {
    PyObject *future;
    WEFT__PY_LOCK(self);
    future = ((struct request *)self)->future;
    future = Py_NewRef(future ? future : Py_None);
    WEFT__PY_UNLOCK();
    return future;
}

static int set_future(PyObject *self, PyObject *future, void *unused) {
    struct request *r = (struct request *)self;
    PyObject *old, *late = NULL; /* too late to be called back */
    PyObject *made = future == Py_None || !future ? NULL : Py_NewRef(future);
    WEFT__PY_LOCK(r);
    old = r->future;
    if (r->reported) late = made;
    r->future = late ? NULL : made;
    WEFT__PY_UNLOCK();
    Py_XDECREF(old);
    if (late) resolve(r, late);
    Py_XDECREF(late);
    return 0;
}

static int traverse(PyObject *self, visitproc visit, void *arg) {
    struct request *r = (struct request *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(r->worker);
    Py_VISIT(r->keep);
    Py_VISIT(r->future);
    Py_VISIT(r->raised);
    return 0;
}

static int clear(PyObject *self) {
    struct request *r = (struct request *)self;
    Py_CLEAR(r->keep);
    Py_CLEAR(r->future);
    Py_CLEAR(r->raised);
    return 0;
}

static void dealloc(PyObject *self) {
    struct request *r = (struct request *)self;
    PyObject_GC_UnTrack(self);
    weft__py_give_back(&r->buffers);
    clear(self);
    free(r->why);
    Py_XDECREF((PyObject *)r->worker);
    weft__py_free(self);
}

static PyMethodDef methods[] = {
    {"cancel", request_cancel, METH_NOARGS,
     "Requests the cancellation; the operation then ends as any other, once."},
    {"result", request_result, METH_NOARGS,
     "The operation's result, or raises its error. BusyError while it is in progress."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef members[] = {
    {"done", get_done, NULL, "whether the operation has ended", NULL},
    {"worker", get_worker, NULL, "the worker that it belongs to", NULL},
    {"status", get_status, NULL, "1 while in progress, 0, or the negative status", NULL},
    {"future", get_future, set_future, "gets set_result or set_exception at the end", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot slots[] = {{Py_tp_dealloc, dealloc}, {Py_tp_traverse, traverse},
                              {Py_tp_clear, clear},     {Py_tp_methods, methods},
                              {Py_tp_getset, members},  {0, NULL}};

PyType_Spec weft__py_request_spec = {
    "weft._core.Request", sizeof(struct request), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
