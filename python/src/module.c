/* The extension module: its types, and what they share. */
#include "dlpack.h"

void weft__py_free(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    freefunc free_self = (freefunc)PyType_GetSlot(type, Py_tp_free);
    free_self(self);
    Py_DECREF((PyObject *)type);
}

/* A subclass in Python has no module state of its own; its base has. */
struct state *weft__py_state(PyTypeObject *type) {
    struct state *state;
    while (!(state = PyType_GetModuleState(type))) {
        PyErr_Clear();
        type = (PyTypeObject *)PyType_GetSlot(type, Py_tp_base);
    }
    return state;
}

static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec) {
    PyTypeObject *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    if (type && PyModule_AddType(module, type) < 0) Py_CLEAR(type);
    return type;
}

static int add_methods(PyTypeObject *type, PyMethodDef *methods) {
    for (; methods->ml_name; methods++) {
        PyObject *method = PyDescr_NewMethod(type, methods);
        int failed =
            method ? PyObject_SetAttrString((PyObject *)type, methods->ml_name, method) : -1;
        Py_XDECREF(method);
        if (failed) return -1;
    }
    return 0;
}

static int add_types(PyObject *module, struct state *s) {
    const struct {
        PyTypeObject **type_p;
        PyType_Spec *spec;
        PyMethodDef *methods[8];
    } types[] = {
        {&s->context, &weft__py_context_spec, {NULL}},
        {&s->worker,
         &weft__py_worker_spec,
         {weft__py_connect_methods, weft__py_tag_worker_methods, weft__py_am_worker_methods,
          weft__py_memory_methods, weft__py_inspect_methods, weft__py_team_methods,
          weft__py_view_methods}},
        {&s->ep,
         &weft__py_ep_spec,
         {weft__py_tag_methods, weft__py_am_methods, weft__py_stream_methods,
          weft__py_rma_methods}},
        {&s->listener, &weft__py_listener_spec, {NULL}},
        {&s->request, &weft__py_request_spec, {NULL}},
        {&s->message, &weft__py_message_spec, {NULL}},
        {&s->taken, &weft__py_taken_spec, {NULL}},
        {&s->block, &weft__py_block_spec, {NULL}},
        {&s->memory, &weft__py_memory_spec, {NULL}},
        {&s->rkey, &weft__py_rkey_spec, {NULL}},
        {&s->team, &weft__py_team_spec, {NULL}},
        {&s->view, &weft__py_view_spec, {NULL}},
        {&s->coll, &weft__py_coll_spec, {NULL}},
        {&s->layout, &weft__py_layout_spec, {NULL}},
        {&s->graph, &weft__py_graph_spec, {NULL}},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        PyTypeObject *type = *types[i].type_p = add_type(module, types[i].spec);
        if (!type) return -1;
        for (PyMethodDef *const *m = types[i].methods; *m; m++) {
            if (add_methods(type, *m) < 0) return -1;
        }
    }
    return 0;
}

PyObject *weft__py_attribute(PyObject *object, const char *name) {
    PyObject *interned = PyUnicode_InternFromString(name);
    PyObject *found = interned ? PyObject_GetAttr(object, interned) : NULL;
    Py_XDECREF(interned);
    return found;
}

static int add_names(struct state *s) {
    s->set_result = PyUnicode_InternFromString("set_result");
    s->set_exception = PyUnicode_InternFromString("set_exception");
    s->done = PyUnicode_InternFromString("done");
    s->ready = PyUnicode_InternFromString("_ready");
    s->lost = PyUnicode_InternFromString("_lost");
    s->gone = PyUnicode_InternFromString("_gone");
    s->stream_data = PyUnicode_InternFromString("_stream_data");
    s->append = PyUnicode_InternFromString("append");
    bool made = s->set_result && s->set_exception && s->done && s->ready && s->lost && s->gone &&
                s->stream_data && s->append;
    return made ? 0 : -1;
}

/* The statuses, as ((number, name, sentence, hint), …). */
static int add_statuses(PyObject *module) {
    PyObject *list = PyList_New(0);
    for (int status = WEFT_OK; list && status >= WEFT_STATUS_LAST; status--) {
        PyObject *row = Py_BuildValue("(isss)", status, weft_status_name(status),
                                      weft_status_sentence(status), weft_status_hint(status));
        if (!row || PyList_Append(list, row) < 0) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    int failed = list ? PyModule_AddObjectRef(module, "statuses", list) : -1;
    Py_XDECREF(list);
    return failed;
}

/* Callbacks on other threads enter the main interpreter (PyGILState_Ensure). */
static int check_interpreter(void) {
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) == 0) return 0;
    PyErr_SetString(PyExc_ImportError, "weft runs in the main interpreter alone");
    return -1;
}

