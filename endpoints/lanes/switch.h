/*
 * Moves the traffic of a link from one of its two lanes to the other, in both directions, while
 * messages flow. negotiate.h decides whether a link gets a second lane.
 *
 * An auxiliary link without endpoints dials the other lane and does its handshake, as for rails.
 * Then the lane carries messages of the main link. The dialer moves first: when no one-sided
 * operation is under way on the old lane, it sends END(epoch) as its last message there. It goes on
 * by the new lane without a pause. The receiver holds back what the new lane brings (holdback.h)
 * until it reads END on the old lane. Then it delivers the held messages, sends DRAINED(epoch), and
 * moves in its turn. Until DRAINED arrives, the sender may send a limited number of bytes on the
 * new lane, which bounds the memory of the receiver.
 *
 * The way back works in the same manner. Afterwards both sides close the lane that they left.
 */
#ifndef WEFT_ENDPOINTS_LANES_SWITCH_H
#define WEFT_ENDPOINTS_LANES_SWITCH_H

#include <endpoints/core/link.h>

/* The most bytes that a receiver has to hold back. The limit is fixed, because the receiver
 * checks it. A message counts as its bytes and SWITCH_MESSAGE. A packed message may exceed it by
 * SWITCH_SLACK. */
enum { SWITCH_HOLD = 1 << 20, SWITCH_SLACK = 1 << 20, SWITCH_MESSAGE = 64 };

/* ---- called by negotiate.c. BUSY: the link has another lane or expects one. CLOSED: it is not
 * up. NO_MEMORY */

/* An accepted lane of `iface` whose hello carries this number (not 0) is the other lane of this
 * link. */
weft_status_t weft__switch_expect(struct link *link, const struct iface *iface, uint32_t number);
/* Dials the other lane. On success a later turn calls weft__lanes_joined or
 * weft__lanes_join_failed. */
weft_status_t weft__switch_dial(struct link *link, struct iface *iface, const void *address,
                                size_t len, bool scarce, uint32_t number);
/* The other lane is not wanted any more. Does nothing if it is there. */
void weft__switch_cancel(struct link *link);
/* False: the lane has come or failed, and negotiate.c is notified soon. */
bool weft__switch_expects(const struct link *link);
/* Moves to the base lane. weft__lanes_switched follows when both sides have moved. BUSY: a
 * switch is under way. NOT_FOUND: the link has no other lane. OK without effect if the peer
 * moves already. */
weft_status_t weft__switch_back(struct link *link);

/* ---- called by link.c, placement.c, rkey.c, … */

/* An accepted lane says hello as the other lane of a link. False: no link expects it. */
bool weft__switch_handshakes(struct link *accepted, const struct wire_hello *hello);
/* The auxiliary link is up. */
void weft__switch_up(struct link *aux_link);
/* One of its lanes is lost. */
void weft__switch_lane_down(struct link *link, struct lane *lane, weft_status_t status);
/* True if a lane that completes with this status was left by the link and read to its end by the
 * peer. A message or flush that was on it is delivered: do not repeat it. */
bool weft__switch_has_left(const struct link *link, weft_status_t status);
/* The link ends, and its other lane with it. If it is an auxiliary link, its main link loses the
 * lane. */
void weft__switch_end(struct link *link, bool abort);
/* The link is freed. */
void weft__switch_free(struct link *link);
/* The lane on which keys are opened. NULL: none at present. */
struct lane *weft__switch_key_lane(const struct link *link);
/* `n` of the one-sided operations that a switch waits for have ended. */
void weft__switch_quiesce_step(struct link *link, uint32_t n);
/* END and DRAINED (lane_ctrl.h). */
void weft__switch_received(struct link *link, struct lane *lane, const void *data, size_t len);

#endif
