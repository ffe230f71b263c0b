/* The worker: its life, and how it is driven. */
#include "team.h"

#include <errno.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- callbacks into Python ---- */

/* Whether a callback may run Python; it then ends with weft__py_leave. Another thread than the
 * worker's holds the interpreter's lock. */
bool weft__py_enter(struct worker *worker, PyThreadState **was_p) {
    if (worker->dead) return false;
    *was_p = NULL;
    if (!weft__py_is_owner(worker)) return true;
    *was_p = worker->unlocked;
    worker->unlocked = NULL;
    if (*was_p) PyEval_RestoreThread(*was_p);
    return true;
}

void weft__py_leave(struct worker *worker, PyThreadState *was) {
    if (was) worker->unlocked = PyEval_SaveThread();
}

void weft__py_signals(struct worker *worker) {
    if (PyErr_CheckSignals() < 0) weft__py_keep_raised(&worker->raised);
}

bool weft__py_keep_exit(PyObject **kept_p) {
    if (!PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) &&
        !PyErr_ExceptionMatches(PyExc_SystemExit)) {
        return false;
    }
    weft__py_keep_raised(kept_p);
    return true;
}

bool weft__py_keeps_exit(struct worker *worker) {
    return weft__py_keep_exit(&worker->raised);
}

void weft__py_report(struct worker *worker, PyObject *of) {
    if (!weft__py_keeps_exit(worker)) PyErr_WriteUnraisable(of);
}

/* How often one is called: a timer whose handler raises each time ends none of them for good. */
enum { TRIES = 100 };

static void notify(struct worker *worker, PyObject *of, PyObject *fn, PyObject *one,
                   PyObject *other) {
    PyObject *result = NULL;
    for (int i = 0; i < TRIES && !result; i++) {
        result = PyObject_CallFunctionObjArgs(fn, one, other, NULL);
        if (!result && !weft__py_keeps_exit(worker)) break;
    }
    if (PyErr_Occurred()) PyErr_WriteUnraisable(of);
    Py_XDECREF(result);
}

void weft__py_notify(struct worker *worker, PyObject *fn, PyObject *one, PyObject *other) {
    notify(worker, fn, fn, one, other);
}

void weft__py_notify_object(struct worker *worker, PyObject *object, PyObject *name,
                            PyObject *argument) {
    PyObject *method = PyObject_GetAttr(object, name);
    if (method) {
        notify(worker, object, method, argument, NULL);
        Py_DECREF(method);
    } else {
        weft__py_report(worker, object);
    }
}

void weft__py_keep_failure(struct worker *worker, PyObject **kept_p) {
    PyObject *failure = NULL;
    for (int i = 0; i < TRIES && !failure && weft__py_keeps_exit(worker); i++)
        failure = weft__py_exception(worker->state, WEFT_ERR_CANCELLED, NULL);
    if (!failure) {
        weft__py_keep_raised(kept_p);
    } else if (*kept_p) {
        Py_DECREF(failure);
    } else {
        *kept_p = failure;
    }
}

int weft__py_interrupted(struct worker *worker) {
    PyObject *raised = worker->raised;
    if (!raised) return 0;
    worker->raised = NULL;
    PyErr_SetObject((PyObject *)Py_TYPE(raised), raised);
    Py_DECREF(raised);
    return -1;
}

static void closed(struct request *request) {
    weft__py_ended(request->worker);
}

int weft__py_own(struct worker *worker) {
    if (worker->handle) return weft__py_owned(worker);
    weft__py_raise(worker->state, WEFT_ERR_CLOSED);
    return -1;
}

int weft__py_owned(struct worker *worker) {
    if (weft__py_is_owner(worker)) return 0;
    weft__py_raise_text(worker->state, WEFT_ERR_WRONG_THREAD,
                        "the worker belongs to another thread, which made it");
    return -1;
}

/* ---- life ---- */

