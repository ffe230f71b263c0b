/* Messages between the two lanes of a pair: the sender queues them, and the next turn's poll
 * delivers them. */
#include "self.h"
#include <base/counters.h>
#include <stddef.h>
#include <string.h>
#include <transports/answering.h>
#include <transports/common.h>

#define OF_POLLER(p) container_of(p, struct self_iface, poller)

enum { KEEPS_FROM = 8 }; /* a message that fills at least 1/8 of its buffer is retained in place */

static void message_put(struct self_iface *iface, struct self_message *m) {
    struct self_message **pool = m->big ? &iface->big : &iface->small;
    m->of.next = (struct inbox_message *)*pool;
    *pool = m;
}

static void keep_release(struct lane_keep *keep) {
    struct self_message *m = container_of(keep, struct self_message, keep);
    m->kept = false;
    if (m->gone) message_put(m->iface, m);
}

/* Assembled messages are not retained: the next one needs the scratch buffer. */
static struct lane_keep *keep(struct lane *l, const void *data, size_t len) {
    struct self_message *m = self_iface(l)->taken;
    if (!m || m->kept || m->n_iov || len * KEEPS_FROM < (m->big ? SELF_BCOPY : SELF_SMALL))
        return NULL;
    if ((uintptr_t)data - (uintptr_t)m->data > m->len) return NULL;
    m->kept = true;
    return &m->keep;
}

static struct self_message *message_get(struct self_iface *iface, bool big) {
    struct self_message **pool = big ? &iface->big : &iface->small, *m = *pool;
    if (m) {
        *pool = (struct self_message *)m->of.next;
        return m;
    }
    m = weft__alloc(iface, sizeof *m + (big ? SELF_BCOPY : SELF_SMALL), "struct self_message");
    if (!m) return NULL;
    m->big = big;
    m->data = (uint8_t *)(m + 1);
    m->keep.release = keep_release;
    m->iface = iface;
    return m;
}

static void message_done(struct self_lane *lane, struct self_message *m, weft_status_t status) {
    struct completion *completion = m->completion;
    m->gone = true;
    if (!m->kept) message_put(self_iface(&lane->pair.lane), m);
    inbox_done(&lane->pair.inbox);
    if (completion) completion_step(completion, status);
}

static void enlist(struct self_lane *lane) {
    struct self_iface *iface = self_iface(&lane->pair.lane);
    if (lane->ready) return;
    lane->ready = true;
    lane->ready_next = NULL;
    *iface->ready_last = lane;
    iface->ready_last = &lane->ready_next;
    weft__poller_add(iface->iface.reactor, &iface->poller);
}

void weft__self_queue(struct self_lane *lane, struct self_message *m) {
    inbox_put(&lane->pair.inbox, &m->of);
    enlist(lane);
}

void weft__self_resume(struct self_lane *lane) {
    if (lane->paused && lane->pair.peer && lane->pair.peer->inbox.first) enlist(self_peer(lane));
    lane->paused = false;
}

static weft_status_t pause_lane(struct lane *l, bool on) {
    struct self_lane *lane = (struct self_lane *)l;
    if (!on) weft__self_resume(lane);
    lane->paused = on;
    lane->take = on ? NULL : weft__self_take;
    return WEFT_OK;
}

/* Queued messages are not delivered. Their completions step in the next poll. */
void weft__self_cancel_queue(struct self_lane *lane) {
    for (struct inbox_message *m = lane->pair.inbox.first; m; m = m->next)
        ((struct self_message *)m)->cancelled = true;
}

/* Called within a turn. */
void weft__self_drop_queue(struct self_lane *lane, weft_status_t status) {
    struct inbox_message *m = lane->pair.inbox.first, *next;
    lane->pair.inbox.first = NULL;
    lane->pair.inbox.last = &lane->pair.inbox.first;
    for (; m; m = next) {
        next = m->next;
        if (m != &lane->fin.of) {
            message_done(lane, (struct self_message *)m, status);
            continue;
        }
        inbox_done(&lane->pair.inbox);
        weft__self_queue(lane, &lane->fin);
    }
}

/* ---- delivery -------------------------------------------------------------------------------- */

/* Copies header and payload into one piece. */
static const void *assemble(struct self_iface *iface, const struct self_message *m, size_t *len_p) {
    uint8_t *to = iface->scratch;
    memcpy(to, m->data, m->len);
    to += m->len;
    for (unsigned i = 0; i < m->n_iov; i++) {
        if (m->iov[i].len) memcpy(to, m->iov[i].base, m->iov[i].len);
        to += m->iov[i].len;
    }
    *len_p = (size_t)(to - iface->scratch);
    return iface->scratch;
}

