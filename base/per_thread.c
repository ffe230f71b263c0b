/* The block of each thread: made on first use, freed by a destructor when the thread ends. */
#include "per_thread.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

_Thread_local struct per_thread *weft__per_thread __attribute__((tls_model("initial-exec")));

/* its texts are cut off, whatever threads write at the same time */
static struct per_thread shared;
static pthread_key_t key;
static bool keyed;

static void end_thread(void *ended) {
    struct per_thread *block = ended;
    weft__per_thread = NULL;
    if (block) free(block->cuda);
    free(block);
}

__attribute__((constructor)) static void make_key(void) {
    keyed = pthread_key_create(&key, end_thread) == 0;
}

/* The library may be unloaded before threads end that have called it: no destructor may be left.
 * Their blocks stay. */
__attribute__((destructor)) static void end_key(void) {
    if (!keyed) return;
    keyed = false;
    pthread_key_delete(key);
    end_thread(weft__per_thread);
}

struct per_thread *weft__per_thread_get(void) {
    if (weft__per_thread) return weft__per_thread;
    struct per_thread *block = calloc(1, sizeof *block);
    if (!block) return &shared;
    if (keyed) pthread_setspecific(key, block);
    return weft__per_thread = block;
}
