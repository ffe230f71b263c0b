/* The endpoint: its life, and what it says about itself. */
#include "team.h"

/* ---- callbacks ---- */

/* The user of an endpoint whose object is gone: its close is on its way to the owner. */
static char orphan;

/* An object that ends calls its weak references first; who calls the library there must not get it
 * back. Another thread may end it during the call. */
PyObject *weft__py_ep_of(struct worker *worker, weft_ep_t *handle) {
    weft__py_lock_lists(worker);
    void *user = handle ? weft_ep_user(handle) : NULL;
    bool lives = user && user != &orphan && weft__py_try_ref(user);
    weft__py_unlock_lists(worker);
    return lives ? (PyObject *)user : Py_NewRef(Py_None);
}

void weft__py_on_ready(weft_ep_t *handle, void *arg) {
    struct worker *worker = arg;
    PyThreadState *was;
    if (!weft__py_enter(worker, &was)) return;
    weft__py_signals(worker);
    PyObject *ep = weft__py_ep_of(worker, handle);
    if (ep != Py_None) weft__py_notify_object(worker, ep, worker->state->ready, NULL);
    Py_DECREF(ep);
    weft__py_leave(worker, was);
}

/* An endpoint without an object has no owner: it ends here. */
void weft__py_on_lost(weft_ep_t *handle, weft_status_t status, void *arg) {
    struct worker *worker = arg;
    PyThreadState *was;
    if (weft_ep_user(handle) == &orphan) return;
    if (!weft_ep_user(handle) || worker->dead) {
        weft_ep_close(handle, WEFT_CLOSE_ABORT, NULL);
        return;
    }
    char *why = weft__py_describe(status);
    if (!weft__py_enter(worker, &was)) {
        free(why);
        return;
    }
    weft__py_signals(worker);
    PyObject *ep = weft__py_ep_of(worker, handle);
    if (ep != Py_None) {
        PyObject *exception = weft__py_exception(worker->state, status, why);
        if (!exception && weft__py_keeps_exit(worker)) /* a signal came within it */
            exception = weft__py_exception(worker->state, status, why);
        if (exception) {
            weft__py_notify_object(worker, ep, worker->state->lost, exception);
        } else {
            weft__py_report(worker, ep);
        }
        Py_XDECREF(exception);
    }
    Py_DECREF(ep);
    weft__py_leave(worker, was);
    free(why);
}

/* Hands a new endpoint of a peer to *fn_p. Without a function it is closed by its last
 * reference. */
void weft__py_call_endpoint(struct worker *worker, weft_ep_t *handle, PyObject *const *fn_p) {
    PyThreadState *was;
    if (worker->ending) return; /* which ends it */
    if (!weft__py_enter(worker, &was)) return;
    weft__py_signals(worker);
    PyObject *ep = weft__py_ep_new(worker, handle), *fn = *fn_p;
    Py_XINCREF(fn); /* it may take itself away */
    if (ep && fn) weft__py_notify(worker, fn, ep, NULL);
    if (PyErr_Occurred()) weft__py_report(worker, fn);
    if (!ep) weft_ep_close(handle, WEFT_CLOSE_ABORT, NULL);
    Py_XDECREF(fn);
    Py_XDECREF(ep);
    weft__py_leave(worker, was);
}

/* ---- life ---- */

PyObject *weft__py_ep_new(struct worker *worker, weft_ep_t *handle) {
    struct ep *self = (struct ep *)PyType_GenericAlloc((PyTypeObject *)worker->ep_type, 0);
    if (!self) return NULL;
    self->worker = (struct worker *)Py_NewRef((PyObject *)worker);
    self->handle = handle;
    self->child.is_ep = true;
    weft__py_enable_try_ref((PyObject *)self);
    weft__py_adopt(worker, &self->child, (void **)&self->handle);
    weft_ep_set_user(handle, self);
    return (PyObject *)self;
}

/* One of a team is gone with the team. */
static bool is_open(const struct ep *self) {
    return self->handle && !(self->team && !self->team->handle);
}

void weft__py_ep_left(struct child *child) {
    struct ep *ep = (struct ep *)((char *)child - offsetof(struct ep, child));
    if (is_open(ep)) weft_ep_set_user(ep->handle, &orphan);
    ep->handle = NULL;
}

int weft__py_ep_open(struct ep *self) {
    if (is_open(self)) return weft__py_owned(self->worker);
    if (self->worker) {
        weft__py_raise(self->worker->state, WEFT_ERR_CLOSED);
    } else {
        PyErr_SetString(PyExc_TypeError, "an endpoint comes from connect or from a listener");
    }
    return -1;
}

static int traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((struct ep *)self)->worker);
    Py_VISIT(((struct ep *)self)->team);
    return 0;
}

static void end(struct worker *unused, void *handle, void *arg) {
    if (handle) weft_ep_close(handle, WEFT_CLOSE_FLUSH, NULL);
}

/* No thread that looks the endpoint up finds the object any more. */
static void leave(struct ep *ep) {
    if (!ep->worker) return;
    weft__py_lock_lists(ep->worker);
    if (is_open(ep) && !ep->worker->dead) weft_ep_set_user(ep->handle, ep->team ? NULL : &orphan);
    weft__py_unlock_lists(ep->worker);
}

