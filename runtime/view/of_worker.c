/* The views of a worker, which ends those that are left when it closes. */
#include "view.h"

#include <base/alloc.h>
#include <endpoints/core/worker.h>

struct view_registry {
    weft_worker_t *worker;
    struct list views;                     /* a part stands before the view that it is of */
    void (*closed)(weft_worker_t *worker); /* NULL: the worker does not close */
};
static const char registry_key;

static void settle(const struct view_registry *registry) {
    if (registry->closed && list_empty(&registry->views)) registry->closed(registry->worker);
}

static void worker_closes(weft_worker_t *worker, void *object,
                          void (*closed)(weft_worker_t *worker)) {
    struct view_registry *registry = object;
    (void)worker;
    list_for_each_safe(node, next, &registry->views) {
        weft__view_end_with_worker(list_of(node, weft_view_t, of_worker));
    }
    registry->closed = closed;
    settle(registry);
}

/* First of all that the worker closes: a view's team is the view's to close. */
static weft_status_t registry_of(weft_worker_t *worker, struct view_registry **registry_p) {
    struct view_registry *registry = weft__worker_attached(worker, &registry_key);
    if (!registry) {
        registry = weft__new(worker, struct view_registry);
        if (!registry) return WEFT_ERR_NO_MEMORY;
        registry->worker = worker;
        list_init(&registry->views);
        weft_status_t st =
            weft__worker_attach_first(worker, &registry_key, registry, worker_closes);
        if (st < 0) {
            talloc_free(registry);
            return st;
        }
    }
    *registry_p = registry;
    return registry->closed ? WEFT_ERR_CLOSED : WEFT_OK;
}

weft_status_t weft__view_join_worker(weft_view_t *view) {
    struct view_registry *registry;
    weft_status_t st = registry_of(weft__worker_itself(view->worker), &registry);
    if (st == WEFT_OK) {
        view->registry = registry;
        list_prepend(&registry->views, &view->of_worker);
    }
    return st;
}

void weft__view_leave_worker(weft_view_t *view) {
    list_remove(&view->of_worker);
    if (view->registry) settle(view->registry);
    view->registry = NULL;
}
