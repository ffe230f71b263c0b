/* What the switch_*.c files share: the state of a link that has, or had, two lanes. */
#ifndef WEFT_ENDPOINTS_LANES_SWITCH_LOCAL_H
#define WEFT_ENDPOINTS_LANES_SWITCH_LOCAL_H

#include "holdback.h"
#include "switch.h"
#include "switch_core.h"
#include <transports/pending.h>

/* A lane in front of the new lane of a sender. It limits the bytes until DRAINED arrives. */
struct bound {
    struct lane lane;
    struct lane *raw, *old; /* old: NULL when it is gone */
    uint64_t bytes, most;
    struct pending_queue waiting; /* for room in `raw`; or for DRAINED, from `full_at` on */
    struct pending raw_pending;   /* stands in the queue of `raw` for all of them */
    bool waits_for_raw;           /* it does */
    uint64_t full_at;             /* when more than `most` bytes were offered; 0: they were not */
};

struct switching {
    struct link_switch base; /* first */
    struct switch_core core;
    struct link *link;                /* NULL: it ended before a flush completed */
    struct link *aux_link;            /* owns the lane that is not link->lanes[0]; NULL: none */
    struct lane *lane[2];             /* by the numbers of the core; NULL: not there */
    const lane_am_fn *received_by[2]; /* the handlers of a lane, while its messages are held back */
    uint32_t number;                  /* that the expected lane presents */
    const struct iface *expected;     /* that it comes by */
    bool running, taking;
    bool flushing, flush_again;
    uint32_t waits;       /* one-sided operations under way, and the flush */
    bool end_due;         /* END waits for room */
    bool drained_due;     /* DRAINED waits for room */
    bool peer_left;       /* it closed a lane that both sides had left */
    uint32_t todo;        /* effects to carry out after the step, in order of their numbers */
    weft_status_t status; /* of the lane that was lost last, */
    struct lane *lost;
    struct lane *pending_at; /* where `pending` waits */
    struct pending pending;
    struct completion flushed;
    struct hold hold;
    uint64_t sent_there; /* the count in the last END of the peer */
    uint64_t paused_at;
    struct bound bound;
    struct job job;
};

static inline struct switching *switching_of_job(struct job *job) {
    return list_of(job, struct switching, job);
}

/* switch.c: marks an effect as due. weft__switch_run carries out all that are due, outside any
 * step. */
enum { SWITCH_DUE_QUIET = SWITCH_N_EFFECTS, SWITCH_DUE_MARKED, SWITCH_DUE_VIOLATION };
#define DUE(effect) (UINT32_C(1) << (effect))
static inline void switch_due(struct switching *s, unsigned what) {
    s->todo |= DUE(what);
}
void weft__switch_run(struct switching *s);

/* switch_limit.c */
void weft__bound_init(struct bound *b, struct link *link, struct lane *raw, struct lane *old);

/* switch_quiesce.c: stops one-sided operations on the lane in use. QUIET is due when the last
 * has ended. */
void weft__switch_quiesce(struct switching *s);
/* Opens keys on the lane in use, and closes those of `gone` (may be NULL). */
void weft__switch_unquiesce(struct switching *s, const struct lane *gone);

/* switch_holdback.c: handlers of a lane whose messages are held back. */
extern const lane_am_fn weft__switch_holds[LANE_AM_IDS];
/* Delivers the messages that were held back. */
void weft__switch_deliver(struct switching *s);

#endif
