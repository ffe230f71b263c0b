/* Layouts that a program writes in Python: a subclass of Layout with __len__, pack and unpack. */
#include "core.h"

#include <stddef.h>

static struct request *request_of(struct buffers *b) {
    return (struct request *)((char *)b - offsetof(struct request, buffers));
}

int weft__py_move(PyObject *layout, const char *name, size_t offset, void *memory, size_t len,
                  int access) {
    PyObject *view = PyMemoryView_FromMemory(memory, len, access);
    PyObject *method = view ? weft__py_attribute(layout, name) : NULL;
    PyObject *result =
        method ? PyObject_CallFunction(method, "nO", (Py_ssize_t)offset, view) : NULL;
    int failed = result ? 0 : -1;
    Py_XDECREF(method);
    Py_XDECREF(result);
    weft__py_end_view(view);
    return failed;
}

static weft_status_t move(struct buffers *b, const char *name, size_t offset, void *memory,
                          size_t len, int access) {
    struct request *r = request_of(b);
    PyThreadState *was;
    if (r->raised || !weft__py_enter(b->worker, &was)) return WEFT_ERR_CANCELLED;
    weft__py_signals(b->worker);
    int failed = weft__py_move(b->stand_in, name, offset, memory, len, access);
    if (failed) weft__py_keep_failure(b->worker, &r->raised); /* the first is the failure */
    weft__py_leave(b->worker, was);
    return failed ? WEFT_ERR_CANCELLED : WEFT_OK;
}

static weft_status_t pack(void *state, size_t offset, void *to, size_t len) {
    return move(state, "pack", offset, to, len, PyBUF_WRITE);
}

static weft_status_t unpack(void *state, size_t offset, const void *from, size_t len) {
    return move(state, "unpack", offset, (void *)from, len, PyBUF_READ);
}

static const weft_pack_ops_t calling = {.pack = pack, .unpack = unpack};

/* On failure there is nothing to give back. */
int weft__py_plan_layout(struct buffers *b, PyObject *layout) {
    Py_ssize_t len = PyObject_Size(layout);
    if (len < 0) return -1;
    b->stand_in = Py_NewRef(layout);
    b->n = 1;
    b->total = len;
    b->plan = (weft_layout_t){.kind = WEFT_LAYOUT_USER, .user = &calling};
    b->iov = (weft_iov_t){b, len};
    b->iovs = &b->iov;
    return 0;
}

PyObject *weft__py_pack_layout(PyObject *layout) {
    Py_ssize_t len = PyObject_Size(layout);
    PyObject *bytes = len < 0 ? NULL : PyBytes_FromStringAndSize(NULL, len);
    if (bytes && len &&
        weft__py_move(layout, "pack", 0, PyBytes_AsString(bytes), len, PyBUF_WRITE) < 0) {
        Py_CLEAR(bytes);
    }
    return bytes;
}

/* ---- the type: what a subclass has to write ---- */

static PyObject *to_write(PyObject *self, PyObject *args) {
    PyErr_SetString(PyExc_NotImplementedError, "a Layout has __len__, pack and unpack");
    return NULL;
}

static Py_ssize_t length(PyObject *self) {
    PyErr_SetString(PyExc_NotImplementedError, "a Layout has __len__");
    return -1;
}

static PyMethodDef methods[] = {
    {"pack", to_write, METH_VARARGS, "pack(offset, to): fills `to` from `offset` of the form on."},
    {"unpack", to_write, METH_VARARGS, "unpack(offset, data): takes the bytes from `offset` on."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {
    {Py_tp_doc, "The memory of a message as a program packs it: __len__, pack and unpack."},
    {Py_tp_methods, methods},
    {Py_sq_length, length},
    {0, NULL}};

PyType_Spec weft__py_layout_spec = {"weft._core.Layout", sizeof(PyObject), 0,
                                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
