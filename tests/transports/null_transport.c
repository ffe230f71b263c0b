/*
 * The null transport: lanes from an iface to itself. Each lane has an inbox. The sender copies a
 * message into the peer's inbox, and the peer's job passes it to the handler in a later turn.
 * Read it beside docs/transports.md: the order of the parts is the same.
 */
#include "null_transport.h"

#include <base/compiler.h>
#include <stdio.h>
#include <string.h>
#include <transports/answering.h>
#include <transports/iov.h>
#include <transports/pending.h>

enum {
    NULL_DEPTH = 64,  /* messages in an inbox */
    NULL_BUDGET = 16, /* messages that one run of the job delivers */
    NULL_SHORT = 504,
    NULL_BCOPY = 8192,
    NULL_ZCOPY = 256 * 1024,
    NULL_HEADER = 512,
    NULL_IOV = 16,
    NULL_ADDRESS = 9 /* a letter, and the worker's id */
};

struct null_lane;
struct message {
    struct message *next;
    void (*take)(struct null_lane *lane, const struct message *m);
    size_t len;
    uint8_t id;
    uint8_t data[];
};

struct null_iface {
    struct iface iface;
    uint64_t worker_id;
};

struct null_lane {
    struct lane lane;
    struct null_lane *peer; /* NULL: one of the two was closed */
    struct message *inbox, **inbox_end;
    unsigned depth;
    bool paused;
    struct pending_queue pending;
    struct job job;
    void (*step)(struct null_lane *lane); /* what the job does next */
    struct message fin;                   /* the last message in the inbox: the peer was closed */
};

static const struct lane_ops new_ops, up_ops, down_ops, closed_ops;

static struct null_lane *null_lane(struct lane *l) {
    return container_of(l, struct null_lane, lane);
}
static struct reactor *reactor_of(struct null_lane *lane) {
    return lane->lane.iface->reactor;
}

/* ---- receiving ------------------------------------------------------------------------------ */

static void push_message(struct null_lane *to, struct message *m) {
    m->next = NULL;
    *to->inbox_end = m;
    to->inbox_end = &m->next;
    to->depth++;
    weft__job_post(reactor_of(to), &to->job);
}

static struct message *pop_message(struct null_lane *lane) {
    struct message *m = lane->inbox;
    lane->inbox = m->next;
    if (!lane->inbox) lane->inbox_end = &lane->inbox;
    lane->depth--;
    return m;
}

static void free_message(struct null_lane *lane, struct message *m) {
    if (m != &lane->fin) talloc_free(m);
}

static void take_message(struct null_lane *lane, const struct message *m) {
    lane_handlers(&lane->lane)[m->id](&lane->lane, m->id, m->data, m->len);
}

/* The order is part of the contract: no more sends, the pending queue is purged, then `down`. */
static void take_fin(struct null_lane *lane, const struct message *m) {
    lane->lane.ops = &down_ops;
    pending_queue_init(&lane->pending);
    weft__causes_clear();
    lane->lane.iface->up->down(&lane->lane, WEFT_ERR_PEER_CLOSED);
}

/* There is room in the inbox: senders that wait may retry. A retry may close either lane. */
static void retry_sends(struct null_lane *lane) {
    while (lane->peer && lane->depth < NULL_DEPTH && pending_queue_retry(&lane->peer->pending))
        continue;
}

/* A handler may close or pause the lane: the first empties the inbox. */
static void step_deliver(struct null_lane *lane) {
    for (unsigned n = 0; n < NULL_BUDGET && lane->inbox && !lane->paused; n++) {
        struct message *m = pop_message(lane);
        m->take(lane, m);
        free_message(lane, m);
    }
    retry_sends(lane);
    if (lane->inbox && !lane->paused) weft__job_post(reactor_of(lane), &lane->job);
}

static weft_status_t pause_lane(struct lane *l, bool on) {
    struct null_lane *lane = null_lane(l);
    lane->paused = on;
    if (!on) weft__job_post(reactor_of(lane), &lane->job);
    return WEFT_OK;
}

/* ---- sending --------------------------------------------------------------------------------- */

/* A message with room for `len` bytes, or why there is none. */
static weft_status_t new_message(struct null_lane *lane, uint8_t id, size_t len,
                                 struct message **m_p) {
    if (!lane->peer) return WEFT_ERR_PEER_CLOSED;
    if (lane->peer->depth >= NULL_DEPTH) return WEFT_NO_RESOURCE;
    struct message *m = weft__alloc(lane->lane.iface, sizeof *m + len, "struct message");
    if (!m) return WEFT_ERR_NO_MEMORY;
    *m = (struct message){.take = take_message, .id = id, .len = len};
    *m_p = m;
    return WEFT_OK;
}

