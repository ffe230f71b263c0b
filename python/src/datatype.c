/* Element types of the program's own. They belong to a team and end with it. */
#include "team.h"

/* One whose elements objects of the program pack: make(memory, count) gives such an object. */
struct datatype {
    struct callable call; /* of `make`; first: it is freed by this */
    size_t size, extent;
};

/* Some elements, from or to their packed form. */
struct move {
    struct datatype *type;
    PyObject *memory, *layout;
};

static bool find_layout(struct move *m, void *elements, size_t count, int access) {
    m->memory = PyMemoryView_FromMemory(elements, count * m->type->extent, access);
    if (!m->memory) return false;
    m->layout = PyObject_CallFunction(m->type->call.fn, "On", m->memory, (Py_ssize_t)count);
    return m->layout;
}

static weft_status_t start(void *elements, size_t count, int receives, void **state_p,
                           size_t *len_p) {
    struct datatype *type = *state_p;
    struct worker *worker = type->call.team->worker;
    PyThreadState *was;
    struct move *m = calloc(1, sizeof *m);
    if (!m) return WEFT_ERR_NO_MEMORY;
    m->type = type;
    bool enters = weft__py_enter(worker, &was);
    if (enters) weft__py_signals(worker);
    if (!enters || !find_layout(m, elements, count, receives ? PyBUF_WRITE : PyBUF_READ)) {
        if (enters) weft__py_keep_failure(worker, &type->call.raised);
        if (enters) weft__py_end_view(m->memory);
        if (enters) weft__py_leave(worker, was);
        free(m);
        return WEFT_ERR_CANCELLED;
    }
    weft__py_leave(worker, was);
    *state_p = m;
    *len_p = count * type->size;
    return WEFT_OK;
}

static weft_status_t move(struct move *m, const char *name, size_t offset, void *bytes, size_t len,
                          int access) {
    struct team *t = m->type->call.team;
    PyThreadState *was;
    if (!weft__py_enter(t->worker, &was)) return WEFT_ERR_CANCELLED;
    weft__py_signals(t->worker);
    int failed = weft__py_move(m->layout, name, offset, bytes, len, access);
    if (failed) weft__py_keep_failure(t->worker, &m->type->call.raised);
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
    struct worker *worker = m->type->call.team->worker;
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

static struct callable *make_packed(const struct datatype *like) {
    struct team *t = like->call.team;
    struct datatype *d = calloc(1, sizeof *d);
    weft_datatype_t number;
    if (!d) return (void *)PyErr_NoMemory();
    *d = (struct datatype){.call = {.team = t, .fn = like->call.fn, .named = like->call.named},
                           .size = like->size,
                           .extent = like->extent};
    weft_layout_t layout = {.kind = WEFT_LAYOUT_USER, .user = &calling};
    weft_datatype_params_t params = {
        .size = d->size, .layout = &layout, .extent = d->extent, .arg = d};
    weft_status_t status = weft_datatype_create(t->handle, &params, &number);
    if (status < 0) {
        free(d);
        return weft__py_raise(t->worker->state, status);
    }
    d->call.number = number;
    weft__py_callable_list(&t->datatypes, &d->call);
    return &d->call;
}

struct callable *weft__py_datatype_another(const struct callable *like) {
    return make_packed((const struct datatype *)like);
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
    if (make != Py_None) {
        struct callable *made = make_packed(
            &(struct datatype){.call = {.team = t, .fn = make}, .size = size, .extent = extent});
        return made ? PyLong_FromLong(made->number) : NULL;
    }
    weft_layout_t layout = {
        .kind = WEFT_LAYOUT_STRIDED, .block = block, .stride = stride, .count = count};
    return created(t, &(weft_datatype_params_t){.size = size,
                                                .layout = count ? &layout : NULL,
                                                .extent = count ? extent : 0});
}
