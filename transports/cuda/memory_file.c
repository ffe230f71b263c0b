/* Exports and maps memory of cuMemCreate and of pools by file descriptors. */
#define _GNU_SOURCE
#include "memory_file.h"

#include "pool_file.h"
#include <base/alloc.h>
#include <base/status.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_getfd /* a C library older than Linux 5.6 */
#define SYS_pidfd_getfd 438
#endif

enum { MOST_FILES = 64, MOST_MAPPINGS = 64, MOST_DESCRIPTORS = 256, BY_FILE = 1 };

/* A line of a table. */
struct table_line {
    uint64_t len;
    uint32_t fd, zero;
};
/* What has a number of its own in the driver: a mapping, or an allocation of a pool. */
struct mapping {
    uint64_t base, len, buffer;
    int fd;
};
struct file {
    struct cuda_file_range range;
    unsigned n;
    struct mapping mapping[];
};
static struct file *files[MOST_FILES];
static unsigned n_files, n_descriptors;
static uint64_t last_number;
static pid_t files_of; /* a forked child has the descriptors, and another number */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static bool has_files(const struct cuda_driver *driver) {
    return driver && driver->pointer_attribute && driver->handle_of && driver->handle_release &&
           driver->handle_export && driver->handle_import && driver->address_reserve &&
           driver->address_free && driver->memory_map && driver->memory_access &&
           driver->memory_unmap && driver->context_device;
}

static bool ask(const struct cuda_driver *driver, cuda_attribute what, uint64_t at,
                uint64_t *answer_p) {
    unsigned long long answer = 0;
    if (driver->pointer_attribute(&answer, what, at) != 0) return false;
    *answer_p = answer;
    return true;
}

/* ---- the exporter's files: with the lock held ------------------------------------------------ */

/* An unfinished one has no table, and mappings without a descriptor. */
static void close_file(struct file *file) {
    if (file->range.file.kind == CUDA_FILE_TABLE) {
        close((int)file->range.file.fd);
        n_descriptors--;
    }
    for (unsigned i = 0; i < file->n; i++) {
        if (file->mapping[i].fd < 0) continue;
        close(file->mapping[i].fd);
        n_descriptors--;
    }
    talloc_free(file);
}

static bool is_there(const struct cuda_driver *driver, const struct file *file) {
    for (unsigned i = 0; i < file->n; i++) {
        uint64_t buffer;
        if (!ask(driver, CUDA_POINTER_BUFFER, file->mapping[i].base, &buffer) ||
            buffer != file->mapping[i].buffer)
            return false;
    }
    return true;
}

static void close_files(const struct cuda_driver *driver, bool all) {
    for (unsigned i = n_files; i-- > 0;) {
        if (!all && is_there(driver, files[i])) continue;
        close_file(files[i]);
        files[i] = files[--n_files];
    }
}

static const struct file *find_file(const struct cuda_driver *driver, uint64_t at, uint64_t len) {
    for (unsigned i = 0; i < n_files; i++) {
        const struct cuda_file_range *range = &files[i]->range;
        if (at >= range->base && at - range->base <= range->size &&
            len <= range->size - (at - range->base) && is_there(driver, files[i]))
            return files[i];
    }
    return NULL;
}

/* ---- making one ------------------------------------------------------------------------------ */

/* The mapping at an address; with a driver that does not know, the whole range. */
static bool find_mapping(const struct cuda_driver *driver, uint64_t at,
                         const struct cuda_file_range *range, struct mapping *mapping_p) {
    struct mapping m = {.base = range->base, .len = range->size, .fd = -1};
    if (ask(driver, CUDA_POINTER_MAPPING_BEGIN, at, &m.base) &&
        !ask(driver, CUDA_POINTER_MAPPING_LEN, at, &m.len))
        return false;
    if (!m.len || at < m.base || at - m.base >= m.len) return false;
    if (!ask(driver, CUDA_POINTER_BUFFER, m.base, &m.buffer)) return false;
    *mapping_p = m;
    return true;
}

/* The mappings in a row that hold the bytes. 0: there is a gap, or there are too many. */
static unsigned find_mappings(const struct cuda_driver *driver, uint64_t at, uint64_t len,
                              const struct cuda_file_range *range, struct mapping *mapping) {
    unsigned n = 0;
    uint64_t next = at;
    do {
        if (n == MOST_MAPPINGS || !find_mapping(driver, next, range, &mapping[n])) return 0;
        next = mapping[n].base + mapping[n].len;
        n++;
    } while (next - at < len);
    return n;
}

/* One handle: that at its first byte is that at its last. */
static weft_status_t export_mapping(const struct cuda_driver *driver, struct mapping *m) {
    cuda_handle first, last;
    int fd = -1;
    if (driver->handle_of(&first, (void *)(uintptr_t)m->base) != 0) return WEFT_ERR_UNSUPPORTED;
    cuda_result result = driver->handle_of(&last, (void *)(uintptr_t)(m->base + m->len - 1));
    if (result == 0) (void)driver->handle_release(last);
    if (result == 0 && last == first) result = driver->handle_export(&fd, first, BY_FILE, 0);
    (void)driver->handle_release(first);
    if (result != 0 || last != first) return WEFT_ERR_UNSUPPORTED;
    m->fd = fd;
    n_descriptors++;
    return WEFT_OK;
}

