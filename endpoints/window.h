/*
 * The retained window of a link: what was sent and not acknowledged, and what arrived too early. Pure: no clock, no
 * memory, no I/O, only sequence numbers in a plain struct that the explorer copies. Frames are numbered modulo 2^32
 * and compared by serial arithmetic (RFC 1982); at most WINDOW_FRAMES are under way, so that one word names what
 * arrived beyond a gap (selective acknowledgement, after RFC 2018) and a lost frame is resent without its followers.
 */
#ifndef WEFT_ENDPOINTS_WINDOW_H
#define WEFT_ENDPOINTS_WINDOW_H

#include <fsm/fsm.h>
#include <stdbool.h>
#include <stdint.h>

#include "window.fsm"
#define FSM_NAME   window
#define FSM_PREFIX WINDOW
#include <fsm/declare.h>

enum {
    WINDOW_FRAMES = 64,
    WINDOW_GAP = 3 /* frames acknowledged beyond a missing one that make it lost (RFC 5681, section 3.2) */
};

struct window {
    struct fsm fsm;
    uint32_t una;      /* the oldest frame that is not acknowledged */
    uint32_t next;     /* the first that was never sent */
    uint32_t end;      /* the first that does not exist yet */
    uint32_t out;      /* of the SEND effect */
    uint64_t sacked;   /* bit i: una + i has arrived, beyond a gap */
    uint64_t resent;   /* bit i: una + i was sent again since the last timeout */
    uint32_t expected; /* everything before it has been delivered */
    uint32_t arrived;  /* the frame that an event is about */
    uint64_t held;     /* bit i: expected + i is kept */
    uint32_t acked;    /* what an event's acknowledgement says */
    uint64_t sack;
};

/* `mine` and `theirs`: the first numbers of both ways. */
void weft__window_init(struct window *w, const struct fsm_port *port, uint32_t id, uint32_t mine, uint32_t theirs);

static inline uint32_t window_in_flight(const struct window *w) {
    return w->next - w->una;
}
/* May frame `next` go? */
static inline bool window_may_send(const struct window *w) {
    return w->next != w->end && window_in_flight(w) < WINDOW_FRAMES;
}
/* Is `seq` under way and still missing at the peer? */
static inline bool window_misses(const struct window *w, uint32_t seq) {
    uint32_t i = seq - w->una;
    return i < window_in_flight(w) && !(w->sacked >> i & 1);
}

/* What frame `seq` is: one of the FRAME events, to be stepped when the frame could be kept. */
enum window_event weft__window_frame(struct window *w, uint32_t seq);
/* What an acknowledgement of everything before `ack`, and of ack + i for each bit i of `sack`, is. */
enum window_event weft__window_ack(struct window *w, uint32_t ack, uint64_t sack);

#endif
