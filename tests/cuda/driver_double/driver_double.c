/*
 * The double: contexts, memory, and what a pointer points to. It has the functions that Weft calls
 * and those that tests need to make memory.
 */
#define _GNU_SOURCE
#include "double.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_DEVICES = 8 };
static struct allocation allocation[MOST];
static struct context contexts[MOST], primaries[MOST_DEVICES];
static unsigned retained[MOST_DEVICES]; /* primary contexts */
static __thread struct context *stack[MOST_DEPTH];
static __thread unsigned depth;
static unsigned n_contexts;
static unsigned long long n_buffers;
static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;

/* ---- for tests ------------------------------------------------------------------------------- */

unsigned double_fail_copy, double_fail_alloc, double_devices = 2, double_first_device;
unsigned double_fail_call;
bool double_fail_breaks;

static unsigned long long next_number(void) {
    static unsigned long long last;
    return __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
}
void *double_context_create(void) {
    return double_context_create_on(0);
}
void *double_context_create_on(int device) {
    struct context *context = &contexts[n_contexts++ % MOST];
    *context = (struct context){.device = device, .number = next_number()};
    return context;
}
/* What it registered and opened goes with it. */
void double_context_destroy(void *context) {
    pthread_mutex_lock(&table);
    for (int i = 0; i < MOST; i++) {
        if (allocation[i].context != context) continue;
        if (allocation[i].opened) double_opened--;
        if (allocation[i].registered || allocation[i].opened)
            memset(&allocation[i], 0, sizeof allocation[i]);
    }
    pthread_mutex_unlock(&table);
    __atomic_store_n(&((struct context *)context)->destroyed, true, __ATOMIC_RELEASE);
}
void double_context_renew(void *context) {
    __atomic_store_n(&((struct context *)context)->number, next_number(), __ATOMIC_RELEASE);
    __atomic_store_n(&((struct context *)context)->destroyed, false, __ATOMIC_RELEASE);
}
void double_context_break(void *context) {
    __atomic_store_n(&((struct context *)context)->error, LAUNCH_FAILED, __ATOMIC_RELEASE);
}
void double_context_mend(void *context) {
    struct context *of = context;
    double_wait_all();
    if (__atomic_load_n(&of->error, __ATOMIC_ACQUIRE) != SUCCESS)
        __atomic_store_n(&of->number, next_number(), __ATOMIC_RELEASE);
    __atomic_store_n(&of->error, SUCCESS, __ATOMIC_RELEASE);
}
unsigned double_pushes(void *context) {
    return __atomic_load_n(&((struct context *)context)->pushes, __ATOMIC_RELAXED);
}
unsigned double_depth(void) {
    return depth;
}

bool double_is_out_of_memory(void) {
    return double_fail_alloc && --double_fail_alloc == 0;
}

result double_call_begins(struct context *in) {
    double_refuse_in_host_function();
    if (!double_fail_call || --double_fail_call != 0) return SUCCESS;
    if (!in) in = double_current();
    if (double_fail_breaks && in) double_context_break(in);
    return double_fail_breaks ? LAUNCH_FAILED : OUT_OF_MEMORY;
}

struct context *double_current(void) {
    double_refuse_in_host_function();
    return depth ? stack[depth - 1] : NULL;
}
result double_usable(const struct context *context) {
    if (!context) return INVALID_CONTEXT;
    /* its streams ask, too */
    if (__atomic_load_n(&context->destroyed, __ATOMIC_ACQUIRE)) return CONTEXT_IS_DESTROYED;
    return __atomic_load_n(&context->error, __ATOMIC_ACQUIRE);
}

static struct allocation *find(pointer at) {
    for (int i = 0; i < MOST; i++) {
        pointer base = (pointer)(uintptr_t)allocation[i].device;
        if (allocation[i].len && at >= base && at - base < allocation[i].len) return &allocation[i];
    }
    return NULL;
}

struct allocation *double_find(pointer at) {
    pthread_mutex_lock(&table);
    struct allocation *found = find(at);
    pthread_mutex_unlock(&table);
    return found;
}

