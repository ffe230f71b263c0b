/*
 * Decides whether a link gets another lane of a faster, scarce kind.
 *
 * The side that uses the link much sends ASK. The other side answers with GRANT and a number, or
 * with DENY. From then on both sides count a slot for the lane, so neither has more lanes than it
 * may. The asking side passes the grant to switch.h, which dials and moves the traffic of both
 * directions. The granting side expects the dialer. Either side may send BACK, and both move back.
 * docs/switching.md has the conversation, negotiate.fsm the machine.
 */
#ifndef WEFT_ENDPOINTS_LANES_NEGOTIATE_H
#define WEFT_ENDPOINTS_LANES_NEGOTIATE_H

#include <fsm/fsm.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/base.h>

#include "negotiate.fsm"
#define FSM_NAME   negotiate
#define FSM_PREFIX NEGOTIATE
#define FSM_SETS   NEGOTIATE_SETS
#include <fsm/declare.h>

/* ---- the machine and its pure decisions, without links and clock (negotiate_machine.c) */

enum negotiate_place {
    PLACE_NONE,
    PLACE_AWAITED, /* the next free slot belongs to this link */
    PLACE_HELD
};

struct negotiation {
    struct fsm fsm;
    uint32_t epoch;  /* of the last request, of either side */
    uint8_t odd;     /* requests of this side have odd epochs */
    uint8_t place;   /* enum negotiate_place */
    uint8_t refused; /* failed attempts since the last success: the exponent of the back-off */
    uint8_t why;     /* the reason of the next DENY (enum lane_denial) */
    bool settled;    /* the minimum hold time is over: it may be sent back */
};

enum { NEGOTIATE_REFUSED_MAX = 10 };

/* The epoch of the next request of this side. 0: the numbers are used up. */
uint32_t weft__negotiate_next(const struct negotiation *n);

/* Checks the epoch of a message. A correct peer's next request is at most two beyond the last
 * epoch that this side knows. */
enum epoch_check { EPOCH_STALE, EPOCH_CURRENT, EPOCH_INVALID };
enum epoch_check weft__negotiate_question(const struct negotiation *n, uint32_t epoch);
enum epoch_check weft__negotiate_word(const struct negotiation *n, uint32_t epoch);

/* Whether there is a slot for one more lane of a kind. At most one link waits for a slot. */
struct negotiate_capacity {
    uint32_t capacity, held;
    bool awaited; /* some link waits for a slot */
    bool weaker;  /* a weaker link may be sent back for it */
};
enum negotiate_answer { ANSWER_FITS, ANSWER_ROOM, ANSWER_FULL, ANSWER_BUSY };
enum negotiate_answer weft__negotiate_answer(const struct negotiate_capacity *room);

/* Nanoseconds of back-off, between the shortest and the longest. */
uint64_t weft__negotiate_backoff(const struct negotiation *n, uint64_t least, uint64_t most);

/* ---- called by switch.c, never from inside a call of negotiate.c */

struct link;
struct lane;
struct weft_worker;

/* The handshake of the other lane is complete. Traffic begins to move. */
void weft__lanes_joined(struct link *link);
/* The other lane failed before anything was sent on it. */
void weft__lanes_join_failed(struct link *link, weft_status_t status);
/* The peer moves back to the base lane. Its BACK has come, or comes soon. */
void weft__lanes_going_back(struct link *link);
/* The traffic of both directions has moved. After weft__switch_back the old lane is closed. */
void weft__lanes_switched(struct link *link);
/* `lane` died. The link goes on with the other one. */
void weft__lanes_lost(struct link *link, struct lane *lane, weft_status_t status);

/* ---- called by the rooms above */

/* Call it after the transports are open. Does nothing if "lanes.switch" is off. */
weft_status_t weft__lanes_open(struct weft_worker *worker);
/* The flags in the hello of this side that allow the peer to ask. */
uint16_t weft__lanes_hello(const struct link *link);
/* The link ends. No notification about it follows. */
void weft__lanes_end(struct link *link);
/* ASK, GRANT, DENY, CANCEL, BACK, SCORE (lane_ctrl.h). */
void weft__lanes_received(struct link *link, struct lane *lane, const void *data, size_t len);

#endif
