/* Connecting and listening. */
#include "core.h"

/* What the library calls with; it outlives the object until the owner has closed the listener. */
struct accepting {
    struct worker *worker;
    PyObject *on_endpoint, *on_request; /* on_endpoint NULL: the object is gone */
};

struct listener {
    PyObject_HEAD weft_listener_t *handle; /* NULL: closed */
    struct worker *worker;
    struct child child;
    struct accepting *accepting;
};

/* ---- connecting ---- */

static PyObject *worker_connect(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"to", "timeout_ms", "error_mode", "heartbeat_ms", NULL};
    struct worker *w = (struct worker *)self;
    PyObject *to;
    unsigned timeout_ms = 0, heartbeat_ms = 0;
    int mode = WEFT_ERRORS_PEER;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|IiI", names, &to, &timeout_ms, &mode,
                                     &heartbeat_ms) ||
        weft__py_own(w) < 0) {
        return NULL;
    }
    weft_ep_params_t params = {.on_ready = weft__py_on_ready,
                               .on_error = weft__py_on_lost,
                               .arg = w,
                               .connect_timeout_ms = timeout_ms,
                               .error_mode = mode,
                               .heartbeat_ms = heartbeat_ms};
    weft_ep_t *ep;
    weft_status_t status;
    if (PyBytes_Check(to)) {
        status =
            weft_connect_address(w->handle, PyBytes_AsString(to), PyBytes_Size(to), &params, &ep);
    } else {
        const char *uri = weft__py_utf8(to);
        if (!uri) return NULL;
        status = weft_connect(w->handle, uri, &params, &ep);
    }
    if (status < 0) return weft__py_raise(w->state, status);
    PyObject *made = weft__py_ep_new(w, ep);
    if (!made) weft_ep_close(ep, WEFT_CLOSE_ABORT, NULL);
    return made;
}

/* ---- listening ---- */

static void on_endpoint(weft_ep_t *ep, void *arg) {
    struct accepting *a = arg;
    weft_ep_on_error(ep, weft__py_on_lost, a->worker);
    weft__py_call_endpoint(a->worker, ep, &a->on_endpoint);
}

static weft_status_t on_request(const char *peer, void *arg) {
    struct accepting *a = arg;
    struct worker *worker = a->worker;
    PyThreadState *was;
    if (!weft__py_enter(worker, &was)) return WEFT_ERR_REJECTED;
    /* It may close the listener and forget it. */
    PyObject *fn = a->on_request, *result = NULL;
    Py_XINCREF(fn);
    weft__py_signals(worker);
    if (fn) result = PyObject_CallFunction(fn, "O&", weft__py_text, peer);
    int accepts = result ? PyObject_IsTrue(result) : 0;
    if (fn && (!result || accepts < 0)) weft__py_report(worker, fn);
    Py_XDECREF(result);
    Py_XDECREF(fn);
    weft__py_leave(worker, was);
    return accepts > 0 ? WEFT_OK : WEFT_ERR_REJECTED;
}

static PyObject *worker_listen(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"uri", "on_endpoint", "on_request", "backlog", "heartbeat_ms", NULL};
    struct worker *w = (struct worker *)self;
    PyObject *fn, *decides = Py_None;
    const char *uri;
    int backlog = 0;
    unsigned heartbeat_ms = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sO|OiI", names, &uri, &fn, &decides, &backlog,
                                     &heartbeat_ms) ||
        weft__py_own(w) < 0) {
        return NULL;
    }
    struct listener *l = (struct listener *)PyType_GenericAlloc(w->state->listener, 0);
    if (!l) return NULL;
    l->worker = (struct worker *)Py_NewRef(self);
    struct accepting *a = l->accepting = calloc(1, sizeof *a);
    if (!a) {
        Py_DECREF((PyObject *)l);
        return PyErr_NoMemory();
    }
    a->worker = w;
    a->on_endpoint = Py_NewRef(fn);
    a->on_request = decides == Py_None ? NULL : Py_NewRef(decides);
    weft_listen_params_t params = {.on_endpoint = on_endpoint,
                                   .on_request = a->on_request ? on_request : NULL,
                                   .arg = a,
                                   .backlog = backlog,
                                   .heartbeat_ms = heartbeat_ms};
    weft_status_t status = weft_listen(w->handle, uri, &params, &l->handle);
    if (status < 0) {
        Py_DECREF((PyObject *)l);
        return weft__py_raise(w->state, status);
    }
    weft__py_adopt(w, &l->child, (void **)&l->handle);
    return (PyObject *)l;
}