struct allocation *double_find_opened(int peer, int device, uint64_t number) {
    const struct context *here = double_current();
    struct allocation *found = NULL;
    pthread_mutex_lock(&table);
    for (int i = 0; i < MOST && !found; i++) {
        struct allocation *a = &allocation[i];
        if (!a->opened || a->peer != peer || a->peer_device != device) continue;
        bool is = number ? a->context == here && a->peer_number == number
                         : a->context != here && a->context->device == here->device;
        if (is) found = a;
    }
    pthread_mutex_unlock(&table);
    return found;
}

bool double_reaches(const struct allocation *a, const struct context *context) {
    if (a->host || a->managed) return true;
    uint64_t access = a->pool ? double_pool_access(a->pool) : a->access;
    return a->block || a->pool ? access >> context->device & 1 : a->context == context;
}

/* Mappings in a row have aliases in a row. */
char *double_alias(pointer at, size_t len) {
    const struct allocation *a = double_find(at), *next = a;
    if (!a) return (char *)(uintptr_t)at; /* of the host */
    size_t offset = at - (pointer)(uintptr_t)a->device, there = a->len - offset;
    while (there < len) {
        next = double_find(at + there);
        if (!next || !next->reservation || next->reservation != a->reservation) return NULL;
        there += next->len;
    }
    return a->alias + offset;
}
void double_write(void *device, const void *from, size_t len) {
    memcpy(double_alias((pointer)(uintptr_t)device, len), from, len);
}
void double_read(void *to, const void *device, size_t len) {
    memcpy(to, double_alias((pointer)(uintptr_t)device, len), len);
}

/* Memory that was unmapped while it was registered, as in a context that broke, is not there any
 * more. A device's memory may come to lie there; the driver's own has addresses of its own. */
static void forget_unmapped(const struct allocation *made) {
    for (int i = 0; i < MOST; i++) {
        struct allocation *a = &allocation[i];
        bool meets = a->device < made->device + made->len && made->device < a->device + a->len;
        if (a->registered && meets) memset(a, 0, sizeof *a);
    }
}

static struct allocation *new_allocation(struct allocation made) {
    pthread_mutex_lock(&table);
    struct allocation *a = NULL;
    if (!made.host) forget_unmapped(&made);
    for (int i = 0; i < MOST && !a; i++)
        if (!allocation[i].len) a = &allocation[i];
    made.buffer_id = ++n_buffers;
    if (a) *a = made;
    pthread_mutex_unlock(&table);
    return a;
}

static struct allocation *map(struct allocation made, void *at, void *alias) {
    int access = made.managed ? PROT_READ | PROT_WRITE : PROT_NONE;
    made.device = mmap(at, made.len, access, MAP_SHARED | (at ? MAP_FIXED : 0), made.fd, 0);
    made.alias = mmap(alias, made.len, PROT_READ | PROT_WRITE, MAP_SHARED | (alias ? MAP_FIXED : 0),
                      made.fd, 0);
    if (made.device == MAP_FAILED || made.alias == MAP_FAILED) return NULL;
    return new_allocation(made);
}

struct allocation *double_map(struct context *context, int fd, size_t len, bool managed) {
    return map((struct allocation){.len = len, .managed = managed, .context = context, .fd = fd},
               NULL, NULL);
}
struct allocation *double_map_at(void *at, const struct reservation *reservation, int fd,
                                 size_t len) {
    size_t offset = (size_t)((char *)at - reservation->device);
    return map((struct allocation){.len = len, .fd = fd, .reservation = reservation}, at,
               reservation->alias + offset);
}

void double_unmap(struct allocation *a) {
    pthread_mutex_lock(&table);
    struct allocation was = *a;
    memset(a, 0, sizeof *a);
    pthread_mutex_unlock(&table);
    munmap(was.device, was.len);
    munmap(was.alias, was.len);
    close(was.fd);
}

