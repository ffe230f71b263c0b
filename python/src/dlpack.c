/*
 * DLPack, both ways, for host memory: the structures of its ABI (versions 0 and 1), capsules of
 * them, and memory taken from a capsule.
 */
#include "core.h"

enum { HOST_DEVICE = 1, HOST_OF_CUDA = 3, READ_ONLY = 1, MAJOR = 1, MINOR = 1 };
enum { CODE_INT = 0, CODE_UINT = 1, CODE_FLOAT = 2, CODE_COMPLEX = 5, CODE_BOOL = 6 };

struct tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};

struct managed {
    struct tensor tensor;
    void *context;
    void (*deleter)(struct managed *self);
};

struct versioned {
    struct {
        uint32_t major, minor;
    } version;
    void *context;
    void (*deleter)(struct versioned *self);
    uint64_t flags;
    struct tensor tensor;
};

/* ---- giving ---- */

/* One allocation: the buffer that is held, both forms, then shape and strides. */
struct given {
    Py_buffer view;
    struct managed managed;
    struct versioned versioned;
    int64_t numbers[];
};

static void release(struct given *given) {
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

static int describe(struct tensor *tensor, const Py_buffer *view) {
    const char *format = view->format ? view->format : "B";
    if (strchr("@=<", *format)) format++;
    int code = strchr("bhilqn", *format)   ? CODE_INT
               : strchr("BHILQN", *format) ? CODE_UINT
               : strchr("efdg", *format)   ? CODE_FLOAT
               : *format == '?'            ? CODE_BOOL
               : *format == 'Z'            ? CODE_COMPLEX
                                           : -1;
    if (code < 0 || !*format) {
        PyErr_Format(PyExc_BufferError, "DLPack has no type for \"%s\"", format);
        return -1;
    }
    tensor->data = view->buf;
    tensor->device.type = HOST_DEVICE;
    tensor->ndim = view->ndim;
    tensor->dtype.code = code;
    tensor->dtype.bits = view->itemsize * 8;
    tensor->dtype.lanes = 1;
    return 0;
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

PyObject *weft__py_dlpack(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None, *max_version = Py_None, *device = Py_None, *copy = Py_None;
    Py_buffer view;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OOOO", names, &stream, &max_version, &device,
                                     &copy)) {
        return NULL;
    }
    if (copy == Py_True || stream != Py_None) {
        PyErr_SetString(PyExc_BufferError, "host memory, without a copy and without a stream");
        return NULL;
    }
    if (PyObject_GetBuffer(self, &view, PyBUF_RECORDS_RO) < 0) return NULL;
    bool has_version = PyTuple_Check(max_version) && PyTuple_Size(max_version) == 2 &&
                       PyLong_AsLong(PyTuple_GetItem(max_version, 0)) >= MAJOR;
    struct given *given = calloc(1, sizeof *given + (2 * view.ndim + 1) * sizeof(int64_t));
    struct tensor tensor = {0};
    if (!given || describe(&tensor, &view) < 0 || (view.readonly && !has_version)) {
        if (!given) PyErr_NoMemory();
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_BufferError, "read-only memory needs max_version (1, 0)");
        }
        PyBuffer_Release(&view);
        free(given);
        return NULL;
    }
    tensor.shape = given->numbers;
    tensor.strides = given->numbers + view.ndim;
    for (int i = 0; i < view.ndim; i++) {
        tensor.shape[i] = view.shape[i];
        tensor.strides[i] = view.strides[i] / view.itemsize;
    }
    given->view = view;
    given->managed = (struct managed){tensor, given, delete_managed};
    given->versioned = (struct versioned){
        {MAJOR, MINOR}, given, delete_versioned, view.readonly ? READ_ONLY : 0, tensor};
    PyObject *capsule = has_version
                            ? PyCapsule_New(&given->versioned, "dltensor_versioned", unused_capsule)
                            : PyCapsule_New(&given->managed, "dltensor", unused_capsule);
    if (!capsule) release(given);
    return capsule;
}

PyObject *weft__py_dlpack_device(PyObject *self, PyObject *unused) {
    return Py_BuildValue("(ii)", HOST_DEVICE, 0);
}

