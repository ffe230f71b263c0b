/*
 * A block: memory with the array protocols. Its own host memory (what receives allocate), or
 * another object's, with a shape; this may be memory of a GPU, which has no buffer protocol.
 */
#include "dlpack.h"

#include <sys/mman.h>

struct block {
    PyObject_HEAD void *base;
    size_t len;
    PyObject *owner; /* of memory that is not the block's own */
    char *format;
    struct device device;
    struct dtype dtype; /* of DLPack; bits 0: as the format says */
    int n_dims, itemsize;
    bool readonly;
    Py_ssize_t *shape, *strides; /* in one allocation */
};

enum { ALIGNMENT = 64, HUGE_PAGE = 2 << 20, HUGE_FROM = 2 * HUGE_PAGE };

/* Of a large block the whole huge pages are asked for as such: it is filled once, and its first
 * writes would fault for each page. */
static void *own_memory(size_t len) {
    size_t page = len >= HUGE_FROM ? HUGE_PAGE : ALIGNMENT;
    char *base = aligned_alloc(page, (len + page) / page * page);
    if (base && page == HUGE_PAGE) (void)madvise(base, len / page * page, MADV_HUGEPAGE);
    return base;
}

static struct block *allocate(PyTypeObject *type, int n_dims) {
    struct block *b = (struct block *)PyType_GenericAlloc(type, 0);
    if (!b) return NULL;
    b->itemsize = 1;
    b->n_dims = n_dims;
    b->device.type = DEVICE_HOST;
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
    b->base = own_memory(len);
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

/* ---- over another object's memory ---- */

/* Memory that is said to be a GPU's must be that to the library, or the host would touch it. */
static int check_device(struct state *state, const struct memory_of *m, size_t len) {
    weft_mem_info_t info;
    if (is_host(m->device) || len == 0) return 0;
    weft_status_t status = weft_mem_detect(m->base, &info);
    if (status == WEFT_OK && info.type != WEFT_MEMORY_HOST) return 0;
    weft__py_raise_text(state, WEFT_ERR_UNSUPPORTED,
                        "memory of a device that the CUDA driver does not know");
    return -1;
}

PyObject *weft__py_block_over(struct state *state, const struct memory_of *m, PyObject *owner) {
    int n = m->n_dims;
    struct block *b = allocate(state->block, n);
    if (!b) return NULL;
    b->base = m->base;
    b->owner = Py_NewRef(owner);
    b->itemsize = m->itemsize;
    b->readonly = m->readonly;
    b->device = m->device;
    b->dtype = m->dtype;
    b->format = strdup(m->format);
    b->len = m->itemsize;
    if (!b->format) PyErr_NoMemory();
    for (int i = n - 1; b->format && i >= 0; i--) {
        b->shape[i] = m->shape[i];
        if (b->shape[i] < 0) PyErr_SetString(PyExc_ValueError, "a shape is not negative");
        b->strides[i] = m->strides ? m->strides[i] : (Py_ssize_t)b->len;
        if (__builtin_mul_overflow(b->len, (size_t)b->shape[i], &b->len) || b->len > PY_SSIZE_T_MAX)
            PyErr_SetString(PyExc_ValueError, "a shape of more bytes than memory has");
    }
    if (!PyErr_Occurred() && check_device(state, m, b->len) == 0) return (PyObject *)b;
    Py_DECREF((PyObject *)b);
    return NULL;
}

PyObject *weft__py_block_like(struct state *state, PyObject *bytes, const int64_t *shape,
                              int n_dims, struct dtype dtype) {
    struct format format;
    weft__py_format_of(dtype, &format);
    struct memory_of m = {.base = ((struct block *)bytes)->base,
                          .n_dims = n_dims,
                          .itemsize = (dtype.bits * dtype.lanes + 7) / 8,
                          .format = format.text,
                          .device = {DEVICE_HOST, 0},
                          .dtype = dtype};
    Py_ssize_t *numbers = calloc(n_dims + 1, sizeof *numbers);
    if (!numbers) return PyErr_NoMemory();
    for (int i = 0; i < n_dims; i++) numbers[i] = shape[i];
    m.shape = numbers;
    PyObject *block = weft__py_block_over(state, &m, bytes);
    free(numbers);
    return block;
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
    static char *names[] = {"address",  "shape", "strides",     "format",    "itemsize",
                            "readonly", "owner", "device_type", "device_id", NULL};
    unsigned long long address;
    PyObject *shape, *strides, *owner = NULL;
    int device_type = DEVICE_HOST, device_id = 0, readonly;
    struct memory_of m = {0};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "KO!OsipO|ii", names, &address, &PyTuple_Type,
                                     &shape, &strides, &m.format, &m.itemsize, &readonly, &owner,
                                     &device_type, &device_id)) {
        return NULL;
    }
    m.n_dims = PyTuple_Size(shape);
    bool given = strides != Py_None;
    if (given && (!PyTuple_Check(strides) || PyTuple_Size(strides) != m.n_dims)) {
        PyErr_SetString(PyExc_ValueError, "strides are a tuple with an item for each dimension");
        return NULL;
    }
    Py_ssize_t *all = calloc(2 * m.n_dims + 1, sizeof *all);
    if (!all) return PyErr_NoMemory();
    m.base = (void *)(uintptr_t)address;
    m.readonly = readonly;
    m.device = (struct device){device_type, device_id};
    m.shape = all;
    if (given) m.strides = all + m.n_dims;
    PyObject *block = NULL;
    if (numbers(shape, all, m.n_dims) == 0 &&
        (!given || numbers(strides, all + m.n_dims, m.n_dims) == 0)) {
        block = weft__py_block_over(PyModule_GetState(module), &m, owner);
    }
    free(all);
    return block;
}

