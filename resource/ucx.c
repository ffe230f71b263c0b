/* The descriptor and the progress of a UCX worker, by a libucp that is loaded at run time. */
#include <base/status.h>
#include <dlfcn.h>
#include <stdint.h>
#include <weft/resource.h>

/* UCX returns its status in one byte. It is asked for only when there was nothing to do. */
static int arm_ucx(void *worker) {
    int8_t (*arm)(void *);
    *(void **)&arm = dlsym(RTLD_DEFAULT, "ucp_worker_arm");
    return arm ? arm(worker) : 0;
}

weft_status_t weft_ucx_events(const char *library, void *ucp_worker, weft_events_t *events_p) {
    int8_t (*get_fd)(void *, int *);
    weft_events_t events = {.fd = -1, .arm = arm_ucx, .arg = ucp_worker};
    if (!ucp_worker || !events_p)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "ucp_worker or events_p is NULL");
    void *handle = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
    if (!handle) return weft__fail(WEFT_ERR_UNSUPPORTED, "%s", dlerror());
    *(void **)&events.progress = dlsym(handle, "ucp_worker_progress");
    *(void **)&get_fd = dlsym(handle, "ucp_worker_get_efd");
    if (!events.progress || !get_fd)
        return weft__fail(WEFT_ERR_UNSUPPORTED, "no libucp in %s",
                          library ? library : "this process");
    if (get_fd(ucp_worker, &events.fd) < 0)
        return weft__fail(
            WEFT_ERR_UNSUPPORTED,
            "the UCX worker has no descriptor; its context lacks the wake-up feature");
    *events_p = events;
    return WEFT_OK;
}
