/* Device memory as a dma-buf, with which a network device reads and writes it by itself. */
#ifndef WEFT_TRANSPORTS_CUDA_DMABUF_H
#define WEFT_TRANSPORTS_CUDA_DMABUF_H

#include "memory.h"

#include <stdint.h>

/*
 * A descriptor of the caller's, and where the range begins in it. The driver exports whole pages:
 * those that hold the range must belong to its allocation.
 * Errors: UNSUPPORTED: the driver, or the device, exports no such memory.
 */
weft_status_t weft__cuda_dmabuf(const void *at, size_t len, int *fd_p, uint64_t *offset_p);

#endif
