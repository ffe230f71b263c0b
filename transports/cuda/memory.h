/*
 * Device memory: what a pointer points to, and copies between device and host.
 *
 * A copy runs at a place (place.h), and the call returns when it is complete. It does not wait for
 * other streams: the program's work that writes the memory is complete before it posts an
 * operation, or in the place's stream. The caller's current context is unchanged.
 */
#ifndef WEFT_TRANSPORTS_CUDA_MEMORY_H
#define WEFT_TRANSPORTS_CUDA_MEMORY_H

#include "place.h"
#include <base/compiler.h>

struct cuda_memory {
    cuda_context context; /* NULL: none in particular (virtual memory management, pools) */
    int device;
    const void *at; /* the address that was asked about */
    void *base;     /* of the allocation */
    size_t len;
    bool managed; /* the host may access it */
    bool on_host; /* pinned, or registered */
};

/*
 * True if the driver knows `at` as device or managed memory. False without a driver. Each thread
 * keeps the latest answers, by the driver's number of the allocation.
 */
bool weft__cuda_find(const void *at, struct cuda_memory *memory_p);

/* The same, also of memory of the host that the driver has pinned, or that was registered. */
bool weft__cuda_find_any(const void *at, struct cuda_memory *memory_p);

/* True for memory that the host cannot access. The first test is all that a process without CUDA
 * pays. */
bool weft__cuda_is_device(const void *at);
static inline bool weft__is_device_memory(const void *at) {
    return UNLIKELY(weft__cuda_active) && weft__cuda_is_device(at);
}

/* True for memory of the host that the driver has pinned, or that was registered: its copies need
 * no staging buffer. */
bool weft__cuda_is_pinned(const void *at, size_t len);

/* The context that is current in this thread; NULL: none. */
cuda_context weft__cuda_current(void);

/* Errors: IO, with the driver's error; NO_MEMORY. */
weft_status_t weft__cuda_read(struct cuda_place place, void *to, const void *device, size_t len);
weft_status_t weft__cuda_write(struct cuda_place place, void *device, const void *from, size_t len);

/* `planes` (0: one) of `rows` blocks of `width` bytes on the device: the blocks `pitch` bytes
 * apart, the planes `plane_pitch`; dense on the host. */
struct cuda_blocks {
    void *device, *host;
    size_t width, pitch, rows;
    size_t planes, plane_pitch;
};
weft_status_t weft__cuda_read_blocks(struct cuda_place place, const struct cuda_blocks *blocks);
weft_status_t weft__cuda_write_blocks(struct cuda_place place, const struct cuda_blocks *blocks);

/*
 * Several copies on one stream. weft__cuda_batch_begin makes the place's context current until the
 * batch ends: by a call below that fails, after which nothing of it is under way, or by
 * weft__cuda_batch_wait or weft__cuda_batch_then.
 */
enum cuda_use { CUDA_BLOCKING, CUDA_READS, CUDA_WRITES };
struct cuda_batch {
    const struct cuda_driver *driver;
    struct cuda_place place;
    enum cuda_use use;
    cuda_stream stream; /* the place's, or Weft's own, which stays until the batch has ended */
    unsigned long long number; /* of the context (weft__cuda_context_number) */
    struct cuda_visit visit;
};
weft_status_t weft__cuda_batch_begin(struct cuda_batch *batch, struct cuda_place place,
                                     enum cuda_use use);
weft_status_t weft__cuda_batch_read(struct cuda_batch *batch, void *to, const void *device,
                                    size_t len);
weft_status_t weft__cuda_batch_write(struct cuda_batch *batch, void *device, const void *from,
                                     size_t len);
/* Between addresses of devices. */
weft_status_t weft__cuda_batch_copy(struct cuda_batch *batch, void *to, const void *from,
                                    size_t len);
/* `rows` blocks of `width` bytes between addresses of devices. */
struct cuda_rows {
    void *to;
    const void *from;
    size_t width, rows, to_pitch, from_pitch;
};
weft_status_t weft__cuda_batch_copy_rows(struct cuda_batch *batch, const struct cuda_rows *rows);
weft_status_t weft__cuda_batch_read_blocks(struct cuda_batch *batch,
                                           const struct cuda_blocks *blocks);
weft_status_t weft__cuda_batch_write_blocks(struct cuda_batch *batch,
                                            const struct cuda_blocks *blocks);
/* Ends it: nothing of it is under way any more. Returns `status`. */
weft_status_t weft__cuda_batch_fail(struct cuda_batch *batch, weft_status_t status);
/* Blocks until all of it is copied. */
weft_status_t weft__cuda_batch_wait(struct cuda_batch *batch);
/* `fn` is called on the driver's thread when all of it is copied, and never if the context fails
 * before. OK: the batch is under way, and weft__cuda_batch_end or weft__cuda_batch_stop ends it. */
weft_status_t weft__cuda_batch_then(struct cuda_batch *batch, cuda_host_fn fn, void *arg);

/* Of a batch under way. IN_PROGRESS: so it is, or the driver cannot be asked. OK: its stream has
 * nothing left to do, and `fn` has returned, unless it will never be called. IO: it will not end,
 * and its memory is not used any more. */
weft_status_t weft__cuda_batch_check(const struct cuda_batch *batch);
/* `fn` was called; or (`status` < 0) weft__cuda_batch_check failed. */
void weft__cuda_batch_end(struct cuda_batch *batch, weft_status_t status);
/* Waits for it. */
void weft__cuda_batch_stop(struct cuda_batch *batch);
static inline bool cuda_batch_shares_stream(const struct cuda_batch *a,
                                            const struct cuda_batch *b) {
    return a->stream == b->stream && a->number == b->number && cuda_place_is(a->place, b->place);
}

/* Memory of the host that copies are fast with. Errors: UNSUPPORTED, NO_MEMORY, IO. */
weft_status_t weft__cuda_pin(cuda_context context, void *at, size_t len);
/* The context is that of the pin; what was pinned there goes with it. False: the driver has no
 * memory to enter it, and the memory is pinned yet. */
bool weft__cuda_unpin(cuda_context context, void *at);

#endif
