/* Virtual memory management: a handle is a block of memory, its file; addresses are reserved, and a
 * block is mapped there. */
#define _GNU_SOURCE
#include "double.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GRANULARITY = 2 << 20 };
struct block {
    int fd, device;
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
/* At a multiple of the granularity. */
static char *reserve_aligned(size_t len) {
    char *whole = reserve(NULL, len + GRANULARITY);
    if (whole == MAP_FAILED) return MAP_FAILED;
    size_t before = -(uintptr_t)whole & (GRANULARITY - 1);
    if (before) munmap(whole, before);
    munmap(whole + before + len, GRANULARITY - before);
    return whole + before;
}
static bool is_whole(pointer at, size_t len) {
    return len && at % GRANULARITY == 0 && len % GRANULARITY == 0;
}

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

static struct block *new_block(int fd, int device, size_t len) {
    struct block *b = calloc(1, sizeof *b);
    *b = (struct block){.fd = fd, .device = device, .len = len, .uses = 1};
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

int double_block_device(const struct block *block) {
    return block->device;
}

struct properties {
    unsigned kind, handle_types, location;
    int device;
};
/* The file's name has the device. */
result cuMemCreate(struct block **handle, size_t len, const struct properties *properties,
                   unsigned long long flags) {
    char name[32];
    if (!is_whole(0, len) || properties->location != 1) return INVALID_VALUE;
    snprintf(name, sizeof name, "block of %d", properties->device);
    int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)len) != 0) return OUT_OF_MEMORY;
    *handle = new_block(fd, properties->device, len);
    return SUCCESS;
}
static bool read_device(int fd, int *device_p) {
    char path[64], name[64] = "";
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return readlink(path, name, sizeof name - 1) > 0 &&
           sscanf(name, "/memfd:block of %d", device_p) == 1;
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
    int fd = fcntl((int)(intptr_t)os_handle, F_DUPFD_CLOEXEC, 0), device;
    result r = double_is_out_of_memory() ? OUT_OF_MEMORY : INVALID_VALUE;
    if (r == OUT_OF_MEMORY || fd < 0 || fstat(fd, &file) != 0 || type != 1 ||
        !read_device(fd, &device)) {
        if (fd >= 0) close(fd);
        return r;
    }
    *handle = new_block(fd, device, (size_t)file.st_size);
    return SUCCESS;
}

result cuMemAddressReserve(pointer *at, size_t len, size_t alignment, pointer hint,
                           unsigned long long flags) {
    if (!is_whole(0, len)) return INVALID_VALUE;
    struct reservation made = {reserve_aligned(len), reserve_aligned(len), len};
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
    if (offset || !is_whole(at, len) || len > handle->len || double_find(at)) return INVALID_VALUE;
    int fd = fcntl(handle->fd, F_DUPFD_CLOEXEC, 0);
    struct allocation *a = double_map_at((void *)(uintptr_t)at, there, fd, len);
    if (!a) return OUT_OF_MEMORY;
    use(a->block = handle);
    return SUCCESS;
}
/* Whole mappings, without a gap. Without access, a mapping is of no use to any device. */
result cuMemSetAccess(pointer at, size_t len, const struct access *access, size_t n) {
    for (size_t done = 0; done < len;) {
        const struct allocation *a = double_find(at + done);
        if (!a || !a->block || (pointer)(uintptr_t)a->device != at + done || a->len > len - done)
            return INVALID_VALUE;
        done += a->len;
    }
    for (size_t done = 0; done < len;) {
        struct allocation *a = double_find(at + done);
        for (size_t i = 0; i < n; i++)
            if (access[i].kind != 1 || (unsigned)access[i].device >= double_devices)
                return INVALID_VALUE;
            else if (access[i].flags)
                a->access |= UINT64_C(1) << access[i].device;
            else
                a->access &= ~(UINT64_C(1) << access[i].device);
        done += a->len;
    }
    return SUCCESS;
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