static void dealloc(PyObject *self) {
    struct ep *ep = (struct ep *)self;
    PyObject_GC_UnTrack(self);
    leave(ep);
    if (ep->team) {
        weft__py_disown(ep->worker, &ep->child);
    } else if (ep->worker) {
        weft__py_end(ep->worker, &ep->child, end, NULL);
    }
    Py_XDECREF((PyObject *)ep->team);
    Py_XDECREF((PyObject *)ep->worker);
    weft__py_free(self);
}

static void closed(struct request *request) {
    struct ep *ep = (struct ep *)request->keep;
    if (ep->handle) weft_ep_set_user(ep->handle, NULL);
    ep->handle = NULL;
}

static PyObject *ep_close(PyObject *self, PyObject *args) {
    struct ep *ep = (struct ep *)self;
    int abort = 0;
    unsigned long deadline_ms = 0;
    if (!PyArg_ParseTuple(args, "|pk", &abort, &deadline_ms) || weft__py_ep_open(ep) < 0) {
        return NULL;
    }
    if (ep->team) return weft__py_raise(ep->worker->state, WEFT_ERR_UNSUPPORTED);
    struct request *r = weft__py_request(ep->worker, GIVES_NONE);
    if (!r) return NULL;
    r->over = closed;
    r->keep = Py_NewRef(self);
    weft_op_t op = weft__py_op(r, deadline_ms, 0);
    weft_close_mode_t mode = abort ? WEFT_CLOSE_ABORT : WEFT_CLOSE_FLUSH;
    weft_status_t status = weft_ep_close(ep->handle, mode, &op);
    if (status < 0) r->over = NULL;
    return weft__py_posted(r, status);
}

static PyObject *ep_flush(PyObject *self, PyObject *args) {
    struct ep *ep = (struct ep *)self;
    unsigned long deadline_ms = 0, flags = 0;
    if (!PyArg_ParseTuple(args, "|kk", &deadline_ms, &flags) || weft__py_ep_open(ep) < 0) {
        return NULL;
    }
    struct request *r = weft__py_request(ep->worker, GIVES_NONE);
    if (!r) return NULL;
    weft_op_t op = weft__py_op(r, deadline_ms, flags);
    return weft__py_posted(r, weft_ep_flush(ep->handle, &op));
}

static PyObject *ep_describe(PyObject *self, PyObject *unused) {
    struct ep *ep = (struct ep *)self;
    weft_ep_info_t info;
    if (weft__py_ep_open(ep) < 0) return NULL;
    weft_status_t status = weft_ep_describe(ep->handle, &info);
    if (status < 0) return weft__py_raise(ep->worker->state, status);
    return Py_BuildValue(
        "{sssssssO&sO&sKsIsIsKsKsssKsisssssO&}", "state", info.state, "transport", info.transport,
        "connected_by", info.connected_by, "why", weft__py_text, info.why, "peer", weft__py_text,
        info.peer, "peer_worker", (unsigned long long)info.peer_worker, "n_lanes", info.n_lanes,
        "n_endpoints", info.n_endpoints, "sent", (unsigned long long)info.sent, "received",
        (unsigned long long)info.received, "one_sided", info.one_sided, "score",
        (unsigned long long)info.score, "fast", info.fast, "negotiation", info.negotiation,
        "switching", info.switching, "error", weft__py_text, info.error);
}

static PyObject *ep_is_connected(PyObject *self, PyObject *args) {
    struct ep *ep = (struct ep *)self;
    const char *address;
    Py_ssize_t len;
    if (!PyArg_ParseTuple(args, "y#", &address, &len) || weft__py_ep_open(ep) < 0) return NULL;
    weft_status_t status = weft_ep_is_connected(ep->handle, address, len);
    if (status == WEFT_OK) Py_RETURN_TRUE;
    if (status == WEFT_IN_PROGRESS || status == WEFT_ERR_NOT_FOUND) Py_RETURN_FALSE;
    return weft__py_raise(ep->worker->state, status);
}

static PyObject *get_handle(PyObject *self, void *unused) {
    struct ep *ep = (struct ep *)self;
    return PyLong_FromVoidPtr(is_open(ep) ? ep->handle : NULL);
}

static PyObject *get_closed(PyObject *self, void *unused) {
    return PyBool_FromLong(!is_open((struct ep *)self));
}

static PyObject *get_worker(PyObject *self, void *unused) {
    PyObject *worker = (PyObject *)((struct ep *)self)->worker;
    return Py_NewRef(worker ? worker : Py_None);
}

static PyMethodDef methods[] = {
    {"post_close", ep_close, METH_VARARGS, "post_close(abort=False, deadline_ms=0)"},
    {"post_flush", ep_flush, METH_VARARGS, "post_flush(deadline_ms=0, flags=0)"},
    {"describe", ep_describe, METH_NOARGS, "A dict: state, transport, peer, why, error and more."},
    {"is_connected", ep_is_connected, METH_VARARGS,
     "is_connected(address) -> bool: whether it leads to the worker with that address"},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef members[] = {{"closed", get_closed, NULL, "whether the endpoint is gone", NULL},
                                {"handle", get_handle, NULL, "weft_ep_t *, or 0: closed", NULL},
                                {"worker", get_worker, NULL, "the endpoint's worker", NULL},
                                {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot slots[] = {{Py_tp_dealloc, dealloc},
                              {Py_tp_traverse, traverse},
                              {Py_tp_methods, methods},
                              {Py_tp_getset, members},
                              {0, NULL}};

PyType_Spec weft__py_ep_spec = {"weft._core.Endpoint", sizeof(struct ep), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE |
                                    Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                slots};
