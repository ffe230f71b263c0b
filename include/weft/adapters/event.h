/*
 * A worker in a libevent base: one persistent event on the worker's descriptor, no timer.
 *
 *     struct event *watch = weft_event_attach(base, worker);
 *
 * All callbacks of the worker come from event_base_loop. They may call every function of the
 * library and of libevent, except weft_worker_destroy and the _wait forms.
 *
 * A program that links Weft statically beside libevent links libevent before libev. Weft uses
 * libev, whose library emulates libevent's functions and exports their names (event_new and
 * others).
 */
#ifndef WEFT_ADAPTERS_EVENT_H
#define WEFT_ADAPTERS_EVENT_H

#include <event2/event.h>
#include <weft/worker.h>

#ifdef __cplusplus
extern "C" {
#endif

static inline void weft_event_readable(evutil_socket_t fd, short events, void *worker) {
    (void)fd;
    (void)events;
    (void)weft_worker_progress((weft_worker_t *)worker, 0);
}

/*
 * Attaches `worker`, which the thread of `base` owns, to `base`. Returns the event, which
 * weft_event_detach frees, or NULL: no memory, or the worker has no descriptor.
 */
static inline struct event *weft_event_attach(struct event_base *base, weft_worker_t *worker) {
    int fd = weft_worker_fd_level(worker);
    struct event *watch =
        fd < 0 ? NULL : event_new(base, fd, EV_READ | EV_PERSIST, weft_event_readable, worker);
    if (watch && event_add(watch, NULL) < 0) {
        event_free(watch);
        return NULL;
    }
    return watch;
}

/*
 * Stops watching and frees the event: within `done` of weft_worker_close, or before
 * weft_worker_destroy.
 */
static inline void weft_event_detach(struct event *watch) {
    event_free(watch);
}

#ifdef __cplusplus
}
#endif
#endif
