/*
 * Heartbeats: is the peer's worker still driven? Asked only for endpoints that want it (heartbeat_ms), since a peer that computes is not
 * dead. A link that hears nothing for a third of that time says BEAT_ASK, which the other side's worker answers; when nothing at
 * all has come for the whole of it, at most two thirds more, the link is lost. While one that survives its lanes has none, nobody is
 * asked: its patience decides.
 *
 * What this side itself did not look at is no silence of the peer: a tick that comes late, or while the link is paused, counts for
 * nothing.
 */
#ifndef WEFT_ENDPOINTS_BEAT_H
#define WEFT_ENDPOINTS_BEAT_H

#include "link.h"

enum { BEAT_LEAST_MS = 250, BEAT_TICKS = 3 };

struct beat {
    struct timer timer;
    struct link *link;
    uint32_t ms;
    uint32_t silent;   /* ticks in a row */
    uint32_t received; /* the link's, at the last tick */
    bool answered;     /* since then */
    uint64_t due;
};

/* Endpoints share a link with those of the same wish. 0: none. */
static inline uint32_t weft__beat_ms(const struct link *link) {
    return link->more->beat ? link->more->beat->ms : 0;
}
/* For a link that is being dialed. It goes with the link. */
weft_status_t weft__beat_wish(struct link *link, uint32_t ms);
/* The link is up. */
void weft__beat_begin(struct link *link);
void weft__beat_free(struct link *link);
/* BEAT_ASK, or BEAT. */
void weft__beat_heard(struct link *link, struct lane *lane, const void *data, size_t len);

#endif