static void on_endpoint(weft_ep_t *ep, void *arg) {
    struct worker *worker = arg;
    weft__py_call_endpoint(worker, ep, &worker->on_endpoint);
}

static struct worker *allocate(PyTypeObject *type, struct state *state) {
    struct worker *self = (struct worker *)PyType_GenericAlloc(type, 0);
    if (!self) return NULL;
    self->state = state;
    self->last = &self->first;
    self->owner = PyThread_get_thread_ident();
    self->owner_id = (pid_t)syscall(SYS_gettid);
    atomic_flag_clear(&self->listing);
    self->ep_type = Py_NewRef((PyObject *)state->ep);
    return self;
}

static PyObject *new (PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"context", "transports", "name", "unlock", NULL};
    struct state *state = weft__py_state(type);
    weft__py_take_left(state);
    PyObject *context;
    weft_worker_params_t params = {.on_endpoint = on_endpoint, .on_error = weft__py_on_lost};
    int unlock = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|zzp", names, state->context, &context,
                                     &params.transports, &params.name, &unlock)) {
        return NULL;
    }
    struct worker *self = allocate(type, state);
    if (!self) return NULL;
    self->unlock = unlock;
    self->context = Py_NewRef(context);
    params.arg = self;
    weft_status_t status =
        weft_worker_create(weft__py_context_handle(context), &params, &self->handle);
    if (status == WEFT_OK) return (PyObject *)self;
    Py_DECREF((PyObject *)self);
    return weft__py_raise(state, status);
}

