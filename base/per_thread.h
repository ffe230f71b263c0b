/*
 * What the library keeps for each thread: one block, made when the thread first needs it and freed
 * when the thread ends. A library that is loaded by dlopen shares some 1,600 bytes of static
 * thread-local storage with all others, so everything large lies in this block and one pointer lies
 * there.
 */
#ifndef WEFT_BASE_PER_THREAD_H
#define WEFT_BASE_PER_THREAD_H

#include <stdint.h>
#include <weft/base.h>

enum { MOST_CAUSES = 6, CAUSE_SIZE = 240 };

/* The causes of this thread's last failing call, innermost first. */
struct causes {
    weft_status_t status;
    unsigned n;
    char text[MOST_CAUSES][CAUSE_SIZE];
};

/* Allocations that fail on demand. */
struct failing {
    uint64_t made, at, n;
};

struct per_thread {
    struct causes causes;
    struct failing failing;
    void *cuda; /* transports/cuda/thread_cache.h; malloc's, freed with the block */
};

/* NULL: none was needed yet. */
extern _Thread_local struct per_thread *weft__per_thread __attribute__((tls_model("initial-exec")));

/* This thread's block, made if need be. Where memory runs out it is one that all such threads
 * share. */
struct per_thread *weft__per_thread_get(void);

#endif
