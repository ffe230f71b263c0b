/* A simulated lane's operations, and what its states answer. */
#include "local.h"
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <transports/answering.h>
#include <transports/common.h>

/* ---- resources ------------------------------------------------------------------------------- */

/* Nothing free, or said to be so. */
static bool exhausted(struct sim_lane *lane) {
    struct sim_fabric *f = lane->fabric;
    if (lane->under_way >= f->profile.depth) return true;
    if (!weft__sim_chance(f, SITE_EXHAUSTION, lane->actor, lane->n_tried++, f->profile.exhaustion))
        return false;
    f->stats.exhausted++;
    return true;
}

/* A lane that is full is asked again when something of it has arrived; one that only pretends,
 * after a while. */
static void retry_later(struct sim_lane *lane) {
    struct reactor *r = lane->lane.iface->reactor;
    if (!pending_queue_waits(&lane->pending) || lane->under_way >= lane->fabric->profile.depth)
        return;
    if (weft__timer_running(&lane->retry)) return;
    if (weft__timer_start(r, &lane->retry, weft__now(r) + 1 + lane->fabric->profile.exhaustion_ns) <
        0)
        weft__job_post(r, &lane->job);
}

void weft__sim_retry(struct sim_lane *lane) {
    while (sim_is_up(lane) && pending_queue_retry(&lane->pending)) continue;
    if (sim_is_up(lane)) retry_later(lane);
}

static void pending_add(struct lane *l, struct pending *pending) {
    struct sim_lane *lane = (struct sim_lane *)l;
    pending_queue_add(&lane->pending, pending);
    if (sim_is_up((struct sim_lane *)l)) retry_later(lane);
}

static void pending_remove(struct lane *l, struct pending *pending) {
    pending_queue_remove(&((struct sim_lane *)l)->pending, pending);
}

void weft__sim_purge(struct sim_lane *lane) {
    pending_queue_init(&lane->pending);
}

/* ---- messages -------------------------------------------------------------------------------- */

static weft_status_t message_new(struct sim_lane *lane, uint8_t id, size_t len,
                                 struct sim_packet **p_p) {
    struct sim_packet *p = weft__sim_packet_new(lane->fabric, len);
    if (!p) return WEFT_ERR_NO_MEMORY;
    p->kind = SIM_AM;
    p->id = id;
    *p_p = p;
    return WEFT_OK;
}

static void sim_count(struct sim_lane *lane, size_t bytes) {
    struct counters *count = weft__count(lane->lane.iface->reactor);
    count->sim_messages++;
    count->sim_bytes += bytes;
}

static weft_status_t am_short(struct lane *l, uint8_t id, uint64_t header, const void *data,
                              size_t len) {
    struct sim_lane *lane = (struct sim_lane *)l;
    struct sim_packet *p;
    if (len > l->iface->attr.max_short) return weft__refuse_short(l, len);
    if (exhausted(lane)) return WEFT_NO_RESOURCE;
    weft_status_t st = message_new(lane, id, sizeof header + len, &p);
    if (st < 0) return st;
    memcpy(p->data, &header, sizeof header);
    if (len) memcpy(p->data + sizeof header, data, len);
    sim_count(lane, p->len);
    weft__sim_send(lane, p);
    return WEFT_OK;
}

static weft_status_t am_bcopy(struct lane *l, uint8_t id, size_t (*pack)(void *to, void *arg),
                              void *arg) {
    struct sim_lane *lane = (struct sim_lane *)l;
    struct sim_packet *p;
    if (exhausted(lane)) return WEFT_NO_RESOURCE;
    weft_status_t st = message_new(lane, id, l->iface->attr.max_bcopy, &p);
    if (st < 0) return st;
    p->len = (uint32_t)pack(p->data, arg);
    sim_count(lane, p->len);
    weft__sim_send(lane, p);
    return WEFT_OK;
}

/* A datagram's borrowed memory is read at once and given back by the next turn. */
static weft_status_t zcopy_datagram(struct sim_lane *lane, struct sim_packet *p,
                                    const weft_iov_t *iov, size_t n_iov,
                                    struct completion *completion) {
    struct sim_packet *receipt = weft__sim_packet_new(lane->fabric, 0);
    if (!receipt) {
        weft__sim_packet_free(lane->fabric, p);
        return WEFT_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < n_iov; p->len += (uint32_t)iov[i++].len)
        if (iov[i].len) memcpy(p->data + p->len, iov[i].base, iov[i].len);
    receipt->completion = completion;
    weft__sim_send(lane, p);
    weft__sim_retire(lane, receipt, WEFT_OK);
    return WEFT_IN_PROGRESS;
}

