/* Memory from talloc trees, and allocations that fail on demand for tests. */
#ifndef WEFT_BASE_ALLOC_H
#define WEFT_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>
#include <talloc.h>

/* Zeroed, below `parent`; NULL when memory runs out, or a test lets it fail. The size is then the
 * cause of a NO_MEMORY. */
#define weft__new(parent, type) ((type *)weft__alloc((parent), sizeof(type), #type))
void *weft__alloc(const void *parent, size_t size, const char *name);
/* new bytes not zeroed */
void *weft__realloc(const void *parent, void *old, size_t size, const char *name);
/* Tests: the k-th allocation from now on this thread fails (0: none does). Returns how many were
 * made since. */
uint64_t weft__alloc_fail_at(uint64_t k);
void weft__alloc_fail_run(uint64_t k, uint64_t n); /* n of them, one after the other */

/* Counts the allocations of one thread. */
struct alloc_counter {
    void (*count)(const struct alloc_counter *counter);
};
/* from now on, for this thread; NULL: not counted */
void weft__alloc_count(const struct alloc_counter *to);
const struct alloc_counter *weft__alloc_counter(void);

#endif