static int traverse(PyObject *self, visitproc visit, void *arg) {
    struct worker *w = (struct worker *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(w->context);
    Py_VISIT(w->ep_type);
    Py_VISIT(w->on_endpoint);
    Py_VISIT(w->raised);
    int stop = weft__py_graphs_traverse(w, visit, arg);
    if (!stop) stop = weft__py_finalizers_traverse(w->finalizers, visit, arg);
    if (stop) return stop;
    return weft__py_am_traverse(w, visit, arg);
}

static int clear(PyObject *self) {
    struct worker *w = (struct worker *)self;
    weft__py_am_clear(w);
    weft__py_graphs_drop(w);
    weft__py_finalizers_clear(&w->finalizers);
    Py_CLEAR(w->on_endpoint);
    Py_CLEAR(w->raised);
    return 0;
}

/* No operation is in progress: each of them holds the worker. */
void weft__py_destroy(struct worker *w) {
    weft_worker_t *handle = w->handle;
    bool others = w->dead;
    w->dead = true;
    weft__py_ended(w);
    if (!handle || others) return;
    Py_BEGIN_ALLOW_THREADS weft_worker_destroy(handle);
    Py_END_ALLOW_THREADS
}

static void dealloc(PyObject *self) {
    struct worker *w = (struct worker *)self;
    PyObject_GC_UnTrack(self);
    weft__py_destroy(w);
    clear(self);
    Py_XDECREF((PyObject *)w->spare);
    Py_CLEAR(w->ep_type);
    Py_CLEAR(w->context);
    weft__py_free(self);
}

/* ---- driving ---- */

static int drive(struct worker *w, int (*fn)(weft_worker_t *worker, int arg), int arg) {
    int n;
    bool turned = w->turning; /* called within a callback: the library refuses it */
    w->turning = true;
    if (w->unlock) {
        w->unlocked = PyEval_SaveThread();
        n = fn(w->handle, arg);
        PyEval_RestoreThread(w->unlocked);
        w->unlocked = NULL;
    } else {
        n = fn(w->handle, arg);
    }
    w->turning = turned;
    return n;
}

static int progress(weft_worker_t *worker, int budget) {
    return weft_worker_progress(worker, (unsigned)budget);
}
int weft__py_turn(struct worker *w, unsigned budget) {
    return drive(w, progress, (int)budget);
}

static int wait_for(weft_worker_t *worker, int timeout_ms) {
    return weft_worker_wait(worker, timeout_ms);
}
int weft__py_wait(struct worker *w, int timeout_ms) {
    return drive(w, wait_for, timeout_ms);
}

static PyObject *worker_progress(PyObject *self, PyObject *const *args, Py_ssize_t n_args) {
    struct worker *w = (struct worker *)self;
    weft__py_take_left(w->state);
    unsigned long budget = n_args > 0 ? PyLong_AsUnsignedLong(args[0]) : 0;
    if (PyErr_Occurred() || weft__py_own(w) < 0) return NULL;
    int n = weft__py_turn(w, budget);
    Py_ssize_t reported = weft__py_deliver(w);
    if (weft__py_interrupted(w) < 0) return NULL;
    if (n < 0) return weft__py_raise(w->state, n);
    return PyLong_FromSsize_t(n > reported ? n : reported);
}

static int spin(weft_worker_t *worker, int unused) {
    return weft_worker_spin(worker);
}

/* How much it handled and reported; -1: raised. */
static Py_ssize_t look(struct worker *w) {
    int n = drive(w, spin, 0);
    Py_ssize_t reported = weft__py_deliver(w);
    if (weft__py_interrupted(w) < 0) return -1;
    if (n < 0) return weft__py_raise(w->state, n), -1;
    return n > reported ? n : reported;
}

static PyObject *worker_spin(PyObject *self, PyObject *unused) {
    struct worker *w = (struct worker *)self;
    Py_ssize_t n = weft__py_own(w) < 0 ? -1 : look(w);
    return n < 0 ? NULL : PyLong_FromSsize_t(n);
}

/* Sleeps on the descriptor rather than in weft_worker_wait, which signals do not end. */
static int sleep_on(struct worker *w, int fd, int timeout_ms) {
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    int n;
    Py_BEGIN_ALLOW_THREADS n = poll(&ready, 1, timeout_ms);
    Py_END_ALLOW_THREADS return n;
}

static PyObject *worker_wait(PyObject *self, PyObject *args) {
    struct worker *w = (struct worker *)self;
    int timeout_ms = -1;
    weft__py_take_left(w->state);
    if (!PyArg_ParseTuple(args, "|i", &timeout_ms) || weft__py_own(w) < 0) return NULL;
    int fd = weft_worker_fd_level(w->handle);
    if (fd < 0) return weft__py_raise(w->state, fd);
    uint64_t end = weft_worker_now(w->handle) + (uint64_t)timeout_ms * 1000000;
    /* A wake before the wait ends it, too; the first turn would take it for nothing. */
    bool slept = poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0) > 0;
    for (;;) {
        int n = weft__py_turn(w, 0);
        Py_ssize_t reported = weft__py_deliver(w);
        if (weft__py_interrupted(w) < 0) return NULL;
        if (n < 0) return weft__py_raise(w->state, n);
        if (n || reported || slept || !w->handle) Py_RETURN_TRUE;
        Py_ssize_t found = timeout_ms && !w->unlock ? look(w) : 0;
        /* A signal that came so far would not end the sleep. Its handler may destroy the worker. */
        if (found < 0 || PyErr_CheckSignals() < 0) return NULL;
        if (found || !w->handle) Py_RETURN_TRUE;
        uint64_t now = weft_worker_now(w->handle);
        int left = timeout_ms < 0 ? -1 : now >= end ? 0 : (int)((end - now + 999999) / 1000000);
        n = sleep_on(w, fd, left);
        if (n < 0 && errno != EINTR) return PyErr_SetFromErrno(PyExc_OSError);
        if (n == 0) Py_RETURN_FALSE;
        slept = n > 0;
    }
}

static PyObject *worker_fd(PyObject *self, PyObject *unused) {
    struct worker *w = (struct worker *)self;
    if (weft__py_own(w) < 0) return NULL;
    int fd = weft_worker_fd_level(w->handle);
    return fd < 0 ? weft__py_raise(w->state, fd) : PyLong_FromLong(fd);
}