static weft_status_t am_short(struct lane *l, uint8_t id, uint64_t header, const void *data,
                              size_t len) {
    struct message *m;
    if (len > NULL_SHORT) return weft__fail(WEFT_ERR_TOO_BIG, "am_short of %zu bytes", len);
    weft_status_t st = new_message(null_lane(l), id, sizeof header + len, &m);
    if (st != WEFT_OK) return st;
    memcpy(m->data, &header, sizeof header);
    if (len) memcpy(m->data + sizeof header, data, len);
    push_message(null_lane(l)->peer, m);
    return WEFT_OK;
}

static weft_status_t am_bcopy(struct lane *l, uint8_t id, size_t (*pack)(void *to, void *arg),
                              void *arg) {
    struct message *m;
    weft_status_t st = new_message(null_lane(l), id, NULL_BCOPY, &m);
    if (st != WEFT_OK) return st;
    m->len = pack(m->data, arg);
    push_message(null_lane(l)->peer, m);
    return WEFT_OK;
}

/* The pieces are copied, so the answer is OK, and the completion is not used. */
static weft_status_t am_zcopy(struct lane *l, uint8_t id, const void *header, size_t header_len,
                              const weft_iov_t *iov, size_t n_iov, struct completion *completion) {
    struct message *m;
    size_t len = weft__iov_len(iov, n_iov);
    if (header_len > NULL_HEADER || n_iov > NULL_IOV || len > NULL_ZCOPY)
        return weft__fail(WEFT_ERR_TOO_BIG, "am_zcopy of %zu + %zu bytes in %zu pieces", header_len,
                          len, n_iov);
    weft_status_t st = new_message(null_lane(l), id, header_len + len, &m);
    if (st != WEFT_OK) return st;
    if (header_len) memcpy(m->data, header, header_len);
    weft__iov_gather(m->data + header_len, iov, n_iov, 0, len);
    push_message(null_lane(l)->peer, m);
    return WEFT_OK;
}

/* Messages leave this side within the call that sends them. */
static weft_status_t flush_lane(struct lane *l, struct completion *completion) {
    return WEFT_OK;
}

static void pending_add(struct lane *l, struct pending *pending) {
    pending_queue_add(&null_lane(l)->pending, pending);
}
static void pending_remove(struct lane *l, struct pending *pending) {
    pending_queue_remove(&null_lane(l)->pending, pending);
}

/* ---- opening and closing --------------------------------------------------------------------- */

static void open_lane(struct null_lane *lane) {
    lane->lane.ops = &up_ops;
    lane->step = step_deliver;
    if (lane->inbox) weft__job_post(reactor_of(lane), &lane->job);
}

static void step_up(struct null_lane *lane) {
    open_lane(lane);
    lane->lane.iface->up->up(&lane->lane);
    if (lane->peer) retry_sends(lane->peer);
}

/* If the dialer has closed its lane already, the owner never learns of this one. */
static void step_accepted(struct null_lane *lane) {
    if (!lane->peer) {
        weft__free_later(reactor_of(lane), lane);
        return;
    }
    open_lane(lane);
    lane->lane.iface->up->accepted(&lane->lane, NULL);
}

static void step_closed(struct null_lane *lane) {
    lane->lane.iface->up->closed(&lane->lane);
    weft__free_later(reactor_of(lane), lane);
}

/* Everything sent is in the peer's inbox: there is nothing to flush. */
static void close_lane(struct lane *l, bool flush) {
    struct null_lane *lane = null_lane(l);
    lane->lane.ops = &closed_ops;
    lane->step = step_closed;
    pending_queue_init(&lane->pending);
    while (lane->inbox) free_message(lane, pop_message(lane));
    if (lane->peer) {
        lane->peer->peer = NULL;
        push_message(lane->peer, &lane->peer->fin);
        lane->peer = NULL;
    }
    weft__job_post(reactor_of(lane), &lane->job);
}

static void describe_lane(struct lane *l, char *buf, size_t size) {
    snprintf(buf, size, "null");
}

/* One table for each state. A state that cannot send gives one answer to every send. */
LANE_SENDS_ANSWER(new, WEFT_NO_RESOURCE)
LANE_SENDS_ANSWER(down, WEFT_ERR_PEER_CLOSED)
LANE_SENDS_ANSWER(closed, WEFT_ERR_CLOSED)
#define OPS(short_, bcopy, zcopy)                                                        \
    .am_short = short_, .am_bcopy = bcopy, .am_zcopy = zcopy, .flush = flush_lane,       \
    .pending_add = pending_add, .pending_remove = pending_remove, .recv_msg = lane_recv, \
    .close = close_lane, .describe = describe_lane
