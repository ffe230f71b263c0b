/* The tables of a lane's states. In a state that cannot send, each operation returns the same
 * status. */
#ifndef WEFT_TRANSPORTS_ANSWERING_H
#define WEFT_TRANSPORTS_ANSWERING_H

#include <transports/transport.h>

/* Defines state_short, state_bcopy and state_zcopy. The expression `answer` may use the lane,
 * `l`. */
#define LANE_SENDS_ANSWER(state, answer)                                                           \
    static weft_status_t state##_short(struct lane *l, uint8_t id, uint64_t header,                \
                                       const void *data, size_t len) {                             \
        return answer;                                                                             \
    }                                                                                              \
    static weft_status_t state##_bcopy(struct lane *l, uint8_t id, size_t (*pack)(void *, void *), \
                                       void *arg) {                                                \
        return answer;                                                                             \
    }                                                                                              \
    static weft_status_t state##_zcopy(struct lane *l, uint8_t id, const struct lane_zcopy *msg,   \
                                       struct completion *completion) {                            \
        return answer;                                                                             \
    }

/* The base of a state's lane_ops: state_short, state_bcopy and state_zcopy, and the functions that
 * all states share. pending_add and pending_remove are those of the file (LANE_PENDING). */
#define LANE_OPS(state, flush_, close_, describe_)                                   \
    .am_short = state##_short, .am_bcopy = state##_bcopy, .am_zcopy = state##_zcopy, \
    .flush = flush_, .pending_add = pending_add, .pending_remove = pending_remove,   \
    .recv_msg = lane_recv, .close = close_, .describe = describe_

/* Defines state_run, for transports with runs. */
#define LANE_RUN_ANSWERS(state, answer)                                                  \
    static weft_status_t state##_run(struct lane *l, struct lane_run *run, size_t least, \
                                     size_t most, struct completion *completion) {       \
        return answer;                                                                   \
    }

/* Defines what LANE_SENDS_ANSWER does, state_flush and state_bulk_get. */
#define LANE_ALL_ANSWER(state, answer)                                                            \
    LANE_SENDS_ANSWER(state, answer)                                                              \
    static weft_status_t state##_flush(struct lane *l, struct completion *completion) {           \
        return answer;                                                                            \
    }                                                                                             \
    static weft_status_t state##_bulk_get(struct lane *l, uint64_t remote, const weft_iov_t *iov, \
                                          size_t n_iov, struct completion *completion) {          \
        return answer;                                                                            \
    }

/* Defines state_put_short to state_key_open, for transports with one-sided operations. */
#define LANE_RMA_ANSWER(state, answer)                                                          \
    static weft_status_t state##_put_short(struct lane *l, const void *data, size_t len,        \
                                           uint64_t remote, struct lane_key *key) {             \
        return answer;                                                                          \
    }                                                                                           \
    static weft_status_t state##_put_bcopy(struct lane *l, size_t len,                          \
                                           size_t (*pack)(void *, void *), void *arg,           \
                                           uint64_t remote, struct lane_key *key) {             \
        return answer;                                                                          \
    }                                                                                           \
    static weft_status_t state##_zcopy_pieces(struct lane *l, const struct rma_piece *pieces,   \
                                              size_t n, uint64_t remote, struct lane_key *key,  \
                                              struct completion *c) {                           \
        return answer;                                                                          \
    }                                                                                           \
    static weft_status_t state##_get_bcopy(struct lane *l, const struct rma_unpack *to,         \
                                           uint64_t remote, struct lane_key *key,               \
                                           struct completion *c) {                              \
        return answer;                                                                          \
    }                                                                                           \
    static weft_status_t state##_atomic_post(struct lane *l, const struct lane_atomic *atomic,  \
                                             struct lane_key *key) {                            \
        return answer;                                                                          \
    }                                                                                           \
    static weft_status_t state##_atomic_fetch(struct lane *l, const struct lane_atomic *atomic, \
                                              void *old_p, struct lane_key *key,                \
                                              struct completion *c) {                           \
        return answer;                                                                          \
    }                                                                                           \
    static weft_status_t state##_fence(struct lane *l) {                                        \
        return answer;                                                                          \
    }                                                                                           \
    static weft_status_t state##_key_open(struct lane *l, const struct remote_region *region,   \
                                          const void *packed, size_t len,                       \
                                          struct lane_key **key_p) {                            \
        return answer;                                                                          \
    }

/* The fields of lane_rma_ops for the functions of LANE_RMA_ANSWER. */
#define LANE_RMA_OPS(state)                                                \
    .put_short = state##_put_short, .put_bcopy = state##_put_bcopy,        \
    .put_zcopy = state##_zcopy_pieces, .get_bcopy = state##_get_bcopy,     \
    .get_zcopy = state##_zcopy_pieces, .atomic_post = state##_atomic_post, \
    .atomic_fetch = state##_atomic_fetch, .fence = state##_fence, .key_open = state##_key_open

#endif
