/* The memory of an operation: one object with the buffer protocol, or a list of them. */
#include "core.h"

/* Whether elements of a format (of the struct module, and PEP 3118) are references to objects, or
 * contain some. Names of fields are between colons. */
static bool has_objects(const char *format) {
    for (; format && *format; format++) {
        if (*format == 'O') return true;
        if (*format != ':') continue;
        format = strchr(format + 1, ':');
        if (!format) return false;
    }
    return false;
}

/* The same of an array whose elements have no format, as dates of numpy. -1: an exception. */
static int names_objects(PyObject *array) {
    PyObject *dtype = weft__py_attribute(array, "dtype");
    PyObject *has = dtype ? weft__py_attribute(dtype, "hasobject") : NULL;
    bool absent = !has && PyErr_ExceptionMatches(PyExc_AttributeError);
    int found = has ? PyObject_IsTrue(has) : absent ? 0 : -1;
    if (absent) PyErr_Clear();
    Py_XDECREF(dtype);
    Py_XDECREF(has);
    return found;
}

static int refuse_objects(PyObject *object) {
    PyObject *type = PyType_GetName(Py_TYPE(object));
    if (type) {
        PyErr_Format(
            PyExc_TypeError,
            "the elements of this %U are Python objects, whose memory is addresses of this "
            "process: send them by send_obj, or bcast_obj of a team",
            type);
    }
    Py_XDECREF(type);
    return -1;
}

/* A buffer with the format of its elements, in which objects have a code of their own. */
static int view_of(PyObject *object, Py_buffer *view, int flags) {
    int found;
    if (PyObject_GetBuffer(object, view, flags | PyBUF_ND | PyBUF_FORMAT) == 0) {
        found = has_objects(view->format);
    } else if (!PyErr_ExceptionMatches(PyExc_BufferError) &&
               !PyErr_ExceptionMatches(PyExc_ValueError)) {
        return -1;
    } else {
        PyErr_Clear();
        if (PyObject_GetBuffer(object, view, flags) < 0) return -1;
        found = names_objects(object);
    }
    if (found == 0) return 0;
    PyBuffer_Release(view);
    return found < 0 ? -1 : refuse_objects(object);
}

/* check_elements(buffer): TypeError if its elements are objects. */
PyObject *weft__py_check_elements(PyObject *module, PyObject *buffer) {
    Py_buffer view;
    if (view_of(buffer, &view, PyBUF_STRIDES) < 0) return NULL;
    PyBuffer_Release(&view);
    Py_RETURN_NONE;
}

int weft__py_view(struct state *state, PyObject *object, int flags, Py_buffer *view,
                  PyObject **stand_in_p, bool *of_device_p) {
    if (!PyObject_CheckBuffer(object)) {
        object = PyObject_CallFunctionObjArgs(state->find_buffer, object,
                                              flags & PyBUF_WRITABLE ? Py_True : Py_False, NULL);
        if (!object) return -1;
        *stand_in_p = object;
    }
    if (Py_TYPE(object) != state->block) return view_of(object, view, flags);
    struct device device;
    struct dtype dtype;
    if (weft__py_block_view(object, view, flags, &device, &dtype) < 0) return -1;
    *of_device_p |= !is_host(device);
    return 0;
}

static int get(struct state *state, struct buffers *b, PyObject *object, bool writes) {
    int writable = writes ? PyBUF_WRITABLE : 0;
    if (weft__py_view(state, object, PyBUF_SIMPLE | writable, &b->one, &b->stand_in,
                      &b->of_device) == 0) {
        return 0;
    }
    if (!PyErr_ExceptionMatches(PyExc_BufferError) && !PyErr_ExceptionMatches(PyExc_ValueError)) {
        return -1;
    }
    /* Perhaps only because it is not contiguous. If this fails, too, it says why. */
    PyObject *found = b->stand_in ? b->stand_in : object, *unused = NULL;
    PyErr_Clear();
    return weft__py_view(state, found, PyBUF_STRIDES | writable, &b->one, &unused, &b->of_device);
}

static int hold_buffers(struct state *state, struct buffers *b, PyObject *list, bool writes) {
    PyObject *items = PySequence_Tuple(list);
    if (!items) return -1;
    Py_ssize_t n = PyTuple_Size(items);
    b->many = calloc(n + 1, sizeof *b->many);
    b->iovs = calloc(n + 1, sizeof *b->iovs);
    b->stand_in = items;
    if (!b->many || !b->iovs) {
        PyErr_NoMemory();
        return -1;
    }
    for (; b->n < n; b->n++) {
        Py_buffer *view = &b->many[b->n];
        PyObject *item = PyTuple_GetItem(items, b->n), *found = NULL;
        int failed = weft__py_view(state, item, writes ? PyBUF_WRITABLE : PyBUF_SIMPLE, view,
                                   &found, &b->of_device);
        Py_XDECREF(found);
        if (failed) return -1;
        b->iovs[b->n] = (weft_iov_t){view->len ? view->buf : NULL, view->len};
        b->total += view->len;
    }
    return 0;
}

/* On failure there is nothing to give back. */
int weft__py_hold_buffer(struct state *state, struct buffers *b, PyObject *object, bool writes) {
    struct worker *worker = b->worker;
    memset(b, 0, sizeof *b);
    b->worker = worker;
    if (PyList_Check(object) || PyTuple_Check(object)) {
        if (hold_buffers(state, b, object, writes) == 0) return 0;
        weft__py_give_back(b);
        return -1;
    }
    if (!PyObject_CheckBuffer(object) && PyObject_TypeCheck(object, state->layout)) {
        return weft__py_plan_layout(b, object);
    }
    if (get(state, b, object, writes) < 0) {
        Py_CLEAR(b->stand_in);
        return -1;
    }
    b->n = 1;
    b->total = b->one.len;
    b->iov = (weft_iov_t){b->one.len ? b->one.buf : NULL, b->one.len};
    b->iovs = &b->iov;
    if (b->one.strides && !PyBuffer_IsContiguous(&b->one, 'C') && weft__py_plan(state, b) < 0) {
        weft__py_give_back(b);
        return -1;
    }
    return 0;
}

void weft__py_give_back(struct buffers *b) {
    if (b->many) {
        for (Py_ssize_t i = 0; i < b->n; i++) PyBuffer_Release(&b->many[i]);
        free(b->many);
    } else if (b->n && b->one.obj) {
        PyBuffer_Release(&b->one);
    }
    if (b->iovs != &b->iov) free(b->iovs);
    weft__py_walk_free(b->walk);
    Py_CLEAR(b->stand_in);
    b->many = NULL, b->iovs = NULL, b->walk = NULL, b->n = 0;
}
