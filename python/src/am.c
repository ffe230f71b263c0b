/* Active messages. */
#include "core.h"

struct handler {
    struct worker *worker;
    PyObject *fn;
};

/* A message within its handler; afterwards only its lengths and header are left. */
struct message {
    PyObject_HEAD weft_am_t *am; /* NULL: the handler has returned */
    struct worker *worker;       /* likewise: a worker may hold the message */
    unsigned long owner;         /* the handler's thread */
    struct state *state;
    PyObject *header;
    size_t len;
    bool eager, queued;
};

static PyObject *message_of(struct worker *worker, weft_am_t *am) {
    struct message *m = (struct message *)PyType_GenericAlloc(worker->state->message, 0);
    if (!m) return NULL;
    m->worker = (struct worker *)Py_NewRef((PyObject *)worker);
    m->owner = PyThread_get_thread_ident();
    m->state = worker->state;
    m->am = am;
    m->len = am->len;
    m->eager = am->data != NULL;
    m->header = PyBytes_FromStringAndSize(am->header, am->header_len);
    if (!m->header) Py_CLEAR(m);
    return (PyObject *)m;
}

static void message_over(struct message *m) {
    m->am = NULL;
    Py_CLEAR(m->worker);
}

/* The ids that weft/_endpoint.py keeps for the binding begin here. */
enum { FIRST_OWN_ID = 1021 };

static void call(struct worker *worker, PyObject *fn, PyObject *ep, PyObject *message) {
    PyObject *result = PyObject_CallFunctionObjArgs(fn, ep, message, NULL);
    if (!result) weft__py_report(worker, fn);
    Py_XDECREF(result);
}

static void on_am(weft_ep_t *handle, weft_am_t *am, void *arg) {
    struct handler *handler = arg;
    struct worker *worker = handler->worker;
    PyThreadState *was;
    if (!weft__py_enter(worker, &was)) return;
    weft__py_signals(worker);
    PyObject *fn = Py_NewRef(handler->fn), *ep = weft__py_ep_of(worker, handle);
    PyObject *message = message_of(worker, am);
    if (!message) {
        weft__py_report(worker, fn);
    } else if (handler - worker->handlers < FIRST_OWN_ID) {
        call(worker, fn, ep, message);
    } else {
        weft__py_notify(worker, fn, ep, message);
    }
    if (message) message_over((struct message *)message);
    Py_XDECREF(message);
    Py_DECREF(ep);
    Py_DECREF(fn);
    weft__py_leave(worker, was);
}