void weft__self_take(struct self_lane *lane, struct self_message *m) {
    struct self_iface *iface = self_iface(&lane->pair.lane);
    size_t len = m->len;
    const void *data = m->n_iov ? assemble(iface, m, &len) : m->data;
    iface->taken = m;
    lane_handlers(&lane->pair.lane)[m->id](&lane->pair.lane, m->id, data, len);
    iface->taken = NULL;
}

void weft__self_refuse(struct self_lane *lane, struct self_message *m) {}

static void fin_arrived(struct self_lane *from) {
    struct self_lane *to = self_peer(from);
    if (to) {
        to->pair.peer = NULL;
        from->pair.peer = NULL;
        weft__self_step(to, SELF_LANE_EV_PEER_FIN);
    }
    weft__self_step(from, SELF_LANE_EV_FIN_OUT);
}

void weft__self_retry(struct self_lane *lane) {
    pair_retry(&lane->pair.inbox, SELF_DEPTH, &lane->pair.pending);
}

/* Delivers the messages that are queued now, up to the budget. Messages that handlers add wait
 * for the next turn, so that an echo does not loop here. */
static unsigned deliver_message(struct self_lane *from, unsigned budget) {
    unsigned n = 0, most = from->pair.inbox.depth < budget ? from->pair.inbox.depth : budget;
    while (n < most && from->pair.inbox.first) {
        struct self_lane *to = self_peer(from);
        if (to && !to->take) break;
        struct self_message *m = (struct self_message *)inbox_take(&from->pair.inbox);
        n++;
        if (m == &from->fin) {
            inbox_done(&from->pair.inbox);
            fin_arrived(from);
            return n;
        }
        void (*take)(struct self_lane *, struct self_message *) = to ? to->take : weft__self_refuse;
        if (m->cancelled) {
            message_done(from, m, WEFT_ERR_CANCELLED);
            continue;
        }
        if (!m->flush) take(to, m);
        message_done(from, m, take == weft__self_refuse ? WEFT_ERR_PEER_CLOSED : WEFT_OK);
    }
    weft__self_retry(from);
    return n;
}

int weft__self_poll(struct poller *poller, unsigned budget) {
    struct self_iface *iface = OF_POLLER(poller);
    struct self_lane *lane = iface->ready, *next;
    unsigned n = 0;
    if (!lane) weft__poller_remove(iface->iface.reactor, poller); /* until a message is queued */
    iface->ready = NULL;
    iface->ready_last = &iface->ready;
    for (; lane; lane = next) {
        next = lane->ready_next;
        if (n < budget) n += deliver_message(lane, budget - n);
        lane->ready_next = NULL;
        lane->ready = lane->pair.inbox.first && !(lane->pair.peer && self_peer(lane)->paused);
        if (!lane->ready) continue;
        *iface->ready_last = lane;
        iface->ready_last = &lane->ready_next;
    }
    return (int)n;
}

/* ---- operations ------------------------------------------------------------------------------ */

static struct self_message *message_new(struct self_lane *lane, uint8_t id, bool big) {
    struct self_message *m = message_get(self_iface(&lane->pair.lane), big);
    if (!m) return NULL;
    m->id = id;
    m->len = 0;
    m->n_iov = 0;
    m->flush = m->cancelled = m->gone = false;
    m->completion = NULL;
    return m;
}

static void send_message(struct self_lane *lane, struct self_message *m, size_t bytes) {
    struct counters *count = weft__count(lane->pair.lane.iface->reactor);
    count->self_messages++;
    count->self_bytes += bytes;
    weft__self_queue(lane, m);
}

static weft_status_t am_short(struct lane *l, uint8_t id, uint64_t header, const void *data,
                              size_t len) {
    struct self_lane *lane = (struct self_lane *)l;
    if (len > SELF_SHORT) return weft__refuse_short(l, len);
    if (lane->pair.inbox.depth >= SELF_DEPTH) return WEFT_NO_RESOURCE;
    struct self_message *m = message_new(lane, id, false);
    if (!m) return WEFT_ERR_NO_MEMORY;
    memcpy(m->data, &header, sizeof header);
    if (len) memcpy(m->data + sizeof header, data, len);
    m->len = (uint32_t)(sizeof header + len);
    send_message(lane, m, m->len);
    return WEFT_OK;
}

