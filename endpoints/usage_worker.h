/*
 * A worker's usage tracker: lanes tell when they work (iface_up.worked), a timer ticks while that may change anything. There is
 * one while the setting "lanes.switch" is on; otherwise nothing of this exists, and lanes tell nobody.
 */
#ifndef WEFT_ENDPOINTS_USAGE_WORKER_H
#define WEFT_ENDPOINTS_USAGE_WORKER_H

#include <transports/transport.h>

#include "usage.h"

struct link;
struct weft_worker;

struct tracking {
    struct usage *usage; /* its keys are links */
    struct usage_hooks hooks;
    struct weft_worker *worker;
    struct timer tick;
    struct job early;   /* some link need not wait for the tick */
    struct iface_up up; /* the worker's, with `worked` */
};

/* Before and after the worker's ifaces are opened: nothing, if "lanes.switch" is off. */
weft_status_t weft__tracking_open(struct weft_worker *worker, const struct iface_up *up);
weft_status_t weft__tracking_start(struct weft_worker *worker);
void weft__tracking_end(struct weft_worker *worker);

/* What follows from scores. Keys are links, and they are up. */
void weft__tracking_hook(struct weft_worker *worker, const struct usage_hooks *hooks);

/* After an adoption, or a minimum: there is something to be kept, and scored. */
void weft__tracking_wake(struct weft_worker *worker);

/* The link is going: no hook will name it again. */
void weft__tracking_forget(struct link *link);

#endif