static PyObject *worker_am_handler(PyObject *self, PyObject *args) {
    struct worker *w = (struct worker *)self;
    unsigned id;
    PyObject *fn;
    if (!PyArg_ParseTuple(args, "O&O", weft__py_u32, &id, &fn) || weft__py_own(w) < 0) return NULL;
    if (id > WEFT_AM_ID_MAX) return weft__py_raise(w->state, WEFT_ERR_INVALID_PARAM);
    if (!w->handlers) w->handlers = calloc(WEFT_AM_ID_MAX + 1, sizeof *w->handlers);
    if (!w->handlers) return PyErr_NoMemory();
    struct handler *handler = &w->handlers[id];
    weft_status_t status =
        weft_am_handler_set(w->handle, id, fn == Py_None ? NULL : on_am, handler);
    if (status < 0) return weft__py_raise(w->state, status);
    PyObject *old = handler->fn;
    *handler = (struct handler){w, fn == Py_None ? NULL : Py_NewRef(fn)};
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

int weft__py_am_traverse(struct worker *w, visitproc visit, void *arg) {
    if (!w->handlers) return 0;
    for (unsigned id = 0; id <= WEFT_AM_ID_MAX; id++) Py_VISIT(w->handlers[id].fn);
    return 0;
}

/* Handlers stay set in the library, which calls nothing once the worker is dead or gone. */
void weft__py_am_clear(struct worker *w) {
    if (!w->handlers) return;
    for (unsigned id = 0; id <= WEFT_AM_ID_MAX; id++) {
        if (w->handlers[id].fn && w->handle) weft_am_handler_set(w->handle, id, NULL, NULL);
        Py_CLEAR(w->handlers[id].fn);
    }
    free(w->handlers);
    w->handlers = NULL;
}

static PyObject *ep_am_send(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    struct ep *ep = (struct ep *)self;
    char *header;
    Py_ssize_t header_len;
    if (n < 3) {
        PyErr_SetString(PyExc_TypeError, "am_send(buffers, id, header, deadline_ms=0, flags=0)");
        return NULL;
    }
    uint64_t id;
    if (!weft__py_u64(args[1], &id)) return NULL;
    unsigned long deadline = n > 3 ? PyLong_AsUnsignedLong(args[3]) : 0;
    unsigned long flags = n > 4 ? PyLong_AsUnsignedLong(args[4]) : 0;
    if (PyErr_Occurred() || PyBytes_AsStringAndSize(args[2], &header, &header_len) < 0 ||
        weft__py_ep_open(ep) < 0) {
        return NULL;
    }
    struct request *r = args[0] == Py_None /* a header alone */
                            ? weft__py_request(ep->worker, GIVES_NONE)
                            : weft__py_request_with(ep->worker, GIVES_NONE, args[0], false);
    if (!r) return NULL;
    weft_op_t op = weft__py_op(r, deadline, flags);
    unsigned wire_id =
        id < UINT32_MAX ? (unsigned)id : UINT32_MAX; /* too large is refused, not cut */
    return weft__py_posted(r, weft_am_send(ep->handle, wire_id, header, header_len, r->buffers.iovs,
                                           r->buffers.n, &op));
}

/* ---- the message ---- */

/* Whether its payload is there: within the handler. */
static int has_payload(const struct message *m) {
    if (m->owner == PyThread_get_thread_ident() && m->am) return 0;
    weft__py_raise(m->state, m->am ? WEFT_ERR_WRONG_THREAD : WEFT_ERR_NOT_FOUND);
    return -1;
}

static PyObject *message_recv(PyObject *self, PyObject *args) {
    struct message *m = (struct message *)self;
    PyObject *buffer;
    unsigned long deadline_ms = 0;
    if (!PyArg_ParseTuple(args, "O|k", &buffer, &deadline_ms)) return NULL;
    if (has_payload(m) < 0) return NULL;
    struct request *r = weft__py_request_with(m->worker, GIVES_KEPT, buffer, true);
    if (!r) return NULL;
    r->keep = Py_NewRef(buffer);
    weft_op_t op = weft__py_op(r, deadline_ms, 0);
    return weft__py_posted(r, weft_am_recv(m->am, r->buffers.iovs, r->buffers.n, &op));
}

/* What was raised, a new reference, or NULL: it is an exit, and stays raised. */
static PyObject *fetch_error(void) {
    PyObject *raised = NULL;
    if (PyErr_ExceptionMatches(PyExc_Exception)) weft__py_keep_raised(&raised);
    return raised;
}

/* A signal's handler runs before this or after it, so that a message is received and in the queue,
 * or neither. */
static PyObject *message_queue(PyObject *self, PyObject *args) {
    struct message *m = (struct message *)self;
    PyObject *queue, *header, *memory, *item;
    if (!PyArg_ParseTuple(args, "OOO", &queue, &header, &memory)) return NULL;
    if (m->owner != PyThread_get_thread_ident())
        return weft__py_raise(m->state, WEFT_ERR_WRONG_THREAD);
    if (m->queued) Py_RETURN_NONE;
    if (PyExceptionInstance_Check(memory)) {
        item = Py_NewRef(memory);
    } else {
        PyObject *buffer = PyTuple_Pack(1, memory);
        item = buffer ? message_recv(self, buffer) : NULL;
        Py_XDECREF(buffer);
        if (!item) item = fetch_error();
    }
    PyObject *pair = item ? PyTuple_Pack(2, header, item) : NULL;
    PyObject *result =
        pair ? PyObject_CallMethodObjArgs(queue, m->state->append, pair, NULL) : NULL;
    m->queued = result;
    Py_XDECREF(pair);
    Py_XDECREF(item);
    return result;
}

static PyObject *message_bytes(PyObject *self, PyObject *unused) {
    struct message *m = (struct message *)self;
    if (has_payload(m) < 0) return NULL;
    if (!m->am->data) return weft__py_raise(m->state, WEFT_ERR_UNSUPPORTED);
    return PyBytes_FromStringAndSize(m->am->data, m->am->len);
}

static PyObject *get_header(PyObject *self, void *unused) {
    return Py_NewRef(((struct message *)self)->header);
}

static PyObject *get_len(PyObject *self, void *unused) {
    return PyLong_FromSize_t(((struct message *)self)->len);
}

static PyObject *get_eager(PyObject *self, void *unused) {
    return PyBool_FromLong(((struct message *)self)->eager);
}

static PyObject *get_queued(PyObject *self, void *unused) {
    return PyBool_FromLong(((struct message *)self)->queued);
}

static void dealloc(PyObject *self) {
    struct message *m = (struct message *)self;
    Py_XDECREF(m->header);
    Py_XDECREF((PyObject *)m->worker);
    weft__py_free(self);
}

static PyMethodDef methods[] = {
    {"post_recv", message_recv, METH_VARARGS,
     "post_recv(buffers, deadline_ms=0) -> the buffers, or a Request that gives them. Within the "
     "handler only."},
    {"queue", message_queue, METH_VARARGS,
     "queue(deque, header, memory): appends (header, item), once: the item is post_recv(memory), "
     "or what that raises, or `memory` if that is an exception."},
    {"bytes", message_bytes, METH_NOARGS,
     "A copy of the payload. UnsupportedError if it waits at its sender (eager is False)."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef members[] = {
    {"header", get_header, NULL, "the user header, bytes", NULL},
    {"len", get_len, NULL, "bytes of the payload", NULL},
    {"eager", get_eager, NULL, "whether the payload is here already", NULL},
    {"queued", get_queued, NULL, "whether `queue` has appended it", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, dealloc}, {Py_tp_methods, methods}, {Py_tp_getset, members}, {0, NULL}};

PyType_Spec weft__py_message_spec = {"weft._core.Message", sizeof(struct message), 0,
                                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

PyMethodDef weft__py_am_methods[] = {
    {"am_send", (PyCFunction)(void (*)(void))ep_am_send, METH_FASTCALL,
     "am_send(buffers, id, header, deadline_ms=0, flags=0) -> None, or a Request in progress"},
    {NULL, NULL, 0, NULL}};

PyMethodDef weft__py_am_worker_methods[] = {
    {"am_handler", worker_am_handler, METH_VARARGS,
     "am_handler(id, fn): fn(endpoint or None, Message) is called for each message to `id`. A "
     "handler that does not fetch a large payload refuses the message."},
    {NULL, NULL, 0, NULL}};