static weft_status_t write_table(struct file *file) {
    struct table_line line[MOST_MAPPINGS];
    int fd = memfd_create("weft mappings", MFD_CLOEXEC);
    if (fd < 0) return WEFT_ERR_UNSUPPORTED;
    for (unsigned i = 0; i < file->n; i++)
        line[i] = (struct table_line){file->mapping[i].len, (uint32_t)file->mapping[i].fd, 0};
    size_t size = file->n * sizeof *line;
    if (write(fd, line, size) != (ssize_t)size) {
        close(fd);
        return WEFT_ERR_UNSUPPORTED;
    }
    n_descriptors++;
    file->range.file.fd = (uint32_t)fd & 0xffffff;
    file->range.file.kind = CUDA_FILE_TABLE;
    return WEFT_OK;
}

static weft_status_t export_mappings(const struct cuda_driver *driver, struct file *file) {
    weft_status_t st = WEFT_OK;
    const struct mapping *last = &file->mapping[file->n - 1];
    file->range.base = file->mapping[0].base;
    file->range.size = last->base + last->len - file->range.base;
    for (unsigned i = 0; i < file->n && st == WEFT_OK; i++)
        st = export_mapping(driver, &file->mapping[i]);
    if (st < 0) return st;
    if (file->n > 1) return write_table(file);
    file->range.file.fd = (uint32_t)file->mapping[0].fd & 0xffffff;
    return WEFT_OK;
}

static weft_status_t export_of_pool(const struct cuda_driver *driver, cuda_pool pool,
                                    struct file *file) {
    struct mapping *m = &file->mapping[0];
    weft_status_t st =
        weft__cuda_pool_export(driver, pool, file->range.base, &m->fd, &file->range.pointer);
    if (st < 0) return st;
    n_descriptors++;
    file->range.file.fd = (uint32_t)m->fd & 0xffffff;
    file->range.file.kind = CUDA_FILE_POOL;
    return WEFT_OK;
}

static weft_status_t make_file(const struct cuda_driver *driver, uint64_t at, uint64_t len,
                               const struct cuda_file_range *known, const struct file **file_p) {
    cuda_pool pool = weft__cuda_pool_of(driver, at);
    struct mapping mapping[MOST_MAPPINGS] = {{known->base, known->size, known->number, -1}};
    unsigned n = pool ? 1 : find_mappings(driver, at, len, known, mapping);
    if (n_files == MOST_FILES || n == 0 || n_descriptors + n + 1 > MOST_DESCRIPTORS)
        return WEFT_ERR_UNSUPPORTED;
    struct file *file =
        weft__alloc(NULL, sizeof *file + n * sizeof *file->mapping, "exported device memory");
    if (!file) return WEFT_ERR_NO_MEMORY;
    file->range = (struct cuda_file_range){
        .base = known->base, .size = known->size, .file = {.process = getpid()}};
    file->n = n;
    memcpy(file->mapping, mapping, n * sizeof *mapping);
    weft_status_t st = pool ? export_of_pool(driver, pool, file) : export_mappings(driver, file);
    if (st < 0) {
        close_file(file);
        return st;
    }
    file->range.number = ++last_number;
    *file_p = files[n_files++] = file;
    return WEFT_OK;
}

