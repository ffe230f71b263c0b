/* Teams, as collectives and views see them. */
#ifndef WEFT_PYTHON_TEAM_H
#define WEFT_PYTHON_TEAM_H

#include "core.h"

struct team {
    PyObject_HEAD weft_team_t *handle; /* NULL: closed, or a split that gave none */
    struct worker *worker;
    struct child child;
    PyObject *exchange;
    bool borrowed; /* a view's */
};

struct team *weft__py_team_new(struct worker *worker);
struct request *weft__py_awaited(struct worker *worker, PyObject *made);
int weft__py_team_open(struct team *team);
PyObject *weft__py_coll(PyObject *team, PyObject *args); /* collective.c */

#endif