/* ---- taking ---- */

/* The owner of memory that was taken: deletes the tensor in the end. */
static void taken_gone(PyObject *owner) {
    struct versioned *v = PyCapsule_GetPointer(owner, "weft.versioned");
    if (v) {
        if (v->deleter) v->deleter(v);
        return;
    }
    PyErr_Clear();
    struct managed *m = PyCapsule_GetPointer(owner, "weft.managed");
    if (m && m->deleter) m->deleter(m);
}

static const char *format_of(const struct tensor *tensor) {
    static const struct {
        uint8_t code, bits;
        const char *format;
    } formats[] = {{CODE_INT, 8, "b"},        {CODE_INT, 16, "h"},   {CODE_INT, 32, "i"},
                   {CODE_INT, 64, "q"},       {CODE_UINT, 8, "B"},   {CODE_UINT, 16, "H"},
                   {CODE_UINT, 32, "I"},      {CODE_UINT, 64, "Q"},  {CODE_FLOAT, 16, "e"},
                   {CODE_FLOAT, 32, "f"},     {CODE_FLOAT, 64, "d"}, {CODE_COMPLEX, 64, "Zf"},
                   {CODE_COMPLEX, 128, "Zd"}, {CODE_BOOL, 8, "?"}};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (formats[i].code == tensor->dtype.code && formats[i].bits == tensor->dtype.bits) {
            return formats[i].format;
        }
    }
    return "B"; /* bytes are all that is sent */
}

/*
 * from_dlpack(capsule) -> (address, shape, strides in bytes or None, format, itemsize, readonly,
 * owner). The capsule is used up.
 */
PyObject *weft__py_from_dlpack(PyObject *module, PyObject *args) {
    PyObject *capsule;
    if (!PyArg_ParseTuple(args, "O", &capsule)) return NULL;
    bool versioned = PyCapsule_IsValid(capsule, "dltensor_versioned");
    if (!versioned && !PyCapsule_IsValid(capsule, "dltensor")) {
        PyErr_SetString(PyExc_BufferError, "not an unused DLPack capsule");
        return NULL;
    }
    void *at = PyCapsule_GetPointer(capsule, versioned ? "dltensor_versioned" : "dltensor");
    struct versioned *v = versioned ? at : NULL;
    const struct tensor *t = versioned ? &v->tensor : &((struct managed *)at)->tensor;
    if (versioned && v->version.major > MAJOR) {
        PyErr_SetString(PyExc_BufferError, "a DLPack version that is not known");
        return NULL;
    }
    if (t->device.type != HOST_DEVICE && t->device.type != HOST_OF_CUDA) {
        PyErr_SetString(PyExc_BufferError, "memory of a device: not supported yet");
        return NULL;
    }
    int itemsize = (t->dtype.bits * t->dtype.lanes + 7) / 8;
    PyObject *shape = PyTuple_New(t->ndim), *strides = PyTuple_New(t->strides ? t->ndim : 0);
    for (int i = 0; shape && strides && i < t->ndim; i++) {
        PyTuple_SetItem(shape, i, PyLong_FromLongLong(t->shape[i]));
        if (t->strides) PyTuple_SetItem(strides, i, PyLong_FromLongLong(t->strides[i] * itemsize));
    }
    PyObject *owner = PyCapsule_New(at, versioned ? "weft.versioned" : "weft.managed", taken_gone);
    if (!shape || !strides || !owner || PyErr_Occurred()) {
        Py_XDECREF(shape);
        Py_XDECREF(strides);
        if (owner) PyCapsule_SetDestructor(owner, NULL); /* the capsule still owns it */
        Py_XDECREF(owner);
        return NULL;
    }
    PyCapsule_SetName(capsule, versioned ? "used_dltensor_versioned" : "used_dltensor");
    unsigned long long address = (uintptr_t)t->data + t->byte_offset;
    return Py_BuildValue("(KNNsiNN)", address, shape, strides, format_of(t), itemsize,
                         PyBool_FromLong(versioned && (v->flags & READ_ONLY)), owner);
}
