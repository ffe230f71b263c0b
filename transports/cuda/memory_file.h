/*
 * Memory of virtual memory management (cuMemCreate) as a file descriptor, by which another process
 * maps it. The exporter keeps the file; the other process takes a duplicate of it (pidfd_getfd),
 * which the kernel allows to who may trace the exporter, as with process_vm_readv.
 *
 * A file keeps its memory: what the program frees is given back when the file is closed. That is
 * when another allocation is exported, and when a worker closes. The file of memory that is there
 * stays open, so that its number is not another's while a peer may still use it.
 */
#ifndef WEFT_TRANSPORTS_CUDA_MEMORY_FILE_H
#define WEFT_TRANSPORTS_CUDA_MEMORY_FILE_H

#include "driver.h"

#include <stdint.h>

/* Plain data, for the other process. `process` 0: none. */
struct cuda_file {
    int32_t process, fd;
};

/* The allocation at `base`, of this number. UNSUPPORTED: it is no such memory, or was not created
 * with a handle of the type POSIX_FILE_DESCRIPTOR. Any thread. */
weft_status_t weft__cuda_file_of(uint64_t base, uint64_t size, uint64_t buffer,
                                 struct cuda_file *file_p);
/* Closes files of memory that is gone. */
void weft__cuda_files_close(void);

/* Maps `size` bytes for the current context's device. Errors: UNSUPPORTED, NO_MEMORY. */
weft_status_t weft__cuda_file_map(const struct cuda_file *file, uint64_t size, cuda_pointer *at_p);
void weft__cuda_file_unmap(cuda_pointer at, uint64_t size);

#endif
