/*
 * Device memory for tests: of the double of the CUDA driver (driver_double/), or with
 * WEFT_TEST_CUDA=driver of the driver and its first GPU. Either is loaded as a program with device
 * memory would have loaded it: before it creates a worker.
 */
#ifndef WEFT_TESTS_CUDA_DEVICE_H
#define WEFT_TESTS_CUDA_DEVICE_H

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <tests/cuda/driver_double.h>
#include <tests/harness.h>
#include <transports/cuda/kernels.h>
#include <unistd.h>
#include <weft/memory.h>

static struct {
    void *context;
    void *(*alloc)(void *context, size_t len, bool managed);
    void (*release)(void *device);
    void (*write)(void *device, const void *from, size_t len);
    void (*read)(void *to, const void *device, size_t len);
    unsigned (*depth)(void);
    /* NULL with the driver */
    void *(*context_create)(void);
    void (*context_destroy)(void *context);
    void (*context_break)(void *context);
    void (*context_mend)(void *context);
    void (*hold)(bool hold);
    unsigned *fail_call, *fail_copy, *fail_alloc, *copies, *asked, *opened, *exported,
        *copy_delay_us, *wait_delay_us;
    bool *fail_breaks, *fail_late, *capturing, *captures_waits, *fail_wait;
    /* of either */
    unsigned (*stream_create)(void **stream, unsigned flags);
    unsigned (*stream_destroy)(void *stream);
    unsigned (*stream_wait)(void *stream);
    unsigned (*host_call)(void *stream, void (*fn)(void *arg), void *arg);
    unsigned (*copy)(unsigned long long to, unsigned long long from, size_t len, void *stream);
    unsigned (*set_current)(void *context);
    unsigned (*capture_begin)(void *stream, unsigned mode);
    unsigned (*capture_end)(void *stream, void **graph);
    unsigned (*graph_instantiate)(void **exec, void *graph, unsigned long long flags);
    unsigned (*graph_launch)(void *exec, void *stream);
    unsigned (*host_register)(void *at, size_t len, unsigned flags);
    unsigned (*host_unregister)(void *at);
    unsigned (*host_device_pointer)(unsigned long long *device, void *host, unsigned flags);
    unsigned (*wait_value)(void *stream, unsigned long long at, unsigned value, unsigned flags);
} gpu;

static void *gpu_symbol(void *library, const char *name) {
    void *found = dlsym(library, name);
    CHECK(found != NULL);
    return found;
}

static void gpu_find_calls(void *library) {
    *(void **)&gpu.stream_create = gpu_symbol(library, "cuStreamCreate");
    *(void **)&gpu.stream_destroy = gpu_symbol(library, "cuStreamDestroy_v2");
    *(void **)&gpu.stream_wait = gpu_symbol(library, "cuStreamSynchronize");
    *(void **)&gpu.host_call = gpu_symbol(library, "cuLaunchHostFunc");
    *(void **)&gpu.copy = gpu_symbol(library, "cuMemcpyAsync");
    *(void **)&gpu.set_current = gpu_symbol(library, "cuCtxSetCurrent");
    *(void **)&gpu.capture_begin = gpu_symbol(library, "cuStreamBeginCapture_v2");
    *(void **)&gpu.capture_end = gpu_symbol(library, "cuStreamEndCapture");
    *(void **)&gpu.graph_instantiate = gpu_symbol(library, "cuGraphInstantiateWithFlags");
    *(void **)&gpu.graph_launch = gpu_symbol(library, "cuGraphLaunch");
    *(void **)&gpu.host_register = gpu_symbol(library, "cuMemHostRegister_v2");
    *(void **)&gpu.host_unregister = gpu_symbol(library, "cuMemHostUnregister");
    *(void **)&gpu.host_device_pointer = gpu_symbol(library, "cuMemHostGetDevicePointer_v2");
    *(void **)&gpu.wait_value = gpu_symbol(library, "cuStreamWaitValue32_v2");
}

/* ---- the driver ------------------------------------------------------------------------------ */

static struct {
    unsigned (*init)(unsigned flags);
    unsigned (*retain)(void **context, int device);
    unsigned (*set)(void *context);
    unsigned (*get)(void **context);
    unsigned (*alloc)(unsigned long long *at, size_t len);
    unsigned (*alloc_managed)(unsigned long long *at, size_t len, unsigned flags);
    unsigned (*release)(unsigned long long at);
    unsigned (*write)(unsigned long long to, const void *from, size_t len);
    unsigned (*read)(void *to, unsigned long long from, size_t len);
} gpu_driver;