static PyObject *worker_wake(PyObject *self, PyObject *unused) {
    struct worker *w = (struct worker *)self;
    weft__py_wake(w);
    Py_RETURN_NONE;
}

static PyObject *worker_address(PyObject *self, PyObject *unused) {
    struct worker *w = (struct worker *)self;
    char address[256];
    size_t len = sizeof address;
    if (weft__py_own(w) < 0) return NULL;
    weft_status_t status = weft_worker_address(w->handle, address, &len);
    return status < 0 ? weft__py_raise(w->state, status) : PyBytes_FromStringAndSize(address, len);
}

/* closes: its regions get no users from now on. -1: some have. */
static int no_exports(struct worker *w, bool closes) {
    weft__py_lock_lists(w);
    bool used = w->exports;
    w->closes = closes && !used;
    weft__py_unlock_lists(w);
    if (!used) return 0;
    PyErr_SetString(PyExc_BufferError, "arrays or views of its regions are still in use");
    return -1;
}

static PyObject *worker_close(PyObject *self, PyObject *unused) {
    struct worker *w = (struct worker *)self;
    if (weft__py_own(w) < 0) return NULL;
    if (w->ending) return Py_NewRef((PyObject *)w->ending);
    if (no_exports(w, false) < 0 || weft__py_graphs_end(w, NULL) < 0) return NULL;
    if (weft__py_own(w) < 0) return NULL; /* a function of a graph has closed it */
    struct request *r = weft__py_request(w, GIVES_NONE);
    if (!r) return NULL;
    if (no_exports(w, true) < 0) {
        weft__py_dropped(r);
        return NULL;
    }
    r->over = closed;
    weft_op_t op = weft__py_op(r, 0, 0);
    weft__py_begin_close(w, r);
    weft_status_t status = weft_worker_close(w->handle, &op);
    if (status < 0) {
        w->closes = false;
        weft__py_begin_close(w, NULL);
    }
    if (status == WEFT_IN_PROGRESS) weft__py_closes(w);
    return weft__py_posted(r, status);
}

/* The process ends: nothing of the worker is looked at any more. */
static PyObject *worker_abandon(PyObject *self, PyObject *unused) {
    struct worker *w = (struct worker *)self;
    w->dead = true;
    Py_RETURN_NONE;
}

static PyObject *worker_post_flush(PyObject *self, PyObject *args) {
    struct worker *w = (struct worker *)self;
    unsigned long deadline_ms = 0, flags = 0;
    if (!PyArg_ParseTuple(args, "|kk", &deadline_ms, &flags) || weft__py_own(w) < 0) return NULL;
    struct request *r = weft__py_request(w, GIVES_NONE);
    if (!r) return NULL;
    weft_op_t op = weft__py_op(r, deadline_ms, flags);
    return weft__py_posted(r, weft_worker_flush(w->handle, &op));
}

static PyObject *worker_fence(PyObject *self, PyObject *unused) {
    struct worker *w = (struct worker *)self;
    if (weft__py_own(w) < 0) return NULL;
    return weft__py_checked(w->state, weft_worker_fence(w->handle));
}

static PyObject *get_ep_type(PyObject *self, void *unused) {
    PyObject *type;
    WEFT__PY_LOCK(self);
    type = Py_NewRef(((struct worker *)self)->ep_type);
    WEFT__PY_UNLOCK();
    return type;
}

static int set_ep_type(PyObject *self, PyObject *type, void *unused) {
    struct worker *w = (struct worker *)self;
    if (weft__py_owned(w) < 0) return -1;
    if (!type || !PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, w->state->ep)) {
        PyErr_SetString(PyExc_TypeError, "a subclass of Endpoint");
        return -1;
    }
    PyObject *old;
    WEFT__PY_LOCK(self);
    old = w->ep_type;
    w->ep_type = Py_NewRef(type);
    WEFT__PY_UNLOCK();
    Py_DECREF(old);
    return 0;
}

