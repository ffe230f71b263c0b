/* Receives by a retaining lane: counts messages, acknowledges them, and passes them to the link. */
#include "retain.h"

#include <base/compiler.h>

#include <endpoints/core/worker.h>
#include <endpoints/transfer/placement.h>
#include <endpoints/wire/lane_ctrl.h>

static struct reactor *reactor_of(const struct retain *r) {
    return r->link->worker->reactor;
}

/* Acknowledges at once if the peer may wait for memory or room, otherwise after a delay. */
static void acknowledge(struct retain *r, size_t len) {
    struct reactor *reactor = reactor_of(r);
    if (r->unacked_cost < RETAIN_ACK && len <= RETAIN_COPY) {
        r->notify_at = RETAIN_ACK;
        if (weft__timer_running(&r->lazy) ||
            weft__timer_start(reactor, &r->lazy, weft__now(reactor) + RETAIN_ACK_DELAY) == WEFT_OK)
            return;
    }
    r->notify_at = UINT64_MAX;
    r->ack_due = true;
    weft__job_post(reactor, &r->job);
}

static inline void count_retained(struct retain *r, size_t len) {
    resume_count_delivered(&r->core);
    r->unacked_cost += len + RETAIN_COST;
    if (UNLIKELY(r->unacked_cost >= r->notify_at || (len > RETAIN_COPY && !r->ack_due)))
        acknowledge(r, len);
}

static void recv_counted(struct lane *raw, unsigned id, const void *data, size_t len) {
    struct link *link = weft__lane_link(raw);
    if (UNLIKELY(!link)) return;
    struct retain *r = link->more->retain;
    count_retained(r, len);
    r->up[id](&r->lane, id, data, len);
}

void weft__retain_places(struct lane *l, uint32_t placement) {
    weft__retain_of(l)->placement = placement;
}

/* A cancelled placement has arrived, too: the peer does not send it again. */
void weft__retain_placed(struct lane *l, size_t len, weft_status_t status) {
    struct retain *r = weft__retain_of(l);
    r->placement = 0;
    bool thrown = status == WEFT_ERR_CANCELLED;
    if (status == WEFT_OK || thrown) count_retained(r, len);
    /* the acknowledgement may have waited for it */
    if (r->ack_due) weft__job_post(reactor_of(r), &r->job);
}

void weft__retain_place_lost(struct retain *r) {
    uint32_t placement = r->placement;
    r->placement = 0;
    weft__placement_lost(r->link->worker, placement, WEFT_ERR_PEER_FAILED);
}

void weft__retain_place_stop(struct lane *l, uint32_t placement) {
    struct lane *raw = weft__retain_of(l)->raw;
    if (raw && raw->ops->place_stop) raw->ops->place_stop(raw, placement);
}

static void acknowledged(struct retain *r, const void *data, size_t len) {
    struct lane_count ack;
    bool resending = r->lane.ops != &weft__retain_ops_open;
    if (!weft__lane_read_count(data, len, &ack) ||
        (resending && ack.count > r->again && ack.count > r->core.acked)) {
        weft__link_violation(r->link, "acknowledgement");
        return;
    }
    r->asked = false;
    weft__fsm_step(&r->core.fsm, weft__resume_acked(&r->core, ack.count));
    weft__retain_pump(r);
}

static void take_ack_request(struct retain *r, const void *data, size_t len) {
    struct lane_count ask;
    if (!weft__lane_read_count(data, len, &ask) || ask.count) {
        weft__link_violation(r->link, "acknowledgement request");
        return;
    }
    r->core.untried = false;
    r->unacked_cost = RETAIN_ACK_PLACEMENT; /* force an acknowledgement */
    r->ack_due = true;
    weft__job_post(reactor_of(r), &r->job);
}

static void received_lane(struct lane *raw, unsigned id, const void *data, size_t len) {
    struct link *link = weft__lane_link(raw);
    if (!link) return;
    struct retain *r = link->more->retain;
    switch (weft__lane_kind(data, len)) {
    case LANE_ACK: acknowledged(r, data, len); break;
    case LANE_ACK_ASK: take_ack_request(r, data, len); break;
    default: recv_counted(raw, WIRE_LANE, data, len); break; /* counted like any message */
    }
}

/* Handshakes and this layer's own control messages are not counted. */
static void pass_handshake(struct lane *raw, unsigned id, const void *data, size_t len) {
    struct link *link = weft__lane_link(raw);
    if (link) link->more->retain->up[id](&link->more->retain->lane, id, data, len);
}

static const lane_am_fn handlers[LANE_AM_IDS] = {[0 ... WIRE_HELLO - 1] = recv_counted,
                                                 [WIRE_HELLO] = pass_handshake,
                                                 [WIRE_HELLO + 1 ... WIRE_LANE - 1] = recv_counted,
                                                 [WIRE_LANE] = received_lane,
                                                 [WIRE_LANE + 1 ... LANE_AM_IDS - 1] =
                                                     recv_counted};

void weft__retain_recv(struct retain *r, struct lane *raw) {
    weft__lane_set_link(raw, r->link);
    raw->ops->recv_msg(raw, handlers);
}

void weft__retain_set_handlers(struct lane *l, const lane_am_fn *others) {
    l->handlers = others;
    weft__retain_of(l)->up = others ? others : l->iface->up->am;
}
