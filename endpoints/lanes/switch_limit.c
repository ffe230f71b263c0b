/*
 * A lane around the one that a sender has just moved to, while the peer may still read the old one.
 * It counts the bytes that the peer must hold back, and refuses more than the limit. A flush covers
 * both lanes, because bytes may still wait in the old one.
 */
#include <base/counters.h>

#include "switch_local.h"
#include <endpoints/core/worker.h>

static struct bound *bound_of(struct lane *lane) {
    return list_of(lane, struct bound, lane);
}

static weft_status_t full_limit(struct bound *b) {
    struct link *link = weft__lane_link(b->raw);
    if (!b->full_at) b->full_at = weft__now(link->worker->reactor);
    return WEFT_NO_RESOURCE;
}

/* A message waits if an earlier one waits, or if it exceeds the limit. */
static inline bool is_full(const struct bound *b, size_t len) {
    return b->full_at || b->bytes + SWITCH_MESSAGE + len > b->most;
}

static inline weft_status_t counted(struct bound *b, weft_status_t st, size_t len) {
    if (st == WEFT_OK || st == WEFT_IN_PROGRESS) b->bytes += SWITCH_MESSAGE + len;
    return st;
}

static weft_status_t am_short(struct lane *l, uint8_t id, uint64_t header, const void *data,
                              size_t len) {
    struct bound *b = bound_of(l);
    if (is_full(b, len + sizeof header)) return full_limit(b);
    return counted(b, b->raw->ops->am_short(b->raw, id, header, data, len), len + sizeof header);
}

struct packing {
    size_t (*pack)(void *to, void *arg);
    void *arg;
    size_t len;
};

static size_t pack_limit(void *to, void *arg) {
    struct packing *p = arg;
    p->len = p->pack(to, p->arg);
    return p->len;
}

/* The length is unknown before packing. */
static weft_status_t am_bcopy(struct lane *l, uint8_t id, size_t (*own_pack)(void *, void *),
                              void *arg) {
    struct bound *b = bound_of(l);
    struct packing p = {own_pack, arg, 0};
    if (is_full(b, 0)) return full_limit(b);
    weft_status_t st = b->raw->ops->am_bcopy(b->raw, id, pack_limit, &p);
    return counted(b, st, p.len);
}

static weft_status_t am_zcopy(struct lane *l, uint8_t id, const struct lane_zcopy *msg,
                              struct completion *completion) {
    struct bound *b = bound_of(l);
    size_t len = msg->header_len;
    for (size_t i = 0; i < msg->n_iov; i++) len += msg->iov[i].len;
    if (is_full(b, len)) return full_limit(b);
    weft_status_t st = b->raw->ops->am_zcopy(b->raw, id, msg, completion);
    return counted(b, st, len);
}

/* If the peer has closed the old lane, it has read the lane to its end. */
static weft_status_t flush_old(struct bound *b, struct completion *completion) {
    completion->count++;
    weft_status_t st = b->old->ops->flush(b->old, completion);
    if (st != WEFT_IN_PROGRESS) completion->count--;
    return weft__switch_has_left(weft__lane_link(b->raw), st) ? WEFT_OK : st;
}

/* The caller has counted one step; a second one is counted if both lanes are IN_PROGRESS. If the
 * old lane has no room, the flush waits for DRAINED. If the new lane has no room, the flush is
 * cancelled, and its owner repeats it (weft__switch_has_left). */
static weft_status_t flush_limit(struct lane *l, struct completion *completion) {
    struct bound *b = bound_of(l);
    weft_status_t st = b->old ? flush_old(b, completion) : WEFT_OK;
    if (st == WEFT_NO_RESOURCE) return full_limit(b);
    if (st < 0) return st;
    weft_status_t also = b->raw->ops->flush(b->raw, completion);
    if (st != WEFT_IN_PROGRESS || also == WEFT_IN_PROGRESS) return also;
    completion->count--;
    if (also == WEFT_NO_RESOURCE) also = WEFT_ERR_CANCELLED;
    if (also < 0 && completion->status == WEFT_OK)
        completion->status = also; /* reported when the old lane completes */
    return WEFT_IN_PROGRESS;
}

/* ---- what waits: for room in the new lane, or, where the limit is reached, for DRAINED. It leaves
 * the new lane's queue then, for DRAINED of this side may stand there behind it */

