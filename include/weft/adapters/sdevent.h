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
#include <sys/epoll.h>
#include <systemd/sd-event.h>
#include <weft/worker.h>

#ifdef __cplusplus
extern "C" {
#endif

static inline int weft_sdevent_readable(sd_event_source *source, int fd, uint32_t revents,
                                        void *worker) {
    (void)source;
    (void)fd;
    (void)revents;
    (void)weft_worker_progress((weft_worker_t *)worker, 0);
    return 0; /* a negative result would disable the source */
}

/*
 * Attaches `worker`, which the thread of `event` owns, to `event`. Returns 0 or more and sets
 * *source_p, or a negative errno.
 */
static inline int weft_sdevent_attach(sd_event *event, weft_worker_t *worker,
                                      sd_event_source **source_p) {
    int fd = weft_worker_fd_level(worker);
    if (fd == WEFT_ERR_NO_FDS) return -EMFILE;
    if (fd < 0) return fd == WEFT_ERR_NO_MEMORY ? -ENOMEM : -EINVAL;
    return sd_event_add_io(event, source_p, fd, EPOLLIN, weft_sdevent_readable, worker);
}

/*
 * Stops watching and releases the source: within `done` of weft_worker_close, or before
 * weft_worker_destroy. Within a callback of the source itself sd-event frees it after that.
 */
static inline void weft_sdevent_detach(sd_event_source *source) {
    sd_event_source_set_enabled(source, SD_EVENT_OFF);
    sd_event_source_unref(source);
}

#ifdef __cplusplus
}
#endif
#endif
