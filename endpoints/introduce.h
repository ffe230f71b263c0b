/*
 * Where the peer runs. Both sides of a link say it once, when it is up (LANE_PROCESS), where that is of use: a link that outlives its
 * lanes watches the peer's process while it has none (resume.c); and one whose lane cannot tell that its peer died (datagrams: no
 * CAP_PEER_DEATH) watches it as long as both live. Told to peers only whose hello says that they listen.
 */
#ifndef WEFT_ENDPOINTS_INTRODUCE_H
#define WEFT_ENDPOINTS_INTRODUCE_H

#include "link.h"
#include "process.h"

struct introduction {
    struct process process;
    struct link *link;
    struct timer ended; /* what the peer sent last is on its way up until then */
};

/* The link is up. */
void weft__introduce(struct link *link);
/* LANE_PROCESS. */
void weft__introduced(struct link *link, struct lane *lane, const void *data, size_t len);
/* Another lane stands below a link that outlives them. */
void weft__introduce_lane(const struct link *link, struct lane *raw);
void weft__introduction_free(struct link *link);

#endif
