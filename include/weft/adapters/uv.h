/*
 * A worker in a libuv loop: one uv_poll_t on the worker's descriptor, no timer.
 *
 *     static weft_uv_t in_uv;
 *     weft_uv_attach(&in_uv, loop, worker);
 *
 * All callbacks of the worker come from uv_run. They may call every function of the library and of
 * libuv, except weft_worker_destroy and the _wait forms.
 */
#ifndef WEFT_ADAPTERS_UV_H
#define WEFT_ADAPTERS_UV_H

#include <uv.h>
#include <weft/adapters/readable.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_uv {
    uv_poll_t poll;
    weft_worker_t *worker;                  /* NULL once it is detached */
    unsigned budget;                        /* events for one turn of the loop; 0: no limit */
    unsigned looks;                         /* weft_adapter_readable; at first WEFT_ADAPTER_LOOKS */
    void (*detached)(struct weft_uv *host); /* see weft_uv_detach */
    void *arg;                              /* the program's own */
} weft_uv_t;

static inline void weft_uv_readable(uv_poll_t *poll, int status, int events) {
    weft_uv_t *host = (weft_uv_t *)poll->data;
    (void)status;
    (void)events;
    weft_adapter_readable(&host->worker, host->budget, host->looks);
}

/*
 * Attaches `worker`, which this thread owns, to `loop`. `host` is the program's memory, and stays
 * valid until `detached` is called. Returns 0 or an error of libuv (a negative errno): UV_EMFILE or
 * UV_ENOMEM if the worker's descriptor lacks that, UV_EINVAL in other cases of weft_worker_fd.
 */
static inline int weft_uv_attach(weft_uv_t *host, uv_loop_t *loop, weft_worker_t *worker) {
    int fd = weft_worker_fd_level(worker), st;
    host->worker = worker;
    host->budget = 0;
    host->looks = WEFT_ADAPTER_LOOKS;
    host->detached = NULL;
    host->arg = NULL;
    if (fd == WEFT_ERR_NO_FDS) return UV_EMFILE;
    if (fd < 0) return fd == WEFT_ERR_NO_MEMORY ? UV_ENOMEM : UV_EINVAL;
    st = uv_poll_init(loop, &host->poll, fd);
    if (st < 0) return st;
    host->poll.data = host;
    return uv_poll_start(&host->poll, UV_READABLE, weft_uv_readable);
}

static inline void weft_uv_closed(uv_handle_t *handle) {
    weft_uv_t *host = (weft_uv_t *)handle->data;
    if (host->detached) host->detached(host);
}

/*
 * Stops watching, in the loop's thread: within `done` of weft_worker_close, or before
 * weft_worker_destroy. In a forked child: after uv_loop_fork. `detached`, which may be NULL, is
 * called by a later turn of the loop; only then the memory of `host` is free again.
 */
static inline void weft_uv_detach(weft_uv_t *host, void (*detached)(weft_uv_t *host)) {
    host->detached = detached;
    host->worker = NULL;
    uv_close((uv_handle_t *)&host->poll, weft_uv_closed);
}

#ifdef __cplusplus
}
#endif
#endif
