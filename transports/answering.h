/* The operations of a lane in a state that sends nothing: each gives the same answer. */
#ifndef WEFT_TRANSPORTS_ANSWERING_H
#define WEFT_TRANSPORTS_ANSWERING_H

#include <transports/transport.h>

/* Defines state_short, state_bcopy and state_zcopy; `answer` may use the lane, `l`. */
#define LANE_SENDS_ANSWER(state, answer)                                                                        \
    static weft_status_t state##_short(struct lane *l, uint8_t id, uint64_t header, const void *data,           \
                                       size_t len) {                                                            \
        return answer;                                                                                          \
    }                                                                                                           \
    static weft_status_t state##_bcopy(struct lane *l, uint8_t id, size_t (*pack)(void *, void *), void *arg) { \
        return answer;                                                                                          \
    }                                                                                                           \
    static weft_status_t state##_zcopy(struct lane *l, uint8_t id, const void *header, size_t header_len,       \
                                       const weft_iov_t *iov, size_t n_iov, struct completion *completion) {    \
        return answer;                                                                                          \
    }

/* The same, and state_flush and state_bulk_get. */
#define LANE_ALL_ANSWER(state, answer)                                                                          \
    LANE_SENDS_ANSWER(state, answer)                                                                            \
    static weft_status_t state##_flush(struct lane *l, struct completion *completion) {                         \
        return answer;                                                                                          \
    }                                                                                                           \
    static weft_status_t state##_bulk_get(struct lane *l, uint64_t remote, const weft_iov_t *iov, size_t n_iov, \
                                          struct completion *completion) {                                      \
        return answer;                                                                                          \
    }

#endif
