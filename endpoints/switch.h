/*
 * Switching: moves the traffic of a link from one of its two lanes to the other, in both directions, while it flows. WHETHER a
 * link gets a second lane is negotiate.h's matter.
 *
 * The other lane is dialed and greeted by a link of its own without endpoints, as rails are (`companion`), and then carries
 * messages of the link that it was dialed for. Who dialed moves first: when nothing one-sided is under way on the old lane, END
 * (epoch) is its last message there, and what comes after it goes by the new lane, without a pause. The receiver keeps what the new lane
 * brings (hold.h) until it has read END on the old one. Then it delivers that, says DRAINED(epoch), and moves in its turn, if
 * it has not done so: the END of one side is what makes the other one move. Until DRAINED, the sender's bytes on the new
 * lane are bounded, so the receiver's memory is.
 *
 * The way back is the same, with the lanes in other roles. Afterwards the lane that was left is closed by both.
 */
#ifndef WEFT_ENDPOINTS_SWITCH_H
#define WEFT_ENDPOINTS_SWITCH_H

#include "link.h"

/* What a sender has on its way to a receiver that holds it, at most, is no setting: the receiver counts it. A message counts as
 * its bytes and SWITCH_MESSAGE. One that was packed may end beyond the bound. */
enum { SWITCH_HOLD = 1 << 20, SWITCH_SLACK = 1 << 20, SWITCH_MESSAGE = 64 };

/* ---- called by negotiate.c. BUSY: the link has another lane, or is about to; CLOSED: it is not up; NO_MEMORY */

/* A guest that greets with this number, not 0, is the other lane of this link. */
weft_status_t weft__switch_expect(struct link *link, uint32_t number);
/* Dials it. What comes of it is told (weft__lanes_joined, _join_failed) from a later turn, unless this fails. */
weft_status_t weft__switch_dial(struct link *link, struct iface *iface, const void *address, size_t len,
                                bool scarce, uint32_t number);
/* Nobody will come, or is to. Nothing when the other lane is there. */
void weft__switch_cancel(struct link *link);
/* False: the lane has come or failed, which is told before long. */
bool weft__switch_expects(const struct link *link);
/* To the base lane: weft__lanes_switched tells when both sides have moved and the other lane is being closed. BUSY: a switch
 * is under way. OK, and nothing else happens, when the peer was first. NOT_FOUND: it has no other lane. */
weft_status_t weft__switch_back(struct link *link);

/* ---- called by link.c, landing.c, rkey.c, … */

/* A guest greets as the other lane of a link. False: nobody expects it. */
bool weft__switch_greets(struct link *guest, const struct wire_hello *hello);
/* The companion is up. */
void weft__switch_up(struct link *companion);
/* One of its lanes is lost. */
void weft__switch_lane_down(struct link *link, struct lane *lane, weft_status_t status);
/* What a lane says of what it was lent, when it ends: is it one that the peer has read to its end, and that the link has left? What it
 * had of a message or a flush need not be done again, nor is it lost. */
bool weft__switch_has_left(const struct link *link, weft_status_t status);
/* The link ends, and its other lane with it; or it is a companion, and its link must do without. */
void weft__switch_end(struct link *link, bool abort);
/* The link's memory goes. */
void weft__switch_free(struct link *link);
/* The lane by which keys are opened; NULL: none now. */
struct lane *weft__switch_key_lane(const struct link *link);
/* So many of the one-sided operations that a switch waits for have ended. */
void weft__switch_calm(struct link *link, uint32_t n);
/* END and DRAINED (lane_wire.h). */
void weft__switch_heard(struct link *link, struct lane *lane, const void *data, size_t len);

#endif