void *double_alloc(void *context, size_t len, bool managed) {
    int fd = memfd_create("device", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)len) != 0) return NULL;
    struct allocation *a = double_map(context, fd, len, managed);
    if (!a) close(fd);
    return a ? a->device : NULL;
}
void double_free(void *device) {
    double_wait_all();
    struct allocation *a = double_find((pointer)(uintptr_t)device);
    if (a) double_unmap(a);
}

/* ---- the driver's functions ------------------------------------------------------------------ */

/* cuda.h, which declares them, may not be there. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

result cuGetErrorName(result error, const char **name) {
    switch (error) {
    case OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case INVALID_CONTEXT: *name = "CUDA_ERROR_INVALID_CONTEXT"; break;
    case INVALID_HANDLE: *name = "CUDA_ERROR_INVALID_HANDLE"; break;
    case NOT_READY: *name = "CUDA_ERROR_NOT_READY"; break;
    case CONTEXT_IS_DESTROYED: *name = "CUDA_ERROR_CONTEXT_IS_DESTROYED"; break;
    case ILLEGAL_ADDRESS: *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; break;
    case LAUNCH_FAILED: *name = "CUDA_ERROR_LAUNCH_FAILED"; break;
    case NOT_SUPPORTED: *name = "CUDA_ERROR_NOT_SUPPORTED"; break;
    default: *name = "CUDA_ERROR_INVALID_VALUE";
    }
    return SUCCESS;
}

result cuInit(unsigned flags) {
    return SUCCESS;
}
result cuDriverGetVersion(int *version) {
    *version = 13000;
    return SUCCESS;
}
result cuDeviceGetCount(int *n) {
    *n = (int)double_devices;
    return SUCCESS;
}
result cuDeviceGet(int *device, int ordinal) {
    *device = (int)((unsigned)ordinal + double_first_device) % (int)double_devices;
    return ordinal >= 0 && (unsigned)ordinal < double_devices ? SUCCESS : INVALID_VALUE;
}
result cuDeviceGetName(char *name, int size, int device) {
    strncpy(name, "a double", (size_t)size);
    return SUCCESS;
}
result cuDeviceTotalMem_v2(size_t *bytes, int device) {
    *bytes = (size_t)1 << 34;
    return SUCCESS;
}
result cuDeviceGetPCIBusId(char *id, int size, int device) {
    strncpy(id, device ? "0000:02:00.0" : "0000:01:00.0", (size_t)size);
    return SUCCESS;
}
result cuDeviceGetUuid_v2(unsigned char uuid[16], int device) {
    memset(uuid, 7, 16);
    uuid[0] = (unsigned char)device;
    return SUCCESS;
}
result cuDeviceGetAttribute(int *value, unsigned attribute, int device) {
    result r = double_call_begins(NULL);
    if (r != SUCCESS) return r;
    *value = 1;
    return SUCCESS;
}
result cuDeviceCanAccessPeer(int *can, int device, int peer) {
    *can = device != peer;
    return SUCCESS;
}
result cuCtxEnablePeerAccess(struct context *peer, unsigned flags) {
    return double_usable(peer);
}

/* What a program calls: the primary context of the first device is the first one. */
static struct context *primary_of(int device) {
    return device ? &primaries[device] : &contexts[0];
}
static bool is_device_number(int device) {
    return device >= 0 && (unsigned)device < double_devices && device < MOST_DEVICES;
}
result cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    result r = double_call_begins(primary_of(0));
    if (r != SUCCESS) return r;
    if (!is_device_number(device)) return INVALID_VALUE;
    *flags = 0;
    *active = __atomic_load_n(&retained[device], __ATOMIC_ACQUIRE) != 0;
    return SUCCESS;
}
result cuDevicePrimaryCtxRetain(struct context **context, int device) {
    result r = double_call_begins(primary_of(0));
    if (r != SUCCESS) return r;
    if (!is_device_number(device)) return INVALID_VALUE;
    *context = primary_of(device);
    (*context)->device = device;
    if (!(*context)->number) (*context)->number = next_number();
    __atomic_fetch_add(&retained[device], 1, __ATOMIC_ACQ_REL);
    return SUCCESS;
}
result cuDevicePrimaryCtxRelease_v2(int device) {
    if (!is_device_number(device)) return INVALID_VALUE;
    if (!__atomic_load_n(&retained[device], __ATOMIC_ACQUIRE)) return INVALID_CONTEXT;
    __atomic_fetch_sub(&retained[device], 1, __ATOMIC_ACQ_REL);
    return SUCCESS;
}
result cuCtxSetCurrent(struct context *context) {
    stack[0] = context;
    depth = context ? 1 : 0;
    return SUCCESS;
}
result cuCtxGetCurrent(struct context **context) {
    *context = double_current();
    return SUCCESS;
}
result cuCtxGetId(struct context *context, unsigned long long *number) {
    if (!context) return INVALID_CONTEXT;
    if (__atomic_load_n(&context->destroyed, __ATOMIC_ACQUIRE)) return CONTEXT_IS_DESTROYED;
    *number = __atomic_load_n(&context->number, __ATOMIC_ACQUIRE);
    return SUCCESS;
}
result cuCtxGetDevice(int *device) {
    result r = double_call_begins(NULL);
    if (r != SUCCESS) return r;
    *device = depth ? double_current()->device : -1;
    return depth ? SUCCESS : INVALID_CONTEXT;
}
result cuCtxPushCurrent_v2(struct context *context) {
    result r = double_call_begins(context);
    if (r != SUCCESS) return r;
    if (!context || context->destroyed || depth == MOST_DEPTH) return INVALID_CONTEXT;
    stack[depth++] = context;
    __atomic_fetch_add(&context->pushes, 1, __ATOMIC_RELAXED);
    return SUCCESS;
}
result cuCtxPopCurrent_v2(struct context **context) {
    if (depth == 0) return INVALID_CONTEXT;
    *context = stack[--depth];
    return SUCCESS;
}

