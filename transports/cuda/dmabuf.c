/* Exports device memory as a dma-buf. */
#include "dmabuf.h"

#include <base/status.h>
#include <unistd.h>

enum { DMA_BUF_FD = 1 }; /* CUmemRangeHandleType */

weft_status_t weft__cuda_dmabuf(const void *at, size_t len, int *fd_p, uint64_t *offset_p) {
    const struct cuda_driver *driver = weft__cuda_driver();
    struct cuda_memory memory;
    struct cuda_visit visit;
    int fd = -1;
    if (!driver || !driver->range_handle || !weft__cuda_find(at, &memory) || memory.managed)
        return WEFT_ERR_UNSUPPORTED;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)at & ~(page - 1),
              end = ((uintptr_t)at + len + page - 1) & ~(page - 1);
    if (weft__cuda_enter(memory.context, &visit) != 0) return WEFT_ERR_UNSUPPORTED;
    cuda_result result = driver->range_handle(&fd, begin, end - begin, DMA_BUF_FD, 0);
    weft__cuda_leave(&visit);
    if (result != 0 || fd < 0) return WEFT_ERR_UNSUPPORTED;
    *fd_p = fd;
    *offset_p = (uintptr_t)at - begin;
    return WEFT_OK;
}
