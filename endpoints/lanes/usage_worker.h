/*
 * The usage tracker of a worker. Lanes report their work (iface_up.worked). A timer ticks while a
 * tick may change a decision. It exists only if the setting "lanes.switch" is on.
 */
#ifndef WEFT_ENDPOINTS_LANES_USAGE_WORKER_H
#define WEFT_ENDPOINTS_LANES_USAGE_WORKER_H

#include <transports/transport.h>

#include "usage.h"

struct link;
struct weft_worker;

struct tracking {
    struct usage *usage; /* its keys are links */
    struct usage_hooks hooks;
    struct weft_worker *worker;
    struct timer tick;
    struct job early;   /* a link may be promoted before the tick */
    struct iface_up up; /* the worker's, with `worked` */
};

/* Call them before and after the interfaces are opened. They do nothing if "lanes.switch" is
 * off. */
weft_status_t weft__tracking_open(struct weft_worker *worker, const struct iface_up *up);
weft_status_t weft__tracking_start(struct weft_worker *worker);
void weft__tracking_end(struct weft_worker *worker);

/* Sets the hooks. Their keys are links that are up. */
void weft__tracking_hook(struct weft_worker *worker, const struct usage_hooks *hooks);

/* Starts the ticks: a link was adopted, or got a minimum score. */
void weft__tracking_wake(struct weft_worker *worker);

/* The link ends. No hook is called for it again. */
void weft__tracking_forget(struct link *link);

#endif
