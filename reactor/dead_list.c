/* Memory that is freed at the end of a turn; and whose allocations are counted. */
#include "local.h"

static void count_allocation(const struct alloc_counter *counter) {
    const struct reactor *r = container_of(counter, struct reactor, allocations);
    if (!forked(r)) r->gate.count->allocations++; /* a child's are not its parent's */
}

/* Blocks are counted for the worker that last polled the kernel on this thread. */
void weft__memory_count_into(struct reactor *r) {
    r->allocations.count = count_allocation;
    weft__alloc_count(&r->allocations);
}

void weft__memory_forget(const struct reactor *r) {
    if (weft__alloc_counter() == &r->allocations) weft__alloc_count(NULL);
}

void weft__free_later(struct reactor *r, void *object) {
    talloc_steal(r->freed.tree, object);
    if (r->n_dead == r->freed.room) {
        unsigned room = r->freed.room ? 2 * r->freed.room : 64;
        void **dead = weft__realloc(r->internals, r->freed.list, room * sizeof *dead, "dead list");
        if (!dead) return; /* freed with the list, in another order */
        r->freed.list = dead;
        r->freed.room = room;
    }
    r->freed.list[r->n_dead++] = object;
}

/* In the order given: children before their parents, as they were closed. */
void weft__dead_free(struct reactor *r) {
    for (unsigned i = 0; i < r->n_dead; i++) talloc_free(r->freed.list[i]);
    r->n_dead = 0;
    talloc_free_children(r->freed.tree);
}
