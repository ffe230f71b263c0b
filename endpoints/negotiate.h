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

#include <fsm/fsm.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/base.h>

#include "negotiate.fsm"
#define FSM_NAME   negotiate
#define FSM_PREFIX NEGOTIATE
#include <fsm/declare.h>

/* ---- the machine's plain data, and what is decided by it alone: no links, no clock (negotiate_machine.c) */

enum negotiate_place {
    PLACE_NONE,
    PLACE_AWAITED, /* the next that becomes free is this link's */
    PLACE_HELD
};

struct negotiation {
    struct fsm fsm;
    uint32_t epoch;  /* of the last question, this side's or the peer's */
    uint8_t odd;     /* this side's questions have odd epochs */
    uint8_t place;   /* enum negotiate_place */
    uint8_t refused; /* times since it was settled last: the exponent of the back-off */
    uint8_t why;     /* of a denial that is to be sent (enum lane_denial) */
    bool settled;    /* it has been fast for so long that it may be sent back */
};

enum { NEGOTIATE_REFUSED_MAX = 10 };

/* The epoch of this side's next question; 0: there are no more. */
uint32_t weft__negotiate_next(const struct negotiation *n);

/* What a word with this epoch is worth. An honest peer's next question is at most two beyond what it knows, which is not more
 * than this side knows. */
enum negotiate_worth { WORTH_NOTHING, WORTH_HEARING, WORTH_A_VIOLATION };
enum negotiate_worth weft__negotiate_question(const struct negotiation *n, uint32_t epoch);
enum negotiate_worth weft__negotiate_word(const struct negotiation *n, uint32_t epoch);

/* Is there room for one more lane of a kind, and how? At most one link waits for a place. */
struct negotiate_room {
    uint32_t capacity, held;
    bool awaited; /* some link waits for a place */
    bool weaker;  /* some link that may be sent back is weaker than the one that asks */
};
enum negotiate_answer { ANSWER_FITS, ANSWER_ROOM, ANSWER_FULL, ANSWER_BUSY };
enum negotiate_answer weft__negotiate_answer(const struct negotiate_room *room);

/* ns that this side rests, from the shortest rest and the longest. */
uint64_t weft__negotiate_rest(const struct negotiation *n, uint64_t least, uint64_t most);

/* ---- told by switch.c, never from inside a call of ours (negotiate.c) */

struct link;
struct lane;
struct weft_worker;

/* The other lane has greeted, both know that it is there; traffic begins to move. */
void weft__lanes_joined(struct link *link);
/* It will not come: nothing of it is left, and nothing was sent on it. */
void weft__lanes_join_failed(struct link *link, weft_status_t status);
/* The peer sends by the base lane again: it has said so, or is about to. */
void weft__lanes_going_back(struct link *link);
/* All traffic of both directions has moved. After weft__switch_back the lane that was left is closed. */
void weft__lanes_switched(struct link *link);
/* `lane` died, and the link goes on with the other one. */
void weft__lanes_lost(struct link *link, struct lane *lane, weft_status_t status);

/* ---- told by link.c, worker.c and the wire */

/* After the transports are open. Without the setting nothing is made, and nothing of it happens. */
weft_status_t weft__lanes_open(struct weft_worker *worker);
/* Of this side's hello: the flags by which the peer learns that it may ask. */
uint16_t weft__lanes_hello(const struct link *link);
/* The link ends; nothing is said about it any more. */
void weft__lanes_end(struct link *link);
/* ASK, GRANT, DENY, CANCEL, BACK, SCORE (lane_wire.h). */
void weft__lanes_heard(struct link *link, struct lane *lane, const void *data, size_t len);

#endif
