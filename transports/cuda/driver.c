/* Finds the CUDA driver in this process, resolves its functions, and translates its errors. */
#include "driver.h"

#include <base/status.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

bool weft__cuda_active;

static struct cuda_driver driver;
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

/* False: a driver that lacks one of these functions is not used. */
static bool find_functions(void *library) {
#define CUDA_CALL(field, symbol, parameters)                   \
    *(void **)(void *)&driver.field = dlsym(library, #symbol); \
    if (!driver.field) return false;
#define CUDA_OPTIONAL(field, symbol, parameters) \
    *(void **)(void *)&driver.field = dlsym(library, #symbol);
#include "driver.def"
#undef CUDA_CALL
    return true;
}

/* The handle is kept: the driver stays in the process for as long as Weft may call it. */
static void load(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!library) return;
    if (find_functions(library))
        __atomic_store_n(&weft__cuda_active, true, __ATOMIC_RELEASE);
    else
        dlclose(library);
}

/* No thread is in the loader when a process forks: its child could not load anything. */
static void lock_loading(void) {
    pthread_mutex_lock(&loading);
}
static void unlock_loading(void) {
    pthread_mutex_unlock(&loading);
}
static void guard_forks(void) {
    pthread_atfork(lock_loading, unlock_loading, unlock_loading);
}

void weft__cuda_look(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (__atomic_load_n(&weft__cuda_active, __ATOMIC_ACQUIRE)) return;
    pthread_once(&once, guard_forks);
    lock_loading();
    if (!weft__cuda_active) load();
    unlock_loading();
}

/* Natively, and in the Linux of Windows. */
static bool has_device(void) {
    return access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
}

void weft__cuda_notice(void) {
    static atomic_int known; /* 1: there is a device; -1: there is none */
    int is = atomic_load_explicit(&known, memory_order_relaxed);
    if (is == 0) {
        is = has_device() ? 1 : -1;
        atomic_store_explicit(&known, is, memory_order_relaxed);
    }
    if (is > 0) weft__cuda_look();
}

const struct cuda_driver *weft__cuda_driver(void) {
    return __atomic_load_n(&weft__cuda_active, __ATOMIC_ACQUIRE) ? &driver : NULL;
}

/* Weft's calls belong to no capture of the program's: its streams are others. */
static void relax(struct cuda_visit *visit) {
    visit->mode = CUDA_CAPTURE_RELAXED;
    visit->has_mode =
        driver.exchange_capture_mode && driver.exchange_capture_mode(&visit->mode) == 0;
}

cuda_result weft__cuda_enter(cuda_context context, struct cuda_visit *visit_p) {
    *visit_p = (struct cuda_visit){.has_pushed = context != NULL};
    cuda_result result = context ? driver.context_push(context) : 0;
    if (result == 0) relax(visit_p);
    return result;
}

void weft__cuda_leave(const struct cuda_visit *visit) {
    cuda_capture_mode mode = visit->mode;
    cuda_context popped;
    if (visit->has_mode) (void)driver.exchange_capture_mode(&mode);
    if (visit->has_pushed) (void)driver.context_pop(&popped);
}

unsigned long long weft__cuda_context_number(cuda_context context) {
    unsigned long long number = 0;
    bool is_known =
        context && driver.context_number && driver.context_number(context, &number) == 0;
    return is_known ? number : 0;
}

weft_status_t weft__cuda_status(cuda_result result, const char *what) {
    const char *name = NULL;
    if (result == 0) return WEFT_OK;
    if (driver.error_name(result, &name) != 0 || !name) name = "an unknown error";
    weft_status_t st = result == CUDA_OUT_OF_MEMORY ? WEFT_ERR_NO_MEMORY : WEFT_ERR_IO;
    return weft__fail(st, "%s: %s (%u) of the CUDA driver", what, name, result);
}
