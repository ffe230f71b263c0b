/*
 * The sliding window of a link: sent and unacknowledged frames, and frames that arrived early.
 * Pure: sequence numbers in a plain struct that the explorer copies, without clock, memory and I/O.
 * Frames are numbered modulo 2^32 and compared by serial arithmetic (RFC 1982). At most
 * WINDOW_FRAMES are in flight, so one word lists the frames beyond a gap (selective
 * acknowledgement, after RFC 2018). A lost frame is sent again without its successors.
 */
#ifndef WEFT_TRANSPORTS_RELIABLE_WINDOW_H
#define WEFT_TRANSPORTS_RELIABLE_WINDOW_H

#include <fsm/fsm.h>
#include <stdbool.h>
#include <stdint.h>

#include "window.fsm"
#define FSM_NAME   window
#define FSM_PREFIX WINDOW
#define FSM_SETS   WINDOW_SETS
#include <fsm/declare.h>

enum {
    WINDOW_FRAMES = 64,
    /* frames acknowledged beyond a missing one that make it lost (RFC 5681, section 3.2) */
    WINDOW_GAP = 3
};

struct window {
    struct fsm fsm;
    uint32_t una;      /* the oldest unacknowledged frame */
    uint32_t next;     /* the first frame that was never sent */
    uint32_t end;      /* the first frame that does not exist yet */
    uint32_t out;      /* the frame of the SEND effect */
    uint64_t sacked;   /* bit i: una + i is acknowledged beyond a gap */
    uint64_t resent;   /* bit i: una + i was retransmitted since the last timeout */
    uint32_t expected; /* everything before it has been delivered */
    uint32_t arrived;  /* the frame of the event */
    uint64_t held;     /* bit i: expected + i has arrived early */
    uint32_t acked;    /* the acknowledgement of the event */
    uint64_t sack;
};

/* `mine` and `theirs`: the first sequence numbers of both directions. */
void weft__window_init(struct window *w, const struct fsm_port *port, uint32_t id, uint32_t mine,
                       uint32_t theirs);

static inline uint32_t window_in_flight(const struct window *w) {
    return w->next - w->una;
}
/* Whether frame `next` may be sent. */
static inline bool window_may_send(const struct window *w) {
    return w->next != w->end && window_in_flight(w) < WINDOW_FRAMES;
}
/* Whether `seq` is in flight and unacknowledged. */
static inline bool window_misses(const struct window *w, uint32_t seq) {
    uint32_t i = seq - w->una;
    return i < window_in_flight(w) && !(w->sacked >> i & 1);
}

/* The FRAME event of frame `seq`. Step it after the frame is stored. */
enum window_event weft__window_frame(struct window *w, uint32_t seq);
/* The ACK event of an acknowledgement: all before `ack`, and ack + i for each bit i of `sack`. */
enum window_event weft__window_ack(struct window *w, uint32_t ack, uint64_t sack);

#endif
