/* The double of the CUDA driver (driver_double/), loaded as a program with device memory would have
 * loaded the driver: before it creates a worker. */
#ifndef WEFT_TESTS_CUDA_DEVICE_DOUBLE_H
#define WEFT_TESTS_CUDA_DEVICE_DOUBLE_H

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <tests/cuda/driver_double.h>
#include <tests/harness.h>
#include <unistd.h>

static struct {
    void *(*context_create)(void);
    void (*context_destroy)(void *context);
    unsigned (*depth)(void);
    void *(*alloc)(void *context, size_t len, bool managed);
    void (*release)(void *device);
    char *(*alias)(const void *device);
    struct double_counts *counts;
    unsigned *fail_copy;
    void *context;
} gpu;

static void *gpu_symbol(void *library, const char *name) {
    void *found = dlsym(library, name);
    CHECK(found != NULL);
    return found;
}

/* It lies in a folder beside the test program. */
static inline void gpu_load(void) {
    char program[PATH_MAX] = "", path[PATH_MAX + 64];
    if (gpu.context) return;
    CHECK(readlink("/proc/self/exe", program, sizeof program - 1) > 0);
    snprintf(path, sizeof path, "%s/driver_double/libcuda.so.1", dirname(program));
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    CHECK(library != NULL);
    *(void **)&gpu.context_create = gpu_symbol(library, "double_context_create");
    *(void **)&gpu.context_destroy = gpu_symbol(library, "double_context_destroy");
    *(void **)&gpu.depth = gpu_symbol(library, "double_depth");
    *(void **)&gpu.alloc = gpu_symbol(library, "double_alloc");
    *(void **)&gpu.release = gpu_symbol(library, "double_free");
    *(void **)&gpu.alias = gpu_symbol(library, "double_alias");
    gpu.counts = gpu_symbol(library, "double_counts");
    gpu.fail_copy = gpu_symbol(library, "double_fail_copy");
    gpu.context = gpu.context_create();
}

static inline char *gpu_alloc(size_t len) {
    gpu_load();
    char *device = gpu.alloc(gpu.context, len, false);
    CHECK(device != NULL);
    return device;
}

#endif
