/* Collectives on contiguous buffers. What they mean, and types, are in weft/teams.py. */
#include "team.h"

/* The address of a buffer that `keep`, a list, holds from now on. None is NULL. */
static int address_of(struct state *state, PyObject *object, bool writes, PyObject *keep,
                      void **address_p) {
    Py_buffer view;
    bool of_device = false;
    PyObject *held, *unused = NULL;
    *address_p = NULL;
    if (object == Py_None) return 0;
    held = Py_TYPE(object) == state->block ? Py_NewRef(object) : PyMemoryView_FromObject(object);
    if (!held) return -1;
    int failed = weft__py_view(state, held, writes ? PyBUF_WRITABLE : PyBUF_SIMPLE, &view, &unused,
                               &of_device) < 0 ||
                 PyList_Append(keep, held) < 0;
    Py_DECREF(held); /* the list's memoryview, or block, keeps the memory */
    if (failed) return -1;
    *address_p = view.buf;
    PyBuffer_Release(&view);
    return 0;
}

/* The numbers of a tuple, to be freed; NULL for None. */
static int counts_of(PyObject *tuple, uint64_t **counts_p) {
    *counts_p = NULL;
    if (tuple == Py_None) return 0;
    Py_ssize_t n = PyTuple_Size(tuple);
    if (n < 0) return -1;
    *counts_p = calloc(n + 1, sizeof **counts_p);
    if (!*counts_p) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        (*counts_p)[i] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(tuple, i));
    }
    return PyErr_Occurred() ? -1 : 0;
}

/*
 * post(kind, type, reduction, root, src, dst, count, (src_counts, src_displs, dst_counts,
 * dst_displs), in_place, deadline_ms, flags) -> None, or a Request.
 */
PyObject *weft__py_coll(PyObject *self, PyObject *args) {
    struct team *t = (struct team *)self;
    PyObject *src, *dst, *counts[4];
    int kind, type, reduction, in_place;
    Py_ssize_t count;
    unsigned root;
    unsigned long deadline_ms, flags;
    uint64_t *numbers[4] = {NULL};
    if (!PyArg_ParseTuple(args, "iiiIOOn(OOOO)pkk", &kind, &type, &reduction, &root, &src, &dst,
                          &count, &counts[0], &counts[1], &counts[2], &counts[3], &in_place,
                          &deadline_ms, &flags) ||
        weft__py_team_open(t) < 0) {
        return NULL;
    }
    struct request *r = weft__py_awaited(t->worker, PyList_New(0));
    if (!r) return NULL;
    struct state *state = t->worker->state;
    void *from, *to;
    PyObject *result = NULL;
    /* A scatter's root in place has its data in `src`. */
    bool failed = address_of(state, src, false, r->keep, &from) < 0 ||
                  address_of(state, dst, true, r->keep, &to) < 0;
    for (int i = 0; i < 4 && !failed; i++) failed = counts_of(counts[i], &numbers[i]) < 0;
    if (failed) {
        weft__py_dropped(r);
        goto done;
    }
    bool scatters = kind == WEFT_COLL_SCATTER || kind == WEFT_COLL_SCATTERV;
    if (in_place && scatters) to = WEFT_IN_PLACE;
    if (in_place && !scatters) from = WEFT_IN_PLACE;
    r->gives = GIVES_NONE;
    weft_coll_args_t what = {.kind = kind,
                             .type = type,
                             .reduction = reduction,
                             .root = root,
                             .src = from,
                             .dst = to,
                             .count = count,
                             .src_counts = numbers[0],
                             .src_displs = numbers[1],
                             .dst_counts = numbers[2],
                             .dst_displs = numbers[3]};
    weft_op_t op = weft__py_op(r, deadline_ms, flags);
    result = weft__py_posted(r, weft_coll(t->handle, &what, &op));
done:
    for (int i = 0; i < 4; i++) free(numbers[i]);
    return result;
}
