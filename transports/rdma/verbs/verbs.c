/* Loads libibverbs and librdmacm, and forwards each function of verbs.def. */
#include "verbs.h"

#include <dlfcn.h>
#include <pthread.h>
#include <reactor/reactor.h>
#include <stdio.h>
#include <string.h>

enum verbs_library { IBVERBS, RDMACM, N_LIBRARIES };
static const char *const library_name[N_LIBRARIES] = {"libibverbs.so.1", "librdmacm.so.1"};

/* ---- a pointer for each function, and the function that calls it ----------------------------- */

static struct {
#define FUNCTION(library, type, name, parameters, arguments) type(*call_##name) parameters;
#include "verbs.def"
#undef FUNCTION
} loaded;

#define FUNCTION(library, type, name, parameters, arguments) \
    type(name) parameters {                                  \
        return loaded.call_##name arguments;                 \
    }
#include "verbs.def"
#undef FUNCTION

/* ---- loading --------------------------------------------------------------------------------- */

static const struct {
    enum verbs_library library;
    const char *name;
    void *pointer; /* to the function pointer */
} wanted[] = {
#define FUNCTION(library, type, name, parameters, arguments) {library, #name, &loaded.call_##name},
#include "verbs.def"
#undef FUNCTION
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char missing[160]; /* what is not here; empty: all is */

/* A test's own definition comes before this one. */
__attribute__((weak)) void *weft__rd_verbs_symbol(void *library, const char *name) {
    return dlsym(library, name);
}

static void load_verbs(void) {
    void *handle[N_LIBRARIES]; /* never closed: providers of devices stay in the process */
    for (unsigned i = 0; i < N_LIBRARIES; i++) {
        handle[i] = dlopen(library_name[i], RTLD_LAZY | RTLD_LOCAL);
        if (handle[i]) continue;
        const char *why = dlerror();
        snprintf(missing, sizeof missing, "%s", why ? why : library_name[i]);
        return;
    }
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *function = weft__rd_verbs_symbol(handle[wanted[i].library], wanted[i].name);
        if (!function) {
            snprintf(missing, sizeof missing, "%s has no %s", library_name[wanted[i].library],
                     wanted[i].name);
            return;
        }
        memcpy(wanted[i].pointer, &function, sizeof function);
    }
}

weft_status_t weft__rd_verbs_load(void) {
    pthread_once(&once, load_verbs);
    return *missing
               ? weft__fail(WEFT_ERR_UNSUPPORTED, "RDMA's libraries cannot be loaded: %s", missing)
               : WEFT_OK;
}
