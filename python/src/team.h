/* Teams, as collectives and views see them. */
#ifndef WEFT_PYTHON_TEAM_H
#define WEFT_PYTHON_TEAM_H

#include "callable.h"
#include "core.h"

struct team {
    PyObject_HEAD weft_team_t *handle; /* NULL: closed, or a split that gave none */
    struct worker *worker;
    struct child child;
    PyObject *exchange;
    PyObject *texts;             /* arguments of its creation, in use until it is ready */
    struct request *ending;      /* its close, in progress */
    bool borrowed;               /* a view's */
    struct callable *reductions; /* the program's own: reduction.c */
    struct callable *datatypes;  /* and those that it packs: datatype.c */
};

/* NULL: it is gone, or may be. */
static inline weft_team_t *live_team(const struct team *team) {
    return team->worker->ending ? NULL : team->handle;
}

struct team *weft__py_team_new(struct worker *worker);
struct request *weft__py_awaited(struct worker *worker, PyObject *made);
int weft__py_team_open(struct team *team);

/* graph.c: destroys the graphs of the team, NULL: of all of the worker's, which must not outlive
 * it. Errors: -1 and BusyError, within a callback, if one runs. */
int weft__py_graphs_end(struct worker *worker, const struct team *team);
/* Those that another thread dropped, which the worker destroys. */
void weft__py_graphs_drop(struct worker *worker);
int weft__py_graphs_traverse(struct worker *worker, visitproc visit, void *arg);

/* collective.c */
PyObject *weft__py_coll(PyObject *team, PyObject *args);
PyObject *weft__py_coll_prepare(PyObject *team, PyObject *args);

/* datatype.c, reduction.c: the program's own, which end with the team. They are freed when it has
 * been closed. */
PyObject *weft__py_datatype(PyObject *team, PyObject *args);
PyObject *weft__py_reduction(PyObject *team, PyObject *args);
/* As callable.h has it. */
struct callable *weft__py_datatype_another(const struct callable *like);
struct callable *weft__py_reduction_another(const struct callable *like);

#endif
