/*
 * A copy of any length that nothing waits for: between devices, or a device and pinned memory of
 * the host, at once; to and from other memory through staging buffers (copies.h), several at a
 * time.
 */
#ifndef WEFT_TRANSPORTS_CUDA_TRANSFER_H
#define WEFT_TRANSPORTS_CUDA_TRANSFER_H

#include "copies.h"

enum cuda_way { CUDA_WITHIN, CUDA_OUT, CUDA_IN }; /* between devices; to the host; from the host */

struct cuda_transfer {
    /* The caller sets these. `from` and `to` are the caller's until `done`, and so is this. */
    struct cuda_copies *copies;
    uint32_t depth; /* staging buffers that it uses at most */
    struct cuda_place place;
    enum cuda_way way;
    char *to;
    const char *from;
    size_t len;
    /* Within devices: blocks of `block` bytes (0: one block), at these distances. */
    size_t block, to_pitch, from_pitch;
    /* On the worker's thread, once, when no copy touches the memory any more. Errors: IO. */
    void (*done)(struct cuda_transfer *transfer, weft_status_t status);

    size_t next; /* the offset that is copied next */
    struct list parts;
    weft_status_t status;
};

/* WEFT_OK: under way; `done` comes later. An error: nothing is under way. */
weft_status_t weft__cuda_transfer_start(struct cuda_transfer *transfer);
/* Waits for one under way; `done` is not called. For what ends against the rules. */
void weft__cuda_transfer_stop(struct cuda_transfer *transfer);

#endif
