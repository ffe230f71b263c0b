/*
 * A double of libcuda.so.1. Device memory is a mapping that the host may not touch, so that a stray
 * access faults; the driver's own calls go through a second mapping of the same pages. Calls are
 * counted, and one of them can be made to fail. It has the functions that Weft calls and those that
 * tests need to make memory.
 */
#define _GNU_SOURCE
#include <tests/cuda/driver_double.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef unsigned result;
typedef unsigned long long pointer;
enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_CONTEXT = 201,
    LAUNCH_FAILED = 719
};
enum { KIND_HOST = 1, KIND_DEVICE = 2, MOST = 64, MOST_DEPTH = 16 };

struct context {
    bool destroyed;
};
struct allocation {
    char *device, *alias;
    size_t len;
    bool managed;
    struct context *context;
};
static struct allocation allocation[MOST];
static struct context contexts[MOST], *stack[MOST_DEPTH];
static char streams[MOST];
static unsigned n_contexts, n_streams;
static unsigned depth;

/* ---- for tests ------------------------------------------------------------------------------- */

unsigned double_fail_copy;

void *double_context_create(void) {
    return &contexts[n_contexts++ % MOST];
}
void double_context_destroy(void *context) {
    ((struct context *)context)->destroyed = true;
}
unsigned double_depth(void) {
    return depth;
}

static struct allocation *find(pointer at) {
    for (int i = 0; i < MOST; i++) {
        pointer base = (pointer)(uintptr_t)allocation[i].device;
        if (allocation[i].len && at >= base && at - base < allocation[i].len) return &allocation[i];
    }
    return NULL;
}

/* Where the double reads and writes what lies at a device address. */
static char *alias_of(pointer at) {
    const struct allocation *a = find(at);
    return a ? a->alias + (at - (pointer)(uintptr_t)a->device) : NULL;
}
void double_write(void *device, const void *from, size_t len) {
    memcpy(alias_of((pointer)(uintptr_t)device), from, len);
}
void double_read(void *to, const void *device, size_t len) {
    memcpy(to, alias_of((pointer)(uintptr_t)device), len);
}

void *double_alloc(void *context, size_t len, bool managed) {
    for (int i = 0; i < MOST; i++) {
        struct allocation *a = &allocation[i];
        if (a->len) continue;
        int fd = memfd_create("device", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, (off_t)len) != 0) return NULL;
        int access = managed ? PROT_READ | PROT_WRITE : PROT_NONE;
        a->device = mmap(NULL, len, access, MAP_SHARED, fd, 0);
        a->alias = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
        a->len = len;
        a->managed = managed;
        a->context = context;
        return a->device;
    }
    return NULL;
}
void double_free(void *device) {
    struct allocation *a = find((pointer)(uintptr_t)device);
    munmap(a->device, a->len);
    munmap(a->alias, a->len);
    memset(a, 0, sizeof *a);
}

/* ---- the driver's functions ------------------------------------------------------------------ */

/* cuda.h, which declares them, may not be there. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

result cuGetErrorName(result error, const char **name) {
    *name = error == INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT"
            : error == LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED"
            : error == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
                                     : "CUDA_ERROR_INVALID_VALUE";
    return SUCCESS;
}
/* What a program calls: the primary context is the first one. */
result cuInit(unsigned flags) {
    return SUCCESS;
}
result cuDevicePrimaryCtxRetain(void **context, int device) {
    *context = &contexts[0];
    return device == 0 ? SUCCESS : INVALID_VALUE;
}
result cuCtxSetCurrent(struct context *context) {
    stack[0] = context;
    depth = 1;
    return SUCCESS;
}
result cuMemAlloc_v2(pointer *at, size_t len) {
    *at = depth ? (pointer)(uintptr_t)double_alloc(stack[depth - 1], len, false) : 0;
    return *at ? SUCCESS : OUT_OF_MEMORY;
}
result cuMemAllocManaged(pointer *at, size_t len, unsigned flags) {
    *at = depth ? (pointer)(uintptr_t)double_alloc(stack[depth - 1], len, true) : 0;
    return *at ? SUCCESS : OUT_OF_MEMORY;
}
result cuMemAllocHost_v2(void **at, size_t len) {
    *at = aligned_alloc(4096, (len + 4095) / 4096 * 4096);
    return *at ? SUCCESS : OUT_OF_MEMORY;
}
result cuMemsetD8_v2(pointer at, unsigned char byte, size_t len) {
    memset(alias_of(at), byte, len);
    return SUCCESS;
}
result cuMemcpyHtoD_v2(pointer to, const void *from, size_t len) {
    double_write((void *)(uintptr_t)to, from, len);
    return SUCCESS;
}
result cuMemcpyDtoH_v2(void *to, pointer from, size_t len) {
    double_read(to, (const void *)(uintptr_t)from, len);
    return SUCCESS;
}
result cuCtxPushCurrent_v2(struct context *context) {
    if (context->destroyed || depth == MOST_DEPTH) return INVALID_CONTEXT;
    stack[depth++] = context;
    return SUCCESS;
}
result cuCtxPopCurrent_v2(struct context **context) {
    if (depth == 0) return INVALID_CONTEXT;
    *context = stack[--depth];
    return SUCCESS;
}