weft_status_t weft__cuda_file_of(uint64_t at, uint64_t len, struct cuda_file_range *range) {
    const struct cuda_driver *driver = weft__cuda_driver();
    const struct file *file;
    uint64_t types = 0;
    weft_status_t st = WEFT_OK;
    if (!has_files(driver) || !ask(driver, CUDA_POINTER_HANDLE_TYPES, at, &types) ||
        !(types & BY_FILE))
        return WEFT_ERR_UNSUPPORTED;
    pthread_mutex_lock(&mutex);
    if (files_of != getpid()) close_files(driver, true);
    files_of = getpid();
    file = find_file(driver, at, len);
    if (!file) {
        close_files(driver, false);
        st = make_file(driver, at, len, range, &file);
    }
    if (st == WEFT_OK) *range = file->range;
    pthread_mutex_unlock(&mutex);
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

static int take_descriptor(int32_t of, uint32_t number) {
    int process = (int)syscall(SYS_pidfd_open, of, 0), fd = -1;
    if (process < 0) return -1;
    fd = (int)syscall(SYS_pidfd_getfd, process, (int)number, 0);
    close(process);
    return fd;
}

/* The lines of a table, whose mappings are `size` bytes together. 0: it is no such table. */
static unsigned read_table(const struct cuda_file *file, uint64_t size,
                           struct table_line line[MOST_MAPPINGS + 1]) {
    uint64_t total = 0;
    int fd = take_descriptor(file->process, file->fd);
    if (fd < 0) return 0;
    ssize_t got = pread(fd, line, (MOST_MAPPINGS + 1) * sizeof *line, 0);
    close(fd);
    if (got <= 0 || (size_t)got % sizeof *line) return 0;
    unsigned n = (unsigned)((size_t)got / sizeof *line);
    for (unsigned i = 0; i < n; i++) {
        if (line[i].len == 0 || line[i].len > size - total) return 0;
        total += line[i].len;
    }
    return n <= MOST_MAPPINGS && total == size ? n : 0;
}

/* The driver refuses more bytes than the handle has. */
static cuda_result map_line(const struct cuda_driver *driver, int32_t process,
                            const struct table_line *line, cuda_pointer at) {
    enum { NO_FILE = 1 };
    cuda_handle handle;
    int fd = take_descriptor(process, line->fd);
    if (fd < 0) return NO_FILE;
    cuda_result result = driver->handle_import(&handle, (void *)(uintptr_t)(unsigned)fd, BY_FILE);
    close(fd);
    if (result != 0) return result;
    result = driver->memory_map(at, line->len, 0, handle, 0);
    (void)driver->handle_release(handle);
    return result;
}

static cuda_result allow_access(const struct cuda_driver *driver, cuda_pointer at, uint64_t size) {
    enum { OF_DEVICE = 1, READ_AND_WRITE = 3 };
    struct cuda_access access = {.kind = OF_DEVICE, .flags = READ_AND_WRITE};
    cuda_result result = driver->context_device(&access.device);
    return result == 0 ? driver->memory_access(at, size, &access, 1) : result;
}

/* Each mapping is unmapped by itself, as it was mapped. */
static void unmap_lines(const struct cuda_driver *driver, cuda_pointer at, uint64_t size) {
    for (uint64_t done = 0, len; done < size; done += len) {
        if (!ask(driver, CUDA_POINTER_MAPPING_LEN, at + done, &len) || !len || len > size - done)
            len = size - done;
        (void)driver->memory_unmap(at + done, len);
    }
}

static cuda_result map_lines(const struct cuda_driver *driver, int32_t process,
                             const struct table_line *line, unsigned n, uint64_t size,
                             cuda_pointer *at_p) {
    cuda_pointer at = 0;
    uint64_t done = 0;
    cuda_result result = driver->address_reserve(&at, size, 0, 0, 0);
    if (result != 0) return result;
    for (unsigned i = 0; i < n && result == 0; i++) {
        result = map_line(driver, process, &line[i], at + done);
        if (result == 0) done += line[i].len;
    }
    if (result == 0) result = allow_access(driver, at, size);
    if (result == 0) {
        *at_p = at;
        return 0;
    }
    unmap_lines(driver, at, done);
    (void)driver->address_free(at, size);
    return result;
}

static weft_status_t open_pool(const struct cuda_driver *driver, const struct cuda_file *file,
                               const struct cuda_pool_pointer *pointer,
                               struct cuda_mapped *mapped_p) {
    int fd = take_descriptor(file->process, file->fd);
    if (fd < 0) return WEFT_ERR_UNSUPPORTED;
    weft_status_t st = weft__cuda_pool_open(driver, fd, pointer, &mapped_p->pool, &mapped_p->at);
    close(fd);
    return st;
}

static weft_status_t map_file(const struct cuda_driver *driver, const struct cuda_file *file,
                              struct cuda_mapped *mapped) {
    struct table_line line[MOST_MAPPINGS + 1] = {{mapped->size, file->fd, 0}};
    unsigned n = file->kind == CUDA_FILE_TABLE ? read_table(file, mapped->size, line) : 1;
    if (n == 0) return WEFT_ERR_UNSUPPORTED;
    cuda_result result = map_lines(driver, file->process, line, n, mapped->size, &mapped->at);
    if (result == CUDA_OUT_OF_MEMORY) return WEFT_ERR_NO_MEMORY;
    return result == 0 ? WEFT_OK : WEFT_ERR_UNSUPPORTED;
}

weft_status_t weft__cuda_file_map(const struct cuda_file *file,
                                  const struct cuda_pool_pointer *pointer, uint64_t size,
                                  struct cuda_mapped *mapped_p) {
    const struct cuda_driver *driver = weft__cuda_driver();
    struct cuda_mapped mapped = {.size = size};
    if (!has_files(driver) || file->kind > CUDA_FILE_POOL || size == 0) return WEFT_ERR_UNSUPPORTED;
    weft_status_t st = file->kind == CUDA_FILE_POOL ? open_pool(driver, file, pointer, &mapped)
                                                    : map_file(driver, file, &mapped);
    if (st == WEFT_OK) *mapped_p = mapped;
    return st;
}

void weft__cuda_file_unmap(const struct cuda_mapped *mapped) {
    const struct cuda_driver *driver = weft__cuda_driver();
    if (mapped->pool) {
        weft__cuda_pool_close(driver, mapped->pool, mapped->at);
        return;
    }
    unmap_lines(driver, mapped->at, mapped->size);
    (void)driver->address_free(mapped->at, mapped->size);
}
