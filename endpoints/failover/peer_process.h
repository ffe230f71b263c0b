/*
 * Watches the process of the peer. Both sides of a link send LANE_PROCESS once, when the link is
 * up, if the hello of the peer asks for it. A link with failover watches the process while it has
 * no lane (resume.c). A link whose lane does not detect the death of the peer (no CAP_PEER_DEATH)
 * always watches.
 */
#ifndef WEFT_ENDPOINTS_FAILOVER_PEER_PROCESS_H
#define WEFT_ENDPOINTS_FAILOVER_PEER_PROCESS_H

#include <endpoints/core/link.h>
#include <reactor/process.h>

struct process_watch {
    struct process process;
    struct link *link;
    struct timer ended; /* until then the last messages of the peer may still arrive */
};

/* The link is up. */
void weft__watch_process(struct link *link);
/* LANE_PROCESS. */
void weft__process_watched(struct link *link, struct lane *lane, const void *data, size_t len);
/* A link with failover uses another lane. */
void weft__watch_process_lane(const struct link *link, struct lane *raw);
void weft__process_watch_free(struct link *link);

#endif
