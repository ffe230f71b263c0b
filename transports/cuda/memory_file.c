#define _GNU_SOURCE
#include "memory_file.h"

#include <base/status.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_getfd /* a C library older than Linux 5.6 */
#define SYS_pidfd_getfd 438
#endif

enum { MOST_FILES = 64, BY_FILE = 1 };

struct file {
    uint64_t base, buffer;
    int fd;
};
static struct file files[MOST_FILES];
static unsigned n_files;
static pid_t files_of; /* a forked child has the descriptors, and another number */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static bool has_files(const struct cuda_driver *driver) {
    return driver && driver->pointer_attribute && driver->handle_of && driver->handle_release &&
           driver->handle_export && driver->handle_import && driver->address_reserve &&
           driver->address_free && driver->memory_map && driver->memory_access &&
           driver->memory_unmap && driver->context_device;
}

/* ---- the exporter: with the lock held -------------------------------------------------------- */

static bool is_there(const struct cuda_driver *driver, const struct file *file) {
    unsigned long long buffer = 0;
    return driver->pointer_attribute(&buffer, CUDA_POINTER_BUFFER, file->base) == 0 &&
           buffer == file->buffer;
}

static void close_files(const struct cuda_driver *driver, bool all) {
    for (unsigned i = n_files; i-- > 0;) {
        if (!all && is_there(driver, &files[i])) continue;
        close(files[i].fd);
        files[i] = files[--n_files];
    }
}

/* One mapping: the handle at its first byte is that at its last. */
static weft_status_t export_handle(const struct cuda_driver *driver, uint64_t base, uint64_t size,
                                   int *fd_p) {
    cuda_handle first, last;
    int fd = -1;
    if (driver->handle_of(&first, (void *)(uintptr_t)base) != 0) return WEFT_ERR_UNSUPPORTED;
    cuda_result result = driver->handle_of(&last, (void *)(uintptr_t)(base + size - 1));
    if (result == 0) (void)driver->handle_release(last);
    if (result == 0 && last == first) result = driver->handle_export(&fd, first, BY_FILE, 0);
    (void)driver->handle_release(first);
    if (result != 0 || last != first) return WEFT_ERR_UNSUPPORTED;
    *fd_p = fd;
    return WEFT_OK;
}

static weft_status_t file_for(const struct cuda_driver *driver, uint64_t base, uint64_t size,
                              uint64_t buffer, int *fd_p) {
    if (files_of != getpid()) close_files(driver, true);
    files_of = getpid();
    for (unsigned i = 0; i < n_files; i++)
        if (files[i].base == base && files[i].buffer == buffer) {
            *fd_p = files[i].fd;
            return WEFT_OK;
        }
    close_files(driver, false);
    if (n_files == MOST_FILES) return WEFT_ERR_UNSUPPORTED;
    struct file file = {.base = base, .buffer = buffer};
    weft_status_t st = export_handle(driver, base, size, &file.fd);
    if (st < 0) return st;
    files[n_files++] = file;
    *fd_p = file.fd;
    return WEFT_OK;
}

weft_status_t weft__cuda_file_of(uint64_t base, uint64_t size, uint64_t buffer,
                                 struct cuda_file *file_p) {
    const struct cuda_driver *driver = weft__cuda_driver();
    unsigned long long types = 0;
    int fd;
    if (!has_files(driver) || !size ||
        driver->pointer_attribute(&types, CUDA_POINTER_HANDLE_TYPES, base) != 0 ||
        !(types & BY_FILE))
        return WEFT_ERR_UNSUPPORTED;
    pthread_mutex_lock(&mutex);
    weft_status_t st = file_for(driver, base, size, buffer, &fd);
    pthread_mutex_unlock(&mutex);
    if (st == WEFT_OK) *file_p = (struct cuda_file){.process = getpid(), .fd = fd};
    return st;
}

void weft__cuda_files_close(void) {
    const struct cuda_driver *driver = weft__cuda_driver();
    if (!has_files(driver)) return;
    pthread_mutex_lock(&mutex);
    close_files(driver, files_of != getpid());
    pthread_mutex_unlock(&mutex);
}

/* ---- the importer ---------------------------------------------------------------------------- */

static int take_descriptor(const struct cuda_file *file) {
    int process = (int)syscall(SYS_pidfd_open, file->process, 0), fd = -1;
    if (process < 0) return -1;
    fd = (int)syscall(SYS_pidfd_getfd, process, file->fd, 0);
    close(process);
    return fd;
}

/* The driver refuses more bytes than the handle has. */
static cuda_result map_handle(const struct cuda_driver *driver, cuda_handle handle, uint64_t size,
                              cuda_pointer *at_p) {
    enum { OF_DEVICE = 1, READ_AND_WRITE = 3 };
    struct cuda_access access = {.kind = OF_DEVICE, .flags = READ_AND_WRITE};
    cuda_pointer at = 0;
    cuda_result result = driver->context_device(&access.device);
    if (result == 0) result = driver->address_reserve(&at, size, 0, 0, 0);
    if (result != 0) return result;
    result = driver->memory_map(at, size, 0, handle, 0);
    if (result == 0) {
        result = driver->memory_access(at, size, &access, 1);
        if (result != 0) (void)driver->memory_unmap(at, size);
    }
    if (result != 0)
        (void)driver->address_free(at, size);
    else
        *at_p = at;
    return result;
}

weft_status_t weft__cuda_file_map(const struct cuda_file *file, uint64_t size, cuda_pointer *at_p) {
    const struct cuda_driver *driver = weft__cuda_driver();
    cuda_handle handle;
    int fd = has_files(driver) ? take_descriptor(file) : -1;
    if (fd < 0) return WEFT_ERR_UNSUPPORTED;
    cuda_result result = driver->handle_import(&handle, (void *)(uintptr_t)(unsigned)fd, BY_FILE);
    close(fd);
    if (result == 0) {
        result = map_handle(driver, handle, size, at_p);
        (void)driver->handle_release(handle);
    }
    if (result == CUDA_OUT_OF_MEMORY) return WEFT_ERR_NO_MEMORY;
    return result == 0 ? WEFT_OK : WEFT_ERR_UNSUPPORTED;
}

void weft__cuda_file_unmap(cuda_pointer at, uint64_t size) {
    const struct cuda_driver *driver = weft__cuda_driver();
    (void)driver->memory_unmap(at, size);
    (void)driver->address_free(at, size);
}
