/* The message operations of a lane, and its tables of operations by state. */
#include "rc.h"

#include <arpa/inet.h>
#include <base/compiler.h>
#include <transports/answering.h>
#include <transports/common.h>

static void count_send(struct rc_lane *lane, size_t len, uint32_t credits) {
    struct counters *c = rc_count(lane);
    c->rdma_messages++;
    c->rdma_bytes += len;
    lane->bytes += len;
    lane->credit -= (int32_t)credits;
}

static bool may_send(const struct rc_lane *lane) {
    return rc_has_room(lane, RC_KEEP) && lane->credit > 0;
}

static void send_message(struct rc_lane *lane, uint8_t id, struct ibv_sge *sge, int n_sge,
                         unsigned flags, const struct rc_work *work) {
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND_WITH_IMM,
                             .imm_data = htonl(id),
                             .sg_list = sge,
                             .num_sge = n_sge,
                             .send_flags = flags};
    weft__rc_post(lane, &wr, work, work->op != NULL);
}

/* A block, and a place for its request. */
static struct rd_block *take_block(struct rc_lane *lane, weft_status_t *st_p) {
    *st_p = WEFT_NO_RESOURCE;
    return may_send(lane) ? weft__rd_pool_take(&rc_iface_of(lane)->send, st_p) : NULL;
}

static inline void put_short(uint8_t *to, uint64_t header, const void *data, size_t len) {
    memcpy(to, &header, 8);
    if (len == 8) /* most are a word: a call costs more */
        memcpy(to + 8, data, 8);
    else if (len)
        memcpy(to + 8, data, len);
}

/* Where the device takes fewer bytes inline. */
static __attribute__((noinline)) weft_status_t
short_by_block(struct rc_lane *lane, uint8_t id, uint64_t header, const void *data, size_t len) {
    weft_status_t st;
    struct rd_block *block = take_block(lane, &st);
    if (!block) return st;
    struct ibv_sge sge = {(uintptr_t)block->bytes, (uint32_t)(8 + len), block->lkey};
    put_short(block->bytes, header, data, len);
    count_send(lane, len, rc_cost(len));
    send_message(lane, id, &sge, 1, 0, &(struct rc_work){.block = block});
    return WEFT_OK;
}

static weft_status_t am_short(struct lane *l, uint8_t id, uint64_t header, const void *data,
                              size_t len) {
    struct rc_lane *lane = rc_lane(l);
    struct rc_iface *iface = rc_iface_of(lane);
    uint8_t bytes[8 + RC_INLINE];
    if (len > l->iface->attr.max_short) return weft__refuse_short(l, len);
    if (!may_send(lane)) return WEFT_NO_RESOURCE;
    if (UNLIKELY(8 + len > iface->max_inline)) return short_by_block(lane, id, header, data, len);
    put_short(bytes, header, data, len);
    count_send(lane, len, 1);
    iface->brief_piece.addr = (uintptr_t)bytes;
    iface->brief_piece.length = (uint32_t)(8 + len);
    iface->brief.imm_data = htonl(id);
    iface->brief.send_flags = IBV_SEND_INLINE;
    weft__rc_post(lane, &iface->brief, NULL, false);
    return WEFT_OK;
}

static weft_status_t am_bcopy(struct lane *l, uint8_t id, size_t (*pack)(void *to, void *arg),
                              void *arg) {
    struct rc_lane *lane = rc_lane(l);
    weft_status_t st;
    struct rc_work work = {.block = take_block(lane, &st)};
    if (!work.block) return st;
    size_t len = pack(work.block->bytes, arg);
    struct ibv_sge sge = {(uintptr_t)work.block->bytes, (uint32_t)len, work.block->lkey};
    count_send(lane, len, rc_cost(len));
    send_message(lane, id, &sge, len > 0, 0, &work);
    return WEFT_OK;
}

static weft_status_t copied(struct rc_lane *lane, uint8_t id, struct rd_block *block, size_t len,
                            const weft_iov_t *iov, size_t n_iov) {
    for (size_t i = 0; i < n_iov; len += iov[i++].len)
        if (iov[i].len) memcpy(block->bytes + len, iov[i].base, iov[i].len);
    struct ibv_sge sge = {(uintptr_t)block->bytes, (uint32_t)len, block->lkey};
    count_send(lane, len, rc_cost(len));
    send_message(lane, id, &sge, len > 0, 0, &(struct rc_work){.block = block});
    return WEFT_OK;
}

static weft_status_t in_flight(struct rc_lane *lane, uint8_t id, struct rd_block *block,
                               const struct lane_zcopy *msg, struct completion *completion) {
    const weft_iov_t *iov = msg->iov;
    struct rc_op *op = weft__slab_take(&rc_iface_of(lane)->op_slab);
    struct ibv_sge sge[1 + RC_IOV];
    int n = 0;
    size_t len = msg->header_len;
    if (!op) {
        rd_pool_put(&rc_iface_of(lane)->send, block);
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for an operation");
    }
    op->block = block;
    op->completion = completion;
    if (msg->header_len)
        sge[n++] =
            (struct ibv_sge){(uintptr_t)block->bytes, (uint32_t)msg->header_len, block->lkey};
    for (size_t i = 0; i < msg->n_iov; len += iov[i++].len) {
        uint32_t lkey;
        if (iov[i].len == 0) continue;
        weft_status_t st = weft__rc_local_key(lane, op, iov[i].base, iov[i].len, false, &lkey);
        if (st < 0) {
            weft__rc_op_free(lane, op);
            return st;
        }
        sge[n++] = (struct ibv_sge){(uintptr_t)iov[i].base, (uint32_t)iov[i].len, lkey};
    }
    count_send(lane, len, rc_cost(len));
    send_message(lane, id, sge, n, 0, &(struct rc_work){.op = op});
    return WEFT_IN_PROGRESS;
}

