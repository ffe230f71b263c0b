/* Exports and imports memory of CUDA pools. */
#include "pool_file.h"

#include <base/status.h>
#include <stdint.h>
#include <unistd.h>

enum { BY_FILE = 1 };

static bool has_pools(const struct cuda_driver *driver) {
    return driver->pool_export && driver->pool_import && driver->pool_access &&
           driver->pool_destroy && driver->pool_export_pointer && driver->pool_import_pointer &&
           driver->memory_free && driver->context_device;
}

cuda_pool weft__cuda_pool_of(const struct cuda_driver *driver, cuda_pointer at) {
    cuda_pool pool = NULL;
    if (!has_pools(driver) || driver->pointer_attribute(&pool, CUDA_POINTER_POOL, at) != 0)
        return NULL;
    return pool;
}

weft_status_t weft__cuda_pool_export(const struct cuda_driver *driver, cuda_pool pool,
                                     cuda_pointer at, int *fd_p,
                                     struct cuda_pool_pointer *pointer_p) {
    struct cuda_pool_pointer pointer = {{0}};
    int fd;
    if (driver->pool_export_pointer(&pointer, at) != 0 ||
        driver->pool_export(&fd, pool, BY_FILE, 0) != 0)
        return WEFT_ERR_UNSUPPORTED;
    *fd_p = fd;
    *pointer_p = pointer;
    return WEFT_OK;
}

static cuda_result open_access(const struct cuda_driver *driver, cuda_pool pool) {
    enum { OF_DEVICE = 1, READ_AND_WRITE = 3 };
    struct cuda_access access = {.kind = OF_DEVICE, .flags = READ_AND_WRITE};
    cuda_result result = driver->context_device(&access.device);
    return result == 0 ? driver->pool_access(pool, &access, 1) : result;
}

weft_status_t weft__cuda_pool_open(const struct cuda_driver *driver, int fd,
                                   const struct cuda_pool_pointer *pointer, cuda_pool *pool_p,
                                   cuda_pointer *at_p) {
    struct cuda_pool_pointer copy = *pointer;
    cuda_pool pool;
    cuda_pointer at;
    if (!has_pools(driver)) return WEFT_ERR_UNSUPPORTED;
    cuda_result result = driver->pool_import(&pool, (void *)(uintptr_t)(unsigned)fd, BY_FILE, 0);
    if (result == 0) {
        result = open_access(driver, pool);
        if (result == 0) result = driver->pool_import_pointer(&at, pool, &copy);
        if (result != 0) (void)driver->pool_destroy(pool);
    }
    if (result == CUDA_OUT_OF_MEMORY) return WEFT_ERR_NO_MEMORY;
    if (result != 0) return WEFT_ERR_UNSUPPORTED;
    *pool_p = pool;
    *at_p = at;
    return WEFT_OK;
}

void weft__cuda_pool_close(const struct cuda_driver *driver, cuda_pool pool, cuda_pointer at) {
    (void)driver->memory_free(at);
    (void)driver->pool_destroy(pool);
}
