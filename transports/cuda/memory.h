/*
 * Device memory: what a pointer points to, and copies between device and host.
 *
 * A copy runs on a stream of Weft's own in the memory's context, and the call returns when it is
 * complete. It does not wait for other streams: the program's work that writes the memory is
 * complete before it posts an operation. The caller's current context is unchanged.
 */
#ifndef WEFT_TRANSPORTS_CUDA_MEMORY_H
#define WEFT_TRANSPORTS_CUDA_MEMORY_H

#include "driver.h"

struct cuda_memory {
    cuda_context context; /* NULL: none in particular (virtual memory management) */
    int device;
    void *base; /* of the allocation */
    size_t len;
    bool managed; /* the host may access it */
};

/* True if the driver knows `at` as device or managed memory. False without a driver. */
bool weft__cuda_find(const void *at, struct cuda_memory *memory_p);

/* True for memory that the host cannot access. The first test is all that a process without CUDA
 * pays. */
bool weft__cuda_is_device(const void *at);
static inline bool weft__is_device_memory(const void *at) {
    return __builtin_expect(weft__cuda_active, 0) && weft__cuda_is_device(at);
}

/* Errors: IO, with the driver's error; NO_MEMORY. */
weft_status_t weft__cuda_read(cuda_context context, void *to, const void *device, size_t len);
weft_status_t weft__cuda_write(cuda_context context, void *device, const void *from, size_t len);

/* `rows` blocks of `width` bytes on the device, `pitch` bytes apart; dense on the host. */
struct cuda_blocks {
    void *device, *host;
    size_t width, pitch, rows;
};
weft_status_t weft__cuda_read_blocks(cuda_context context, const struct cuda_blocks *blocks);
weft_status_t weft__cuda_write_blocks(cuda_context context, const struct cuda_blocks *blocks);

#endif