static int execute(PyObject *module) {
    struct state *state = PyModule_GetState(module);
    if (check_interpreter() < 0) return -1;
    if (add_types(module, state) < 0 || add_names(state) < 0 || add_statuses(module) < 0 ||
        weft__py_add_exchange(module, state) < 0) {
        return -1;
    }
    if (PyModule_AddStringConstant(module, "version", weft_version()) < 0 ||
        PyModule_AddIntConstant(module, "AM_HEADER_MAX", WEFT_AM_HEADER_MAX) < 0 ||
        PyModule_AddIntConstant(module, "AM_ID_MAX", WEFT_AM_ID_MAX) < 0 ||
        PyModule_AddIntConstant(module, "FLUSH_REMOTE", WEFT_FLUSH_REMOTE) < 0 ||
        PyModule_AddIntConstant(module, "RMA_REMOTE", WEFT_RMA_REMOTE) < 0 ||
        PyModule_AddIntConstant(module, "COLL_FIXED_ORDER", WEFT_COLL_FIXED_ORDER) < 0 ||
        PyModule_AddIntConstant(module, "COLL_SAFE", WEFT_COLL_SAFE) < 0) {
        return -1;
    }
    return 0;
}

/* setup(make_error, find_buffer): what is written in Python. */
static PyObject *setup(PyObject *module, PyObject *args) {
    struct state *state = PyModule_GetState(module);
    PyObject *make_error, *find_buffer;
    if (!PyArg_ParseTuple(args, "OO", &make_error, &find_buffer)) return NULL;
    Py_XDECREF(state->make_error);
    Py_XDECREF(state->find_buffer);
    state->make_error = Py_NewRef(make_error);
    state->find_buffer = Py_NewRef(find_buffer);
    Py_RETURN_NONE;
}

/* A contiguous copy of a buffer's bytes, in the order of its elements. */
static PyObject *pack(PyObject *module, PyObject *args) {
    struct state *state = PyModule_GetState(module);
    PyObject *object;
    struct buffers buffers;
    if (!PyArg_ParseTuple(args, "O", &object)) return NULL;
    if (PyObject_TypeCheck(object, state->layout)) return weft__py_pack_layout(object);
    buffers.worker = NULL;
    if (weft__py_hold_buffer(state, &buffers, object, false) < 0) return NULL;
    if (buffers.of_device) {
        weft__py_give_back(&buffers);
        return weft__py_raise_text(state, WEFT_ERR_UNSUPPORTED, "memory of a GPU");
    }
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, buffers.total);
    if (bytes) weft__py_gather(&buffers, PyBytes_AsString(bytes));
    weft__py_give_back(&buffers);
    return bytes;
}

/* unraisable(exception, of): what a handler has raised where it is not its caller's. */
static PyObject *unraisable(PyObject *module, PyObject *args) {
    PyObject *exception, *of;
    if (!PyArg_ParseTuple(args, "O!O", PyExc_BaseException, &exception, &of)) return NULL;
    PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
    PyErr_WriteUnraisable(of);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"unraisable", unraisable, METH_VARARGS,
     "unraisable(exception, of): hands the exception of a handler to sys.unraisablehook."},
    {"setup", setup, METH_VARARGS, NULL},
    {"pack", pack, METH_VARARGS, "pack(buffers) -> bytes: what a send of them would send."},
    {"check_elements", weft__py_check_elements, METH_O,
     "check_elements(buffer): TypeError if its elements are Python objects."},
    {"log_route", weft__py_log_route, METH_VARARGS,
     "log_route(fd): where lines of the log go, as packets; -1: to standard error."},
    {"log_dropped", weft__py_log_dropped, METH_NOARGS,
     "log_dropped() -> int: lines that had no room since the last call."},
    {"from_dlpack", weft__py_from_dlpack, METH_O, "from_dlpack(capsule) -> Block of its memory."},
    {"exchange", weft__py_exchange, METH_O,
     "exchange(object) -> (Block, stream) by DLPack's C exchange API of its type, or None."},
    {"block_around", (PyCFunction)(void (*)(void))weft__py_block_around,
     METH_VARARGS | METH_KEYWORDS, "A Block over another object's memory."},
    {NULL, NULL, 0, NULL}};

static int traverse(PyObject *module, visitproc visit, void *arg) {
    struct state *s = PyModule_GetState(module);
    PyTypeObject *types[] = {s->context, s->worker, s->ep,    s->listener, s->request,
                             s->message, s->taken,  s->block, s->memory,   s->rkey,
                             s->team,    s->view,   s->coll,  s->layout,   s->graph};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) Py_VISIT(types[i]);
    Py_VISIT(s->make_error);
    Py_VISIT(s->find_buffer);
    return 0;
}

static int clear(PyObject *module) {
    struct state *s = PyModule_GetState(module);
    PyTypeObject **types[] = {&s->context, &s->worker, &s->ep,    &s->listener, &s->request,
                              &s->message, &s->taken,  &s->block, &s->memory,   &s->rkey,
                              &s->team,    &s->view,   &s->coll,  &s->layout,   &s->graph};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) Py_CLEAR(*types[i]);
    Py_CLEAR(s->make_error);
    Py_CLEAR(s->find_buffer);
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, execute},
#ifdef Py_GIL_DISABLED
                                   {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
                                   {0, NULL}};

static struct PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT,
                                        .m_name = "weft._core",
                                        .m_doc = "The C library, as weft uses it.",
                                        .m_size = sizeof(struct state),
                                        .m_methods = methods,
                                        .m_slots = slots,
                                        .m_traverse = traverse,
                                        .m_clear = clear};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) {
    return PyModuleDef_Init(&definition);
}
