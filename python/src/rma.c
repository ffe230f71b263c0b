/* One-sided operations. */
#include "core.h"

struct rkey {
    PyObject_HEAD weft_rkey_t *handle; /* NULL: gone with its worker */
    struct worker *worker;
    struct child child;
    weft_rkey_info_t info;
};

/* ---- keys ---- */

static PyObject *ep_unpack(PyObject *self, PyObject *args) {
    struct ep *ep = (struct ep *)self;
    const char *key;
    Py_ssize_t len;
    if (!PyArg_ParseTuple(args, "y#", &key, &len) || weft__py_ep_open(ep) < 0) return NULL;
    struct rkey *k = (struct rkey *)PyType_GenericAlloc(ep->worker->state->rkey, 0);
    if (!k) return NULL;
    k->worker = (struct worker *)Py_NewRef((PyObject *)ep->worker);
    weft_status_t status = weft_rkey_unpack(ep->handle, key, len, &k->handle);
    if (status == WEFT_OK) {
        weft__py_adopt(ep->worker, &k->child, (void **)&k->handle);
        status = weft_rkey_describe(k->handle, &k->info);
    }
    if (status == WEFT_OK) return (PyObject *)k;
    Py_DECREF((PyObject *)k);
    return weft__py_raise(ep->worker->state, status);
}

static PyObject *rkey_describe(PyObject *self, PyObject *unused) {
    struct rkey *k = (struct rkey *)self;
    if (!k->handle) return weft__py_raise(k->worker->state, WEFT_ERR_CLOSED);
    if (weft__py_owned(k->worker) < 0) return NULL;
    weft_status_t status = weft_rkey_describe(k->handle, &k->info);
    if (status < 0) return weft__py_raise(k->worker->state, status);
    return Py_BuildValue("{sKsKsIsissssss}", "base", (unsigned long long)k->info.base, "len",
                         (unsigned long long)k->info.len, "rights", k->info.rights, "status",
                         (int)k->info.status, "put", k->info.put, "get", k->info.get, "atomic",
                         k->info.atomic);
}

static PyObject *get_base(PyObject *self, void *unused) {
    return PyLong_FromUnsignedLongLong(((struct rkey *)self)->info.base);
}

static PyObject *get_len(PyObject *self, void *unused) {
    return PyLong_FromUnsignedLongLong(((struct rkey *)self)->info.len);
}

static void end(struct worker *unused, void *handle, void *arg) {
    weft_rkey_release(handle);
}

/* A worker may hold its keys. */
static int traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((struct rkey *)self)->worker);
    return 0;
}

static void dealloc(PyObject *self) {
    struct rkey *k = (struct rkey *)self;
    PyObject_GC_UnTrack(self);
    weft__py_end(k->worker, &k->child, end, NULL);
    Py_XDECREF((PyObject *)k->worker);
    weft__py_free(self);
}

