/* Statuses as exceptions. The classes are Python's (weft/errors.py). */
#include "core.h"

char *weft__py_describe(weft_status_t status) {
    size_t len = weft_status_describe(status, NULL, 0);
    char *text = malloc(len + 1);
    if (text) weft_status_describe(status, text, len + 1);
    return text;
}

PyObject *weft__py_text(void *text) {
    if (!text) Py_RETURN_NONE;
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

PyObject *weft__py_exception(struct state *state, weft_status_t status, const char *why) {
    return PyObject_CallFunction(state->make_error, "iO&", (int)status, weft__py_text,
                                 why ? why : weft_status_sentence(status));
}

const char *weft__py_utf8(PyObject *str) {
    Py_ssize_t len;
    const char *text = PyUnicode_AsUTF8AndSize(str, &len);
    if (!text || strlen(text) == (size_t)len) return text;
    PyErr_SetString(PyExc_ValueError, "embedded null character");
    return NULL;
}

int weft__py_u64(PyObject *number, void *u64_p) {
    PyObject *index = PyNumber_Index(number);
    if (!index) return 0;
    *(uint64_t *)u64_p = PyLong_AsUnsignedLongLong(index);
    Py_DECREF(index);
    return !PyErr_Occurred();
}

int weft__py_u32(PyObject *number, void *u32_p) {
    uint64_t value;
    if (!weft__py_u64(number, &value)) return 0;
    if (value > UINT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "an int of more than 32 bits");
        return 0;
    }
    *(uint32_t *)u32_p = (uint32_t)value;
    return 1;
}

void *weft__py_raise_text(struct state *state, weft_status_t status, const char *text) {
    PyObject *exception = weft__py_exception(state, status, text);
    if (exception) PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
    Py_XDECREF(exception);
    return NULL;
}

void *weft__py_raise(struct state *state, weft_status_t status) {
    char *why = weft__py_describe(status);
    weft__py_raise_text(state, status, why);
    free(why);
    return NULL;
}

PyObject *weft__py_checked(struct state *state, weft_status_t status) {
    if (status < 0) return weft__py_raise(state, status);
    Py_RETURN_NONE;
}

void weft__py_keep_raised(PyObject **kept_p) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace) PyException_SetTraceback(value, trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    if (*kept_p) {
        Py_XDECREF(value);
    } else {
        *kept_p = value;
    }
}

void weft__py_end_view(PyObject *view) {
    PyObject *type, *value, *trace, *release, *done;
    if (!view) return;
    PyErr_Fetch(&type, &value, &trace);
    release = weft__py_attribute(view, "release");
    done = release ? PyObject_CallNoArgs(release) : NULL;
    Py_XDECREF(release);
    if (!done) PyErr_WriteUnraisable(view);
    Py_XDECREF(done);
    Py_DECREF(view);
    PyErr_Restore(type, value, trace);
}
