/* Between resume.c, resume_handshake.c and resume_reports.c. */
#ifndef WEFT_ENDPOINTS_FAILOVER_RESUME_STEPS_H
#define WEFT_ENDPOINTS_FAILOVER_RESUME_STEPS_H

#include "retain.h"
#include <endpoints/core/worker.h>

static inline struct reactor *retain_reactor(const struct retain *r) {
    return r->link->worker->reactor;
}

static inline void step_resume(struct retain *r, enum resume_event event) {
    weft__fsm_step(&r->core.fsm, event);
}

/* What follows from within a step comes in a turn of its own. */
static inline void retain_later(struct retain *r) {
    weft__job_post(retain_reactor(r), &r->job);
}

/* NULL: the lane is of no link with failover. */
static inline struct retain *retain_of_raw(const struct lane *lane) {
    const struct link *link = weft__lane_link(lane);
    return link ? link->more->retain : NULL;
}

/* Closes the lane in use, or ends without one, now. */
void weft__retain_close_now(struct retain *r, bool flush);
/* No lane is left, and no lane holds memory of ours: the link gets its last event. */
void weft__retain_finish(struct retain *r);
/* Handler of the handshake on a lane that is to replace a dead one. */
void weft__retain_lane_shaken(struct lane *fresh, unsigned id, const void *data, size_t len);

#endif