static weft_status_t am_zcopy(struct lane *l, uint8_t id, const struct lane_zcopy *msg,
                              struct completion *completion) {
    struct sim_lane *lane = (struct sim_lane *)l;
    struct sim_packet *p;
    size_t total;
    weft_status_t st = zcopy_measure(l, msg, &total);
    if (st != WEFT_OK) return st;
    if (exhausted(lane)) return WEFT_NO_RESOURCE;
    bool reliable = lane->fabric->profile.reliable;
    st = message_new(lane, id, msg->header_len + (reliable ? 0 : total), &p);
    if (st < 0) return st;
    sim_count(lane, msg->header_len + total);
    if (msg->header_len) memcpy(p->data, msg->header, msg->header_len);
    p->len = (uint32_t)msg->header_len;
    if (!reliable) return zcopy_datagram(lane, p, msg->iov, msg->n_iov, completion);
    if (msg->n_iov) memcpy(p->iov, msg->iov, msg->n_iov * sizeof *msg->iov);
    p->n_iov = (uint16_t)msg->n_iov;
    p->completion = completion;
    weft__sim_send(lane, p);
    return WEFT_IN_PROGRESS;
}

static weft_status_t flush_op(struct lane *l, struct completion *completion) {
    struct sim_lane *lane = (struct sim_lane *)l;
    bool reliable = lane->fabric->profile.reliable;
    if (weft__sim_reads(lane)) return WEFT_NO_RESOURCE;
    if (!lane->first && !lane->finished) return WEFT_OK;
    struct sim_packet *p = weft__sim_packet_new(lane->fabric, 0);
    if (!p) return WEFT_ERR_NO_MEMORY;
    p->kind = SIM_FLUSH;
    p->completion = completion;
    if (reliable && lane->first)
        weft__sim_send(lane, p);
    else {
        lane->under_way += reliable;
        weft__sim_retire(lane, p, WEFT_OK);
    }
    return WEFT_IN_PROGRESS;
}

static void describe_op(struct lane *l, char *buf, size_t size) {
    struct sim_lane *lane = (struct sim_lane *)l;
    snprintf(buf, size, "sim node %u", (unsigned)lane->remote_node);
}

/* It is read on delivery, as memory in flight, and grows until then. */
static weft_status_t am_run(struct lane *l, struct lane_run *run, size_t least, size_t most,
                            struct completion *completion) {
    struct sim_lane *lane = (struct sim_lane *)l;
    struct sim_packet *p;
    weft__sim_take_run(lane);
    if (!run) return WEFT_OK;
    if (exhausted(lane)) return WEFT_NO_RESOURCE;
    weft_status_t st = message_new(lane, 0, 0, &p);
    if (st < 0) return st;
    p->run = true;
    p->iov[0] = (weft_iov_t){run->end, 0};
    p->n_iov = 1;
    p->completion = completion;
    weft__sim_send(lane, p);
    if (most > SIM_RUN) most = least > SIM_RUN ? least : SIM_RUN;
    run->begin = run->end;
    run->limit = run->end + most;
    run->n = 0;
    lane->run = run;
    return WEFT_OK;
}

void weft__sim_take_run(struct sim_lane *lane) {
    struct lane_run *run = lane->run;
    if (!run) return;
    size_t len = (size_t)(run->end - run->begin), bytes = len - run->n * (size_t)LANE_HEAD;
    struct counters *count = weft__count(lane->lane.iface->reactor);
    struct sim_packet *p = container_of(lane->last, struct sim_packet, next);
    count->sim_messages += run->n;
    count->sim_bytes += bytes;
    lane->carried += bytes;
    p->iov[0].len = len;
    run->limit = NULL;
    lane->run = NULL;
}

/* ---- the same operations in other states ----------------------------------------------------- */

