/*
 * Device memory of another process on this host: by CUDA IPC, or, for memory of virtual memory
 * management and of pools, by its file (memory_file.h).
 *
 * The owner exports a range: plain data that it sends to the other process. That imports it, and
 * gets an address that copies work with in its own contexts. Handles are opened once for each
 * context, and stay open while they are used and some time after.
 *
 * The driver makes the whole allocation accessible to who holds the handle. So an export goes only
 * to processes of the same user.
 */
#ifndef WEFT_TRANSPORTS_CUDA_PEER_MEMORY_H
#define WEFT_TRANSPORTS_CUDA_PEER_MEMORY_H

#include "memory_file.h"

#include <stdint.h>

struct cuda_export {
    uint64_t process; /* a random number of the exporter */
    uint64_t buffer;  /* the driver's number of the allocation, or the exporter's of the file */
    uint64_t base, size, address, len;
    struct cuda_uuid device;
    struct cuda_ipc_handle handle;
    struct cuda_file file; /* in place of the handle, where it has a process; of a pool, both */
};

/* Errors: UNSUPPORTED: no device memory, or none that the driver exports. Any thread. */
weft_status_t weft__cuda_export(const void *at, size_t len, struct cuda_export *export_p);

struct cuda_import;
/*
 * An address of what was exported, for copies in `context` (NULL: the current one). Of this process
 * it is the address itself. Any thread.
 * Errors: INVALID_PARAM: no range within an allocation; UNSUPPORTED: the device is not there, or
 * the driver does not open it; NO_MEMORY.
 */
weft_status_t weft__cuda_import(const struct cuda_export *exported, cuda_context context,
                                struct cuda_import **import_p, void **at_p);
/* Kernels of `context` reach it, too: of memory of this process, only that of the context. */
bool weft__cuda_import_serves_kernels(const struct cuda_import *import, cuda_context context);
/* No copy uses it any more. */
void weft__cuda_import_end(struct cuda_import *import);
/* Closes handles of that allocation that nothing uses: its owner takes it back. Where a gate holds
 * back a stream (stream_gate.h), here and below they are closed with a later call. */
void weft__cuda_import_forget(const struct cuda_export *exported);
/* Closes what is open and not used. */
void weft__cuda_imports_close(void);

#endif
