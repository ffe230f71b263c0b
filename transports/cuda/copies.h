/*
 * Copies of device memory that nothing waits for, of one worker, and the staging buffers that they
 * go through. The driver's thread reports the end of a copy by a host function, which wakes the
 * worker; no thread polls.
 *
 * After an error of its context the driver calls no host function. While copies are under way, a
 * timer therefore asks for such an error, and for copies that were done without a report.
 */
#ifndef WEFT_TRANSPORTS_CUDA_COPIES_H
#define WEFT_TRANSPORTS_CUDA_COPIES_H

#include "memory.h"

#include <base/list.h>
#include <reactor/reactor.h>

struct cuda_copies;

/* `chunk`: the size of a staging buffer; `most`: of all of them. Errors: NO_MEMORY. */
weft_status_t weft__cuda_copies_open(struct reactor *r, size_t chunk, size_t most,
                                     struct cuda_copies **copies_p);
/* Waits for what is under way, without a report. NULL is ignored. */
void weft__cuda_copies_close(struct cuda_copies *copies);
size_t weft__cuda_chunk_size(const struct cuda_copies *copies);

/* What a worker has for them. */
struct device_copies {
    struct cuda_copies *copies; /* from the first use */
    size_t blocking;            /* the longest copy that is waited for, rather than staged */
    size_t packing;             /* the longest block of a stride that a kernel packs */
    uint32_t depth;             /* chunks of one message */
};

/* A copy under way. Its memory is the caller's, until `done`. */
struct cuda_copy {
    /* On the worker's thread, once. Errors: IO. */
    void (*done)(struct cuda_copy *copy, weft_status_t status);
    struct cuda_copies *of;
    struct cuda_ticket *ticket; /* NULL: it has failed */
    struct list under_way;
    struct cuda_batch batch;
};
/* Ends the batch. An error: `done` is not called, and nothing is under way. */
weft_status_t weft__cuda_copy_start(struct cuda_copies *copies, struct cuda_batch *batch,
                                    struct cuda_copy *copy);

/* Waits for one under way; `done` is not called. For what ends against the rules. */
void weft__cuda_copy_stop(struct cuda_copy *copy);

/* A staging buffer. */
struct cuda_chunk {
    struct list of_pool;
    char *at;
    size_t len;
    cuda_context context; /* that pinned it */
    bool is_pinned;
};
/* The context pins new ones. NULL: all are in use. */
struct cuda_chunk *weft__cuda_chunk_take(struct cuda_copies *copies, cuda_context context);
/* No copy uses it any more. */
void weft__cuda_chunk_give(struct cuda_copies *copies, struct cuda_chunk *chunk);

#endif