static PyObject *get_on_endpoint(PyObject *self, void *unused) {
    PyObject *fn;
    WEFT__PY_LOCK(self);
    fn = ((struct worker *)self)->on_endpoint;
    fn = Py_NewRef(fn ? fn : Py_None);
    WEFT__PY_UNLOCK();
    return fn;
}

static int set_on_endpoint(PyObject *self, PyObject *fn, void *unused) {
    struct worker *w = (struct worker *)self;
    PyObject *old;
    if (weft__py_owned(w) < 0) return -1;
    WEFT__PY_LOCK(self);
    old = w->on_endpoint;
    w->on_endpoint = !fn || fn == Py_None ? NULL : Py_NewRef(fn);
    WEFT__PY_UNLOCK();
    Py_XDECREF(old);
    return 0;
}

static PyObject *get_handle(PyObject *self, void *unused) {
    return PyLong_FromVoidPtr(((struct worker *)self)->handle);
}

static PyObject *get_closed(PyObject *self, void *unused) {
    return PyBool_FromLong(!((struct worker *)self)->handle);
}

static PyObject *get_polls(PyObject *self, void *unused) {
    return PyBool_FromLong(((struct worker *)self)->polls);
}

static int set_polls(PyObject *self, PyObject *value, void *unused) {
    int on = value ? PyObject_IsTrue(value) : 0;
    if (on < 0 || weft__py_owned((struct worker *)self) < 0) return -1;
    ((struct worker *)self)->polls = on;
    return 0;
}

static PyMethodDef methods[] = {
    {"progress", (PyCFunction)(void (*)(void))worker_progress, METH_FASTCALL,
     "progress(budget=0) -> int: handles events, reports completions, and returns their number."},
    {"spin", worker_spin, METH_NOARGS,
     "spin() -> int: looks for what comes soon, as wait does before it sleeps; as progress."},
    {"wait", worker_wait, METH_VARARGS,
     "wait(timeout_ms=-1) -> bool: sleeps until an event was handled; False after the timeout."},
    {"fd", worker_fd, METH_NOARGS,
     "The descriptor that is readable while there is work. Never read or close it."},
    {"wake", worker_wake, METH_NOARGS, "Ends a wait. Any thread."},
    {"address", worker_address, METH_NOARGS, "The worker's address, as bytes for other processes."},
    {"post_close", worker_close, METH_NOARGS, "Closes the worker and all that belongs to it."},
    {"abandon", worker_abandon, METH_NOARGS, "No callback runs, and nothing is closed, any more."},
    {"post_flush", worker_post_flush, METH_VARARGS, "post_flush(deadline_ms=0, flags=0)"},
    {"fence", worker_fence, METH_NOARGS, "Orders one-sided operations of all endpoints."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef members[] = {
    {"endpoint_type", get_ep_type, set_ep_type, "the class of new endpoints", NULL},
    {"on_endpoint", get_on_endpoint, set_on_endpoint,
     "called with each endpoint that a peer opens by this worker's address", NULL},
    {"polls", get_polls, set_polls,
     "whether each operation drives the worker until it has ended, within its call", NULL},
    {"handle", get_handle, NULL, "weft_worker_t *, for code in C; 0: closed", NULL},
    {"closed", get_closed, NULL, "whether the worker is gone", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot slots[] = {{Py_tp_new, new},
                              {Py_tp_dealloc, dealloc},
                              {Py_tp_finalize, weft__py_leave_to_owner},
                              {Py_tp_traverse, traverse},
                              {Py_tp_clear, clear},
                              {Py_tp_methods, methods},
                              {Py_tp_getset, members},
                              {0, NULL}};

PyType_Spec weft__py_worker_spec = {"weft._core.Worker", sizeof(struct worker), 0,
                                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
                                    slots};
