/* Reductions of the program's own. They belong to a team and end with it. */
#include "team.h"

struct reduction {
    struct callable call; /* first: it is freed by this */
    size_t size;          /* bytes of an element */
    bool commutes;
};

static PyObject *view_of(const void *memory, size_t len, bool writes) {
    return PyMemoryView_FromMemory((char *)memory, len, writes ? PyBUF_WRITE : PyBUF_READ);
}

static void reduce(void *to, const void *left, const void *right, size_t count, void *arg) {
    struct reduction *r = arg;
    struct worker *worker = r->call.team->worker;
    PyThreadState *was;
    if (!weft__py_enter(worker, &was)) return;
    weft__py_signals(worker);
    /* `to` may be an operand, which the function must be able to read until it has ended. */
    size_t len = count * r->size;
    PyObject *result = PyBytes_FromStringAndSize(NULL, len);
    PyObject *views[3] = {view_of(left, len, false), view_of(right, len, false), NULL};
    if (result) views[2] = view_of(PyBytes_AsString(result), len, true);
    PyObject *done = NULL;
    if (views[0] && views[1] && views[2]) {
        done = PyObject_CallFunctionObjArgs(r->call.fn, views[0], views[1], views[2], NULL);
    }
    if (done) {
        memcpy(to, PyBytes_AsString(result), len);
    } else {
        weft__py_keep_failure(worker, &r->call.raised);
    }
    for (int i = 0; i < 3; i++) weft__py_end_view(views[i]);
    Py_XDECREF(done);
    Py_XDECREF(result);
    weft__py_leave(worker, was);
}

static struct callable *make(const struct reduction *like) {
    struct team *t = like->call.team;
    struct reduction *r = calloc(1, sizeof *r);
    weft_reduction_t number;
    if (!r) return (void *)PyErr_NoMemory();
    *r = (struct reduction){.call = {.team = t, .fn = like->call.fn, .named = like->call.named},
                            .size = like->size,
                            .commutes = like->commutes};
    uint32_t flags = like->commutes ? WEFT_REDUCTION_COMMUTES : 0;
    weft_status_t status = weft_reduction_create(t->handle, reduce, r, flags, &number);
    if (status < 0) {
        free(r);
        return weft__py_raise(t->worker->state, status);
    }
    r->call.number = number;
    weft__py_callable_list(&t->reductions, &r->call);
    return &r->call;
}

struct callable *weft__py_reduction_another(const struct callable *like) {
    return make((const struct reduction *)like);
}

/* post_reduction(fn, size, commutes) -> int */
PyObject *weft__py_reduction(PyObject *self, PyObject *args) {
    struct team *t = (struct team *)self;
    PyObject *fn;
    Py_ssize_t size;
    int commutes;
    if (!PyArg_ParseTuple(args, "Onp", &fn, &size, &commutes) || weft__py_team_open(t) < 0) {
        return NULL;
    }
    if (size < 1)
        return weft__py_raise_text(t->worker->state, WEFT_ERR_INVALID_PARAM, "size is below 1");
    struct callable *made = make(
        &(struct reduction){.call = {.team = t, .fn = fn}, .size = size, .commutes = commutes});
    return made ? PyLong_FromLong(made->number) : NULL;
}