static PyMethodDef methods[] = {
    {"describe", rkey_describe, METH_NOARGS, "A dict: base, len, rights, put, get, atomic, status"},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef members[] = {
    {"base", get_base, NULL, "where the region begins in its owner", NULL},
    {"len", get_len, NULL, "bytes of the region", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot slots[] = {{Py_tp_dealloc, dealloc},
                              {Py_tp_traverse, traverse},
                              {Py_tp_methods, methods},
                              {Py_tp_getset, members},
                              {0, NULL}};

PyType_Spec weft__py_rkey_spec = {
    "weft._core.RemoteKey", sizeof(struct rkey), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

/* ---- operations ---- */

static struct request *begin(struct ep *ep, struct rkey *k, enum result gives) {
    if (weft__py_ep_open(ep) < 0) return NULL;
    if (k->worker != ep->worker)
        return weft__py_raise_text(ep->worker->state, WEFT_ERR_INVALID_PARAM,
                                   "the key is of another worker");
    if (!k->handle) return weft__py_raise(ep->worker->state, WEFT_ERR_CLOSED);
    struct request *r = weft__py_request(ep->worker, gives);
    if (r) r->keep = Py_NewRef((PyObject *)k);
    return r;
}

/* Where an access begins in the owner: 64 bits, or it is in no region. */
static int address_of(struct state *state, PyObject *number, uint64_t *address_p) {
    if (weft__py_u64(number, address_p)) return 0;
    if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear();
        weft__py_raise_text(state, WEFT_ERR_INVALID_PARAM, "the offset is outside of the region");
    }
    return -1;
}

static PyObject *put_or_get(PyObject *self, PyObject *args, bool get) {
    struct ep *ep = (struct ep *)self;
    struct state *state = ep->worker->state;
    PyObject *buffer, *at;
    struct rkey *k;
    uint64_t remote;
    unsigned long deadline = 0, flags = 0;
    if (!PyArg_ParseTuple(args, "OOO!|kk", &buffer, &at, state->rkey, &k, &deadline, &flags) ||
        address_of(state, at, &remote) < 0) {
        return NULL;
    }
    struct request *r = begin(ep, k, GIVES_NONE);
    if (!r) return NULL;
    if (weft__py_hold_buffer(state, &r->buffers, buffer, get) < 0) {
        weft__py_dropped(r);
        return NULL;
    }
    if (r->buffers.many) {
        weft__py_dropped(r);
        PyErr_SetString(PyExc_TypeError, "one buffer, not a list of them");
        return NULL;
    }
    weft_op_t op = weft__py_op(r, deadline, flags);
    weft_iov_t *iov = r->buffers.iovs;
    weft_status_t status = get ? weft_get(ep->handle, iov->base, iov->len, remote, k->handle, &op)
                               : weft_put(ep->handle, iov->base, iov->len, remote, k->handle, &op);
    return weft__py_posted(r, status);
}

static PyObject *ep_put(PyObject *self, PyObject *args) {
    return put_or_get(self, args, false);
}
static PyObject *ep_get(PyObject *self, PyObject *args) {
    return put_or_get(self, args, true);
}

static PyObject *ep_atomic(PyObject *self, PyObject *args) {
    struct ep *ep = (struct ep *)self;
    struct state *state = ep->worker->state;
    int what, fetches;
    Py_ssize_t size;
    unsigned long long operand, compare;
    PyObject *at;
    uint64_t remote;
    unsigned long deadline = 0, flags = 0;
    struct rkey *k;
    if (!PyArg_ParseTuple(args, "inKKpOO!|kk", &what, &size, &operand, &compare, &fetches, &at,
                          state->rkey, &k, &deadline, &flags) ||
        address_of(state, at, &remote) < 0) {
        return NULL;
    }
    enum result gives = !fetches ? GIVES_NONE : size == 4 ? GIVES_OLD_32 : GIVES_OLD_64;
    struct request *r = begin(ep, k, gives);
    if (!r) return NULL;
    weft_op_t op = weft__py_op(r, deadline, flags);
    weft_status_t status =
        fetches ? weft_atomic_fetch(ep->handle, what, size, operand, compare, &r->old, remote,
                                    k->handle, &op)
                : weft_atomic_post(ep->handle, what, size, operand, remote, k->handle, &op);
    return weft__py_posted(r, status);
}

static PyObject *ep_fence(PyObject *self, PyObject *unused) {
    struct ep *ep = (struct ep *)self;
    if (weft__py_ep_open(ep) < 0) return NULL;
    return weft__py_checked(ep->worker->state, weft_ep_fence(ep->handle));
}

PyMethodDef weft__py_rma_methods[] = {
    {"unpack_key", ep_unpack, METH_VARARGS, "unpack_key(bytes) -> RemoteKey, for this endpoint"},
    {"post_put", ep_put, METH_VARARGS, "post_put(buffer, remote, key, deadline_ms=0, flags=0)"},
    {"post_get", ep_get, METH_VARARGS, "post_get(buffer, remote, key, deadline_ms=0, flags=0)"},
    {"post_atomic", ep_atomic, METH_VARARGS,
     "post_atomic(what, size, operand, compare, fetches, remote, key, deadline_ms=0, flags=0)"},
    {"fence", ep_fence, METH_NOARGS, "Orders one-sided operations: earlier ones are first."},
    {NULL, NULL, 0, NULL}};
