/* Reductions of the program's own. They belong to a team and end with it. */
#include "team.h"

struct reduction {
    struct reduction *next;
    struct team *team;
    PyObject *fn;
    size_t size; /* bytes of an element */
    weft_reduction_t number;
    PyObject *raised; /* the first exception that was not taken */
};

static PyObject *view_of(const void *memory, size_t len, bool writes) {
    return PyMemoryView_FromMemory((char *)memory, len, writes ? PyBUF_WRITE : PyBUF_READ);
}

static void reduce(void *to, const void *left, const void *right, size_t count, void *arg) {
    struct reduction *r = arg;
    PyThreadState *was;
    if (!weft__py_enter(r->team->worker, &was)) return;
    /* `to` may be an operand, which the function must be able to read until it has ended. */
    size_t len = count * r->size;
    PyObject *result = PyBytes_FromStringAndSize(NULL, len);
    PyObject *views[3] = {view_of(left, len, false), view_of(right, len, false), NULL};
    if (result) views[2] = view_of(PyBytes_AsString(result), len, true);
    PyObject *done = NULL;
    if (views[0] && views[1] && views[2]) {
        done = PyObject_CallFunctionObjArgs(r->fn, views[0], views[1], views[2], NULL);
    }
    if (done) {
        memcpy(to, PyBytes_AsString(result), len);
    } else {
        weft__py_keep_raised(&r->raised);
    }
    for (int i = 0; i < 3; i++) weft__py_end_view(views[i]);
    Py_XDECREF(done);
    Py_XDECREF(result);
    weft__py_leave(r->team->worker, was);
}

/* post_reduction(fn, size, commutes) -> int */
PyObject *weft__py_reduction(PyObject *self, PyObject *args) {
    struct team *t = (struct team *)self;
    PyObject *fn;
    Py_ssize_t size;
    int commutes;
    weft_reduction_t number;
    if (!PyArg_ParseTuple(args, "Onp", &fn, &size, &commutes) || weft__py_team_open(t) < 0) {
        return NULL;
    }
    if (size < 1)
        return weft__py_raise_text(t->worker->state, WEFT_ERR_INVALID_PARAM, "size is below 1");
    struct reduction *r = calloc(1, sizeof *r);
    if (!r) return PyErr_NoMemory();
    *r = (struct reduction){.team = t, .fn = Py_NewRef(fn), .size = size};
    weft_status_t status = weft_reduction_create(t->handle, reduce, r,
                                                 commutes ? WEFT_REDUCTION_COMMUTES : 0, &number);
    if (status < 0) {
        Py_DECREF(r->fn);
        free(r);
        return weft__py_raise(t->worker->state, status);
    }
    r->number = number;
    r->next = t->reductions;
    t->reductions = r;
    return PyLong_FromLong(number);
}

PyObject *weft__py_reduction_raised(struct team *t, int number) {
    struct reduction *r = t->reductions;
    while (r && (int)r->number != number) r = r->next;
    PyObject *raised = r ? r->raised : NULL;
    if (r) r->raised = NULL;
    return raised;
}

int weft__py_reductions_traverse(struct team *t, visitproc visit, void *arg) {
    for (struct reduction *r = t->reductions; r; r = r->next) {
        Py_VISIT(r->fn);
        Py_VISIT(r->raised);
    }
    return 0;
}

void weft__py_reductions_free(struct team *t) {
    while (t->reductions) {
        struct reduction *r = t->reductions;
        t->reductions = r->next;
        Py_DECREF(r->fn);
        Py_XDECREF(r->raised);
        free(r);
    }
}
