/* The retransmission timer of RFC 6298, in nanoseconds and scaled to the latencies of a cluster.
 * Pure. */
#ifndef WEFT_TRANSPORTS_RELIABLE_WINDOW_TIME_H
#define WEFT_TRANSPORTS_RELIABLE_WINDOW_TIME_H

#include <stdint.h>

#define WINDOW_RTO_FIRST UINT64_C(10000000) /* before the first sample */
#define WINDOW_RTO_MIN   UINT64_C(1000000)
#define WINDOW_RTO_MAX   UINT64_C(100000000)
#define WINDOW_ACK_DELAY \
    UINT64_C(200000)            /* the delay of an acknowledgement (max_ack_delay of RFC 9002) */
enum { WINDOW_ACK_EVERY = 16 }; /* frames after which an ACK is sent at once */

struct window_time {
    uint64_t srtt, rttvar; /* 0: no sample yet */
    uint64_t rto;          /* as estimated */
    uint64_t backed_off;   /* the time in use: doubled by each timeout until there is progress */
};

static inline void window_time_init(struct window_time *t) {
    *t = (struct window_time){.rto = WINDOW_RTO_FIRST, .backed_off = WINDOW_RTO_FIRST};
}

/* Adds a sample. Retransmitted frames give none (Karn). */
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

/* Ends the back-off when a new frame is acknowledged. RFC 6298 waits for a sample, but samples
 * are rare under heavy loss; the TCP of Linux does the same. */
static inline void window_time_progress(struct window_time *t) {
    t->backed_off = t->rto;
}

#endif
