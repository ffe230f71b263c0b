/* Loads a PMIx client library. */
#include "pmix_library.h"

#include <base/status.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

bool weft__pmix_present(void) {
    return secure_getenv("PMIX_NAMESPACE") && secure_getenv("PMIX_RANK");
}

/*
 * It stays loaded: it has a thread of its own. DEEPBIND, because libev defines functions of
 * libevent, which it would call in place of those of its own libevent.
 */
static void *open_library(void) {
    void *library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_GLOBAL | RTLD_DEEPBIND);
    return library ? library : dlopen("libpmix.so", RTLD_NOW | RTLD_GLOBAL | RTLD_DEEPBIND);
}

weft_status_t weft__pmix_load(struct pmix_library *pmix) {
    static const struct {
        const char *name;
        size_t at;
    } wanted[] = {
#define FUNCTION(name, field) {name, offsetof(struct pmix_library, field)}
        FUNCTION("PMIx_Init", init),
        FUNCTION("PMIx_Finalize", finalize),
        FUNCTION("PMIx_Put", put),
        FUNCTION("PMIx_Commit", commit),
        FUNCTION("PMIx_Get", get),
        FUNCTION("PMIx_Fence_nb", fence),
        FUNCTION("PMIx_Error_string", error_text),
#undef FUNCTION
    };
    void *library = open_library();
    if (!library)
        return weft__fail(WEFT_ERR_NOT_FOUND, "no PMIx library can be loaded: %s", dlerror());
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *found = dlsym(library, wanted[i].name);
        if (!found)
            return weft__fail(WEFT_ERR_NOT_FOUND, "the PMIx library has no %s", wanted[i].name);
        memcpy((char *)pmix + wanted[i].at, &found, sizeof found);
    }
    return WEFT_OK;
}
