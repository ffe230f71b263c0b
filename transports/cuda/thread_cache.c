/* Finds or makes the part of a thread's block that remembers device memory. */
#include "thread_cache.h"

#include <base/per_thread.h>
#include <stdlib.h>

struct cuda_thread_cache *weft__cuda_thread_cache(void) {
    struct per_thread *block = weft__per_thread_get();
    if (!weft__per_thread) return NULL; /* the block is shared by threads */
    if (!block->cuda) block->cuda = calloc(1, sizeof(struct cuda_thread_cache));
    return block->cuda;
}