/* ---- the array protocols ---- */

static bool is_as_asked(const Py_buffer *view, int flags) {
    if (flags & (PyBUF_ANY_CONTIGUOUS & ~PyBUF_STRIDES)) return PyBuffer_IsContiguous(view, 'A');
    if (flags & (PyBUF_F_CONTIGUOUS & ~PyBUF_STRIDES)) return PyBuffer_IsContiguous(view, 'F');
    if (flags & (PyBUF_C_CONTIGUOUS & ~PyBUF_STRIDES)) return PyBuffer_IsContiguous(view, 'C');
    return true;
}

static int view_of(struct block *b, Py_buffer *view, int flags) {
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
    if (!is_as_asked(view, flags) || (!contiguous && (flags & PyBUF_STRIDES) != PyBUF_STRIDES)) {
        PyErr_SetString(PyExc_BufferError, "not contiguous, or not in that order");
        return -1;
    }
    if (!(flags & PyBUF_FORMAT)) view->format = NULL;
    if ((flags & PyBUF_ND) != PyBUF_ND) view->shape = NULL, view->ndim = 1;
    if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES) view->strides = NULL;
    view->obj = Py_NewRef((PyObject *)b);
    return 0;
}

int weft__py_block_view(PyObject *self, Py_buffer *view, int flags, struct device *device_p,
                        struct dtype *dtype_p) {
    struct block *b = (struct block *)self;
    if (view_of(b, view, flags) < 0) return -1;
    *device_p = b->device;
    *dtype_p = b->dtype;
    return 0;
}

struct device weft__py_block_device(PyObject *self) {
    return ((struct block *)self)->device;
}

static int get_buffer(PyObject *self, Py_buffer *view, int flags) {
    struct block *b = (struct block *)self;
    if (is_host(b->device)) return view_of(b, view, flags);
    PyErr_SetString(PyExc_BufferError, "memory of a GPU, which the host cannot access");
    return -1;
}

static PyObject *typestr_of(const struct block *b) {
    const char *format = b->format ? b->format : "B";
    if (strchr("@=<", *format)) format++;
    char kind = strchr("bhilqn", *format)   ? 'i'
                : strchr("BHILQN", *format) ? 'u'
                : strchr("efdg", *format)   ? 'f'
                : *format == '?'            ? 'b'
                : *format == 'Z'            ? 'c'
                                            : 'V';
    return PyUnicode_FromFormat("%c%c%d", b->itemsize > 1 && kind != 'V' ? '<' : '|', kind,
                                b->itemsize);
}