static const struct lane_ops new_ops = {OPS(new_short, new_bcopy, new_zcopy)};
static const struct lane_ops up_ops = {OPS(am_short, am_bcopy, am_zcopy), .pause = pause_lane};
static const struct lane_ops down_ops = {OPS(down_short, down_bcopy, down_zcopy)};
static const struct lane_ops closed_ops = {OPS(closed_short, closed_bcopy, closed_zcopy)};

/* ---- the iface ------------------------------------------------------------------------------- */

static void run_job(struct job *job) {
    struct null_lane *lane = container_of(job, struct null_lane, job);
    lane->step(lane);
}

static struct null_lane *new_lane(struct iface *iface, void (*step)(struct null_lane *)) {
    struct null_lane *lane = weft__new(iface, struct null_lane);
    if (!lane) return NULL;
    lane->lane = (struct lane){.ops = &new_ops, .iface = iface};
    lane->inbox_end = &lane->inbox;
    lane->fin.take = take_fin;
    pending_queue_init(&lane->pending);
    lane->job.run = run_job;
    lane->step = step;
    return lane;
}

static weft_status_t own_address(struct iface *i, void *buf, size_t *len_p) {
    if (*len_p < NULL_ADDRESS) return weft__fail(WEFT_ERR_TRUNCATED, "no room for a null address");
    *(char *)buf = 'N';
    memcpy((char *)buf + 1, &container_of(i, struct null_iface, iface)->worker_id, 8);
    *len_p = NULL_ADDRESS;
    return WEFT_OK;
}

static weft_status_t reachable(struct iface *i, const void *address, size_t len,
                               const char **why_p) {
    char own[NULL_ADDRESS];
    size_t own_len = sizeof own;
    own_address(i, own, &own_len);
    *why_p = "not the address of this iface";
    return len == own_len && memcmp(address, own, len) == 0 ? WEFT_OK : WEFT_ERR_UNREACHABLE;
}

/* The accepting lane opens first: a lane that is up has a peer that can receive. */
static weft_status_t connect_iface(struct iface *i, const void *address, size_t len,
                                   struct lane **lane_p) {
    const char *why;
    if (reachable(i, address, len, &why) < 0)
        return weft__fail(WEFT_ERR_UNREACHABLE, "null: %s", why);
    struct null_lane *dialed = new_lane(i, step_up), *accepted = new_lane(i, step_accepted);
    if (!dialed || !accepted) {
        talloc_free(dialed);
        talloc_free(accepted);
        return WEFT_ERR_NO_MEMORY;
    }
    dialed->peer = accepted;
    accepted->peer = dialed;
    weft__job_post(i->reactor, &accepted->job);
    weft__job_post(i->reactor, &dialed->job);
    *lane_p = &dialed->lane;
    return WEFT_OK;
}

static void close_iface(struct iface *i) {
    weft__free_later(i->reactor, container_of(i, struct null_iface, iface));
}

static const struct iface_ops ops = {
    .address = own_address, .reachable = reachable, .connect = connect_iface, .close = close_iface};

static const struct iface_attr attr = {.caps = CAP_AM_SHORT | CAP_AM_BCOPY | CAP_AM_ZCOPY |
                                               CAP_RELIABLE | CAP_CONNECT_TO_IFACE | CAP_WAKEUP |
                                               CAP_PEER_DEATH,
                                       .max_short = NULL_SHORT,
                                       .max_bcopy = NULL_BCOPY,
                                       .max_zcopy = NULL_ZCOPY,
                                       .max_zcopy_header = NULL_HEADER,
                                       .max_iov = NULL_IOV,
                                       .latency_ns = 100,
                                       .bandwidth = 10e9,
                                       .overhead_ns = 50};

static weft_status_t open_iface(struct reactor *r, const struct iface_params *params,
                                struct iface **iface_p) {
    struct null_iface *iface = weft__new(r, struct null_iface);
    if (!iface) return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the null interface");
    iface->iface = (struct iface){.ops = &ops,
                                  .transport = &weft__transport_null,
                                  .reactor = r,
                                  .up = params->up,
                                  .owner = params->owner,
                                  .device = "null",
                                  .attr = attr};
    iface->worker_id = params->worker_id;
    *iface_p = &iface->iface;
    return WEFT_OK;
}

const struct transport weft__transport_null = {.name = "null", .open = open_iface};