LANE_SENDS_ANSWER(idle, WEFT_NO_RESOURCE)
LANE_SENDS_ANSWER(broken, ((const struct sim_lane *)l)->why)
LANE_SENDS_ANSWER(closed, WEFT_ERR_CLOSED)
LANE_RUN_ANSWERS(idle, WEFT_NO_RESOURCE)
LANE_RUN_ANSWERS(broken, ((const struct sim_lane *)l)->why)
LANE_RUN_ANSWERS(closed, WEFT_ERR_CLOSED)

static weft_status_t broken_flush(struct lane *l, struct completion *completion) {
    return ((const struct sim_lane *)l)->why;
}
static weft_status_t closed_flush(struct lane *l, struct completion *completion) {
    return WEFT_ERR_CLOSED;
}

static weft_status_t no_connect(struct lane *l, const void *address, size_t len) {
    return weft__fail(WEFT_ERR_BUSY, "this sim lane was connected before");
}

static weft_status_t no_key(struct lane *l, const struct remote_region *region, const void *packed,
                            size_t len, struct lane_key **key_p) {
    return WEFT_NO_RESOURCE;
}
static bool exposes_nothing(struct lane *l, const struct md_mem *mem, unsigned right) {
    return false;
}

static const struct lane_buffer_ops idle_buffer_ops = {.am_run = idle_run},
                                    up_buffer_ops = {.am_run = am_run},
                                    broken_buffer_ops = {.am_run = broken_run},
                                    closed_buffer_ops = {.am_run = closed_run};
static const struct lane_conn_ops idle_conn_ops = {.address = weft__sim_lane_address,
                                                   .connect = weft__sim_lane_connect},
                                  conn_ops = {.address = weft__sim_lane_address,
                                              .connect = no_connect};
/* A key serves no one-sided operation: they go by message. */
static const struct lane_rma_ops up_rma_ops = {.key_open = weft__sim_key_open,
                                               .key_close = weft__sim_key_close,
                                               .exposes = weft__sim_exposes},
                                 no_rma_ops = {.key_open = no_key,
                                               .key_close = weft__sim_key_close,
                                               .exposes = exposes_nothing};
static const struct lane_bulk_ops up_bulk_ops = {.bulk_get = weft__sim_bulk_get,
                                                 .bulk_split = weft__sim_bulk_split,
                                                 .bulk_put = weft__sim_bulk_put,
                                                 .bulk_put_req = weft__sim_bulk_put_req,
                                                 .put_req_stop = weft__sim_put_req_stop},
                                  no_bulk_ops = {.put_req_stop = weft__sim_put_req_stop};

#define OPS(short_, bcopy, zcopy, flush_, buffer_, conn_, bulk_, rma_)                         \
    {                                                                                          \
        .am_short = short_, .am_bcopy = bcopy, .am_zcopy = zcopy, .flush = flush_,             \
        .pending_add = pending_add, .pending_remove = pending_remove, .recv_msg = lane_recv,   \
        .place_stop = weft__sim_place_stop, .close = weft__sim_close, .describe = describe_op, \
        .buffer = buffer_, .conn = conn_, .bulk = bulk_, .rma = rma_                           \
    }
/* of a network without exposed memory, and of one with it */
#define BOTH(short_, bcopy, zcopy, flush_, buffer_, conn_, bulk_, rma_)    \
    {                                                                      \
        OPS(short_, bcopy, zcopy, flush_, buffer_, conn_, NULL, NULL),     \
            OPS(short_, bcopy, zcopy, flush_, buffer_, conn_, bulk_, rma_) \
    }
const struct lane_ops weft__sim_ops_idle[] =
    BOTH(idle_short, idle_bcopy, idle_zcopy, flush_op, &idle_buffer_ops, &idle_conn_ops,
         &no_bulk_ops, &no_rma_ops);
const struct lane_ops weft__sim_ops_up[] = BOTH(
    am_short, am_bcopy, am_zcopy, flush_op, &up_buffer_ops, &conn_ops, &up_bulk_ops, &up_rma_ops);
const struct lane_ops weft__sim_ops_broken[] =
    BOTH(broken_short, broken_bcopy, broken_zcopy, broken_flush, &broken_buffer_ops, &conn_ops,
         &no_bulk_ops, &no_rma_ops);
const struct lane_ops weft__sim_ops_closed[] =
    BOTH(closed_short, closed_bcopy, closed_zcopy, closed_flush, &closed_buffer_ops, &conn_ops,
         &no_bulk_ops, &no_rma_ops);
