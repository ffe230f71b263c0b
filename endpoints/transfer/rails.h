/*
 * Multi-rail: further lanes of a link that carry pieces of large messages beside its own lane.
 *
 * A rail is a link without endpoints, with a link's machine and handshake. It belongs to its `main`
 * link and ends with it. The dialer of the link asks for rails when the first large message is
 * under way. The peer grants each rail by a number, which the rail's HELLO repeats.
 *
 * A message is split once, in proportion to the measured rate of each lane. The link's own lane
 * takes the beginning, and each rail takes one range of the rest. The receiver tracks one range for
 * each lane (rail_ranges.h) and reports to the sender how fast each came.
 */
#ifndef WEFT_ENDPOINTS_TRANSFER_RAILS_H
#define WEFT_ENDPOINTS_TRANSFER_RAILS_H

#include <endpoints/core/endpoint.h>

struct wire_credit;
struct wire_one;

enum {
    RAILS_MAX = 4,           /* lanes of a link, its own among them */
    RAILS_LEAST = 256 << 10, /* messages below go by the link's own lane */
    RAILS_SLOW = 4,          /* a lane slower than the fastest by this factor is left out */
    RAILS_LOOK_AGAIN = 32    /* except for one of this many messages: it may have recovered */
};

/* Stores a copy of the address that the link dialed, for its rails. */
void weft__rails_dialed(struct link *link, const void *address, size_t len);
void weft__rails_free(struct link *link);
/* The number of rails that are up. */
uint32_t weft__rails_count(const struct link *link);
/* A large message is under way. Asks for rails if they are enabled and this side dialed. */
void weft__rails_want(struct link *link, size_t len);
/* Gives parts of a requested send to the rails. Sets `rail_bytes` to their total length. */
void weft__rails_split(struct link *link, struct weft_request *req);
/* True if every byte was handed to a lane. */
bool weft__rails_all_sent(const struct weft_request *req);

/* An accepted link's HELLO names a rail. False: this side granted no such rail. */
bool weft__rail_handshakes(struct link *accepted, const struct wire_hello *hello);
void weft__rail_up(struct link *rail);
/* The link ends. Closes its rails, or removes it from its main link if it is a rail. */
void weft__rails_end(struct link *link, bool abort);

/* Sends the sender the rate of one lane: a rail's number, or 0 for the link's own lane. */
void weft__rails_notify_rate(struct link *link, uint32_t number, size_t bytes, uint64_t ns);

void weft__on_rail_rate(struct link *link, struct lane *lane, const struct wire_credit *rate);
void weft__on_rail(struct link *link, struct lane *lane, const struct wire_one *one);

#endif
