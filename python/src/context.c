/* The context: settings, and the parent of workers. */
#include "core.h"

struct context {
    PyObject_HEAD weft_context_t *handle;
};

/* The pairs of a dict of strings, as settings that refer to the dict's strings. */
static int settings_of(PyObject *dict, weft_setting_t *settings, size_t *n_p) {
    PyObject *name, *value;
    Py_ssize_t at = 0;
    *n_p = 0;
    while (PyDict_Next(dict, &at, &name, &value)) {
        weft_setting_t *setting = &settings[(*n_p)++];
        if (!PyUnicode_Check(name) || !PyUnicode_Check(value)) {
            PyErr_Format(PyExc_TypeError, "settings are strings: %R: %R", name, value);
            return -1;
        }
        setting->name = weft__py_utf8(name);
        setting->value = setting->name ? weft__py_utf8(value) : NULL;
        if (!setting->value) return -1;
    }
    return 0;
}

static PyObject *new (PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"settings", "file", NULL};
    PyObject *dict = NULL;
    weft_context_params_t params = {0};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O!z", names, &PyDict_Type, &dict,
                                     &params.file)) {
        return NULL;
    }
    /* Its own, since another thread may change the program's. */
    dict = dict ? PyDict_Copy(dict) : PyDict_New();
    if (!dict) return NULL;
    struct context *self = (struct context *)PyType_GenericAlloc(type, 0);
    weft_setting_t *settings = calloc(PyDict_Size(dict) + 1, sizeof *settings);
    weft_status_t status = WEFT_ERR_NO_MEMORY;
    if (!self || !settings || settings_of(dict, settings, &params.n_settings) < 0) {
        goto fail;
    }
    params.settings = settings;
    params.log = weft__py_log;
    status = weft_context_create(&params, &self->handle);
    if (status == WEFT_OK) {
        free(settings);
        Py_DECREF(dict);
        return (PyObject *)self;
    }
    weft__py_raise(weft__py_state(type), status);
fail:
    if (!PyErr_Occurred()) PyErr_NoMemory();
    free(settings);
    Py_DECREF(dict);
    Py_XDECREF((PyObject *)self);
    return NULL;
}

static void dealloc(PyObject *self) {
    weft_context_t *handle = ((struct context *)self)->handle;
    if (handle) weft_context_destroy(handle);
    weft__py_free(self);
}

static PyObject *list_settings(PyObject *self, PyObject *unused) {
    static const char *const origins[] = {"default", "file", "environment", "params"};
    PyObject *list = PyList_New(0);
    weft_setting_info_t info;
    for (size_t i = 0; list; i++) {
        if (weft_context_setting(((struct context *)self)->handle, i, &info) < 0) break;
        PyObject *row = Py_BuildValue("{sssO&ssssssss}", "name", info.name, "value", weft__py_text,
                                      info.value, "unit", info.unit, "help", info.help, "range",
                                      info.range, "origin", origins[info.origin]);
        if (!row || PyList_Append(list, row) < 0) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

static PyMethodDef methods[] = {
    {"settings", list_settings, METH_NOARGS,
     "Every setting as a dict: name, value, unit, help, range, origin."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {
    {Py_tp_new, new}, {Py_tp_dealloc, dealloc}, {Py_tp_methods, methods}, {0, NULL}};

PyType_Spec weft__py_context_spec = {"weft._core.Context", sizeof(struct context), 0,
                                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

weft_context_t *weft__py_context_handle(PyObject *self) {
    return ((struct context *)self)->handle;
}