static unsigned long long gpu_address(const void *device) {
    return (unsigned long long)(uintptr_t)device;
}
static void *gpu_driver_alloc(void *context, size_t len, bool managed) {
    enum { GLOBAL = 1 };
    unsigned long long at = 0;
    CHECK_EQ(managed ? gpu_driver.alloc_managed(&at, len, GLOBAL) : gpu_driver.alloc(&at, len), 0);
    return (void *)(uintptr_t)at;
}
static void gpu_driver_release(void *device) {
    CHECK_EQ(gpu_driver.release(gpu_address(device)), 0);
}
static void gpu_driver_write(void *device, const void *from, size_t len) {
    CHECK_EQ(gpu_driver.write(gpu_address(device), from, len), 0);
}
static void gpu_driver_read(void *to, const void *device, size_t len) {
    CHECK_EQ(gpu_driver.read(to, gpu_address(device), len), 0);
}
/* 0: the context that the test made current is current again. */
static unsigned gpu_driver_depth(void) {
    void *current = NULL;
    return gpu_driver.get(&current) != 0 || current != gpu.context;
}

static inline void gpu_load_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    CHECK(library != NULL);
    *(void **)&gpu_driver.init = gpu_symbol(library, "cuInit");
    *(void **)&gpu_driver.retain = gpu_symbol(library, "cuDevicePrimaryCtxRetain");
    *(void **)&gpu_driver.set = gpu_symbol(library, "cuCtxSetCurrent");
    *(void **)&gpu_driver.get = gpu_symbol(library, "cuCtxGetCurrent");
    *(void **)&gpu_driver.alloc = gpu_symbol(library, "cuMemAlloc_v2");
    *(void **)&gpu_driver.alloc_managed = gpu_symbol(library, "cuMemAllocManaged");
    *(void **)&gpu_driver.release = gpu_symbol(library, "cuMemFree_v2");
    *(void **)&gpu_driver.write = gpu_symbol(library, "cuMemcpyHtoD_v2");
    *(void **)&gpu_driver.read = gpu_symbol(library, "cuMemcpyDtoH_v2");
    CHECK_EQ(gpu_driver.init(0), 0);
    CHECK_EQ(gpu_driver.retain(&gpu.context, 0), 0);
    CHECK_EQ(gpu_driver.set(gpu.context), 0);
    gpu.alloc = gpu_driver_alloc;
    gpu.release = gpu_driver_release;
    gpu.write = gpu_driver_write;
    gpu.read = gpu_driver_read;
    gpu.depth = gpu_driver_depth;
    gpu_find_calls(library);
}

/* ---- the double ------------------------------------------------------------------------------ */

static inline void gpu_load_double(void) {
    char program[PATH_MAX] = "", path[PATH_MAX + 64];
    CHECK(readlink("/proc/self/exe", program, sizeof program - 1) > 0);
    snprintf(path, sizeof path, "%s/driver_double/libcuda.so.1", dirname(program));
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    CHECK(library != NULL);
    *(void **)&gpu.alloc = gpu_symbol(library, "double_alloc");
    *(void **)&gpu.release = gpu_symbol(library, "double_free");
    *(void **)&gpu.write = gpu_symbol(library, "double_write");
    *(void **)&gpu.read = gpu_symbol(library, "double_read");
    *(void **)&gpu.depth = gpu_symbol(library, "double_depth");
    *(void **)&gpu.context_create = gpu_symbol(library, "double_context_create");
    *(void **)&gpu.context_destroy = gpu_symbol(library, "double_context_destroy");
    *(void **)&gpu.context_break = gpu_symbol(library, "double_context_break");
    *(void **)&gpu.context_mend = gpu_symbol(library, "double_context_mend");
    *(void **)&gpu.hold = gpu_symbol(library, "double_hold");
    gpu.fail_call = gpu_symbol(library, "double_fail_call");
    gpu.fail_breaks = gpu_symbol(library, "double_fail_breaks");
    gpu.fail_copy = gpu_symbol(library, "double_fail_copy");
    gpu.fail_alloc = gpu_symbol(library, "double_fail_alloc");
    gpu.fail_late = gpu_symbol(library, "double_fail_late");
    gpu.capturing = gpu_symbol(library, "double_capturing");
    gpu.captures_waits = gpu_symbol(library, "double_captures_waits");
    gpu.wait_delay_us = gpu_symbol(library, "double_wait_delay_us");
    gpu.fail_wait = gpu_symbol(library, "double_fail_wait");
    gpu.copies = gpu_symbol(library, "double_copies");
    gpu.asked = gpu_symbol(library, "double_asked");
    gpu.opened = gpu_symbol(library, "double_opened");
    gpu.exported = gpu_symbol(library, "double_exported");
    gpu.copy_delay_us = gpu_symbol(library, "double_copy_delay_us");
    gpu_find_calls(library);
    gpu.context = gpu.context_create();
}