static result alloc_here(pointer *at, size_t len, bool managed) {
    result r = double_usable(double_current());
    if (r != SUCCESS) return r;
    *at = (pointer)(uintptr_t)double_alloc(double_current(), len, managed);
    return *at ? SUCCESS : OUT_OF_MEMORY;
}
result cuMemAlloc_v2(pointer *at, size_t len) {
    return alloc_here(at, len, false);
}
result cuMemAllocManaged(pointer *at, size_t len, unsigned flags) {
    return alloc_here(at, len, true);
}
result cuMemFree_v2(pointer at) {
    if (!double_find(at)) return INVALID_VALUE;
    double_free((void *)(uintptr_t)at);
    return SUCCESS;
}

/* ---- memory of the host */

static result pin(void *at, size_t len, bool registered, bool mapped) {
    pointer address = (pointer)(uintptr_t)at;
    if (double_find(address)) return ALREADY_REGISTERED;
    struct allocation made = {.device = at,
                              .alias = at,
                              .len = len,
                              .host = true,
                              .registered = registered,
                              .mapped = mapped,
                              .context = double_current(),
                              .fd = -1};
    return new_allocation(made) ? SUCCESS : OUT_OF_MEMORY;
}
static result unpin(void *at, bool registered) {
    struct allocation *a = double_find((pointer)(uintptr_t)at);
    if (!a || !a->host || a->registered != registered) return INVALID_VALUE;
    double_wait_all();
    pthread_mutex_lock(&table);
    memset(a, 0, sizeof *a);
    pthread_mutex_unlock(&table);
    return SUCCESS;
}
/* What is registered has an address for kernels where that was asked for. */
result cuMemHostRegister_v2(void *at, size_t len, unsigned flags) {
    enum { DEVICEMAP = 2 };
    result r = double_call_begins(NULL);
    if (r == SUCCESS) r = double_unsafe_begins();
    if (r == SUCCESS) r = double_usable(double_current());
    if (r == SUCCESS && double_is_out_of_memory()) r = OUT_OF_MEMORY;
    return r == SUCCESS ? pin(at, len, true, flags & DEVICEMAP) : r;
}
/* A broken context's error is one of earlier work. */
result cuMemHostUnregister(void *at) {
    result r = double_unsafe_begins();
    if (r == SUCCESS && !double_current()) r = INVALID_CONTEXT;
    if (r == SUCCESS) r = unpin(at, true);
    return r == SUCCESS ? double_usable(double_current()) : r;
}
result cuMemHostGetDevicePointer_v2(pointer *device, void *host, unsigned flags) {
    const struct allocation *a = double_find((pointer)(uintptr_t)host);
    *device = (pointer)(uintptr_t)host;
    return a && a->mapped ? SUCCESS : INVALID_VALUE;
}
result cuMemHostAlloc(void **at, size_t len, unsigned flags) {
    result r = double_usable(double_current());
    if (r == SUCCESS && double_is_out_of_memory()) r = OUT_OF_MEMORY;
    if (r != SUCCESS) return r;
    *at = aligned_alloc(4096, (len + 4095) / 4096 * 4096);
    return *at ? pin(*at, len, false, true) : OUT_OF_MEMORY;
}
result cuMemAllocHost_v2(void **at, size_t len) {
    return cuMemHostAlloc(at, len, 0);
}
result cuMemFreeHost(void *at) {
    result r = unpin(at, false);
    if (r == SUCCESS) free(at);
    return r;
}

