/* Pools of device memory. The descriptor of a pool is a file with its number; the data of an
 * allocation name the process, its file and the pool's number. */
#define _GNU_SOURCE
#include "double.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct pool {
    unsigned types;
    bool imported;
    struct {
        uint64_t number;
        int device;
    } of;            /* what its file has */
    uint64_t access; /* the devices that reach its memory, a bit each */
};
struct properties {
    unsigned kind, handle_types, location;
    int device;
};
struct pointer_data {
    uint64_t magic, pool, len;
    int pid, fd;
    char rest[32];
};
_Static_assert(sizeof(struct pointer_data) == 64, "as CUmemPoolPtrExportData");
enum { MAGIC = 0x9001 };

unsigned double_pools;

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

static struct pool *new_pool(struct pool made) {
    struct pool *pool = malloc(sizeof *pool);
    *pool = made;
    __atomic_fetch_add(&double_pools, 1, __ATOMIC_RELAXED);
    return pool;
}
int double_pool_device(const struct pool *pool) {
    return pool->of.device;
}
uint64_t double_pool_access(const struct pool *pool) {
    return __atomic_load_n(&pool->access, __ATOMIC_RELAXED);
}
unsigned double_pool_types(const struct pool *pool) {
    return pool->types;
}

result cuMemPoolCreate(struct pool **pool, const struct properties *properties) {
    static uint64_t last;
    int device = properties->device;
    if (properties->location != 1 || (unsigned)device >= double_devices) return INVALID_VALUE;
    *pool = new_pool((struct pool){.types = properties->handle_types,
                                   .of = {((uint64_t)getpid() << 32) + ++last, device},
                                   .access = UINT64_C(1) << device});
    return SUCCESS;
}
result cuMemPoolDestroy(struct pool *pool) {
    free(pool);
    __atomic_fetch_sub(&double_pools, 1, __ATOMIC_RELAXED);
    return SUCCESS;
}
/* The pool's own device keeps its access. */
result cuMemPoolSetAccess(struct pool *pool, const struct access *access, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint64_t bit = UINT64_C(1) << access[i].device;
        if (access[i].kind != 1 || (unsigned)access[i].device >= double_devices ||
            (!access[i].flags && access[i].device == pool->of.device))
            return INVALID_VALUE;
        if (access[i].flags)
            __atomic_fetch_or(&pool->access, bit, __ATOMIC_RELAXED);
        else
            __atomic_fetch_and(&pool->access, ~bit, __ATOMIC_RELAXED);
    }
    return SUCCESS;
}

static result map_in(struct pool *pool, int fd, size_t len, pointer *at) {
    struct allocation *a = double_map(NULL, fd, len, false);
    if (!a) {
        close(fd);
        return OUT_OF_MEMORY;
    }
    a->pool = pool;
    *at = (pointer)(uintptr_t)a->device;
    return SUCCESS;
}
result cuMemAllocFromPoolAsync(pointer *at, size_t len, struct pool *pool, void *stream) {
    int fd = memfd_create("pool", MFD_CLOEXEC);
    if (pool->imported) return NOT_SUPPORTED;
    if (fd < 0 || ftruncate(fd, (off_t)len) != 0) return OUT_OF_MEMORY;
    return map_in(pool, fd, len, at);
}
result cuMemFreeAsync(pointer at, void *stream) {
    const struct allocation *a = double_find(at);
    if (!a || !a->pool) return INVALID_VALUE;
    double_free((void *)(uintptr_t)at);
    return SUCCESS;
}

result cuMemPoolExportToShareableHandle(int *fd, const struct pool *pool, unsigned type,
                                        unsigned long long flags) {
    if (type != 1 || !(pool->types & type)) return NOT_SUPPORTED;
    *fd = memfd_create("a pool", MFD_CLOEXEC);
    ssize_t size = sizeof pool->of;
    return *fd >= 0 && write(*fd, &pool->of, sizeof pool->of) == size ? SUCCESS : INVALID_VALUE;
}
result cuMemPoolImportFromShareableHandle(struct pool **pool, void *os_handle, unsigned type,
                                          unsigned long long flags) {
    struct pool made = {.types = 0, .imported = true};
    if (double_is_out_of_memory()) return OUT_OF_MEMORY;
    ssize_t size = sizeof made.of;
    if (type != 1 || pread((int)(intptr_t)os_handle, &made.of, sizeof made.of, 0) != size)
        return INVALID_VALUE;
    made.access = UINT64_C(1) << made.of.device;
    *pool = new_pool(made);
    return SUCCESS;
}
result cuMemPoolExportPointer(struct pointer_data *data, pointer at) {
    const struct allocation *a = double_find(at);
    if (!a || !a->pool || (pointer)(uintptr_t)a->device != at) return INVALID_VALUE;
    *data = (struct pointer_data){
        .magic = MAGIC, .pool = a->pool->of.number, .len = a->len, .pid = getpid(), .fd = a->fd};
    return SUCCESS;
}
/* The driver refuses an allocation of another pool. */
result cuMemPoolImportPointer(pointer *at, struct pool *pool, const struct pointer_data *data) {
    char path[64];
    if (data->magic != MAGIC || data->pool != pool->of.number) return INVALID_VALUE;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", data->pid, data->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    return fd < 0 ? INVALID_VALUE : map_in(pool, fd, data->len, at);
}
