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
static struct reservation reservations[MOST];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static struct reservation *find_reservation(pointer at) {
    for (int i = 0; i < MOST; i++)
        if (at - (pointer)(uintptr_t)reservations[i].device < reservations[i].len)
            return &reservations[i];
    return NULL;
}
static void *reserve(void *at, size_t len) {
    return mmap(at, len, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED : 0), -1, 0);
}

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
    struct reservation made = {reserve(NULL, len), reserve(NULL, len), len};
    result r = OUT_OF_MEMORY;
    if (made.device == MAP_FAILED || made.alias == MAP_FAILED) return r;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < MOST && r != SUCCESS; i++) {
        if (reservations[i].len) continue;
        reservations[i] = made;
        *at = (pointer)(uintptr_t)made.device;
        r = SUCCESS;
    }
    pthread_mutex_unlock(&mutex);
    return r;
}
result cuMemAddressFree(pointer at, size_t len) {
    pthread_mutex_lock(&mutex);
    struct reservation *found = find_reservation(at), was = {0};
    if (found && found->len == len && (pointer)(uintptr_t)found->device == at) {
        was = *found;
        *found = (struct reservation){0};
    }
    pthread_mutex_unlock(&mutex);
    if (!was.len || double_find(at)) return INVALID_VALUE;
    munmap(was.device, len);
    munmap(was.alias, len);
    return SUCCESS;
}
/* A handle is mapped whole, or its first bytes. */
result cuMemMap(pointer at, size_t len, size_t offset, struct block *handle,
                unsigned long long flags) {
    pthread_mutex_lock(&mutex);
    const struct reservation *there = find_reservation(at);
    pthread_mutex_unlock(&mutex);
    if (!there || at - (pointer)(uintptr_t)there->device + len > there->len) return INVALID_VALUE;
    if (offset || len > handle->len || double_find(at)) return INVALID_VALUE;
    int fd = fcntl(handle->fd, F_DUPFD_CLOEXEC, 0);
    struct allocation *a = double_map_at((void *)(uintptr_t)at, there, fd, len);
    if (!a) return OUT_OF_MEMORY;
    use(a->block = handle);
    return SUCCESS;
}
/* The double's streams reach all that is mapped. */
result cuMemSetAccess(pointer at, size_t len, const void *access, size_t n) {
    return double_find(at) && access && n == 1 ? SUCCESS : INVALID_VALUE;
}
/* The addresses stay reserved. A mapping is unmapped whole, and by itself. */
result cuMemUnmap(pointer at, size_t len) {
    struct allocation *a = double_find(at);
    if (!a || !a->block || a->len != len || (pointer)(uintptr_t)a->device != at)
        return INVALID_VALUE;
    struct allocation was = *a;
    double_wait_all();
    double_unmap(a);
    end_use(was.block);
    bool reserved = reserve(was.device, len) != MAP_FAILED && reserve(was.alias, len) != MAP_FAILED;
    return reserved ? SUCCESS : OUT_OF_MEMORY;
}
