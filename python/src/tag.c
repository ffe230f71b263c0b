/* Tagged messages. */
#include "core.h"

/* Arguments from position `from` on: deadline_ms, flags. */
static int op_arguments(PyObject *const *args, Py_ssize_t n, Py_ssize_t from,
                        unsigned long *deadline, unsigned long *flags) {
    *deadline = n > from ? PyLong_AsUnsignedLong(args[from]) : 0;
    *flags = n > from + 1 ? PyLong_AsUnsignedLong(args[from + 1]) : 0;
    return PyErr_Occurred() ? -1 : 0;
}

static int at_least(Py_ssize_t n, Py_ssize_t wanted) {
    if (n >= wanted) return 0;
    PyErr_Format(PyExc_TypeError, "at least %zd arguments", wanted);
    return -1;
}

static PyObject *ep_tag_send(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    struct ep *ep = (struct ep *)self;
    unsigned long deadline, flags;
    uint64_t tag;
    if (at_least(n, 2) < 0 || weft__py_ep_open(ep) < 0) return NULL;
    if (!weft__py_u64(args[1], &tag) || op_arguments(args, n, 2, &deadline, &flags) < 0) {
        return NULL;
    }
    struct request *r = weft__py_request_with(ep->worker, GIVES_NONE, args[0], false);
    if (!r) return NULL;
    weft_op_t op = weft__py_op(r, deadline, flags);
    return weft__py_posted(r, weft_tag_send(ep->handle, tag, r->buffers.iovs, r->buffers.n, &op));
}

static PyObject *worker_tag_recv(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    struct worker *w = (struct worker *)self;
    unsigned long deadline, flags;
    uint64_t tag, mask;
    if (at_least(n, 3) < 0 || weft__py_own(w) < 0) return NULL;
    if (!weft__py_u64(args[1], &tag) || !weft__py_u64(args[2], &mask) ||
        op_arguments(args, n, 3, &deadline, &flags) < 0) {
        return NULL;
    }
    struct request *r = weft__py_request_with(w, GIVES_TAGGED, args[0], true);
    if (!r) return NULL;
    weft_op_t op = weft__py_op(r, deadline, flags);
    return weft__py_posted(
        r, weft_tag_recv(w->handle, tag, mask, r->buffers.iovs, r->buffers.n, &r->info, &op));
}

static PyObject *worker_probe(PyObject *self, PyObject *args) {
    struct worker *w = (struct worker *)self;
    uint64_t tag, mask;
    weft_tag_info_t info;
    if (!PyArg_ParseTuple(args, "O&O&", weft__py_u64, &tag, weft__py_u64, &mask) ||
        weft__py_own(w) < 0) {
        return NULL;
    }
    weft_status_t status = weft_tag_probe(w->handle, tag, mask, &info);
    if (status == WEFT_ERR_NOT_FOUND) Py_RETURN_NONE;
    if (status < 0) return weft__py_raise(w->state, status);
    return Py_BuildValue("(nKN)", (Py_ssize_t)info.len, (unsigned long long)info.tag,
                         weft__py_ep_of(w, info.ep));
}

/* ---- a message that was taken ---- */

struct taken {
    PyObject_HEAD weft_tag_message_t *handle; /* NULL: received, dropped, or gone with its worker */
    struct worker *worker;
    struct child child;
    weft_tag_info_t info;
};

static PyObject *worker_take(PyObject *self, PyObject *args) {
    struct worker *w = (struct worker *)self;
    uint64_t tag, mask;
    if (!PyArg_ParseTuple(args, "O&O&", weft__py_u64, &tag, weft__py_u64, &mask) ||
        weft__py_own(w) < 0) {
        return NULL;
    }
    struct taken *t = (struct taken *)PyType_GenericAlloc(w->state->taken, 0);
    if (!t) return NULL;
    t->worker = (struct worker *)Py_NewRef(self);
    weft_status_t status = weft_tag_take(w->handle, tag, mask, &t->info, &t->handle);
    if (status == WEFT_OK) {
        weft__py_adopt(w, &t->child, (void **)&t->handle);
        return (PyObject *)t;
    }
    t->handle = NULL;
    Py_DECREF((PyObject *)t);
    if (status == WEFT_ERR_NOT_FOUND) Py_RETURN_NONE;
    return weft__py_raise(w->state, status);
}

