/*
 * Where copies of device memory run: a context, and a stream of it.
 *
 * A worker that was given a context and a stream (transports/given.h) copies there, and in no other
 * context. All others copy in the context of the memory, on streams of Weft's own.
 */
#ifndef WEFT_TRANSPORTS_CUDA_PLACE_H
#define WEFT_TRANSPORTS_CUDA_PLACE_H

#include "driver.h"

struct given;
struct cuda_memory;

struct cuda_place {
    cuda_context context; /* NULL: the current one */
    cuda_stream stream;   /* NULL: one of Weft's own */
};
static inline bool cuda_place_is(struct cuda_place a, struct cuda_place b) {
    return a.context == b.context && a.stream == b.stream;
}

/*
 * For this memory (NULL: of the host), and a worker with these objects (NULL: none were given).
 * Memory that is of no context (virtual memory management, pools) is copied in the given one, or
 * the current one, or the primary one of its device, if the program has that: in the first of them
 * whose device has access to it. UNSUPPORTED: none has, or the worker was given another context.
 * Where there is none at all, the place is without one: a peer may copy the memory.
 */
weft_status_t weft__cuda_place(const struct given *given, const struct cuda_memory *memory,
                               struct cuda_place *place_p);
/* The device of the context (NULL: the current one) has access to memory that is of none. A driver
 * of before CUDA 11.3 does not say, and it is taken for granted. */
bool weft__cuda_has_access(cuda_context context, const struct cuda_memory *memory);

/* An operation may take its turn in this stream of the program. UNSUPPORTED: the worker was given
 * another context; or that stream, and its copies would wait behind the operation. */
weft_status_t weft__cuda_place_admits(const struct given *given, void *stream);

/*
 * Looks at what is to be given: a context that can be entered, and (NULL: none) a stream of it.
 * UNSUPPORTED: the driver is not loaded. INVALID_PARAM: no such context, or the stream is of
 * another one.
 */
weft_status_t weft__cuda_given_check(void *context, void *stream);
/* A stream for a worker that was given a context only; and its end, after the context's perhaps. */
weft_status_t weft__cuda_stream_open(void *context, void **stream_p);
void weft__cuda_stream_close(void *context, void *stream);

#endif