/* Unknown pointers have the kind 0, and the call succeeds, as in the driver. */
result cuPointerGetAttributes(unsigned count, unsigned *attributes, void **values, pointer at) {
    const struct allocation *a = find(at);
    for (unsigned i = 0; i < count; i++) {
        switch (attributes[i]) {
        case 1: *(struct context **)values[i] = a ? a->context : NULL; break;
        case 2: *(unsigned *)values[i] = a ? KIND_DEVICE : 0; break;
        case 8: *(unsigned *)values[i] = a && a->managed; break;
        case 9: *(int *)values[i] = a ? 0 : -2; break;
        case 11: *(char **)values[i] = a ? a->device : NULL; break;
        case 12: *(size_t *)values[i] = a ? a->len : 0; break;
        default: return INVALID_VALUE;
        }
    }
    return SUCCESS;
}

result cuStreamCreate(void **stream, unsigned flags) {
    if (depth == 0 || flags != 1) return INVALID_CONTEXT;
    *stream = &streams[n_streams++ % MOST];
    return SUCCESS;
}
result cuStreamDestroy_v2(void *stream) {
    return depth ? SUCCESS : INVALID_CONTEXT;
}
result cuStreamSynchronize(void *stream) {
    return SUCCESS;
}

/* A copy of memory of another context than the current one fails, as does a planted one. */
static result begin_copy(pointer device, size_t len) {
    const struct allocation *a = find(device);
    if (!a || device - (pointer)(uintptr_t)a->device + len > a->len) return INVALID_VALUE;
    if (depth == 0 || stack[depth - 1] != a->context) return INVALID_CONTEXT;
    if (double_fail_copy && --double_fail_copy == 0) return LAUNCH_FAILED;
    return SUCCESS;
}
result cuMemcpyDtoHAsync_v2(void *to, pointer from, size_t len, void *stream) {
    result r = begin_copy(from, len);
    if (r == SUCCESS) memcpy(to, alias_of(from), len);
    return r;
}
result cuMemcpyHtoDAsync_v2(pointer to, const void *from, size_t len, void *stream) {
    result r = begin_copy(to, len);
    if (r == SUCCESS) memcpy(alias_of(to), from, len);
    return r;
}

struct blocks {
    size_t src_x, src_y;
    unsigned src_kind;
    const char *src_host;
    pointer src_device;
    void *src_array;
    size_t src_pitch, dst_x, dst_y;
    unsigned dst_kind;
    char *dst_host;
    pointer dst_device;
    void *dst_array;
    size_t dst_pitch, width, rows;
};
result cuMemcpy2DAsync_v2(const struct blocks *b, void *stream) {
    bool in = b->dst_kind == KIND_DEVICE;
    pointer device = in ? b->dst_device : b->src_device;
    size_t pitch = in ? b->dst_pitch : b->src_pitch;
    if (b->width > b->src_pitch || b->width > b->dst_pitch) return INVALID_VALUE;
    result r = begin_copy(device, b->rows ? (b->rows - 1) * pitch + b->width : 0);
    for (size_t i = 0; r == SUCCESS && i < b->rows; i++) {
        char *to = in ? alias_of(device) + i * pitch : b->dst_host + i * b->dst_pitch;
        const char *from = in ? b->src_host + i * b->src_pitch : alias_of(device) + i * pitch;
        memcpy(to, from, b->width);
    }
    return r;
}
