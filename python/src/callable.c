/* The list of a team's functions of the program, and who has their numbers. */
#include "team.h"

void weft__py_callable_list(struct callable **all, struct callable *made) {
    Py_INCREF(made->fn);
    if (!made->named) made->named = made->number;
    weft__py_lock_lists(made->team->worker);
    made->next = *all;
    *all = made;
    weft__py_unlock_lists(made->team->worker);
}

static struct callable *find(struct callable *all, int number) {
    while (all && all->number != number) all = all->next;
    return all;
}

int weft__py_callable_take(struct callable *all, int number, another_fn another) {
    struct callable *named = find(all, number), *c = all;
    if (!named) return number;
    while (c && (c->taken || c->named != named->number)) c = c->next;
    if (!c) c = another(named);
    if (!c) return -1;
    c->taken = true;
    Py_CLEAR(c->raised); /* of a collective whose wait was given up */
    return c->number;
}

void weft__py_callable_give_back(struct team *t, struct callable *const *all, int number) {
    weft__py_lock_lists(t->worker);
    struct callable *c = find(*all, number);
    if (c) c->taken = false;
    weft__py_unlock_lists(t->worker);
}

PyObject *weft__py_callable_raised(struct callable *all, int number) {
    struct callable *c = find(all, number);
    PyObject *raised = c ? c->raised : NULL;
    if (c) c->raised = NULL;
    return raised;
}

int weft__py_callables_traverse(struct callable *all, visitproc visit, void *arg) {
    for (; all; all = all->next) {
        Py_VISIT(all->fn);
        Py_VISIT(all->raised);
    }
    return 0;
}

void weft__py_callables_free(struct callable **all) {
    while (*all) {
        struct callable *c = *all;
        *all = c->next;
        Py_DECREF(c->fn);
        Py_XDECREF(c->raised);
        free(c);
    }
}