static weft_status_t am_bcopy(struct lane *l, uint8_t id, size_t (*pack)(void *, void *),
                              void *arg) {
    struct self_lane *lane = (struct self_lane *)l;
    if (lane->pair.inbox.depth >= SELF_DEPTH) return WEFT_NO_RESOURCE;
    struct self_message *m = message_new(lane, id, true);
    if (!m) return WEFT_ERR_NO_MEMORY;
    m->len = (uint32_t)pack(m->data, arg);
    send_message(lane, m, m->len);
    return WEFT_OK;
}

static weft_status_t am_zcopy(struct lane *l, uint8_t id, const struct lane_zcopy *msg,
                              struct completion *completion) {
    struct self_lane *lane = (struct self_lane *)l;
    size_t total = 0;
    for (size_t i = 0; i < msg->n_iov; i++) total += msg->iov[i].len;
    if (msg->header_len > SELF_ZCOPY_HEADER || msg->n_iov > SELF_IOV || total > SELF_ZCOPY)
        return weft__refuse_zcopy(l, msg, total);
    if (lane->pair.inbox.depth >= SELF_DEPTH) return WEFT_NO_RESOURCE;
    struct self_message *m = message_new(lane, id, false);
    if (!m) return WEFT_ERR_NO_MEMORY;
    if (msg->header_len) memcpy(m->data, msg->header, msg->header_len);
    if (msg->n_iov) memcpy(m->iov, msg->iov, msg->n_iov * sizeof *msg->iov);
    m->len = (uint32_t)msg->header_len;
    m->n_iov = (uint16_t)msg->n_iov;
    m->completion = completion;
    send_message(lane, m, msg->header_len + total);
    return WEFT_IN_PROGRESS;
}

/* Queues a message without a handler. Its completion steps when all earlier messages have been
 * delivered. */
static weft_status_t flush_lane(struct lane *l, struct completion *completion) {
    struct self_lane *lane = (struct self_lane *)l;
    if (!lane->pair.inbox.first) return WEFT_OK;
    struct self_message *m = message_new(lane, 0, false);
    if (!m) return WEFT_ERR_NO_MEMORY;
    m->flush = true;
    m->completion = completion;
    weft__self_queue(lane, m);
    return WEFT_IN_PROGRESS;
}

/* Both lanes share the process's memory. */
static weft_status_t bulk_get(struct lane *l, uint64_t remote, const weft_iov_t *iov, size_t n_iov,
                              struct completion *completion) {
    const uint8_t *from = (const uint8_t *)(uintptr_t)remote;
    for (size_t i = 0; i < n_iov; from += iov[i++].len)
        if (iov[i].len) memcpy(iov[i].base, from, iov[i].len);
    return WEFT_OK;
}

LANE_PENDING(pair_lane)

void weft__self_purge(struct self_lane *lane) {
    pending_queue_init(&lane->pair.pending);
}

/* ---- the same operations in other states ----------------------------------------------------- */

#define REFUSING(state, answer)                                                             \
    LANE_ALL_ANSWER(state, answer)                                                          \
    LANE_RMA_ANSWER(state, answer)                                                          \
    static const struct lane_bulk_ops state##_bulk_ops = {.bulk_get = state##_bulk_get};    \
    static const struct lane_rma_ops state##_rma_ops = {LANE_RMA_OPS(state),                \
                                                        .key_close = weft__self_key_close}; \
    const struct lane_ops weft__self_ops_##state = {                                        \
        LANE_OPS(state, state##_flush, weft__self_close, weft__describe_transport),         \
        .bulk = &state##_bulk_ops, .rma = &state##_rma_ops};
REFUSING(new, WEFT_NO_RESOURCE)
REFUSING(peer_closed, WEFT_ERR_PEER_CLOSED)
REFUSING(closed, WEFT_ERR_CLOSED)

static const struct lane_buffer_ops up_buffer_ops = {.keep = keep};
static const struct lane_bulk_ops up_bulk_ops = {.bulk_get = bulk_get};
static const struct lane_rma_ops up_rma_ops = {.put_short = weft__self_put_short,
                                               .put_bcopy = weft__self_put_bcopy,
                                               .put_zcopy = weft__self_put_zcopy,
                                               .get_bcopy = weft__self_get_bcopy,
                                               .get_zcopy = weft__self_get_zcopy,
                                               .atomic_post = weft__self_atomic_post,
                                               .atomic_fetch = weft__self_atomic_fetch,
                                               .fence = weft__self_fence,
                                               .key_open = weft__self_key_open,
                                               .key_close = weft__self_key_close};
const struct lane_ops weft__self_ops_up = {
    LANE_OPS(am, flush_lane, weft__self_close, weft__describe_transport), .pause = pause_lane,
    .buffer = &up_buffer_ops, .bulk = &up_bulk_ops, .rma = &up_rma_ops};
