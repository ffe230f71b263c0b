/*
 * A block: host memory with the buffer protocol. Its own (what receives allocate), or another
 * object's, with a shape.
 */
#include "core.h"

struct block {
    PyObject_HEAD void *base;
    size_t len;
    PyObject *owner; /* of memory that is not the block's own */
    char *format;
    int n_dims, itemsize;
    bool readonly;
    Py_ssize_t *shape, *strides; /* in one allocation */
    size_t exports;
};

enum { ALIGNMENT = 64 };

static struct block *allocate(PyTypeObject *type, int n_dims) {
    struct block *b = (struct block *)PyType_GenericAlloc(type, 0);
    if (!b) return NULL;
    b->itemsize = 1;
    b->n_dims = n_dims;
    b->shape = calloc(2 * n_dims + 1, sizeof *b->shape);
    b->strides = b->shape + n_dims;
    if (b->shape) return b;
    Py_DECREF((PyObject *)b);
    PyErr_NoMemory();
    return NULL;
}

static PyObject *block_new(PyTypeObject *type, size_t len) {
    struct block *b = allocate(type, 1);
    if (!b) return NULL;
    b->len = len;
    b->shape[0] = len, b->strides[0] = 1;
    b->base = aligned_alloc(ALIGNMENT, (len + ALIGNMENT) / ALIGNMENT * ALIGNMENT);
    if (b->base) return (PyObject *)b;
    Py_DECREF((PyObject *)b);
    return PyErr_NoMemory();
}

PyObject *weft__py_block_new(struct state *state, size_t len) {
    return block_new(state->block, len);
}

static PyObject *new (PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    Py_ssize_t len;
    if (!PyArg_ParseTuple(args, "n", &len)) return NULL;
    if (len < 0) {
        PyErr_SetString(PyExc_ValueError, "a length is not negative");
        return NULL;
    }
    return block_new(type, len);
}

/* The numbers of a tuple. */
static int numbers(PyObject *tuple, Py_ssize_t *to, int n) {
    for (int i = 0; i < n; i++) {
        PyObject *item = PyTuple_GetItem(tuple, i);
        to[i] = item ? PyLong_AsSsize_t(item) : -1;
        if (PyErr_Occurred()) return -1;
    }
    return 0;
}

/* Memory at an address, with the strides given, or in C order. */
PyObject *weft__py_block_around(PyObject *module, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"address",  "shape",    "strides", "format",
                            "itemsize", "readonly", "owner",   NULL};
    unsigned long long address;
    PyObject *shape, *strides, *owner = NULL;
    const char *format;
    int itemsize, readonly;
    struct state *state = PyModule_GetState(module);
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "KO!OsipO", names, &address, &PyTuple_Type,
                                     &shape, &strides, &format, &itemsize, &readonly, &owner)) {
        return NULL;
    }
    int n = PyTuple_Size(shape);
    struct block *b = allocate(state->block, n);
    if (!b) return NULL;
    b->base = (void *)(uintptr_t)address;
    b->owner = Py_NewRef(owner);
    b->itemsize = itemsize;
    b->readonly = readonly;
    b->format = strdup(format);
    bool given = PyTuple_Check(strides) && PyTuple_Size(strides) == n;
    if (!b->format || numbers(shape, b->shape, n) < 0 ||
        (given && numbers(strides, b->strides, n) < 0)) {
        goto fail;
    }
    b->len = itemsize;
    for (int i = n - 1; i >= 0; i--) {
        if (b->shape[i] < 0) goto fail;
        if (!given) b->strides[i] = b->len;
        b->len *= b->shape[i];
    }
    return (PyObject *)b;
fail:
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a shape is not negative");
    Py_DECREF((PyObject *)b);
    return NULL;
}

static int get_buffer(PyObject *self, Py_buffer *view, int flags) {
    struct block *b = (struct block *)self;
    *view = (Py_buffer){.buf = b->base,
                        .len = b->len,
                        .itemsize = b->itemsize,
                        .readonly = b->readonly,
                        .ndim = b->n_dims,
                        .format = b->format ? b->format : "B",
                        .shape = b->shape,
                        .strides = b->strides};
    bool contiguous = PyBuffer_IsContiguous(view, 'C');
    if ((flags & PyBUF_WRITABLE) && b->readonly) {
        PyErr_SetString(PyExc_BufferError, "read-only memory");
        return -1;
    }
    if (!contiguous && (flags & PyBUF_STRIDES) != PyBUF_STRIDES) {
        PyErr_SetString(PyExc_BufferError, "not contiguous");
        return -1;
    }
    if (!(flags & PyBUF_FORMAT)) view->format = NULL;
    if ((flags & PyBUF_ND) != PyBUF_ND) view->shape = NULL, view->ndim = 1;
    if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES) view->strides = NULL;
    view->obj = Py_NewRef(self);
    return 0;
}

static Py_ssize_t length(PyObject *self) {
    return ((struct block *)self)->len;
}

static PyObject *get_address(PyObject *self, void *unused) {
    return PyLong_FromVoidPtr(((struct block *)self)->base);
}

static void dealloc(PyObject *self) {
    struct block *b = (struct block *)self;
    if (b->owner) {
        Py_DECREF(b->owner);
    } else {
        free(b->base);
    }
    free(b->shape);
    free(b->format);
    weft__py_free(self);
}

static PyMethodDef methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))weft__py_dlpack, METH_VARARGS | METH_KEYWORDS,
     "A DLPack capsule of this memory."},
    {"__dlpack_device__", weft__py_dlpack_device, METH_NOARGS, "(1, 0): the host."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef members[] = {{"address", get_address, NULL, "of the first byte", NULL},
                                {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot slots[] = {{Py_tp_new, new},
                              {Py_tp_dealloc, dealloc},
                              {Py_tp_methods, methods},
                              {Py_tp_getset, members},
                              {Py_mp_length, length},
                              {Py_bf_getbuffer, get_buffer},
                              {0, NULL}};

PyType_Spec weft__py_block_spec = {"weft._core.Block", sizeof(struct block), 0, Py_TPFLAGS_DEFAULT,
                                   slots};
