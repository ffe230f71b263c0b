/* DLPack, both ways: capsules of blocks and regions, and memory taken from a capsule. */
#include "dlpack.h"

#include <stdio.h>

/* ---- giving ---- */

/* One allocation: the buffer that is held, both forms, then shape and strides. */
struct given {
    Py_buffer view;
    struct managed managed;
    struct versioned versioned;
    int64_t numbers[];
};

/* A consumer that outlives the interpreter keeps the memory. */
static void release(struct given *given) {
    if (!Py_IsInitialized()) return;
    PyGILState_STATE lock = PyGILState_Ensure();
    PyBuffer_Release(&given->view);
    free(given);
    PyGILState_Release(lock);
}

static void delete_managed(struct managed *self) {
    release(self->context);
}
static void delete_versioned(struct versioned *self) {
    release(self->context);
}

static int code_of(const char *format) {
    if (strchr("@=<", *format)) format++;
    return !*format                    ? -1
           : strchr("bhilqn", *format) ? CODE_INT
           : strchr("BHILQN", *format) ? CODE_UINT
           : strchr("efdg", *format)   ? CODE_FLOAT
           : *format == '?'            ? CODE_BOOL
           : *format == 'Z'            ? CODE_COMPLEX
                                       : -1;
}

/* The memory of `self`, its device, and its type: no bits if the format is to say it. */
static int view_of(PyObject *self, Py_buffer *view, struct device *device, struct dtype *dtype) {
    *device = (struct device){DEVICE_HOST, 0};
    *dtype = (struct dtype){0};
    return Py_TYPE(self) == weft__py_state(Py_TYPE(self))->block
               ? weft__py_block_view(self, view, PyBUF_RECORDS_RO, device, dtype)
               : PyObject_GetBuffer(self, view, PyBUF_RECORDS_RO);
}

static int type_of_elements(const Py_buffer *view, struct dtype *dtype) {
    if (view->itemsize <= 0) {
        PyErr_SetString(PyExc_BufferError, "elements of no bytes");
        return -1;
    }
    if (dtype->bits) return 0;
    const char *format = view->format ? view->format : "B";
    int code = code_of(format);
    if (code < 0) {
        PyErr_Format(PyExc_BufferError, "DLPack has no type for \"%s\"", format);
        return -1;
    }
    *dtype = (struct dtype){code, view->itemsize * 8, 1};
    return 0;
}

/* Takes over the view. DLPack counts strides in elements. */
static struct given *given_new(const Py_buffer *view, struct device device, struct dtype dtype) {
    struct given *given = calloc(1, sizeof *given + (2 * view->ndim + 1) * sizeof(int64_t));
    if (!given) {
        PyErr_NoMemory();
        return NULL;
    }
    struct tensor tensor = {.data = view->buf,
                            .device = device,
                            .ndim = view->ndim,
                            .dtype = dtype,
                            .shape = given->numbers,
                            .strides = given->numbers + view->ndim};
    for (int i = 0; i < view->ndim; i++) {
        tensor.shape[i] = view->shape[i];
        tensor.strides[i] = view->strides[i] / view->itemsize;
    }
    given->view = *view;
    given->managed = (struct managed){tensor, given, delete_managed};
    given->versioned = (struct versioned){{DLPACK_MAJOR, DLPACK_MINOR},
                                          given,
                                          delete_versioned,
                                          view->readonly ? DLPACK_READ_ONLY : 0,
                                          tensor};
    return given;
}

static struct given *given_of(PyObject *self) {
    Py_buffer view;
    struct device device;
    struct dtype dtype;
    if (view_of(self, &view, &device, &dtype) < 0) return NULL;
    bool known = type_of_elements(&view, &dtype) == 0;
    struct given *given = known ? given_new(&view, device, dtype) : NULL;
    if (!given) PyBuffer_Release(&view);
    return given;
}

struct versioned *weft__py_versioned_of(PyObject *object) {
    struct given *given = given_of(object);
    return given ? &given->versioned : NULL;
}

