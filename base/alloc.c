/* Allocation from talloc trees, counted, and failing on demand for tests. */
#include "alloc.h"

#include <stdbool.h>

#include "compiler.h"
#include "per_thread.h"
#include <string.h>

static _Thread_local const struct alloc_counter *counter __attribute__((tls_model("initial-exec")));

uint64_t weft__alloc_fail_at(uint64_t k) {
    uint64_t before = weft__per_thread_get()->failing.made;
    weft__alloc_fail_run(k, k > 0);
    return before;
}

void weft__alloc_fail_run(uint64_t k, uint64_t n) {
    weft__per_thread_get()->failing = (struct failing){.at = k, .n = n};
}

void weft__alloc_count(const struct alloc_counter *to) {
    counter = to;
}
const struct alloc_counter *weft__alloc_counter(void) {
    return counter;
}

static bool count_allocation(void) {
    struct per_thread *mine = weft__per_thread; /* none: this thread never asked for failures */
    if (UNLIKELY(mine != NULL) && ++mine->failing.made - mine->failing.at < mine->failing.n)
        return false;
    if (counter) counter->count(counter);
    return true;
}

void *weft__alloc(const void *parent, size_t size, const char *name) {
    if (!count_allocation()) return NULL;
    void *block = talloc_named_const(parent, size, name);
    return block ? memset(block, 0, size) : NULL;
}

void *weft__realloc(const void *parent, void *old, size_t size, const char *name) {
    if (!count_allocation()) return NULL;
    return _talloc_realloc(parent, old, size ? size : 1, name); /* of 0 it would free */
}