static inline void gpu_load(void) {
    const char *which = getenv("WEFT_TEST_CUDA");
    weft_mem_info_t info = {0};
    if (gpu.context) return;
    if (which && strcmp(which, "driver") == 0)
        gpu_load_driver();
    else
        gpu_load_double();
    CHECK_EQ(weft_mem_detect(&info, &info), WEFT_OK); /* the library looks for the driver */
}

/* Whether the library and the driver have kernels. Without them reductions go by the host. */
static inline bool gpu_has_kernels(void) {
    gpu_load();
    return weft__cuda_queue_open(gpu.context) != WEFT_ERR_UNSUPPORTED;
}

static inline char *gpu_alloc(size_t len) {
    gpu_load();
    char *device = gpu.alloc(gpu.context, len, false);
    CHECK(device != NULL);
    return device;
}

/* A stream of the program's, in its context. */
static inline void *gpu_stream(void) {
    enum { NON_BLOCKING = 1 };
    void *stream = NULL;
    gpu_load();
    unsigned depth = gpu.depth();
    if (gpu.context_create) CHECK_EQ(gpu.set_current(gpu.context), 0);
    CHECK_EQ(gpu.stream_create(&stream, NON_BLOCKING), 0);
    if (gpu.context_create && depth == 0) CHECK_EQ(gpu.set_current(NULL), 0);
    return stream;
}

/* Memory of the host for copies in streams: that of other memory may end within its call. */
enum { GPU_PAGE = 4096 };
#define GPU_PAGES __attribute__((aligned(GPU_PAGE)))
static inline void gpu_pin(void *at, size_t len) {
    enum { PORTABLE = 1, MAPPED = 2, ALREADY_REGISTERED = 712 };
    size_t pages = (len + GPU_PAGE - 1) / GPU_PAGE * GPU_PAGE;
    gpu_load();
    if (gpu.context_create) CHECK_EQ(gpu.set_current(gpu.context), 0);
    unsigned r = gpu.host_register(at, pages, PORTABLE | MAPPED);
    CHECK(r == 0 || r == ALREADY_REGISTERED);
    if (gpu.context_create) CHECK_EQ(gpu.set_current(NULL), 0);
}

/* Work of a stream that ends with gpu_unblock: a wait for a word. A host function that waited might
 * hold back those of other streams. */
static GPU_PAGES uint32_t gpu_word[GPU_PAGE / sizeof(uint32_t)];
static inline void gpu_block(void *stream, int *go) {
    static unsigned next;
    unsigned long long device = 0;
    (void)gpu_has_kernels(); /* loading them may wait for the stream */
    gpu_pin(gpu_word, sizeof gpu_word);
    *go = (int)(next++ % (sizeof gpu_word / sizeof *gpu_word));
    gpu_word[*go] = 0;
    if (gpu.context_create) CHECK_EQ(gpu.set_current(gpu.context), 0);
    CHECK_EQ(gpu.host_device_pointer(&device, &gpu_word[*go], 0), 0);
    CHECK_EQ(gpu.wait_value(stream, device, 1, 0), 0);
    if (gpu.context_create) CHECK_EQ(gpu.set_current(NULL), 0);
}
static inline void gpu_unblock(const int *go) {
    __atomic_store_n(&gpu_word[*go], 1, __ATOMIC_RELEASE);
}
/* A copy in the stream, which needs the context; memory of the host is pinned (gpu_pin). */
static inline void gpu_copy(void *to, const void *from, size_t len, void *stream) {
    if (gpu.context_create) CHECK_EQ(gpu.set_current(gpu.context), 0);
    CHECK_EQ(gpu.copy((uintptr_t)to, (uintptr_t)from, len, stream), 0);
    if (gpu.context_create) CHECK_EQ(gpu.set_current(NULL), 0);
}

/* Weft left the caller's current context as it was. */
static inline bool gpu_context_is_as_before(void) {
    return gpu.depth() == 0;
}

#endif
