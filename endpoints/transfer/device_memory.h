/*
 * Operations on device memory (CUDA). The host cannot access it, so such an operation has a layout
 * of the library's own, whose pack and unpack copy between device and host. Every protocol and
 * transport that serves layouts therefore serves device memory.
 */
#ifndef WEFT_ENDPOINTS_TRANSFER_DEVICE_MEMORY_H
#define WEFT_ENDPOINTS_TRANSFER_DEVICE_MEMORY_H

#include <base/compiler.h>
#include <transports/cuda/memory.h>
#include <weft/layout.h>

struct weft_worker;
struct weft_request;
struct device_staging;

struct device_piece {
    char *base;
    size_t len;
    bool on_host;
    struct cuda_place place;
};

/* The memory of an operation: pieces in a row; or one piece's blocks at a stride. */
struct device_memory {
    size_t block, stride; /* block 0: no stride */
    bool is_packed;       /* its blocks are short: a kernel packs those of a batch */
    bool is_of_one_place;
    struct cuda_place place;        /* then */
    struct device_staging *staging; /* device_staging.h; NULL: none */
    size_t n;
    struct device_piece piece[];
};

/* The request's, or NULL: its memory is not a device's. */
struct device_memory *weft__request_device(const struct weft_request *req);

/* Copies `len` bytes at `offset` between it and the host: within the batch, or (NULL) waited for.
 * Errors: IO, NO_MEMORY; the batch has ended then. */
enum device_way { TO_HOST, TO_DEVICE };
weft_status_t weft__device_move(const struct device_memory *memory, size_t offset, char *host,
                                size_t len, enum device_way to, struct cuda_batch *batch);

/* True if a piece lies on a device. */
bool weft__device_holds_any(const weft_iov_t *iov, size_t n_iov);
static inline bool weft__iov_is_of_device(const weft_iov_t *iov, size_t n_iov) {
    return UNLIKELY(weft__cuda_active) && weft__device_holds_any(iov, n_iov);
}

/* True if the library has to see to it: a layout of the program's own functions does so itself. */
static inline bool weft__call_is_of_device(const weft_iov_t *iov, size_t n_iov,
                                           const weft_op_t *op) {
    return UNLIKELY(weft__cuda_active) &&
           !(op && op->layout && op->layout->kind == WEFT_LAYOUT_USER) &&
           weft__device_holds_any(iov, op && op->layout && n_iov > 1 ? 1 : n_iov);
}

/* As weft__request_memory, of memory on a device. Errors: NO_MEMORY; INVALID_PARAM of a bad iov;
 * UNSUPPORTED if the worker was given another context. */
weft_status_t weft__request_device_memory(struct weft_request *req, const weft_iov_t *iov,
                                          size_t n_iov, const weft_layout_t *given, bool receives);

#endif
