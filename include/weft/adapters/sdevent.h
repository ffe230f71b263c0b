/*
 * A worker in an sd-event loop: one I/O source on the worker's descriptor, no timer.
 *
 *     sd_event_source *source;
 *     weft_sdevent_attach(event, worker, &source);
 *
 * All callbacks of the worker come from sd_event_run. They may call every function of the library
 * and of sd-event, except weft_worker_destroy and the _wait forms.
 */
#ifndef WEFT_ADAPTERS_SDEVENT_H
#define WEFT_ADAPTERS_SDEVENT_H

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <systemd/sd-event.h>
#include <weft/adapters/readable.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_sdevent {
    weft_worker_t *worker; /* NULL once it is detached */
    unsigned looks;        /* weft_adapter_readable; at first WEFT_ADAPTER_LOOKS */
    int is_running;        /* within weft_sdevent_readable, which then frees it */
} weft_sdevent_t;

static inline int weft_sdevent_readable(sd_event_source *source, int fd, uint32_t revents,
                                        void *arg) {
    weft_sdevent_t *host = (weft_sdevent_t *)arg;
    (void)source;
    (void)fd;
    (void)revents;
    host->is_running = 1;
    weft_adapter_readable(&host->worker, 0, host->looks);
    host->is_running = 0;
    if (!host->worker) free(host);
    return 0; /* a negative result would disable the source */
}

/*
 * Attaches `worker`, which the thread of `event` owns, to `event`. Returns 0 or more and sets
 * *source_p, or a negative errno. The source's userdata (sd_event_source_get_userdata) is a
 * weft_sdevent_t, whose `looks` the program may change.
 */
static inline int weft_sdevent_attach(sd_event *event, weft_worker_t *worker,
                                      sd_event_source **source_p) {
    int fd = weft_worker_fd_level(worker), st;
    weft_sdevent_t *host;
    if (fd == WEFT_ERR_NO_FDS) return -EMFILE;
    if (fd < 0) return fd == WEFT_ERR_NO_MEMORY ? -ENOMEM : -EINVAL;
    host = (weft_sdevent_t *)calloc(1, sizeof *host);
    if (!host) return -ENOMEM;
    host->worker = worker;
    host->looks = WEFT_ADAPTER_LOOKS;
    st = sd_event_add_io(event, source_p, fd, EPOLLIN, weft_sdevent_readable, host);
    if (st < 0) free(host);
    return st;
}

/*
 * Stops watching and releases the source: within `done` of weft_worker_close, or before
 * weft_worker_destroy. Within a callback of the source itself sd-event frees it after that.
 */
static inline void weft_sdevent_detach(sd_event_source *source) {
    weft_sdevent_t *host = (weft_sdevent_t *)sd_event_source_get_userdata(source);
    host->worker = NULL;
    if (!host->is_running) free(host);
    sd_event_source_set_enabled(source, SD_EVENT_OFF);
    sd_event_source_unref(source);
}

#ifdef __cplusplus
}
#endif
#endif
