/*
 * Negotiation: does a link get another lane, a faster one of which there are few?
 *
 * The side that uses the link much asks; the other grants by a number, or denies. Both keep a place for it in their count of
 * lanes of that kind from then on, so that neither has more than it may. Who asks takes the grant to switch.h, which dials, and
 * moves the traffic of both directions; the one who granted expects the dialer there. The way back is the same: one side says
 * so, both go. docs/switching.md has the conversation, negotiate.fsm the machine.
 */
#ifndef WEFT_ENDPOINTS_NEGOTIATE_H
#define WEFT_ENDPOINTS_NEGOTIATE_H

#include "link.h"

/* ---- told by switch.c, never from inside a call of ours */

/* The other lane has greeted, both know that it is there; traffic begins to move. */
void weft__lanes_joined(struct link *link);
/* It will not come: nothing of it is left, and nothing was sent on it. */
void weft__lanes_join_failed(struct link *link, weft_status_t status);
/* All traffic of both directions has moved. After weft__switch_back the lane that was left is closed. */
void weft__lanes_switched(struct link *link);
/* `lane` died, and the link goes on with the other one. */
void weft__lanes_lost(struct link *link, struct lane *lane, weft_status_t status);

/* ---- told by link.c and the wire */

/* Of this side's hello: the flags by which the peer learns that it may ask. */
uint16_t weft__lanes_hello(const struct link *link);
/* The link ends; nothing is said about it any more. */
void weft__lanes_end(struct link *link);

#endif
