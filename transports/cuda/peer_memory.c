/* Exports device memory to processes of this host, and keeps what was imported open. */
#include "peer_memory.h"

#include "memory.h"
#include "stream_gate.h"
#include "thread_cache.h"

#include <base/alloc.h>
#include <base/list.h>
#include <base/status.h>
#include <pthread.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { MOST_UNUSED = 64 };
#define OF_A_FILE ((uint64_t)1 << 63) /* no number of the driver's has it */

/* An open handle; or (at NULL) memory of this process, and the context that it is of. */
struct cuda_import {
    struct list of_all;
    struct cuda_export of;
    cuda_context context;
    struct cuda_mapped mapped; /* by its file */
    char *at;                  /* the allocation, here */
    unsigned long long number; /* the driver's, of what is at `at` */
    uint32_t users;
    bool is_over; /* it is closed as soon as it can be, and not used again */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct list imports = {&imports, &imports}; /* the one used last is first */
static uint32_t n_unused, n_over;

/* A child that was forked is another process. */
static uint64_t this_process(void) {
    static uint64_t number;
    static pid_t of;
    pthread_mutex_lock(&mutex);
    if (of != getpid()) {
        of = getpid();
        if (getrandom(&number, sizeof number, 0) != sizeof number) number = (uint64_t)of;
    }
    uint64_t is = number;
    pthread_mutex_unlock(&mutex);
    return is;
}

/* ---- the exporter */

static bool can_export(const struct cuda_driver *driver) {
    return driver && driver->ipc_handle && driver->ipc_open && driver->ipc_close &&
           driver->device_uuid && driver->pointer_attribute;
}

/* By a file: what memory_file.h remembers. The range is that of the file then. */
static weft_status_t get_file(const void *at, size_t len, struct cuda_export *made) {
    struct cuda_file_range range = {made->base, made->size, made->buffer, {0}, {{0}}};
    weft_status_t st = weft__cuda_file_of((uintptr_t)at, len, &range);
    if (st < 0) return st;
    made->base = range.base, made->size = range.size;
    made->buffer = OF_A_FILE | range.number;
    made->file = range.file;
    memcpy(&made->handle, &range.pointer, sizeof range.pointer);
    return WEFT_OK;
}

static weft_status_t get_handle(const struct cuda_driver *driver, const struct cuda_memory *memory,
                                struct cuda_export *made) {
    struct cuda_visit visit;
    if (weft__cuda_enter(memory->context, &visit) != 0) return WEFT_ERR_UNSUPPORTED;
    cuda_result result = driver->ipc_handle(&made->handle, made->base);
    weft__cuda_leave(&visit);
    return result == 0 ? WEFT_OK : WEFT_ERR_UNSUPPORTED;
}

static weft_status_t export_allocation(const struct cuda_driver *driver,
                                       const struct cuda_memory *memory, const void *at, size_t len,
                                       struct cuda_export *made) {
    struct cuda_export new = {
        .process = this_process(), .base = (uintptr_t)memory->base, .size = memory->len};
    if (driver->pointer_attribute(&new.buffer, CUDA_POINTER_BUFFER, new.base) != 0)
        return WEFT_ERR_UNSUPPORTED;
    struct cuda_thread_cache *cache = weft__cuda_thread_cache();
    for (unsigned i = 0; cache && i < N_CUDA_EXPORTS; i++) {
        const struct cuda_export *known = &cache->exported[i];
        if (known->process != new.process || known->base != new.base || known->buffer != new.buffer)
            continue;
        *made = *known;
        return WEFT_OK;
    }
    if (driver->device_uuid(&new.device, memory->device) != 0) return WEFT_ERR_UNSUPPORTED;
    weft_status_t st = get_file(at, len, &new);
    if (st < 0) st = get_handle(driver, memory, &new);
    if (st < 0) return st;
    if (cache && !new.file.process) cache->exported[cache->next_exported++ % N_CUDA_EXPORTS] = new;
    *made = new;
    return WEFT_OK;
}

weft_status_t weft__cuda_export(const void *at, size_t len, struct cuda_export *export_p) {
    const struct cuda_driver *driver = weft__cuda_driver();
    struct cuda_memory memory;
    struct cuda_export made;
    if (!can_export(driver) || !weft__cuda_find(at, &memory) || memory.managed)
        return WEFT_ERR_UNSUPPORTED;
    weft_status_t st = export_allocation(driver, &memory, at, len, &made);
    if (st < 0) return st;
    made.address = (uintptr_t)at;
    made.len = len;
    *export_p = made;
    return WEFT_OK;
}

/* ---- the importer */

static bool lies_within(const struct cuda_export *e) {
    return e->address >= e->base && e->address - e->base <= e->size &&
           e->len <= e->size - (e->address - e->base);
}

static bool has_device(const struct cuda_driver *driver, const struct cuda_uuid *uuid) {
    struct cuda_uuid own;
    int n = 0;
    if (driver->device_count(&n) != 0) return false;
    for (int i = 0; i < n; i++)
        if (driver->device_uuid(&own, i) == 0 && memcmp(&own, uuid, sizeof own) == 0) return true;
    return false;
}

/* With the lock held, as all below. */
static void set_over(struct cuda_import *import) {
    n_over += !import->is_over;
    import->is_over = true;
}

/* What a handle opened goes with its context, and another one may have the address of either. */
static bool is_there(const struct cuda_driver *driver, const struct cuda_import *import) {
    unsigned long long number = 0;
    cuda_pointer at = (cuda_pointer)(uintptr_t)import->at;
    return driver->pointer_attribute(&number, CUDA_POINTER_BUFFER, at) == 0 &&
           number == import->number;
}

static struct cuda_import *find_open(const struct cuda_driver *driver, const struct cuda_export *e,
                                     cuda_context context) {
    list_for_each(node, &imports) {
        struct cuda_import *import = list_of(node, struct cuda_import, of_all);
        if (import->is_over) continue;
        if (import->context == context && import->of.process == e->process &&
            import->of.buffer == e->buffer && import->of.base == e->base &&
            import->of.size == e->size &&
            memcmp(&import->of.handle, &e->handle, sizeof e->handle) == 0 &&
            import->of.file.process == e->file.process && import->of.file.fd == e->file.fd &&
            import->of.file.kind == e->file.kind) {
            if (is_there(driver, import)) return import;
            set_over(import);
        }
    }
    return NULL;
}

static void close_import(struct cuda_import *import) {
    const struct cuda_driver *driver = weft__cuda_driver();
    struct cuda_visit visit;
    list_remove(&import->of_all);
    bool entered = weft__cuda_enter(import->context, &visit) == 0;
    if (import->of.file.process)
        weft__cuda_file_unmap(&import->mapped);
    else if (entered && is_there(driver, import))
        (void)driver->ipc_close((cuda_pointer)(uintptr_t)import->at);
    if (entered) weft__cuda_leave(&visit);
    n_over -= import->is_over;
    talloc_free(import);
    n_unused--;
}

/* Where a gate holds back a stream, they are closed later. */
static void close_over(void) {
    if (!n_over || !weft__cuda_gates_rest()) return;
    list_for_each_safe(node, after, &imports) {
        struct cuda_import *import = list_of(node, struct cuda_import, of_all);
        if (import->is_over && import->users == 0) close_import(import);
    }
    weft__cuda_gates_go_on();
}

/* The owner has freed that allocation, and has another at its address. */
static void leave_stale(const struct cuda_export *e) {
    list_for_each(node, &imports) {
        struct cuda_import *import = list_of(node, struct cuda_import, of_all);
        bool overlaps =
            import->of.base < e->base + e->size && e->base < import->of.base + import->of.size;
        if (import->users == 0 && import->of.process == e->process && overlaps &&
            import->of.buffer != e->buffer)
            set_over(import);
    }
}

static void leave_oldest(void) {
    for (struct list *node = imports.prev; node != &imports; node = node->prev) {
        struct cuda_import *import = list_of(node, struct cuda_import, of_all);
        if (import->users || import->is_over) continue;
        set_over(import);
        return;
    }
}

static weft_status_t open_handle(const struct cuda_driver *driver, struct cuda_import *import) {
    enum { PEERS_TOO = 1 }; /* a device beside the context's is mapped by peer access */
    struct cuda_visit visit;
    cuda_pointer at = 0;
    if (weft__cuda_enter(import->context, &visit) != 0) return WEFT_ERR_UNSUPPORTED;
    weft_status_t st;
    if (import->of.file.process) {
        struct cuda_pool_pointer pointer;
        memcpy(&pointer, &import->of.handle, sizeof pointer);
        st = weft__cuda_file_map(&import->of.file, &pointer, import->of.size, &import->mapped);
        at = import->mapped.at;
    } else {
        cuda_result result = driver->ipc_open(&at, import->of.handle, PEERS_TOO);
        st = result == 0                    ? WEFT_OK
             : result == CUDA_OUT_OF_MEMORY ? WEFT_ERR_NO_MEMORY
                                            : WEFT_ERR_UNSUPPORTED;
    }
    weft__cuda_leave(&visit);
    import->at = (char *)(uintptr_t)at;
    return st;
}

/* The peer may have named another size than the allocation has. A file is mapped in that size. */
static bool is_so_large(const struct cuda_import *import) {
    struct cuda_memory memory;
    if (import->of.file.process && !import->mapped.pool) return true;
    if (!weft__cuda_find(import->at, &memory)) return false;
    size_t before = (size_t)(import->at - (char *)memory.base);
    return import->of.size <= memory.len - before;
}

static weft_status_t open_import(const struct cuda_driver *driver, const struct cuda_export *e,
                                 cuda_context context, struct cuda_import **import_p) {
    struct cuda_import *import = weft__new(NULL, struct cuda_import);
    if (!import) return WEFT_ERR_NO_MEMORY;
    import->of = *e;
    import->context = context;
    weft_status_t st = open_handle(driver, import);
    if (st < 0) {
        talloc_free(import);
        return st;
    }
    list_prepend(&imports, &import->of_all);
    n_unused++;
    (void)driver->pointer_attribute(&import->number, CUDA_POINTER_BUFFER,
                                    (cuda_pointer)(uintptr_t)import->at);
    if (!is_so_large(import)) {
        set_over(import);
        close_over();
        return WEFT_ERR_INVALID_PARAM;
    }
    *import_p = import;
    return WEFT_OK;
}

static void use_import(struct cuda_import *import) {
    if (import->users++ == 0) n_unused--;
    list_remove(&import->of_all);
    list_prepend(&imports, &import->of_all);
}

static weft_status_t import_own(const struct cuda_export *e, cuda_context context,
                                struct cuda_import **import_p, void **at_p) {
    struct cuda_memory memory;
    uintptr_t first;
    if (!weft__cuda_find((void *)(uintptr_t)e->address, &memory) || memory.managed)
        return WEFT_ERR_INVALID_PARAM;
    first = (uintptr_t)memory.base;
    if (e->base < first || e->base - first > memory.len || e->size > memory.len - (e->base - first))
        return WEFT_ERR_INVALID_PARAM;
    if (!memory.context && !weft__cuda_has_access(context, &memory)) return WEFT_ERR_UNSUPPORTED;
    struct cuda_import *import = weft__new(NULL, struct cuda_import);
    if (!import) return WEFT_ERR_NO_MEMORY;
    import->context = memory.context;
    *at_p = (void *)(uintptr_t)e->address;
    *import_p = import;
    return WEFT_OK;
}

weft_status_t weft__cuda_import(const struct cuda_export *exported, cuda_context context,
                                struct cuda_import **import_p, void **at_p) {
    const struct cuda_driver *driver = weft__cuda_driver();
    struct cuda_import *import;
    weft_status_t st = WEFT_OK;
    if (!lies_within(exported)) return WEFT_ERR_INVALID_PARAM;
    if (!can_export(driver) || !driver->device_count || !has_device(driver, &exported->device))
        return WEFT_ERR_UNSUPPORTED;
    if (exported->process == this_process()) return import_own(exported, context, import_p, at_p);
    pthread_mutex_lock(&mutex);
    import = find_open(driver, exported, context);
    if (!import) {
        leave_stale(exported);
        if (n_unused >= MOST_UNUSED + n_over) leave_oldest();
        close_over();
        st = open_import(driver, exported, context, &import);
    }
    if (st == WEFT_OK) {
        use_import(import);
        *at_p = import->at + (exported->address - exported->base);
        *import_p = import;
    }
    pthread_mutex_unlock(&mutex);
    return st;
}

bool weft__cuda_import_serves_kernels(const struct cuda_import *import, cuda_context context) {
    return import->at || import->context == context;
}

void weft__cuda_import_end(struct cuda_import *import) {
    if (!import->at) {
        talloc_free(import);
        return;
    }
    pthread_mutex_lock(&mutex);
    if (--import->users == 0) n_unused++;
    close_over();
    pthread_mutex_unlock(&mutex);
}

void weft__cuda_import_forget(const struct cuda_export *e) {
    pthread_mutex_lock(&mutex);
    list_for_each(node, &imports) {
        struct cuda_import *import = list_of(node, struct cuda_import, of_all);
        if (import->users == 0 && import->of.process == e->process &&
            import->of.buffer == e->buffer)
            set_over(import);
    }
    close_over();
    pthread_mutex_unlock(&mutex);
}

void weft__cuda_imports_close(void) {
    pthread_mutex_lock(&mutex);
    list_for_each(node, &imports) {
        struct cuda_import *import = list_of(node, struct cuda_import, of_all);
        if (import->users == 0) set_over(import);
    }
    close_over();
    pthread_mutex_unlock(&mutex);
    weft__cuda_files_close();
}
