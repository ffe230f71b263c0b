/*
 * Objects in associated mode. Each has a stub: a node that names the object, its parent, and who
 * has claimed it. The stubs of a context are in one list, which any thread may search.
 *
 * Creators of objects (workers, endpoints, regions, teams) add them. The room resource/ claims
 * them and makes the objects work.
 */
#ifndef WEFT_BASE_STUB_H
#define WEFT_BASE_STUB_H

#include <base/list.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <weft/worker.h>

/* The numbers of weft_object_t. */
enum stub_type { STUB_CONTEXT, STUB_WORKER, STUB_TEAM, STUB_ENDPOINT, STUB_MEMORY };

struct stub {
    struct list of_context;
    weft_context_t *context;
    enum stub_type type;
    void *object;
    weft_worker_t *worker; /* that does the work; NULL of a context and of a worker */
    weft_worker_t *parent; /* as the program named it */
    void *params;          /* what the object was created with; a talloc child */
    _Atomic(void *) claim; /* the association; NULL: free to be associated */
    /* of the association, by its name, which any thread may ask for; NULL: there is none */
    _Atomic(const char *) state;
    atomic_int status; /* a weft_status_t: what calls on the object return; OK: it works */
    bool abandoned;    /* `worker` closes: the object ends with its association */
    /* Of a worker: notifies the association that the program closes it; NULL: it has none. Of other
     * objects: frees one without a resource. */
    void (*closing)(struct stub *stub);
    /* Of a worker: notifies the association, which waits for that, that the worker's own thread has
     * stopped; NULL: it does not wait. */
    void (*stopped)(struct stub *stub);
    /* The object goes back to its state without a resource: calls return `status`. */
    void (*revert)(struct stub *stub, weft_status_t status);
};

weft_status_t weft__stubs_open(weft_context_t *context);
/* BUSY while the context has stubs. */
weft_status_t weft__stubs_close(weft_context_t *context);

/* INVALID_PARAM, with a cause that names the parent, if the context is not in associated mode. */
weft_status_t weft__stub_new(weft_context_t *context, enum stub_type type, void *object,
                             weft_worker_t *worker, struct stub **stub_p);
void weft__stub_free(struct stub *stub);
/* The `closing` of an object that is one talloc block. */
void weft__stub_free_object(struct stub *stub);
/* Any thread. NULL: `object` is not an object of that type in associated mode. */
struct stub *weft__stub_find(weft_context_t *context, enum stub_type type, const void *object);

/* Notes why a call on the stub's object returns its status, and returns that. */
weft_status_t weft__stub_refuse(const struct stub *stub);
/* Whether objects without a resource may be created in this context. */
weft_status_t weft__context_usable(weft_context_t *context);

#endif
