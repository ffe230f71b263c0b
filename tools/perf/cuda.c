/* The driver by dlopen, so that weft-perf builds and runs without CUDA. */
#include "cuda.h"

#include "perf.h"
#include <dlfcn.h>
#include <string.h>

typedef unsigned long long device_pointer;
static struct {
    void *library;
    unsigned (*init)(unsigned flags);
    unsigned (*retain)(void **context, int device);
    unsigned (*set)(void *context);
    unsigned (*alloc)(device_pointer *at, size_t len);
    unsigned (*alloc_managed)(device_pointer *at, size_t len, unsigned flags);
    unsigned (*alloc_host)(void **at, size_t len);
    unsigned (*fill)(device_pointer at, unsigned char byte, size_t len);
} cuda;

static void find(void *function, const char *name) {
    *(void **)function = dlsym(cuda.library, name);
    if (!*(void **)function) perf_die(name, WEFT_ERR_UNSUPPORTED);
}

static void check(unsigned result, const char *what) {
    if (result != 0) perf_die(what, WEFT_ERR_UNSUPPORTED);
}

/* The primary context of the first GPU is the thread's from now on. */
static void load(void) {
    void *context = NULL;
    weft_mem_info_t info = {0};
    if (cuda.library) return;
    cuda.library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda.library) perf_die("libcuda.so.1", WEFT_ERR_UNSUPPORTED);
    find(&cuda.init, "cuInit");
    find(&cuda.retain, "cuDevicePrimaryCtxRetain");
    find(&cuda.set, "cuCtxSetCurrent");
    find(&cuda.alloc, "cuMemAlloc_v2");
    find(&cuda.alloc_managed, "cuMemAllocManaged");
    find(&cuda.alloc_host, "cuMemAllocHost_v2");
    find(&cuda.fill, "cuMemsetD8_v2");
    check(cuda.init(0), "cuInit");
    check(cuda.retain(&context, 0), "cuDevicePrimaryCtxRetain");
    check(cuda.set(context), "cuCtxSetCurrent");
    perf_must(weft_mem_detect(&info, &info), "memory"); /* the library looks for the driver */
}

void *perf_cuda_memory(enum perf_cuda kind, size_t size) {
    enum { GLOBAL = 1 };
    device_pointer at = 0;
    void *host = NULL;
    load();
    if (kind == PERF_CUDA_PINNED) {
        check(cuda.alloc_host(&host, size), "cuMemAllocHost");
        return memset(host, 1, size);
    }
    if (kind == PERF_CUDA_MANAGED) {
        check(cuda.alloc_managed(&at, size, GLOBAL), "cuMemAllocManaged");
        return memset((void *)(uintptr_t)at, 1, size);
    }
    check(cuda.alloc(&at, size), "cuMemAlloc");
    check(cuda.fill(at, 1, size), "cuMemsetD8");
    return (void *)(uintptr_t)at;
}
