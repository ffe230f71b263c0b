/*
 * Memory that another process maps by a file descriptor: of virtual memory management
 * (cuMemCreate), one mapping or several in a row, and of pools (cuMemPoolCreate). The exporter
 * keeps the files; the other process takes duplicates of them (pidfd_getfd), which the kernel
 * allows to who may trace the exporter, as with process_vm_readv.
 *
 * A file keeps its memory: what the program frees is given back when the file is closed. That is
 * when another allocation is exported, and when a worker closes. The file of memory that is there
 * stays open, so that its number is not another's while a peer may still use it.
 */
#ifndef WEFT_TRANSPORTS_CUDA_MEMORY_FILE_H
#define WEFT_TRANSPORTS_CUDA_MEMORY_FILE_H

#include "driver.h"

#include <stdint.h>

/* What the descriptor is: the memory of one mapping; a table of mappings, each with a descriptor of
 * its own; a pool. */
enum cuda_file_kind { CUDA_FILE_MAPPING, CUDA_FILE_TABLE, CUDA_FILE_POOL };
/* Plain data, for the other process. `process` 0: none. */
struct cuda_file {
    int32_t process;
    uint32_t fd : 24, kind : 8;
};

/* A range that is exported as one: the mappings around an address, or an allocation of a pool. */
struct cuda_file_range {
    uint64_t base, size;
    uint64_t number; /* another one for each file of this process */
    struct cuda_file file;
    struct cuda_pool_pointer pointer; /* of a pool: names the allocation in it */
};

/*
 * The range that holds `len` bytes at `at`. On entry `*range` has what the driver says of the
 * address: the allocation or reservation, and its number. Any thread. UNSUPPORTED: it is no such
 * memory, was not created with a handle of the type POSIX_FILE_DESCRIPTOR, has more mappings than
 * 64, or all files are in use.
 */
weft_status_t weft__cuda_file_of(uint64_t at, uint64_t len, struct cuda_file_range *range);
/* Closes files of memory that is gone. */
void weft__cuda_files_close(void);

/* Memory of another process, here. */
struct cuda_mapped {
    cuda_pointer at;
    uint64_t size;
    cuda_pool pool; /* NULL: mapped */
};
/* Maps it for the current context's device. Errors: UNSUPPORTED, NO_MEMORY. */
weft_status_t weft__cuda_file_map(const struct cuda_file *file,
                                  const struct cuda_pool_pointer *pointer, uint64_t size,
                                  struct cuda_mapped *mapped_p);
void weft__cuda_file_unmap(const struct cuda_mapped *mapped);

#endif
