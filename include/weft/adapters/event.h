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
#include <stdlib.h>
#include <weft/adapters/readable.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_event {
    weft_worker_t *worker; /* NULL once it is detached */
    unsigned looks;        /* weft_adapter_readable; at first WEFT_ADAPTER_LOOKS */
    int is_running;        /* within weft_event_readable, which then frees it */
} weft_event_t;

static inline void weft_event_readable(evutil_socket_t fd, short events, void *arg) {
    weft_event_t *host = (weft_event_t *)arg;
    (void)fd;
    (void)events;
    host->is_running = 1;
    weft_adapter_readable(&host->worker, 0, host->looks);
    host->is_running = 0;
    if (!host->worker) free(host);
}

/*
 * Attaches `worker`, which the thread of `base` owns, to `base`. Returns the event, which
 * weft_event_detach frees, or NULL: no memory, or the worker has no descriptor. The event's
 * argument (event_get_callback_arg) is a weft_event_t, whose `looks` the program may change.
 */
static inline struct event *weft_event_attach(struct event_base *base, weft_worker_t *worker) {
    int fd = weft_worker_fd_level(worker);
    weft_event_t *host = fd < 0 ? NULL : (weft_event_t *)calloc(1, sizeof *host);
    struct event *watch =
        host ? event_new(base, fd, EV_READ | EV_PERSIST, weft_event_readable, host) : NULL;
    if (!watch || event_add(watch, NULL) < 0) {
        if (watch) event_free(watch);
        free(host);
        return NULL;
    }
    host->worker = worker;
    host->looks = WEFT_ADAPTER_LOOKS;
    return watch;
}

/*
 * Stops watching and frees the event: within `done` of weft_worker_close, or before
 * weft_worker_destroy. In a forked child: after event_reinit.
 */
static inline void weft_event_detach(struct event *watch) {
    weft_event_t *host = (weft_event_t *)event_get_callback_arg(watch);
    event_free(watch);
    host->worker = NULL;
    if (!host->is_running) free(host);
}

#ifdef __cplusplus
}
#endif
#endif