static void unused_capsule(PyObject *capsule) {
    const char *name = PyCapsule_GetName(capsule);
    if (name && !strcmp(name, "dltensor_versioned")) {
        struct versioned *v = PyCapsule_GetPointer(capsule, name);
        v->deleter(v);
    } else if (name && !strcmp(name, "dltensor")) {
        struct managed *m = PyCapsule_GetPointer(capsule, name);
        m->deleter(m);
    }
}

/* Whether the consumer's wishes can be met: no copy, and the memory's own device. */
static int check_wishes(struct given *given, PyObject *stream, PyObject *wanted, PyObject *copy) {
    struct device device = given->versioned.tensor.device;
    int type = device.type, id = device.id;
    if (copy == Py_True || (stream != Py_None && type == DEVICE_HOST)) {
        PyErr_SetString(PyExc_BufferError, "no copies, and no stream for host memory");
        return -1;
    }
    if (wanted == Py_None) return 0;
    if (!PyTuple_Check(wanted) || !PyArg_ParseTuple(wanted, "ii", &type, &id)) {
        PyErr_SetString(PyExc_BufferError, "dl_device is a pair of numbers");
        return -1;
    }
    if (type == device.type && id == device.id) return 0;
    PyErr_SetString(PyExc_BufferError, "the memory is of another device, and is not copied");
    return -1;
}

/* All that wrote the memory is complete, so there is nothing that a stream must wait for. */
PyObject *weft__py_dlpack(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None, *max_version = Py_None, *device = Py_None, *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OOOO", names, &stream, &max_version, &device,
                                     &copy)) {
        return NULL;
    }
    struct given *given = given_of(self);
    if (!given) return NULL;
    bool has_version = PyTuple_Check(max_version) && PyTuple_Size(max_version) == 2 &&
                       PyLong_AsLong(PyTuple_GetItem(max_version, 0)) >= DLPACK_MAJOR;
    if (PyErr_Occurred() || check_wishes(given, stream, device, copy) < 0) {
        release(given);
        return NULL;
    }
    if (given->view.readonly && !has_version) {
        PyErr_SetString(PyExc_BufferError, "read-only memory needs max_version (1, 0)");
        release(given);
        return NULL;
    }
    PyObject *capsule = has_version
                            ? PyCapsule_New(&given->versioned, "dltensor_versioned", unused_capsule)
                            : PyCapsule_New(&given->managed, "dltensor", unused_capsule);
    if (!capsule) release(given);
    return capsule;
}

PyObject *weft__py_dlpack_device(PyObject *self, PyObject *unused) {
    struct device device = {DEVICE_HOST, 0};
    struct state *state = weft__py_state(Py_TYPE(self));
    if (Py_TYPE(self) == state->block) device = weft__py_block_device(self);
    return Py_BuildValue("(ii)", device.type, device.id);
}

/* ---- taking ---- */

/* The owner of memory that was taken: deletes the tensor in the end. An exception may be on its way
 * meanwhile, and stays. */
static void taken_gone(PyObject *owner) {
    if (PyCapsule_IsValid(owner, "weft.versioned")) {
        struct versioned *v = PyCapsule_GetPointer(owner, "weft.versioned");
        if (v->deleter) v->deleter(v);
    } else {
        struct managed *m = PyCapsule_GetPointer(owner, "weft.managed");
        if (m->deleter) m->deleter(m);
    }
}