static PyObject *tuple_of(const Py_ssize_t *from, int n) {
    PyObject *tuple = PyTuple_New(n);
    for (int i = 0; tuple && i < n; i++) {
        PyObject *number = PyLong_FromSsize_t(from[i]);
        if (!number || PyTuple_SetItem(tuple, i, number) < 0) Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *interface_of(struct block *b) {
    Py_buffer view = {.len = b->len,
                      .itemsize = b->itemsize,
                      .ndim = b->n_dims,
                      .shape = b->shape,
                      .strides = b->strides};
    PyObject *shape = tuple_of(b->shape, b->n_dims), *typestr = typestr_of(b);
    PyObject *strides =
        PyBuffer_IsContiguous(&view, 'C') ? Py_NewRef(Py_None) : tuple_of(b->strides, b->n_dims);
    if (!shape || !typestr || !strides) {
        Py_XDECREF(shape);
        Py_XDECREF(typestr);
        Py_XDECREF(strides);
        return NULL;
    }
    return Py_BuildValue("{sN sN sN s(KN) si}", "shape", shape, "typestr", typestr, "strides",
                         strides, "data", (unsigned long long)(uintptr_t)b->base,
                         PyBool_FromLong(b->readonly), "version", 3);
}

static PyObject *get_array_interface(PyObject *self, void *unused) {
    struct block *b = (struct block *)self;
    if (is_host(b->device)) return interface_of(b);
    PyErr_SetString(PyExc_AttributeError, "__array_interface__: memory of a GPU");
    return NULL;
}

/* No stream: what was received is there. */
static PyObject *get_cuda_array_interface(PyObject *self, void *unused) {
    struct block *b = (struct block *)self;
    if (!is_host(b->device)) return interface_of(b);
    PyErr_SetString(PyExc_AttributeError, "__cuda_array_interface__: host memory");
    return NULL;
}

static Py_ssize_t length(PyObject *self) {
    return ((struct block *)self)->len;
}

static PyObject *get_address(PyObject *self, void *unused) {
    return PyLong_FromVoidPtr(((struct block *)self)->base);
}

static PyObject *get_itemsize(PyObject *self, void *unused) {
    return PyLong_FromLong(((struct block *)self)->itemsize);
}

static PyObject *get_format(PyObject *self, void *unused) {
    const char *format = ((struct block *)self)->format;
    return PyUnicode_FromString(format ? format : "B");
}

static PyObject *get_c_contiguous(PyObject *self, void *unused) {
    struct block *b = (struct block *)self;
    Py_buffer view = {.len = b->len,
                      .itemsize = b->itemsize,
                      .ndim = b->n_dims,
                      .shape = b->shape,
                      .strides = b->strides};
    return PyBool_FromLong(PyBuffer_IsContiguous(&view, 'C'));
}

static PyObject *get_nbytes(PyObject *self, void *unused) {
    return PyLong_FromSize_t(((struct block *)self)->len);
}

static PyObject *block_repr(PyObject *self) {
    const struct block *b = (struct block *)self;
    const char *where = is_host(b->device) ? "" : " of a device";
    if (!b->format) return PyUnicode_FromFormat("<weft.Block: %zu bytes%s>", b->len, where);
    return PyUnicode_FromFormat("<weft.Block: %zu bytes of format '%s'%s>", b->len, b->format,
                                where);
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

static PyMethodDef methods[] = {{"__dlpack__", (PyCFunction)(void (*)(void))weft__py_dlpack,
                                 METH_VARARGS | METH_KEYWORDS, "A DLPack capsule of this memory."},
                                {"__dlpack_device__", weft__py_dlpack_device, METH_NOARGS,
                                 "(type, id) of DLPack: (1, 0) is the host, (2, n) a GPU."},
                                {NULL, NULL, 0, NULL}};

static PyGetSetDef members[] = {
    {"address", get_address, NULL, "of the first byte", NULL},
    {"nbytes", get_nbytes, NULL, "bytes of all elements", NULL},
    {"itemsize", get_itemsize, NULL, "bytes of an element", NULL},
    {"format", get_format, NULL, "of an element, as in the struct module", NULL},
    {"c_contiguous", get_c_contiguous, NULL, "whether the elements lie in C order", NULL},
    {"__array_interface__", get_array_interface, NULL, "of host memory, version 3", NULL},
    {"__cuda_array_interface__", get_cuda_array_interface, NULL, "of GPU memory, version 3", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot slots[] = {{Py_tp_new, new},
                              {Py_tp_dealloc, dealloc},
                              {Py_tp_methods, methods},
                              {Py_tp_getset, members},
                              {Py_tp_repr, block_repr},
                              {Py_mp_length, length},
                              {Py_bf_getbuffer, get_buffer},
                              {0, NULL}};

PyType_Spec weft__py_block_spec = {"weft._core.Block", sizeof(struct block), 0, Py_TPFLAGS_DEFAULT,
                                   slots};
