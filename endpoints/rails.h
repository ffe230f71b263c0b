/*
 * Rails: further lanes of a link that carry pieces of large messages beside its own. A rail is a link of its own, with a link's
 * machine and greeting, but without endpoints: it belongs to the link that it helps (`main`), and ends with it. The dialer of
 * the link asks for rails when the first large message is under way; the other side grants each by a number that the
 * rail's greeting must show.
 *
 * A message is cut once, in proportion to what each lane was seen to carry: the link's own lane takes the beginning, each rail
 * a range of the rest. So a receiver keeps one range for each lane (spread.h), and tells the sender how fast each came.
 */
#ifndef WEFT_ENDPOINTS_RAILS_H
#define WEFT_ENDPOINTS_RAILS_H

#include "ep.h"

enum {
    RAILS_MAX = 4,           /* lanes of a link, its own among them */
    RAILS_LEAST = 256 << 10, /* messages below go by the link's own lane */
    RAILS_SLOW = 4,          /* a lane that is so many times slower than the fastest is left out */
    RAILS_LOOK_AGAIN = 32    /* but for one message in so many: it may have recovered */
};

/* Where the link's lane was dialed, for rails to follow; copied. */
void weft__rails_dialed(struct link *link, const void *address, size_t len);
void weft__rails_free(struct link *link);
/* Those that it has now. */
uint32_t weft__rails_count(const struct link *link);
/* A large message is under way here: rails are asked for, if there are to be any and this side dialed. */
void weft__rails_want(struct link *link, size_t len);
/* A send that was asked for gives parts of itself to the rails, if there are any; then `rail_bytes` says how much. */
void weft__rails_split(struct link *link, struct weft_request *req);
/* All of it has been handed over. */
bool weft__rails_all_sent(const struct weft_request *req);

/* A guest greets as a rail. False: nobody granted it. */
bool weft__rail_greets(struct link *guest, const struct wire_hello *hello);
void weft__rail_up(struct link *rail);
/* The link ends, and its rails with it; or it is a rail, which its link must do without. */
void weft__rails_end(struct link *link, bool abort);

/* The receiver of such a message says what a lane carried: a rail's number, or 0, the link's own. */
void weft__rails_tell_rate(struct link *link, uint32_t number, size_t bytes, uint64_t ns);

void weft__on_rail_rate(struct lane *lane, const void *data, size_t len);
void weft__on_rail(struct lane *lane, const void *data, size_t len);

#endif