/* ---- what a pointer points to */

static result attribute_of(const struct allocation *a, unsigned attribute, void *value) {
    switch (attribute) {
    case 1: *(struct context **)value = a ? a->context : NULL; break;
    case 2: *(unsigned *)value = !a ? 0 : a->host ? KIND_HOST : KIND_DEVICE; break;
    case 6: *(unsigned *)value = 1; break; /* SYNC_MEMOPS */
    case 7: *(unsigned long long *)value = a ? a->buffer_id : 0; break;
    case 8: *(unsigned *)value = a && a->managed; break;
    case 9:
        *(int *)value = !a           ? -2
                        : a->context ? a->context->device
                        : a->block   ? double_block_device(a->block)
                        : a->pool    ? double_pool_device(a->pool)
                                     : -2;
        break;
    case 10:
        *(unsigned *)value = a && !a->host && !a->managed && !a->opened && !a->block && !a->pool;
        break;
    /* the addresses that are reserved, of memory that is mapped there */
    case 11:
        *(char **)value = !a ? NULL : a->reservation ? a->reservation->device : a->device;
        break;
    case 12: *(size_t *)value = !a ? 0 : a->reservation ? a->reservation->len : a->len; break;
    case 14:
        *(unsigned long long *)value = !a         ? 0
                                       : a->block ? 1
                                       : a->pool  ? double_pool_types(a->pool)
                                                  : 0;
        break;
    /* ACCESS_FLAGS: of the current context's device */
    case 16:
        if (!double_current()) return INVALID_CONTEXT;
        *(unsigned *)value = a && double_reaches(a, double_current()) ? 3 : 0;
        break;
    case 17: *(struct pool **)value = a ? a->pool : NULL; break;
    case 18: *(size_t *)value = a ? a->len : 0; break;
    case 19: *(char **)value = a ? a->device : NULL; break;
    default: return INVALID_VALUE;
    }
    return SUCCESS;
}
/* Unknown pointers have the kind 0, and the call succeeds, as in the driver. */
result cuPointerGetAttributes(unsigned count, unsigned *attributes, void **values, pointer at) {
    double_refuse_in_host_function();
    const struct allocation *a = double_find(at);
    result r = SUCCESS;
    for (unsigned i = 0; i < count && r == SUCCESS; i++)
        r = attribute_of(a, attributes[i], values[i]);
    __atomic_fetch_add(&double_asked, 1, __ATOMIC_RELAXED);
    return r;
}
result cuPointerGetAttribute(void *value, unsigned attribute, pointer at) {
    double_refuse_in_host_function();
    const struct allocation *a = double_find(at);
    return a ? attribute_of(a, attribute, value) : INVALID_VALUE;
}
