/*
 * Heartbeats: checks that the worker of the peer is still driven. Used only for endpoints that ask
 * for it (heartbeat_ms), or whose listener does, because a peer that computes is not dead. A link
 * that receives nothing for a third of that time sends HEARTBEAT_ASK, which the worker of the peer
 * answers. If nothing arrives for the whole time (at most two thirds more), the link is lost. While
 * a link with failover has no lane, no heartbeat is sent, and failover.timeout decides.
 *
 * Ticks that ran late, or while the link was paused, are ignored: the peer may have answered.
 */
#ifndef WEFT_ENDPOINTS_FAILOVER_HEARTBEAT_H
#define WEFT_ENDPOINTS_FAILOVER_HEARTBEAT_H

#include <endpoints/core/link.h>

enum { HEARTBEAT_LEAST_MS = 250, HEARTBEAT_TICKS = 3 };

struct heartbeat {
    struct timer timer;
    struct link *link;
    uint32_t ms;
    uint32_t silent;   /* ticks in a row */
    uint32_t received; /* messages of the link, at the last tick */
    bool answered;     /* since then */
    uint64_t due;
};

/* For a link that is being dialed, or one that was accepted. It goes with the link. */
weft_status_t weft__heartbeat_new(struct link *link, uint32_t ms);
/* The link is up. */
void weft__heartbeat_begin(struct link *link);
void weft__heartbeat_free(struct link *link);
/* HEARTBEAT_ASK or HEARTBEAT. */
void weft__heartbeat_received(struct link *link, struct lane *lane, const void *data, size_t len);

#endif
