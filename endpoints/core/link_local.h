/* Shared by the files of links: link.c (life cycle), link_backlog.c, link_control.c, link_reason.c,
 * link_peers.c (lookup by peer), connect/handshake.c. */
#ifndef WEFT_ENDPOINTS_CORE_LINK_LOCAL_H
#define WEFT_ENDPOINTS_CORE_LINK_LOCAL_H

#include "link.h"

static inline void link_step(struct link *link, enum link_event event) {
    weft__fsm_step(&link->core.fsm, event);
}

/* Moves all endpoints to the other link. */
void weft__link_move_endpoints(struct link *from, struct link *to);

/* ---- link_backlog.c */

/* New messages go over this lane. Nothing is sent. */
void weft__link_use_lane(struct link *link, struct lane *lane);
/* The lane has room again: of link->pending. */
weft_status_t weft__link_retry(struct pending *pending);
/* Ends what waits. These requests belong to no endpoint, or to one that has left. */
void weft__link_drop_backlog(struct link *link, weft_status_t status);

/* ---- link_reason.c */

/* A text equal to this one, of which the caller has a share. NULL: no memory. */
char *weft__reason_share(struct weft_worker *worker, const char *text);
/* Gives the share back. NULL: nothing. */
void weft__reason_drop(struct weft_worker *worker, char *why);

/* ---- link_control.c */

/* Sends a control message over that lane at once, or returns NO_RESOURCE. */
weft_status_t weft__link_send_control(const struct link *link, struct lane *lane,
                                      const struct wire_message *m);

/* ---- link_peers.c */

/* Sets the peer's worker id; 0: not known yet. */
void weft__link_know_peer(struct link *link, uint64_t peer);
/* The spare link of the pair that replaces this one when it ends. NULL: none. */
struct link *weft__link_standby(const struct link *lost);
/* The existing link of the pair. NULL: none. */
struct link *weft__link_duplicate(const struct link *accepted);
/* True if the peer dialed more than "peer.max_links" links, with this one. */
bool weft__link_is_too_many(const struct link *accepted);

#endif
