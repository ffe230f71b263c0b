/* Memory: talloc, the list of the dead, and failures on demand. */
#include "local.h"
#include <string.h>

static _Thread_local uint64_t made, fail_at, fail_n;
static _Thread_local const struct reactor *counted_for;

uint64_t weft__alloc_fail_at(uint64_t k) {
    uint64_t before = made;
    weft__alloc_fail_run(k, k > 0);
    return before;
}

void weft__alloc_fail_run(uint64_t k, uint64_t n) {
    made = 0;
    fail_at = k;
    fail_n = n;
}

/* Blocks are counted for the worker that last looked at the kernel on this thread. */
void memory_count_into(const struct reactor *r) {
    counted_for = r;
}

void memory_forget(const struct reactor *r) {
    if (counted_for == r) counted_for = NULL;
}

static bool may_allocate(void) {
    if (++made - fail_at < fail_n) return false;
    if (counted_for && !forked(counted_for))
        counted_for->gate.count->allocations++; /* a child's are not its parent's */
    return true;
}

void *weft__alloc(const void *parent, size_t size, const char *name) {
    if (!may_allocate()) return NULL;
    void *block = talloc_named_const(parent, size, name);
    return block ? memset(block, 0, size) : NULL;
}

void *weft__realloc(const void *parent, void *old, size_t size, const char *name) {
    if (!may_allocate()) return NULL;
    return _talloc_realloc(parent, old, size ? size : 1, name); /* of 0 it would free */
}

void weft__bury(struct reactor *r, void *object) {
    talloc_steal(r->graveyard, object);
    if (r->n_dead == r->dead_room) {
        unsigned room = r->dead_room ? 2 * r->dead_room : 64;
        void **dead = weft__realloc(r->internals, r->dead, room * sizeof *dead, "dead list");
        if (!dead) return; /* goes with the graveyard, only not in its order */
        r->dead = dead;
        r->dead_room = room;
    }
    r->dead[r->n_dead++] = object;
}

/* In the order buried: children before their parents, as they were closed. */
void dead_free(struct reactor *r) {
    for (unsigned i = 0; i < r->n_dead; i++) talloc_free(r->dead[i]);
    r->n_dead = 0;
    talloc_free_children(r->graveyard);
}
