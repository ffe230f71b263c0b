/* Virtual memory management: a handle is a block of memory, its file; addresses are reserved, and a
 * block is mapped there. */
#define _GNU_SOURCE
#include "double.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct block {
    int fd;
    size_t len;
    unsigned uses; /* by handles and mappings */
};

unsigned double_blocks;

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

static struct block *new_block(int fd, size_t len) {
    struct block *b = calloc(1, sizeof *b);
    *b = (struct block){.fd = fd, .len = len, .uses = 1};
    __atomic_fetch_add(&double_blocks, 1, __ATOMIC_RELAXED);
    return b;
}
static void end_use(struct block *b) {
    if (__atomic_sub_fetch(&b->uses, 1, __ATOMIC_ACQ_REL)) return;
    close(b->fd);
    free(b);
    __atomic_fetch_sub(&double_blocks, 1, __ATOMIC_RELAXED);
}
static void use(struct block *b) {
    __atomic_fetch_add(&b->uses, 1, __ATOMIC_RELAXED);
}

result cuMemCreate(struct block **handle, size_t len, const void *properties,
                   unsigned long long flags) {
    int fd = memfd_create("block", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)len) != 0) return OUT_OF_MEMORY;
    *handle = new_block(fd, len);
    return SUCCESS;
}
result cuMemRelease(struct block *handle) {
    end_use(handle);
    return SUCCESS;
}
result cuMemRetainAllocationHandle(struct block **handle, void *at) {
    const struct allocation *a = double_find((pointer)(uintptr_t)at);
    if (!a || !a->block) return INVALID_VALUE;
    use(*handle = a->block);
    return SUCCESS;
}
result cuMemExportToShareableHandle(int *fd, struct block *handle, unsigned type,
                                    unsigned long long flags) {
    if (type != 1) return NOT_SUPPORTED;
    *fd = fcntl(handle->fd, F_DUPFD_CLOEXEC, 0);
    return *fd >= 0 ? SUCCESS : INVALID_VALUE;
}
/* `os_handle` is the descriptor's number. */
result cuMemImportFromShareableHandle(struct block **handle, void *os_handle, unsigned type) {
    struct stat file;
    int fd = fcntl((int)(intptr_t)os_handle, F_DUPFD_CLOEXEC, 0);
    if (double_is_out_of_memory()) return OUT_OF_MEMORY;
    if (fd < 0 || fstat(fd, &file) != 0 || type != 1) return INVALID_VALUE;
    *handle = new_block(fd, (size_t)file.st_size);
    return SUCCESS;
}

result cuMemAddressReserve(pointer *at, size_t len, size_t alignment, pointer hint,
                           unsigned long long flags) {
    void *found = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *at = (pointer)(uintptr_t)found;
    return found == MAP_FAILED ? OUT_OF_MEMORY : SUCCESS;
}
result cuMemAddressFree(pointer at, size_t len) {
    return munmap((void *)(uintptr_t)at, len) == 0 ? SUCCESS : INVALID_VALUE;
}
result cuMemMap(pointer at, size_t len, size_t offset, struct block *handle,
                unsigned long long flags) {
    if (offset || len > handle->len || double_find(at)) return INVALID_VALUE;
    int fd = fcntl(handle->fd, F_DUPFD_CLOEXEC, 0);
    struct allocation *a = double_map_at((void *)(uintptr_t)at, NULL, fd, len, false);
    if (!a) return OUT_OF_MEMORY;
    use(a->block = handle);
    return SUCCESS;
}
/* The double's streams reach all that is mapped. */
result cuMemSetAccess(pointer at, size_t len, const void *access, size_t n) {
    return double_find(at) && access && n == 1 ? SUCCESS : INVALID_VALUE;
}
/* The addresses stay reserved. */
result cuMemUnmap(pointer at, size_t len) {
    struct allocation *a = double_find(at);
    if (!a || !a->block || a->len != len) return INVALID_VALUE;
    struct block *block = a->block;
    double_wait_all();
    double_unmap(a);
    end_use(block);
    return mmap((void *)(uintptr_t)at, len, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED
               ? OUT_OF_MEMORY
               : SUCCESS;
}
