/* What switch.c, switch_bound.c and switch_hush.c share: the second half of a link that has, or had, two lanes. */
#ifndef WEFT_ENDPOINTS_SWITCH_LOCAL_H
#define WEFT_ENDPOINTS_SWITCH_LOCAL_H

#include "hold.h"
#include "switch.h"
#include "switch_core.h"

/* Stands before the lane that a sender has gone to, until the peer has left the old one. */
struct bound {
    struct lane lane;
    struct lane *raw, *old; /* old: NULL once it is gone */
    uint64_t bytes, most;
    struct pending *waiting; /* until the peer has: more than `most` bytes were wanted */
    uint64_t full_at;        /* since then; 0: not yet */
};

struct switching {
    struct switch_core core;
    struct link *link;             /* NULL: it ended before a flush did */
    struct link *companion;        /* whose machine looks after the lane that link->lanes[0] is not; NULL: none */
    struct lane *lane[2];          /* by the core's numbers; NULL: not there */
    const lane_am_fn *heard_by[2]; /* a lane's own handlers, while it is held */
    uint32_t number;               /* of the guest that is expected */
    bool running, taking;
    bool flushing, flush_again;
    uint32_t waits;       /* one-sided operations that are to end, and the flush */
    bool end_due;         /* END waits for room */
    bool drained_due;     /* DRAINED does */
    bool peer_left;       /* it closed a lane that both had left: what else a completion counts may tell it later */
    uint32_t todo;        /* effects that are carried out after the step, in their order */
    weft_status_t status; /* of the lane that was lost last: */
    struct lane *lost;
    struct lane *pending_at; /* where `pending` waits */
    struct pending pending;
    struct completion flushed;
    struct hold hold;
    uint64_t sent_there; /* what the peer's last END said */
    uint64_t paused_at;
    struct bound bound;
    struct job job;
};

static inline struct switching *switching_of_job(struct job *job) {
    return list_of(job, struct switching, job);
}

/* switch.c: an effect, or one of what follows, is due; all that is due is carried out. Not from within a step. */
enum { SWITCH_DUE_QUIET = SWITCH_N_EFFECTS, SWITCH_DUE_MARKED, SWITCH_DUE_VIOLATION };
static inline void switch_due(struct switching *s, unsigned what) {
    s->todo |= UINT32_C(1) << what;
}
void weft__switch_run(struct switching *s);

/* switch_bound.c */
void weft__bound_init(struct bound *b, struct link *link, struct lane *raw, struct lane *old);

/* switch_hush.c: nothing one-sided begins on the lane in use; QUIET is due when the last has ended. */
void weft__switch_hush(struct switching *s);
/* Keys are opened where they belong now; those of `gone` (or NULL) are closed. */
void weft__switch_unhush(struct switching *s, const struct lane *gone);

/* switch_hold.c: handlers of a lane whose messages are not due yet. */
extern const lane_am_fn weft__switch_holds[LANE_AM_IDS];
/* Delivers what was held, the lane being the one that is heard now. */
void weft__switch_deliver(struct switching *s);

#endif
