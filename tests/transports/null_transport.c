/*
 * The null transport: lanes from an iface to itself. Each lane has an inbox. The sender copies a
 * message into the peer's inbox, and the peer's job passes it to the handler in a later turn.
 * Read it beside docs/transports.md.
 */
#include <string.h>
#include <transports/answering.h>
#include <transports/common.h>
#include <transports/pair.h>

enum { NULL_DEPTH = 64 /* messages in an inbox */, NULL_BUDGET = 16 /* delivered in a row */ };

struct message {
    struct inbox_message of;
    size_t len;
    uint8_t id, data[];
};

struct null_lane {
    struct pair_lane pair; /* its inbox: what the peer sent; its job opens, delivers, then closes */
    bool paused;
};

extern const struct transport weft__transport_null;
static const struct lane_ops new_ops, up_ops, down_ops, closed_ops;

/* ---- receiving ------------------------------------------------------------------------------- */

/* The order is part of the contract: no more sends, the pending queue is purged, then `down`. */
static void go_down(struct pair_lane *pair) {
    pair->lane.ops = &down_ops;
    weft__job_drop(pair->lane.iface->reactor, &pair->job);
    pending_queue_init(&pair->pending);
    weft__causes_clear();
    pair->lane.iface->up->down(&pair->lane, WEFT_ERR_PEER_CLOSED);
}

/* A handler may close or pause the lane. Closing it empties the inbox. Where there is room in the
 * inbox then, the peer's senders that wait may retry. */
static void deliver(struct job *job) {
    struct pair_lane *pair = pair_of_job(job);
    struct null_lane *lane = (struct null_lane *)pair;
    for (unsigned n = 0; n < NULL_BUDGET && pair->inbox.first && !lane->paused; n++) {
        struct message *m = (struct message *)inbox_take(&pair->inbox);
        lane_handlers(&pair->lane)[m->id](&pair->lane, m->id, m->data, m->len);
        inbox_done(&pair->inbox);
        talloc_free(m);
    }
    if (pair->lane.ops == &closed_ops) return;
    if (pair->inbox.first && !lane->paused) pair_post(pair);
    if (pair->peer)
        pair_retry(&pair->inbox, NULL_DEPTH, &pair->peer->pending);
    else if (!pair->inbox.first)
        go_down(pair);
}

static weft_status_t pause_lane(struct lane *l, bool on) {
    ((struct null_lane *)l)->paused = on;
    if (!on) pair_post((struct pair_lane *)l);
    return WEFT_OK;
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Puts a message with room for `len` bytes into the peer's inbox. The caller writes it at once. */
static weft_status_t put_message(struct lane *l, uint8_t id, size_t len, struct message **m_p) {
    struct pair_lane *peer = ((struct pair_lane *)l)->peer;
    if (!peer) return WEFT_ERR_PEER_CLOSED;
    if (peer->inbox.depth >= NULL_DEPTH) return WEFT_NO_RESOURCE;
    struct message *m = weft__alloc(l->iface, sizeof *m + len, "struct message");
    if (!m) return WEFT_ERR_NO_MEMORY;
    m->id = id;
    m->len = len;
    inbox_put(&peer->inbox, &m->of);
    pair_post(peer);
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
static weft_status_t up_zcopy(struct lane *l, uint8_t id, const struct lane_zcopy *msg,
                              struct completion *completion) {
    struct message *m;
    size_t len;
    weft_status_t st = zcopy_measure(l, msg, &len);
    if (st == WEFT_OK) st = put_message(l, id, msg->header_len + len, &m);
    if (st != WEFT_OK) return st;
    if (msg->header_len) memcpy(m->data, msg->header, msg->header_len);
    weft__iov_gather(m->data + msg->header_len, msg->iov, msg->n_iov, 0, len);
    return WEFT_OK;
}

static weft_status_t up_short(struct lane *l, uint8_t id, uint64_t header, const void *data,
                              size_t len) {
    weft_iov_t piece = {(void *)data, len};
    if (len > l->iface->attr.max_short) return weft__refuse_short(l, len);
    return up_zcopy(l, id, &(struct lane_zcopy){&header, sizeof header, &piece, 1}, NULL);
}

/* Messages leave this side within the call that sends them. */
static weft_status_t flush_lane(struct lane *l, struct completion *completion) {
    return WEFT_OK;
}

/* ---- opening and closing --------------------------------------------------------------------- */

/* If the dialer has closed its lane already, the owner never learns of the accepting one. */
static void open_lane(struct job *job) {
    struct pair_lane *pair = pair_of_job(job);
    if (!pair->peer && !pair->dialed) {
        weft__free_later(pair->lane.iface->reactor, pair);
        return;
    }
    pair->lane.ops = &up_ops;
    pair->job.run = deliver;
    pair_post(pair);
    pair_announce(pair);
    if (pair->peer) pair_post(pair->peer); /* it has room for what waits here */
}

static void end_lane(struct job *job) {
    struct pair_lane *pair = pair_of_job(job);
    pair->lane.iface->up->closed(&pair->lane);
    weft__free_later(pair->lane.iface->reactor, pair);
}

/* Everything sent is in the peer's inbox: there is nothing to flush. */
static void close_lane(struct lane *l, bool flush) {
    struct pair_lane *pair = (struct pair_lane *)l, *peer = pair->peer;
    l->ops = &closed_ops;
    pair->job.run = end_lane;
    pair_post(pair);
    pending_queue_init(&pair->pending);
    for (; pair->inbox.first; inbox_done(&pair->inbox)) talloc_free(inbox_take(&pair->inbox));
    if (!peer) return;
    peer->peer = pair->peer = NULL;
    pair_post(peer);
}

/* One table for each state. A state that cannot send gives one answer to every send. */
LANE_PENDING(pair_lane)
LANE_SENDS_ANSWER(new, WEFT_NO_RESOURCE)
LANE_SENDS_ANSWER(down, WEFT_ERR_PEER_CLOSED)
LANE_SENDS_ANSWER(closed, WEFT_ERR_CLOSED)
#define OPS(state) LANE_OPS(state, flush_lane, close_lane, weft__describe_transport)
static const struct lane_ops new_ops = {OPS(new)}, down_ops = {OPS(down)},
                             closed_ops = {OPS(closed)}, up_ops = {OPS(up), .pause = pause_lane};

/* ---- the iface ------------------------------------------------------------------------------- */

static weft_status_t connect_iface(struct iface *i, const void *address, size_t len,
                                   struct lane **lane_p) {
    struct pair_lane *dialed;
    weft_status_t st = weft__own_check(i, address, len);
    if (st < 0) return st;
    st = weft__pair_new(i, sizeof(struct null_lane), &new_ops, open_lane, NULL, &dialed);
    if (st == WEFT_OK) *lane_p = &dialed->lane;
    return st;
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
