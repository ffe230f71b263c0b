/* The tables of lane operations by state. */
#include "ops.h"
#include <transports/answering.h>
#include <transports/shm/attach/attach.h>
#include <transports/shm/rma/key.h>

static const struct lane_buffer_ops buffer_ops = {.all_taken = weft__shm_all_taken};
static const struct lane_bulk_ops bulk_ops = {.bulk_get = weft__shm_bulk_get,
                                              .bulk_split = weft__shm_bulk_split,
                                              .bulk_put = weft__shm_bulk_put,
                                              .bulk_put_req = weft__shm_bulk_put_req,
                                              .put_req_stop = weft__shm_put_req_stop};
static const struct lane_rma_ops rma_ops = {.put_short = weft__shm_put_short,
                                            .put_bcopy = weft__shm_put_bcopy,
                                            .put_zcopy = weft__shm_put_zcopy,
                                            .get_bcopy = weft__shm_get_bcopy,
                                            .get_zcopy = weft__shm_get_zcopy,
                                            .atomic_post = weft__shm_atomic_post,
                                            .atomic_fetch = weft__shm_atomic_fetch,
                                            .fence = weft__shm_fence,
                                            .key_open = weft__shm_key_open,
                                            .key_close = weft__shm_key_close,
                                            .exposes = weft__shm_exposes,
                                            .reach = weft__shm_reach};
static const struct lane_conn_ops conn_ops = {.peer_id = weft__shm_peer_id};

/* The fields that a lane by rings and a lane by the mailbox share while they are up. */
#define UP_OPS                                                                          \
    .flush = weft__shm_flush, .pending_add = weft__shm_pending_add,                     \
    .pending_remove = weft__shm_pending_remove, .recv_msg = weft__shm_recv,             \
    .pause = weft__shm_pause, .close = weft__shm_close, .describe = weft__shm_describe, \
    .buffer = &buffer_ops, .bulk = &bulk_ops, .rma = &rma_ops, .conn = &conn_ops

static const struct lane_ops ops_ring = {.am_short = weft__shm_ring_am_short,
                                         .am_short_to = weft__shm_ring_am_short_to,
                                         .am_bcopy = weft__shm_ring_am_bcopy,
                                         .am_zcopy = weft__shm_ring_am_zcopy,
                                         UP_OPS};

static const struct lane_ops ops_mail = {.am_short = weft__shm_mail_am_short,
                                         .am_bcopy = weft__shm_mail_am_bcopy,
                                         .am_zcopy = weft__shm_mail_am_zcopy,
                                         UP_OPS};

/* Lanes that are not up give the same answer to every operation. */
#define ANSWERING(state, answer)                                                                   \
    LANE_ALL_ANSWER(state, answer)                                                                 \
    LANE_RMA_ANSWER(state, answer)                                                                 \
    static const struct lane_bulk_ops state##_bulk_ops = {.bulk_get = state##_bulk_get,            \
                                                          .put_req_stop = weft__shm_put_req_stop}; \
    static const struct lane_rma_ops state##_rma_ops = {LANE_RMA_OPS(state),                       \
                                                        .key_close = weft__shm_key_close};         \
    static const struct lane_ops ops_##state = {.am_short = state##_short,                         \
                                                .am_bcopy = state##_bcopy,                         \
                                                .am_zcopy = state##_zcopy,                         \
                                                .flush = state##_flush,                            \
                                                .pending_add = weft__shm_pending_add,              \
                                                .pending_remove = weft__shm_pending_remove,        \
                                                .recv_msg = weft__shm_recv,                        \
                                                .close = weft__shm_close,                          \
                                                .describe = weft__shm_describe,                    \
                                                .bulk = &state##_bulk_ops,                         \
                                                .rma = &state##_rma_ops};
ANSWERING(dialing, WEFT_NO_RESOURCE)
ANSWERING(down, ((struct shm_lane *)l)->status)
ANSWERING(closed, WEFT_ERR_CLOSED)

const struct shm_lane_ops weft__shm_lane_ops = {.dialing = &ops_dialing,
                                                .ring = &ops_ring,
                                                .mail = &ops_mail,
                                                .down = &ops_down,
                                                .closed = &ops_closed};
