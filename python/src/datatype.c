/* Element types of the program's own. They belong to a team and end with it. */
#include "team.h"

/* One whose elements objects of the program pack: make(memory, count) gives such an object. */
struct datatype {
    struct datatype *next;
    struct team *team;
    PyObject *make;
    size_t size, extent;
    bool taken;
    weft_datatype_t number, named; /* as of a reduction */
    PyObject *raised;              /* the first exception that was not taken */
};

/* Some elements, from or to their packed form. */
struct move {
    struct datatype *type;
    PyObject *memory, *layout;
};

static bool find_layout(struct move *m, void *elements, size_t count, int access) {
    m->memory = PyMemoryView_FromMemory(elements, count * m->type->extent, access);
    if (!m->memory) return false;
    m->layout = PyObject_CallFunction(m->type->make, "On", m->memory, (Py_ssize_t)count);
    return m->layout;
}

static weft_status_t start(void *elements, size_t count, int receives, void **state_p,
                           size_t *len_p) {
    struct datatype *type = *state_p;
    PyThreadState *was;
    struct move *m = calloc(1, sizeof *m);
    if (!m) return WEFT_ERR_NO_MEMORY;
    m->type = type;
    bool enters = weft__py_enter(type->team->worker, &was);
    if (!enters || !find_layout(m, elements, count, receives ? PyBUF_WRITE : PyBUF_READ)) {
        if (enters) weft__py_keep_raised(&type->raised);
        if (enters) weft__py_end_view(m->memory);
        if (enters) weft__py_leave(type->team->worker, was);
        free(m);
        return WEFT_ERR_CANCELLED;
    }
    weft__py_leave(type->team->worker, was);
    *state_p = m;
    *len_p = count * type->size;
    return WEFT_OK;
}

static weft_status_t move(struct move *m, const char *name, size_t offset, void *bytes, size_t len,
                          int access) {
    struct team *t = m->type->team;
    PyThreadState *was;
    if (!weft__py_enter(t->worker, &was)) return WEFT_ERR_CANCELLED;
    int failed = weft__py_move(m->layout, name, offset, bytes, len, access);
    if (failed) weft__py_keep_raised(&m->type->raised);
    weft__py_leave(t->worker, was);
    return failed ? WEFT_ERR_CANCELLED : WEFT_OK;
}

static weft_status_t pack(void *state, size_t offset, void *to, size_t len) {
    return move(state, "pack", offset, to, len, PyBUF_WRITE);
}

static weft_status_t unpack(void *state, size_t offset, const void *from, size_t len) {
    return move(state, "unpack", offset, (void *)from, len, PyBUF_READ);
}

/* A worker that ends enters Python no more: then the objects are left to the end of the process. */
static void end(void *state) {
    struct move *m = state;
    struct worker *worker = m->type->team->worker;
    PyThreadState *was;
    if (weft__py_enter(worker, &was)) {
        Py_DECREF(m->layout);
        weft__py_end_view(m->memory);
        weft__py_leave(worker, was);
    }
    free(m);
}

static const weft_pack_ops_t calling = {start, pack, unpack, end};

static PyObject *created(struct team *t, const weft_datatype_params_t *params) {
    weft_datatype_t type;
    weft_status_t status = weft_datatype_create(t->handle, params, &type);
    return status < 0 ? weft__py_raise(t->worker->state, status) : PyLong_FromLong(type);
}

/* Another one that the same function packs. NULL: raised. */
static struct datatype *packed(struct team *t, const struct datatype *like) {
    struct datatype *d = calloc(1, sizeof *d);
    if (!d) return (void *)PyErr_NoMemory();
    *d = (struct datatype){.next = t->datatypes,
                           .team = t,
                           .make = like->make,
                           .size = like->size,
                           .extent = like->extent,
                           .named = like->named};
    weft_layout_t layout = {.kind = WEFT_LAYOUT_USER, .user = &calling};
    weft_datatype_params_t params = {
        .size = d->size, .layout = &layout, .extent = d->extent, .arg = d};
    weft_status_t status = weft_datatype_create(t->handle, &params, &d->number);
    if (status < 0) {
        free(d);
        return weft__py_raise(t->worker->state, status);
    }
    Py_INCREF(d->make);
    t->datatypes = d;
    return d;
}

static PyObject *named(struct datatype *d) {
    if (!d) return NULL;
    d->named = d->number;
    return PyLong_FromLong(d->number);
}

/* datatype(size, extent, block, stride, count, make) -> int. count 0: elements lie in a row, or
 * objects of make(memory, count) pack them. */
PyObject *weft__py_datatype(PyObject *self, PyObject *args) {
    struct team *t = (struct team *)self;
    Py_ssize_t size, extent, block, stride, count;
    PyObject *make;
    if (!PyArg_ParseTuple(args, "nnnnnO", &size, &extent, &block, &stride, &count, &make) ||
        weft__py_team_open(t) < 0) {
        return NULL;
    }
    if (size < 0 || extent < 0 || block < 0 || stride < 0 || count < 0)
        return weft__py_raise_text(t->worker->state, WEFT_ERR_INVALID_PARAM,
                                   "a size, extent or stride is negative");
    if (make != Py_None)
        return named(packed(t, &(struct datatype){.make = make, .size = size, .extent = extent}));
    weft_layout_t layout = {
        .kind = WEFT_LAYOUT_STRIDED, .block = block, .stride = stride, .count = count};
    return created(t, &(weft_datatype_params_t){.size = size,
                                                .layout = count ? &layout : NULL,
                                                .extent = count ? extent : 0});
}

static struct datatype *find(struct team *t, int number) {
    struct datatype *d = t->datatypes;
    while (d && (int)d->number != number) d = d->next;
    return d;
}

int weft__py_datatype_take(struct team *t, int number) {
    struct datatype *base = find(t, number), *d = t->datatypes;
    if (!base) return number;
    while (d && (d->taken || d->named != base->number)) d = d->next;
    if (!d) d = packed(t, base);
    if (!d) return -1;
    d->taken = true;
    return d->number;
}

void weft__py_datatype_give_back(struct team *t, int number) {
    struct datatype *d = find(t, number);
    if (d) d->taken = false;
}

PyObject *weft__py_datatype_raised(struct team *t, int number) {
    struct datatype *d = find(t, number);
    PyObject *raised = d ? d->raised : NULL;
    if (d) d->raised = NULL;
    return raised;
}

int weft__py_datatypes_traverse(struct team *t, visitproc visit, void *arg) {
    for (struct datatype *d = t->datatypes; d; d = d->next) {
        Py_VISIT(d->make);
        Py_VISIT(d->raised);
    }
    return 0;
}

void weft__py_datatypes_free(struct team *t) {
    while (t->datatypes) {
        struct datatype *d = t->datatypes;
        t->datatypes = d->next;
        Py_DECREF(d->make);
        Py_XDECREF(d->raised);
        free(d);
    }
}
