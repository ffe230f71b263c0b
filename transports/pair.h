/* Two lanes of one iface that are connected with each other, for transports within one process:
 * how they are made, and how their owner learns of them. */
#ifndef WEFT_TRANSPORTS_PAIR_H
#define WEFT_TRANSPORTS_PAIR_H

#include <transports/inbox.h>
#include <transports/pending.h>

/* A transport embeds it as the first member of its own lane. */
struct pair_lane {
    struct lane lane;
    struct pair_lane *peer; /* NULL: one of the two has ended */
    struct inbox inbox;
    struct pending_queue pending;
    struct job job;
    bool dialed;
    void *listen_arg; /* of the accepting lane */
};

/* Makes two lanes of `size` bytes each, with these operations. The job `open` of each is posted,
 * that of the accepting lane first: a lane that is up has a peer that can receive. Sets the lane
 * that dials. Errors: WEFT_ERR_NO_MEMORY. */
weft_status_t weft__pair_new(struct iface *iface, size_t size, const struct lane_ops *ops,
                             void (*open)(struct job *job), void *listen_arg,
                             struct pair_lane **dialed_p);

static inline struct pair_lane *pair_of_job(struct job *job) {
    return container_of(job, struct pair_lane, job);
}

static inline void pair_post(struct pair_lane *pair) {
    weft__job_post(pair->lane.iface->reactor, &pair->job);
}

/* Calls `up` or `accepted` of the owner. Within a turn. */
static inline void pair_announce(struct pair_lane *pair) {
    const struct iface_up *up = pair->lane.iface->up;
    if (pair->dialed)
        up->up(&pair->lane);
    else
        up->accepted(&pair->lane, pair->listen_arg);
}

/* Lets the operations of `pending` go on while fewer than `depth` messages are in the inbox. */
static inline void pair_retry(const struct inbox *inbox, uint32_t depth,
                              struct pending_queue *pending) {
    while (inbox->depth < depth && pending_queue_retry(pending)) continue;
}

#endif
