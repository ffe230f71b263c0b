/* Functions of libibverbs that older versions lack, looked up when they are called. */
#include "imports.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

/* A test's own definition comes before these. */
#define REPLACEABLE __attribute__((weak))

/* NULL: this version of the library does not have it. */
static void *find_symbol(const char *name) {
    void *library = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL); /* loaded, and stays */
    void *symbol = library ? dlsym(library, name) : NULL;
    if (!symbol) errno = ENOSYS;
    return symbol;
}

REPLACEABLE struct ibv_context *weft__rd_import_device(int fd) {
    struct ibv_context *(*import)(int);
    void *symbol = find_symbol("ibv_import_device");
    memcpy(&import, &symbol, sizeof import);
    return import && weft__rd_verbs_load() == WEFT_OK ? import(fd) : NULL;
}

REPLACEABLE struct ibv_pd *weft__rd_import_pd(struct ibv_context *context, uint32_t handle) {
    struct ibv_pd *(*import)(struct ibv_context *, uint32_t);
    void *symbol = find_symbol("ibv_import_pd");
    memcpy(&import, &symbol, sizeof import);
    return import ? import(context, handle) : NULL;
}

REPLACEABLE void weft__rd_unimport_pd(struct ibv_pd *pd) {
    void (*unimport)(struct ibv_pd *);
    void *symbol = find_symbol("ibv_unimport_pd");
    memcpy(&unimport, &symbol, sizeof unimport);
    if (unimport) unimport(pd);
}

REPLACEABLE int weft__rd_unimport_device(struct ibv_context *context) {
    return ibv_close_device(context);
}
