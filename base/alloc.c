/* Allocation from talloc trees, counted, and failing on demand for tests. */
#include "alloc.h"

#include <stdbool.h>

#include "compiler.h"
#include "per_thread.h"
#include "status.h"
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

/* Callers pass the status on, and need not note a cause. */
static NOINLINE void *fail(size_t size, const char *name) {
    (void)weft__fail(WEFT_ERR_NO_MEMORY, "%zu bytes for %s", size, name);
    return NULL;
}

void *weft__alloc(const void *parent, size_t size, const char *name) {
    void *block = count_allocation() ? talloc_named_const(parent, size, name) : NULL;
    return LIKELY(block != NULL) ? memset(block, 0, size) : fail(size, name);
}

void *weft__realloc(const void *parent, void *old, size_t size, const char *name) {
    size_t some = size ? size : 1; /* of 0 it would free */
    void *block = count_allocation() ? _talloc_realloc(parent, old, some, name) : NULL;
    return LIKELY(block != NULL) ? block : fail(size, name);
}
