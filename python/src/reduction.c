/* Reductions of the program's own. They belong to a team and end with it. */
#include "team.h"

/* Collectives in progress at once have a number each, so that what is raised is of one of them. */
struct reduction {
    struct reduction *next;
    struct team *team;
    PyObject *fn;
    size_t size; /* bytes of an element */
    bool commutes, taken;
    weft_reduction_t number, named; /* named: the one that the program has */
    PyObject *raised;               /* the first exception that was not taken */
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

/* Another one of the same function. NULL: raised. */
static struct reduction *make(struct team *t, const struct reduction *like) {
    struct reduction *r = calloc(1, sizeof *r);
    if (!r) return (void *)PyErr_NoMemory();
    *r = (struct reduction){.team = t,
                            .fn = like->fn,
                            .size = like->size,
                            .commutes = like->commutes,
                            .named = like->named};
    uint32_t flags = like->commutes ? WEFT_REDUCTION_COMMUTES : 0;
    weft_status_t status = weft_reduction_create(t->handle, reduce, r, flags, &r->number);
    if (status < 0) {
        free(r);
        return weft__py_raise(t->worker->state, status);
    }
    Py_INCREF(r->fn);
    r->next = t->reductions;
    t->reductions = r;
    return r;
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
    struct reduction *r =
        make(t, &(struct reduction){.fn = fn, .size = size, .commutes = commutes});
    if (!r) return NULL;
    r->named = r->number;
    return PyLong_FromLong(r->number);
}

static struct reduction *find(struct team *t, int number) {
    struct reduction *r = t->reductions;
    while (r && (int)r->number != number) r = r->next;
    return r;
}

int weft__py_reduction_take(struct team *t, int number) {
    struct reduction *named = find(t, number), *r = t->reductions;
    if (!named) return number;
    while (r && (r->taken || r->named != named->number)) r = r->next;
    if (!r) r = make(t, named);
    if (!r) return -1;
    r->taken = true;
    return r->number;
}

void weft__py_reduction_give_back(struct team *t, int number) {
    struct reduction *r = find(t, number);
    if (r) r->taken = false;
}

PyObject *weft__py_reduction_raised(struct team *t, int number) {
    struct reduction *r = find(t, number);
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
