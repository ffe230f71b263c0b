/* What a thread remembers of device memory. It lies in the thread's block (base/per_thread.h) and
 * ends with the thread. */
#ifndef WEFT_TRANSPORTS_CUDA_THREAD_CACHE_H
#define WEFT_TRANSPORTS_CUDA_THREAD_CACHE_H

#include <transports/cuda/memory.h>
#include <transports/cuda/peer_memory.h>

/* The driver's answer about a pointer: an allocation of the same number at the same place is the
 * same one, and to ask for its number costs less than to ask for all. */
struct cuda_answer {
    struct cuda_memory memory;
    unsigned long long buffer;
};

enum { N_CUDA_ANSWERS = 16, N_CUDA_EXPORTS = 8 };

struct cuda_thread_cache {
    struct cuda_answer answer[N_CUDA_ANSWERS];
    unsigned next_answer;
    struct cuda_export exported[N_CUDA_EXPORTS]; /* the allocations that it exported last */
    unsigned next_exported;
};

/* Made if need be. NULL: no memory. */
struct cuda_thread_cache *weft__cuda_thread_cache(void);

#endif
