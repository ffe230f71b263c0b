/* What a link that outlives its lanes decides upon (resume.fsm): counts, and nothing else. The explorer copies it. */
#ifndef WEFT_ENDPOINTS_RESUME_H
#define WEFT_ENDPOINTS_RESUME_H

#include <fsm/fsm.h>
#include <stdbool.h>

#include "resume.fsm"
#define FSM_NAME   resume
#define FSM_PREFIX RESUME
#include <fsm/declare.h>

/* Of a link's messages in their order, across all of its lanes. Greetings and acknowledgements do not count. */
struct resume {
    struct fsm fsm;
    uint64_t sent;      /* handed to a lane at least once, from the first on */
    uint64_t acked;     /* of those: the peer has them */
    uint64_t delivered; /* of the peer's: brought here */
    uint64_t claim;     /* what the peer says to have, for the event that is about to be stepped */
    uint64_t out;       /* RESEND: which */
    uint32_t epoch;     /* of the last try: counted by the side that dials, seen by the other */
};

/* What the peer says to have can be: what it said before at least, and no more than was sent. */
static inline bool resume_can_be(const struct resume *r, uint64_t count) {
    return count >= r->acked && count <= r->sent;
}
/* A RESUME of that try, with what the peer has; or the answer; or an acknowledgement: the event that it is, with `claim` set. */
enum resume_event weft__resume_asked(struct resume *r, uint32_t epoch, uint64_t count);
enum resume_event weft__resume_answered(struct resume *r, uint64_t count);
enum resume_event weft__resume_acked(struct resume *r, uint64_t count);

/* What the cells SEND and MESSAGE of STEADY do; a message steps no machine. */
static inline void resume_count_sent(struct resume *r) {
    r->sent++;
}
static inline void resume_count_delivered(struct resume *r) {
    r->delivered++;
}

#endif
