/* What the files of links share: link.c (life), link_greet.c (the greeting), link_peers.c (who there is). */
#ifndef WEFT_ENDPOINTS_LINK_LOCAL_H
#define WEFT_ENDPOINTS_LINK_LOCAL_H

#include "link.h"

static inline void link_step(struct link *link, enum link_event event) {
    fsm_step(&link->core.fsm, event);
}

/* Its endpoints go on over the other one. */
void weft__link_move_endpoints(struct link *from, struct link *to);

/* Says HELLO. */
void weft__link_greet(struct link *link);

/* Whose link it is; 0: not known yet. */
void weft__link_know_peer(struct link *link, uint64_t peer);
/* The one that was kept for when this ends; NULL: there is none. */
struct link *weft__link_spare(const struct link *lost);
/* The link of the pair that is there already; NULL: there is none. */
struct link *weft__link_rival(const struct link *guest);
/* Of those that the peer dialed, this one counted. */
bool weft__link_is_too_many(const struct link *guest);

#endif
