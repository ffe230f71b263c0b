/*
 * The null transport: lanes from an iface to itself. Each lane has an inbox. The sender copies a
 * message into the peer's inbox, and the peer's job passes it to the handler in a later turn.
 * Read it beside docs/transports.md: the order of the parts is the same.
 */
#include "null_transport.h"

#include <string.h>
#include <transports/answering.h>
#include <transports/common.h>
#include <transports/inbox.h>
#include <transports/pending.h>

enum { NULL_DEPTH = 64 /* messages in an inbox */, NULL_BUDGET = 16 /* delivered in a row */ };

struct message {
    struct inbox_message of;
    size_t len;
    uint8_t id;
    uint8_t data[];
};

struct null_lane {
    struct lane lane;
    struct null_lane *peer; /* NULL: one of the two was closed */
    struct inbox inbox;
    bool paused;
    struct pending_queue pending;
    struct job job;
    void (*step)(struct null_lane *lane); /* what the job does next */
};

static const struct lane_ops new_ops, up_ops, down_ops, closed_ops;

static void post(struct null_lane *lane) {
    weft__job_post(lane->lane.iface->reactor, &lane->job);
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* The order is part of the contract: no more sends, the pending queue is purged, then `down`. */
static void go_down(struct null_lane *lane) {
    lane->lane.ops = &down_ops;
    weft__job_drop(lane->lane.iface->reactor, &lane->job);
    pending_queue_init(&lane->pending);
    weft__causes_clear();
    lane->lane.iface->up->down(&lane->lane, WEFT_ERR_PEER_CLOSED);
}

/* There is room in the inbox: senders that wait may retry. A retry may close either lane. */
static void retry_sends(struct null_lane *lane) {
    while (lane->peer && lane->inbox.depth < NULL_DEPTH &&
           pending_queue_retry(&lane->peer->pending))
        continue;
}

/* A handler may close or pause the lane. Closing it empties the inbox. */
static void step_deliver(struct null_lane *lane) {
    for (unsigned n = 0; n < NULL_BUDGET && lane->inbox.first && !lane->paused; n++) {
        struct message *m = (struct message *)inbox_take(&lane->inbox);
        lane_handlers(&lane->lane)[m->id](&lane->lane, m->id, m->data, m->len);
        inbox_done(&lane->inbox);
        talloc_free(m);
    }
    if (lane->lane.ops == &closed_ops) return;
    if (lane->inbox.first && !lane->paused) post(lane);
    if (lane->peer)
        retry_sends(lane);
    else if (!lane->inbox.first)
        go_down(lane);
}

static weft_status_t pause_lane(struct lane *l, bool on) {
    struct null_lane *lane = (struct null_lane *)l;
    lane->paused = on;
    if (!on) post(lane);
    return WEFT_OK;
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Puts a message with room for `len` bytes into the peer's inbox. The caller writes it at once. */
static weft_status_t put_message(struct lane *l, uint8_t id, size_t len, struct message **m_p) {
    struct null_lane *peer = ((struct null_lane *)l)->peer;
    if (!peer) return WEFT_ERR_PEER_CLOSED;
    if (peer->inbox.depth >= NULL_DEPTH) return WEFT_NO_RESOURCE;
    struct message *m = weft__alloc(l->iface, sizeof *m + len, "struct message");
    if (!m) return WEFT_ERR_NO_MEMORY;
    m->id = id;
    m->len = len;
    inbox_put(&peer->inbox, &m->of);
    post(peer);
    *m_p = m;
    return WEFT_OK;
}

static weft_status_t up_bcopy(struct lane *l, uint8_t id, size_t (*pack)(void *to, void *arg),
                              void *arg) {
    struct message *m;
    weft_status_t st = put_message(l, id, l->iface->attr.max_bcopy, &m);
    if (st == WEFT_OK) m->len = pack(m->data, arg);
    return st;
}

/* The pieces are copied, so the answer is OK, and the completion is not used. */
static weft_status_t up_zcopy(struct lane *l, uint8_t id, const void *header, size_t header_len,
                              const weft_iov_t *iov, size_t n_iov, struct completion *completion) {
    struct message *m;
    size_t len;
    weft_status_t st = zcopy_measure(l, header_len, iov, n_iov, &len);
    if (st == WEFT_OK) st = put_message(l, id, header_len + len, &m);
    if (st != WEFT_OK) return st;
    if (header_len) memcpy(m->data, header, header_len);
    weft__iov_gather(m->data + header_len, iov, n_iov, 0, len);
    return WEFT_OK;
}

static weft_status_t up_short(struct lane *l, uint8_t id, uint64_t header, const void *data,
                              size_t len) {
    weft_iov_t piece = {(void *)data, len};
    if (len > l->iface->attr.max_short) return weft__refuse_short(l, len);
    return up_zcopy(l, id, &header, sizeof header, &piece, 1, NULL);
}

/* Messages leave this side within the call that sends them. */
static weft_status_t flush_lane(struct lane *l, struct completion *completion) {
    return WEFT_OK;
}

LANE_PENDING(null_lane)

/* ---- opening and closing --------------------------------------------------------------------- */

static void open_lane(struct null_lane *lane) {
    lane->lane.ops = &up_ops;
    lane->step = step_deliver;
    post(lane);
}

static void step_up(struct null_lane *lane) {
    open_lane(lane);
    lane->lane.iface->up->up(&lane->lane);
    if (lane->peer) retry_sends(lane->peer);
}

/* If the dialer has closed its lane already, the owner never learns of this one. */
static void step_accepted(struct null_lane *lane) {
    if (!lane->peer) {
        weft__free_later(lane->lane.iface->reactor, lane);
        return;
    }
    open_lane(lane);
    lane->lane.iface->up->accepted(&lane->lane, NULL);
}

static void step_closed(struct null_lane *lane) {
    lane->lane.iface->up->closed(&lane->lane);
    weft__free_later(lane->lane.iface->reactor, lane);
}

/* Everything sent is in the peer's inbox: there is nothing to flush. */
static void close_lane(struct lane *l, bool flush) {
    struct null_lane *lane = (struct null_lane *)l, *peer = lane->peer;
    l->ops = &closed_ops;
    lane->step = step_closed;
    post(lane);
    pending_queue_init(&lane->pending);
    for (; lane->inbox.first; inbox_done(&lane->inbox)) talloc_free(inbox_take(&lane->inbox));
    if (!peer) return;
    peer->peer = lane->peer = NULL;
    post(peer);
}

/* One table for each state. A state that cannot send gives one answer to every send. */
LANE_SENDS_ANSWER(new, WEFT_NO_RESOURCE)
LANE_SENDS_ANSWER(down, WEFT_ERR_PEER_CLOSED)
LANE_SENDS_ANSWER(closed, WEFT_ERR_CLOSED)
#define OPS(state) LANE_OPS(state, flush_lane, close_lane, weft__describe_transport)
static const struct lane_ops new_ops = {OPS(new)}, down_ops = {OPS(down)},
                             closed_ops = {OPS(closed)}, up_ops = {OPS(up), .pause = pause_lane};

/* ---- the iface ------------------------------------------------------------------------------- */

static void run_job(struct job *job) {
    struct null_lane *lane = container_of(job, struct null_lane, job);
    lane->step(lane);
}

static struct null_lane *new_lane(struct iface *iface, void (*step)(struct null_lane *)) {
    struct null_lane *lane = weft__new(iface, struct null_lane);
    if (!lane) return NULL;
    lane->lane = (struct lane){.ops = &new_ops, .iface = iface};
    inbox_init(&lane->inbox);
    pending_queue_init(&lane->pending);
    lane->job.run = run_job;
    lane->step = step;
    return lane;
}

/* The accepting lane opens first: a lane that is up has a peer that can receive. */
static weft_status_t connect_iface(struct iface *i, const void *address, size_t len,
                                   struct lane **lane_p) {
    const char *why;
    weft_status_t st = weft__own_reachable(i, address, len, &why);
    if (st < 0) return weft__fail(st, "null: %s", why);
    struct null_lane *dialed = new_lane(i, step_up), *accepted = new_lane(i, step_accepted);
    if (!dialed || !accepted) {
        talloc_free(dialed);
        talloc_free(accepted);
        return WEFT_ERR_NO_MEMORY;
    }
    dialed->peer = accepted;
    accepted->peer = dialed;
    post(accepted);
    post(dialed);
    *lane_p = &dialed->lane;
    return WEFT_OK;
}

static void close_iface(struct iface *i) {
    weft__free_later(i->reactor, i);
}

static const struct iface_ops ops = {.address = weft__own_address,
                                     .reachable = weft__own_reachable,
                                     .connect = connect_iface,
                                     .close = close_iface};

static weft_status_t open_iface(struct reactor *r, const struct iface_params *params,
                                struct iface **iface_p) {
    struct iface *iface = weft__new(r, struct iface);
    if (!iface) return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the null interface");
    iface_init(iface, &ops, &weft__transport_null, "null", r, params);
    iface->attr =
        (struct iface_attr){.caps = CAP_AM_SHORT | CAP_AM_BCOPY | CAP_AM_ZCOPY | CAP_RELIABLE |
                                    CAP_CONNECT_TO_IFACE | CAP_WAKEUP | CAP_PEER_DEATH,
                            .max_short = 504,
                            .max_bcopy = 8192,
                            .max_zcopy = 256 * 1024,
                            .max_zcopy_header = 512,
                            .max_iov = 16,
                            .latency_ns = 100,
                            .bandwidth = 10e9,
                            .overhead_ns = 50};
    *iface_p = iface;
    return WEFT_OK;
}

const struct transport weft__transport_null = {.name = "null", .open = open_iface};
