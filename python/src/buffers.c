/* The memory of an operation: one object with the buffer protocol, or a list of them. */
#include "core.h"

int weft__py_view(struct state *state, PyObject *object, int flags, Py_buffer *view,
                  PyObject **stand_in_p, bool *of_device_p) {
    if (!PyObject_CheckBuffer(object)) {
        object = PyObject_CallFunctionObjArgs(state->find_buffer, object,
                                              flags & PyBUF_WRITABLE ? Py_True : Py_False, NULL);
        if (!object) return -1;
        *stand_in_p = object;
    }
    if (Py_TYPE(object) != state->block) return PyObject_GetBuffer(object, view, flags);
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
    /* Perhaps only because it is not contiguous. */
    PyObject *type, *value, *trace, *found = b->stand_in ? b->stand_in : object, *unused = NULL;
    PyErr_Fetch(&type, &value, &trace);
    if (weft__py_view(state, found, PyBUF_STRIDES | writable, &b->one, &unused, &b->of_device) ==
        0) {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(trace);
        return 0;
    }
    PyErr_Clear();
    PyErr_Restore(type, value, trace);
    return -1;
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
