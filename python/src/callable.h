/* Functions of the program that collectives call: its reductions, and the packing of its types. */
#ifndef WEFT_PYTHON_CALLABLE_H
#define WEFT_PYTHON_CALLABLE_H

#include "core.h"

/* A function under a number of the library, one of a team's list. Collectives in progress at once
 * have a number each, so that what is raised is of one of them. */
struct callable {
    struct callable *next;
    struct team *team;
    PyObject *fn;
    int number, named; /* named: the one that the program has */
    atomic_bool taken;
    PyObject *raised; /* the first exception that was not taken */
};

/* Makes one of the same function under another number, and lists it. NULL: raised. */
typedef struct callable *(*another_fn)(const struct callable *like);

/* `named` of one for the program itself is 0. It holds the function from now on. */
void weft__py_callable_list(struct callable **all, struct callable *made);
/* A number of the same function for one collective, until it is given back; of a number that is no
 * function's the same. -1: raised. */
int weft__py_callable_take(struct callable *all, int number, another_fn another);
/* On any thread, where the collector ends who has taken it. */
void weft__py_callable_give_back(struct team *team, struct callable *const *all, int number);
/* What the function of this number has raised since it was taken: the first exception, a new
 * reference. NULL: none. */
PyObject *weft__py_callable_raised(struct callable *all, int number);
int weft__py_callables_traverse(struct callable *all, visitproc visit, void *arg);
void weft__py_callables_free(struct callable **all);

#endif
