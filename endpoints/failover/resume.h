/* What a link with failover decides upon (resume.fsm): counts only. The explorer copies it. */
#ifndef WEFT_ENDPOINTS_FAILOVER_RESUME_H
#define WEFT_ENDPOINTS_FAILOVER_RESUME_H

#include <fsm/fsm.h>
#include <stdbool.h>

#include "resume.fsm"
#define FSM_NAME   resume
#define FSM_PREFIX RESUME
#define FSM_SETS   RESUME_SETS
#include <fsm/declare.h>

/* Counts the messages of a link across all of its lanes. Handshakes and acknowledgements do not
 * count. */
struct resume {
    struct fsm fsm;
    uint64_t sent;      /* handed to a lane at least once */
    uint64_t acked;     /* acknowledged by the peer */
    uint64_t delivered; /* messages of the peer that arrived */
    uint64_t claim;     /* the count that the peer sent, for the next event */
    uint64_t out;       /* the message that RESEND sends */
    uint32_t epoch;     /* of the last try: counted by the dialer, received by the other side */
    uint64_t brought;   /* `delivered` when the lane in use was adopted */
    /* the lane came with RESUME, and its dialer has acknowledged nothing by it yet */
    bool untried;
    /* there is a new lane: in DIALING and HANDSHAKE, and between TAKE and ADOPT */
    bool trying;
};

/* A valid count is at least the last acknowledged one, and at most the number of messages sent. */
static inline bool resume_can_be(const struct resume *r, uint64_t count) {
    return count >= r->acked && count <= r->sent;
}
/* The event of a RESUME of try `epoch`, of a RESUMED, of an acknowledgement. Sets `claim`. */
enum resume_event weft__resume_asked(struct resume *r, uint32_t epoch, uint64_t count);
enum resume_event weft__resume_answered(struct resume *r, uint64_t count);
enum resume_event weft__resume_acked(struct resume *r, uint64_t count);
/* The peer closed the lane in use. LOST: the peer abandoned a try whose RESUME came late.
 * GIVE_UP: the peer closed the link. A dialer sends a message on each lane that it adopts, which
 * distinguishes the two. */
enum resume_event weft__resume_closed(const struct resume *r);

/* The cells SEND and MESSAGE of STEADY, without a step of the machine for each message. */
static inline void resume_count_sent(struct resume *r) {
    r->sent++;
}
static inline void resume_count_delivered(struct resume *r) {
    r->delivered++;
}

#endif