PyMethodDef weft__py_connect_methods[] = {
    {"post_connect", (PyCFunction)(void (*)(void))worker_connect, METH_VARARGS | METH_KEYWORDS,
     "post_connect(to, timeout_ms=0, error_mode=0, heartbeat_ms=0) -> Endpoint: to a URI (str) or "
     "to a worker's address (bytes). Its _ready() or _lost(error) is called."},
    {"post_listen", (PyCFunction)(void (*)(void))worker_listen, METH_VARARGS | METH_KEYWORDS,
     "post_listen(uri, on_endpoint, on_request=None, backlog=0, heartbeat_ms=0) -> Listener"},
    {NULL, NULL, 0, NULL}};

/* ---- the listener ---- */

static bool is_live(const struct listener *l) {
    return l->handle && !l->worker->ending;
}

/* Another thread may be reading its URI. */
static weft_listener_t *take_handle(struct listener *l) {
    weft__py_lock_lists(l->worker);
    weft_listener_t *handle = l->handle;
    l->handle = NULL;
    weft__py_unlock_lists(l->worker);
    return handle;
}

static PyObject *listener_close(PyObject *self, PyObject *unused) {
    struct listener *l = (struct listener *)self;
    if (!is_live(l)) Py_RETURN_NONE; /* a worker's close closes it */
    if (weft__py_own(l->worker) < 0) return NULL;
    weft_listener_close(take_handle(l));
    weft__py_disown(l->worker, &l->child);
    Py_RETURN_NONE;
}

/* Any thread: a copy, or NULL without memory. An empty one: it is closed. */
static char *copy_uri(struct listener *l) {
    weft__py_lock_lists(l->worker);
    char *uri = strdup(is_live(l) ? weft_listener_uri(l->handle) : "");
    weft__py_unlock_lists(l->worker);
    return uri;
}

static PyObject *get_uri(PyObject *self, void *unused) {
    struct listener *l = (struct listener *)self;
    char *uri = copy_uri(l);
    if (!uri) return PyErr_NoMemory();
    PyObject *text = *uri ? weft__py_text(uri) : weft__py_raise(l->worker->state, WEFT_ERR_CLOSED);
    free(uri);
    return text;
}

static PyObject *get_closed(PyObject *self, void *unused) {
    return PyBool_FromLong(!is_live((struct listener *)self));
}

static int traverse(PyObject *self, visitproc visit, void *arg) {
    struct listener *l = (struct listener *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(l->worker);
    if (l->accepting) {
        Py_VISIT(l->accepting->on_endpoint);
        Py_VISIT(l->accepting->on_request);
    }
    return 0;
}

static void end(struct worker *unused, void *handle, void *accepting) {
    weft_listener_close(handle);
    free(accepting);
}

/* A dialer that comes before the listener has ended is refused. */
static int clear(PyObject *self) {
    struct listener *l = (struct listener *)self;
    struct accepting *a = l->accepting;
    l->accepting = NULL;
    if (!a) return 0;
    PyObject *on_endpoint = a->on_endpoint, *on_request = a->on_request;
    a->on_endpoint = a->on_request = NULL;
    weft__py_end(l->worker, &l->child, end, a);
    l->handle = NULL;
    Py_XDECREF(on_endpoint);
    Py_XDECREF(on_request);
    return 0;
}

static void dealloc(PyObject *self) {
    PyObject_GC_UnTrack(self);
    clear(self);
    Py_XDECREF((PyObject *)((struct listener *)self)->worker);
    weft__py_free(self);
}

static PyMethodDef methods[] = {
    {"close", listener_close, METH_NOARGS, "Stops listening. Accepted endpoints stay."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef members[] = {
    {"uri", get_uri, NULL, "the address for peers, as tcp://127.0.0.1:40123", NULL},
    {"closed", get_closed, NULL, "whether it has stopped listening", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot slots[] = {{Py_tp_dealloc, dealloc}, {Py_tp_traverse, traverse},
                              {Py_tp_clear, clear},     {Py_tp_methods, methods},
                              {Py_tp_getset, members},  {0, NULL}};

PyType_Spec weft__py_listener_spec = {
    "weft._core.Listener", sizeof(struct listener), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