void weft__py_format_of(struct dtype dtype, struct format *format) {
    static const struct {
        uint8_t code, bits;
        const char *format;
    } formats[] = {{CODE_INT, 8, "b"},        {CODE_INT, 16, "h"},   {CODE_INT, 32, "i"},
                   {CODE_INT, 64, "q"},       {CODE_UINT, 8, "B"},   {CODE_UINT, 16, "H"},
                   {CODE_UINT, 32, "I"},      {CODE_UINT, 64, "Q"},  {CODE_FLOAT, 16, "e"},
                   {CODE_FLOAT, 32, "f"},     {CODE_FLOAT, 64, "d"}, {CODE_COMPLEX, 64, "Zf"},
                   {CODE_COMPLEX, 128, "Zd"}, {CODE_BOOL, 8, "?"}};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (formats[i].code == dtype.code && formats[i].bits == dtype.bits && dtype.lanes == 1) {
            strcpy(format->text, formats[i].format);
            return;
        }
    }
    snprintf(format->text, sizeof format->text, "%us", (dtype.bits * dtype.lanes + 7U) / 8);
}

static PyObject *block_of(struct state *state, const struct tensor *t, bool readonly,
                          PyObject *owner) {
    struct format format;
    weft__py_format_of(t->dtype, &format);
    struct memory_of m = {.base = (char *)t->data + t->byte_offset,
                          .n_dims = t->ndim,
                          .itemsize = (t->dtype.bits * t->dtype.lanes + 7) / 8,
                          .readonly = readonly,
                          .format = format.text,
                          .device = t->device,
                          .dtype = t->dtype};
    if (m.itemsize == 0) {
        PyErr_SetString(PyExc_BufferError, "a DLPack tensor whose elements have no bits");
        return NULL;
    }
    Py_ssize_t *numbers = calloc(2 * t->ndim + 1, sizeof *numbers);
    if (!numbers) return PyErr_NoMemory();
    for (int i = 0; i < t->ndim; i++) {
        numbers[i] = t->shape[i];
        if (t->strides) numbers[t->ndim + i] = t->strides[i] * m.itemsize;
    }
    m.shape = numbers;
    if (t->strides) m.strides = numbers + t->ndim;
    PyObject *block = weft__py_block_over(state, &m, owner);
    free(numbers);
    return block;
}

/* Gives the tensor to an owner, and the owner to a block. A failure leaves it to the caller. */
static PyObject *take(struct state *state, const struct tensor *t, bool readonly, void *at,
                      const char *name) {
    PyObject *owner = PyCapsule_New(at, name, taken_gone);
    PyObject *block = owner ? block_of(state, t, readonly, owner) : NULL;
    if (owner && !block) PyCapsule_SetDestructor(owner, NULL);
    Py_XDECREF(owner);
    return block;
}

/* Elements of less than a byte lie packed, unless they are said to be padded. */
static int check_elements(const struct tensor *t, bool padded) {
    if (padded || t->dtype.bits * t->dtype.lanes % 8 == 0) return 0;
    PyErr_SetString(PyExc_BufferError, "a DLPack tensor whose elements are no whole bytes");
    return -1;
}

PyObject *weft__py_block_of_versioned(struct state *state, struct versioned *v) {
    if (v->version.major > DLPACK_MAJOR) {
        PyErr_SetString(PyExc_BufferError, "a DLPack version that is not known");
        return NULL;
    }
    if (check_elements(&v->tensor, v->flags & DLPACK_PADDED) < 0) return NULL;
    return take(state, &v->tensor, v->flags & DLPACK_READ_ONLY, v, "weft.versioned");
}

/* from_dlpack(capsule) -> Block. The capsule is used up. */
PyObject *weft__py_from_dlpack(PyObject *module, PyObject *capsule) {
    struct state *state = PyModule_GetState(module);
    PyObject *block = NULL;
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        struct versioned *v = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        block = weft__py_block_of_versioned(state, v);
        if (block) PyCapsule_SetName(capsule, "used_dltensor_versioned");
    } else if (PyCapsule_IsValid(capsule, "dltensor")) {
        struct managed *m = PyCapsule_GetPointer(capsule, "dltensor");
        if (check_elements(&m->tensor, false) == 0)
            block = take(state, &m->tensor, false, m, "weft.managed");
        if (block) PyCapsule_SetName(capsule, "used_dltensor");
    } else {
        PyErr_SetString(PyExc_BufferError, "not an unused DLPack capsule");
    }
    return block;
}
