/*
 * When to resend: the retransmission timer of RFC 6298, in nanoseconds and scaled to a cluster's distances. Pure.
 */
#ifndef WEFT_ENDPOINTS_WINDOW_TIME_H
#define WEFT_ENDPOINTS_WINDOW_TIME_H

#include <stdint.h>

#define WINDOW_RTO_FIRST UINT64_C(10000000) /* before anything was measured */
#define WINDOW_RTO_MIN   UINT64_C(1000000)
#define WINDOW_RTO_MAX   UINT64_C(100000000)
#define WINDOW_ACK_DELAY \
    UINT64_C(200000)            /* an acknowledgement waits so long for company (RFC 9002's max_ack_delay) */
enum { WINDOW_ACK_EVERY = 16 }; /* frames that are acknowledged without waiting */

struct window_time {
    uint64_t srtt, rttvar; /* 0: nothing measured yet */
    uint64_t rto;          /* as estimated */
    uint64_t backed_off;   /* what the timer takes: doubled by each timeout until something new is acknowledged */
};

static inline void window_time_init(struct window_time *t) {
    *t = (struct window_time){.rto = WINDOW_RTO_FIRST, .backed_off = WINDOW_RTO_FIRST};
}

/* A frame that was sent once came back acknowledged after `rtt` (Karn: frames that were resent tell nothing). */
static inline void window_time_sample(struct window_time *t, uint64_t rtt) {
    if (!t->srtt) {
        t->srtt = rtt;
        t->rttvar = rtt / 2;
    } else {
        uint64_t off = t->srtt > rtt ? t->srtt - rtt : rtt - t->srtt;
        t->rttvar += off / 4 - t->rttvar / 4;
        t->srtt += rtt / 8 - t->srtt / 8;
    }
    t->rto = t->srtt + 4 * t->rttvar + WINDOW_ACK_DELAY;
    if (t->rto < WINDOW_RTO_MIN) t->rto = WINDOW_RTO_MIN;
    if (t->rto > WINDOW_RTO_MAX) t->rto = WINDOW_RTO_MAX;
}

static inline void window_time_back_off(struct window_time *t) {
    t->backed_off = t->backed_off > WINDOW_RTO_MAX / 2 ? WINDOW_RTO_MAX : 2 * t->backed_off;
}

/* Something new was acknowledged. RFC 6298 would wait for a sample; over heavy loss those are rare, and Linux's TCP
 * ends the back-off here as well. */
static inline void window_time_progress(struct window_time *t) {
    t->backed_off = t->rto;
}

#endif