static weft_status_t retry_waiting(struct pending *raw_pending) {
    struct bound *b = list_of(raw_pending, struct bound, raw_pending);
    while (!b->full_at && pending_queue_retry(&b->waiting)) continue;
    b->waits_for_raw = !b->full_at && pending_queue_waits(&b->waiting);
    return b->waits_for_raw ? WEFT_NO_RESOURCE : WEFT_OK;
}

static void pending_add(struct lane *l, struct pending *pending) {
    struct bound *b = bound_of(l);
    pending_queue_add(&b->waiting, pending);
    if (b->full_at || b->waits_for_raw) return;
    b->waits_for_raw = true;
    b->raw->ops->pending_add(b->raw, &b->raw_pending);
}

static void pending_remove(struct lane *l, struct pending *pending) {
    struct bound *b = bound_of(l);
    pending_queue_remove(&b->waiting, pending);
    if (pending_queue_waits(&b->waiting) || !b->waits_for_raw) return;
    b->waits_for_raw = false;
    b->raw->ops->pending_remove(b->raw, &b->raw_pending);
}

static weft_status_t bulk_get(struct lane *l, uint64_t remote, const weft_iov_t *iov, size_t n_iov,
                              struct completion *completion) {
    struct lane *raw = bound_of(l)->raw;
    return HAS_OP(raw->ops, bulk, bulk_get)
               ? raw->ops->bulk->bulk_get(raw, remote, iov, n_iov, completion)
               : WEFT_ERR_UNSUPPORTED;
}

static weft_status_t fence(struct lane *l) {
    struct lane *raw = bound_of(l)->raw;
    return HAS_OP(raw->ops, rma, fence) ? raw->ops->rma->fence(raw) : WEFT_OK;
}

static weft_status_t key_open(struct lane *l, const struct remote_region *region,
                              const void *packed, size_t len, struct lane_key **key_p) {
    struct lane *raw = bound_of(l)->raw;
    return HAS_OP(raw->ops, rma, key_open)
               ? raw->ops->rma->key_open(raw, region, packed, len, key_p)
               : WEFT_ERR_UNSUPPORTED;
}

static void place_stop(struct lane *l, uint32_t placement) {
    struct lane *raw = bound_of(l)->raw;
    if (raw->ops->place_stop) raw->ops->place_stop(raw, placement);
}

static void reclaim_limit(struct lane *l, const struct completion *completion) {
    const struct bound *b = bound_of(l);
    if (HAS_OP(b->raw->ops, buffer, reclaim)) b->raw->ops->buffer->reclaim(b->raw, completion);
    if (b->old && HAS_OP(b->old->ops, buffer, reclaim))
        b->old->ops->buffer->reclaim(b->old, completion);
}

static void describe_limit(struct lane *l, char *buf, size_t size) {
    struct lane *raw = bound_of(l)->raw;
    raw->ops->describe(raw, buf, size);
}

static const struct lane_buffer_ops bound_buffer_ops = {.reclaim = reclaim_limit};
static const struct lane_bulk_ops bound_bulk_ops = {.bulk_get = bulk_get};
static const struct lane_rma_ops bound_rma_ops = {.fence = fence, .key_open = key_open};
static const struct lane_ops bound_ops = {.am_short = am_short,
                                          .am_bcopy = am_bcopy,
                                          .am_zcopy = am_zcopy,
                                          .flush = flush_limit,
                                          .pending_add = pending_add,
                                          .pending_remove = pending_remove,
                                          .place_stop = place_stop,
                                          .describe = describe_limit,
                                          .buffer = &bound_buffer_ops,
                                          .bulk = &bound_bulk_ops,
                                          .rma = &bound_rma_ops};

void weft__bound_init(struct bound *b, struct link *link, struct lane *raw, struct lane *old) {
    *b = (struct bound){.lane = {.ops = &bound_ops, .iface = raw->iface},
                        .raw = raw,
                        .old = old,
                        .raw_pending = {.retry = retry_waiting},
                        .most =
                            weft__setting_u64(link->worker->context, SETTING_LANES_REORDER_BYTES)};
    weft__lane_set_link(&b->lane, link);
    assert(b->most <= SWITCH_HOLD);
}
