/*
 * DLPack's C exchange API (1.3): a table of functions on the type, in place of calls of __dlpack__.
 * Blocks and regions have one; that of other types is used where they have no buffer protocol.
 */
#include "dlpack.h"

#define API_NAME "dlpack_exchange_api"

struct exchange {
    struct dlpack_version version;
    void *previous;
    int (*allocate)(struct tensor *prototype, struct versioned **out, void *context,
                    void (*fail)(void *context, const char *kind, const char *text));
    int (*from_object)(void *object, struct versioned **out);
    int (*to_object)(struct versioned *tensor, void **out);
    int (*view_of_object)(void *object, struct tensor *out);
    int (*work_stream)(int32_t device_type, int32_t device_id, void **out);
};

/* ---- giving ---- */

/* The functions of the table know no module. */
static struct state *state_of_module(void) {
    PyObject *name = PyUnicode_FromString("weft._core");
    PyObject *module = name ? PyImport_GetModule(name) : NULL;
    Py_XDECREF(name);
    if (!module) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "weft is not imported");
        return NULL;
    }
    struct state *state = PyModule_GetState(module);
    Py_DECREF(module); /* sys.modules has it */
    return state;
}

static int from_object(void *object, struct versioned **out) {
    struct state *state = state_of_module();
    if (!state) return -1;
    if (Py_TYPE(object) != state->block && Py_TYPE(object) != state->memory) {
        PyErr_SetString(PyExc_TypeError, "neither a Block nor a Memory");
        return -1;
    }
    struct versioned *v = weft__py_versioned_of(object);
    if (v) *out = v;
    return v ? 0 : -1;
}

static int to_object(struct versioned *tensor, void **out) {
    struct state *state = state_of_module();
    PyObject *block = state ? weft__py_block_of_versioned(state, tensor) : NULL;
    if (block) *out = block;
    return block ? 0 : -1;
}

/* New host memory of a shape and type, in C order. */
static int allocate(struct tensor *wanted, struct versioned **out, void *context,
                    void (*fail)(void *context, const char *kind, const char *text)) {
    PyGILState_STATE lock = PyGILState_Ensure();
    struct state *state = state_of_module();
    struct versioned *v = NULL;
    size_t len = (wanted->dtype.bits * wanted->dtype.lanes + 7) / 8;
    bool fits = len > 0;
    for (int i = 0; fits && i < wanted->ndim; i++)
        fits =
            wanted->shape[i] >= 0 && !__builtin_mul_overflow(len, (size_t)wanted->shape[i], &len);
    if (state && fits && len <= PY_SSIZE_T_MAX && wanted->device.type == DEVICE_HOST) {
        PyObject *bytes = weft__py_block_new(state, len);
        PyObject *block =
            bytes ? weft__py_block_like(state, bytes, wanted->shape, wanted->ndim, wanted->dtype)
                  : NULL;
        if (block) v = weft__py_versioned_of(block);
        Py_XDECREF(bytes);
        Py_XDECREF(block);
    }
    PyErr_Clear();
    PyGILState_Release(lock);
    if (v) {
        *out = v;
        return 0;
    }
    if (wanted->device.type != DEVICE_HOST) {
        fail(context, "BufferError", "weft allocates host memory only");
    } else {
        fail(context, "MemoryError", "no memory");
    }
    return -1;
}

/* The binding has no stream of its own: an operation ends once its bytes are there. */
static int work_stream(int32_t device_type, int32_t device_id, void **out) {
    *out = NULL;
    return 0;
}

static struct exchange table = {.version = {DLPACK_MAJOR, DLPACK_MINOR},
                                .allocate = allocate,
                                .from_object = from_object,
                                .to_object = to_object,
                                .work_stream = work_stream};

int weft__py_add_exchange(PyObject *module, struct state *state) {
    PyObject *capsule = PyCapsule_New(&table, API_NAME, NULL);
    int failed =
        !capsule ||
        PyObject_SetAttrString((PyObject *)state->block, "__dlpack_c_exchange_api__", capsule) <
            0 ||
        PyObject_SetAttrString((PyObject *)state->memory, "__dlpack_c_exchange_api__", capsule) < 0;
    Py_XDECREF(capsule);
    return failed ? -1 : 0;
}

/* ---- taking ---- */

/* The table of an object's type in a version that is known, or NULL. */
static const struct exchange *table_of(PyObject *object) {
    PyObject *capsule =
        weft__py_attribute((PyObject *)Py_TYPE(object), "__dlpack_c_exchange_api__");
    const struct exchange *found = NULL;
    if (capsule && PyCapsule_IsValid(capsule, API_NAME)) {
        found = PyCapsule_GetPointer(capsule, API_NAME);
    }
    PyErr_Clear();
    Py_XDECREF(capsule); /* the type keeps it */
    while (found && found->version.major > DLPACK_MAJOR) found = found->previous;
    return found && found->version.major == DLPACK_MAJOR ? found : NULL;
}

/*
 * exchange(object) -> (Block, stream), or None if its type has no table. The stream, an address, is
 * that of the work that the memory may wait for; 0 for host memory.
 */
PyObject *weft__py_exchange(PyObject *module, PyObject *object) {
    struct state *state = PyModule_GetState(module);
    const struct exchange *from = table_of(object);
    struct versioned *v = NULL;
    void *stream = NULL;
    if (!from) Py_RETURN_NONE;
    if (from->from_object(object, &v) != 0) return NULL;
    struct device device = v->tensor.device;
    if (!is_host(device) && from->work_stream(device.type, device.id, &stream) != 0) {
        if (v->deleter) v->deleter(v);
        return NULL;
    }
    PyObject *block = weft__py_block_of_versioned(state, v);
    if (!block) {
        if (v->deleter) v->deleter(v);
        return NULL;
    }
    return Py_BuildValue("(NK)", block, (unsigned long long)(uintptr_t)stream);
}
