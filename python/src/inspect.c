/* What a worker says about itself: counters, transports, costs. */
#include "core.h"

static PyObject *worker_counters(PyObject *self, PyObject *unused) {
    struct worker *w = (struct worker *)self;
    if (weft__py_look(w) < 0) return NULL;
    PyObject *dict = PyDict_New();
    const char *name;
    uint64_t value;
    for (size_t i = 0; dict && weft_worker_counter(w->handle, i, &name, &value) == WEFT_OK; i++) {
        PyObject *number = PyLong_FromUnsignedLongLong(value);
        if (!number || PyDict_SetItemString(dict, name, number) < 0) Py_CLEAR(dict);
        Py_XDECREF(number);
    }
    weft__py_looked(w);
    return dict;
}

static PyObject *capabilities_of(uint64_t bits) {
    PyObject *list = PyList_New(0);
    const char *name;
    for (unsigned bit = 0; list && (name = weft_capability_name(bit)); bit++) {
        if (!(bits >> bit & 1)) continue;
        PyObject *text = PyUnicode_FromString(name);
        if (!text || PyList_Append(list, text) < 0) Py_CLEAR(list);
        Py_XDECREF(text);
    }
    return list;
}

/* Transports that could not be opened, each with its reason. */
static PyObject *unopened_of(weft_worker_t *worker) {
    PyObject *dict = PyDict_New();
    const char *name, *why;
    for (size_t i = 0; dict && weft_worker_unopened(worker, i, &name, &why) == WEFT_OK; i++) {
        PyObject *text = PyUnicode_DecodeUTF8(why, (Py_ssize_t)strlen(why), "replace");
        if (!text || PyDict_SetItemString(dict, name, text) < 0) Py_CLEAR(dict);
        Py_XDECREF(text);
    }
    return dict;
}

static PyObject *dict_of(weft_worker_t *worker, const weft_worker_info_t *info) {
    static const char *const modes[] = {"single", "serialized", "multiple"};
    return Py_BuildValue("{sssKsssNsNsNsN}", "name", info->name, "id", (unsigned long long)info->id,
                         "thread_mode", modes[info->thread_mode], "on_loop",
                         PyBool_FromLong(info->on_loop), "has_thread",
                         PyBool_FromLong(info->has_thread), "is_associated",
                         PyBool_FromLong(info->is_associated), "unopened", unopened_of(worker));
}

static PyObject *worker_describe(PyObject *self, PyObject *unused) {
    struct worker *w = (struct worker *)self;
    weft_worker_info_t info;
    if (weft__py_look(w) < 0) return NULL;
    weft_status_t status = weft_worker_describe(w->handle, &info);
    PyObject *dict = status < 0 ? weft__py_raise(w->state, status) : dict_of(w->handle, &info);
    weft__py_looked(w);
    return dict;
}

static PyObject *worker_transports(PyObject *self, PyObject *unused) {
    struct worker *w = (struct worker *)self;
    if (weft__py_look(w) < 0) return NULL;
    PyObject *list = PyList_New(0);
    weft_transport_info_t info;
    for (size_t i = 0; list && weft_worker_transport(w->handle, i, &info) == WEFT_OK; i++) {
        PyObject *row = Py_BuildValue(
            "{sssssdsdsdsdsnsnsnsnsisN}", "name", info.name, "device",
            info.device ? info.device : "", "latency_ns", info.latency_ns, "bandwidth",
            info.bandwidth, "overhead_ns", info.overhead_ns, "message_rate", info.message_rate,
            "max_short", (Py_ssize_t)info.max_short, "max_bcopy", (Py_ssize_t)info.max_bcopy,
            "max_zcopy", (Py_ssize_t)info.max_zcopy, "max_iov", (Py_ssize_t)info.max_iov,
            "numa_node", info.numa_node, "capabilities", capabilities_of(info.capabilities));
        if (!row || PyList_Append(list, row) < 0) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    weft__py_looked(w);
    return list;
}

static PyObject *worker_calibration(PyObject *self, PyObject *unused) {
    struct worker *w = (struct worker *)self;
    if (weft__py_look(w) < 0) return NULL;
    PyObject *list = PyList_New(0);
    weft_calibration_info_t info;
    for (size_t i = 0; list && weft_worker_calibration(w->handle, i, &info) == WEFT_OK; i++) {
        PyObject *row = Py_BuildValue("{sssssssdss}", "name", info.name, "unit", info.unit, "help",
                                      info.help, "value", info.value, "origin", info.origin);
        if (!row || PyList_Append(list, row) < 0) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    weft__py_looked(w);
    return list;
}

static PyObject *worker_trace(PyObject *self, PyObject *unused) {
    struct worker *w = (struct worker *)self;
    if (weft__py_look(w) < 0) return NULL;
    size_t size = weft_worker_trace(w->handle, NULL, 0) + 1;
    char *text = malloc(size);
    if (text) weft_worker_trace(w->handle, text, size);
    weft__py_looked(w);
    if (!text) return PyErr_NoMemory();
    PyObject *result = PyUnicode_DecodeUTF8(text, strnlen(text, size), "replace");
    free(text);
    return result;
}

PyMethodDef weft__py_inspect_methods[] = {
    {"counters", worker_counters, METH_NOARGS, "A dict of all counters, by name."},
    {"describe", worker_describe, METH_NOARGS, "What the worker is, as a dict."},
    {"transports", worker_transports, METH_NOARGS, "The open transports, a dict each."},
    {"calibration", worker_calibration, METH_NOARGS, "Costs of this machine, a dict each."},
    {"trace", worker_trace, METH_NOARGS, "The last steps of the worker's machines, as text."},
    {NULL, NULL, 0, NULL}};