static weft_status_t am_zcopy(struct lane *l, uint8_t id, const struct lane_zcopy *msg,
                              struct completion *completion) {
    struct rc_lane *lane = rc_lane(l);
    const struct iface_attr *attr = &l->iface->attr;
    size_t payload = 0;
    if (msg->n_iov > attr->max_iov || msg->header_len > attr->max_zcopy_header)
        return weft__fail(WEFT_ERR_TOO_BIG, "am_zcopy of %zu pieces and %zu bytes of header",
                          msg->n_iov, msg->header_len);
    for (size_t i = 0; i < msg->n_iov; i++) {
        if (msg->iov[i].len > attr->max_zcopy - payload)
            return weft__fail(WEFT_ERR_TOO_BIG, "payload beyond max_zcopy");
        payload += msg->iov[i].len;
    }
    weft_status_t st;
    struct rd_block *block = take_block(lane, &st);
    if (!block) return st;
    if (msg->header_len) memcpy(block->bytes, msg->header, msg->header_len);
    if (payload <= RC_COPY_BELOW)
        return copied(lane, id, block, msg->header_len, msg->iov, msg->n_iov);
    return in_flight(lane, id, block, msg, completion);
}

static weft_status_t flush_send(struct lane *l, struct completion *completion) {
    struct rc_lane *lane = rc_lane(l);
    if (lane->posted == lane->done) return WEFT_OK;
    if (!rc_has_room(lane, RC_KEEP)) return WEFT_NO_RESOURCE;
    lane->fence = true;
    weft__rc_post_nothing(lane, &(struct rc_work){.completion = completion});
    return WEFT_IN_PROGRESS;
}

/* A flush waits: requests without a completion are followed by one that has it. */
static void hurry(struct rc_lane *lane) {
    if (lane->unsignalled && lane->posted != lane->done && rc_has_room(lane, RC_KEEP))
        weft__rc_post_nothing(lane, &(struct rc_work){.what = RC_PLAIN});
}

static void pending_add(struct lane *l, struct pending *p) {
    struct rc_lane *lane = rc_lane(l);
    pending_queue_add(&lane->pending, p);
    if (l->ops != &weft__rc_ops_open) return;
    hurry(lane);
    if (lane->posted == lane->done) weft__rc_lane_todo(lane, RC_TODO_RETRY);
}

static void pending_remove(struct lane *l, struct pending *p) {
    pending_queue_remove(&rc_lane(l)->pending, p);
}

/* ---- the tables: not up yet, up, ended ------------------------------------------------------- */

LANE_SENDS_ANSWER(early, WEFT_NO_RESOURCE)
LANE_RMA_ANSWER(early, WEFT_NO_RESOURCE)
static weft_status_t early_flush(struct lane *l, struct completion *completion) {
    return WEFT_OK;
}

static weft_status_t rc_ended(struct lane *l) {
    weft_status_t why = rc_lane(l)->why;
    return weft__fail(why ? why : WEFT_ERR_CLOSED, "the connection has ended");
}
LANE_SENDS_ANSWER(ended, rc_ended(l))
LANE_RMA_ANSWER(ended, rc_ended(l))
static weft_status_t ended_flush(struct lane *l, struct completion *completion) {
    return rc_ended(l);
}

static const struct lane_rma_ops early_rma_ops = {LANE_RMA_OPS(early),
                                                  .key_close = weft__rc_key_close};
static const struct lane_rma_ops open_rma_ops = {.put_short = weft__rc_put_short,
                                                 .put_bcopy = weft__rc_put_bcopy,
                                                 .put_zcopy = weft__rc_put_zcopy,
                                                 .get_bcopy = weft__rc_get_bcopy,
                                                 .get_zcopy = weft__rc_get_zcopy,
                                                 .atomic_post = weft__rc_atomic_post,
                                                 .atomic_fetch = weft__rc_atomic_fetch,
                                                 .fence = weft__rc_fence,
                                                 .key_open = weft__rc_key_open,
                                                 .key_close = weft__rc_key_close};
static const struct lane_rma_ops ended_rma_ops = {LANE_RMA_OPS(ended),
                                                  .key_close = weft__rc_key_close};
static const struct lane_conn_ops conn_ops = {.address = weft__rc_lane_address,
                                              .connect = weft__rc_lane_connect,
                                              .peer_id = weft__rc_lane_peer_id};

#define ALWAYS                                                                           \
    .pending_add = pending_add, .pending_remove = pending_remove, .recv_msg = lane_recv, \
    .close = weft__rc_lane_close, .describe = weft__rc_lane_describe, .conn = &conn_ops

const struct lane_ops weft__rc_ops_early = {.am_short = early_short,
                                            .am_bcopy = early_bcopy,
                                            .am_zcopy = early_zcopy,
                                            .flush = early_flush,
                                            .rma = &early_rma_ops,
                                            ALWAYS};
const struct lane_ops weft__rc_ops_open = {.am_short = am_short,
                                           .am_bcopy = am_bcopy,
                                           .am_zcopy = am_zcopy,
                                           .flush = flush_send,
                                           .pause = weft__rc_pause,
                                           .rma = &open_rma_ops,
                                           ALWAYS};
const struct lane_ops weft__rc_ops_ended = {.am_short = ended_short,
                                            .am_bcopy = ended_bcopy,
                                            .am_zcopy = ended_zcopy,
                                            .flush = ended_flush,
                                            .rma = &ended_rma_ops,
                                            ALWAYS};