static bool refused(weft_status_t status) {
    return status == WEFT_ERR_INVALID_PARAM || status == WEFT_ERR_NO_MEMORY ||
           status == WEFT_ERR_WRONG_THREAD || status == WEFT_ERR_FORKED ||
           status == WEFT_ERR_UNSUPPORTED;
}

static PyObject *taken_recv(PyObject *self, PyObject *args) {
    struct taken *t = (struct taken *)self;
    PyObject *buffer;
    unsigned long deadline_ms = 0;
    if (!PyArg_ParseTuple(args, "O|k", &buffer, &deadline_ms)) return NULL;
    if (!t->handle) return weft__py_raise(t->worker->state, WEFT_ERR_NOT_FOUND);
    if (weft__py_owned(t->worker) < 0) return NULL;
    struct request *r = weft__py_request_with(t->worker, GIVES_LENGTH, buffer, true);
    if (!r) return NULL;
    r->len = t->info.len;
    weft_op_t op = weft__py_op(r, deadline_ms, 0);
    /* With no piece at all the message would be dropped, not received. */
    Py_ssize_t n = r->buffers.n ? r->buffers.n : 1;
    weft_status_t status =
        weft_tag_message_recv(t->worker->handle, t->handle, r->buffers.iovs, n, &op);
    if (!refused(status)) {
        t->handle = NULL;
        weft__py_disown(t->worker, &t->child);
    }
    return weft__py_posted(r, status);
}

static PyObject *get_len(PyObject *self, void *unused) {
    return PyLong_FromSize_t(((struct taken *)self)->info.len);
}

static PyObject *get_tag(PyObject *self, void *unused) {
    return PyLong_FromUnsignedLongLong(((struct taken *)self)->info.tag);
}

static void drop(struct worker *worker, void *handle, void *unused) {
    if (handle) weft_tag_message_recv(worker->handle, handle, NULL, 0, NULL);
}

/* A worker may hold messages that were taken. */
static int taken_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((struct taken *)self)->worker);
    return 0;
}

static void taken_dealloc(PyObject *self) {
    struct taken *t = (struct taken *)self;
    PyObject_GC_UnTrack(self);
    weft__py_end(t->worker, &t->child, drop, NULL);
    Py_XDECREF((PyObject *)t->worker);
    weft__py_free(self);
}

static PyMethodDef taken_methods[] = {
    {"post_recv", taken_recv, METH_VARARGS, "post_recv(buffer, deadline_ms=0): receives it, once."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef taken_members[] = {{"len", get_len, NULL, "bytes of the message", NULL},
                                      {"tag", get_tag, NULL, "the sender's tag", NULL},
                                      {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot slots[] = {{Py_tp_dealloc, taken_dealloc},
                              {Py_tp_traverse, taken_traverse},
                              {Py_tp_methods, taken_methods},
                              {Py_tp_getset, taken_members},
                              {0, NULL}};

PyType_Spec weft__py_taken_spec = {
    "weft._core.TakenMessage", sizeof(struct taken), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

PyMethodDef weft__py_tag_methods[] = {
    {"tag_send", (PyCFunction)(void (*)(void))ep_tag_send, METH_FASTCALL,
     "tag_send(buffers, tag, deadline_ms=0, flags=0) -> None, or a Request in progress"},
    {NULL, NULL, 0, NULL}};

PyMethodDef weft__py_tag_worker_methods[] = {
    {"tag_recv", (PyCFunction)(void (*)(void))worker_tag_recv, METH_FASTCALL,
     "tag_recv(buffers, tag, mask, deadline_ms=0) -> (bytes, tag), or a Request in progress"},
    {"tag_probe", worker_probe, METH_VARARGS,
     "tag_probe(tag, mask) -> (bytes, tag, endpoint) of an unexpected message, or None"},
    {"tag_take", worker_take, METH_VARARGS,
     "tag_take(tag, mask) -> TakenMessage or None: as tag_probe, and removes it from matching"},
    {NULL, NULL, 0, NULL}};
