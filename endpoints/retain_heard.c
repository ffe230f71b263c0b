/* What comes by a lane that retains: it is counted, acknowledged, and handed on to the link's handlers. */
#include "retain.h"

#include "lane_wire.h"
#include "worker.h"

static struct reactor *reactor_of(const struct retain *r) {
    return r->link->worker->reactor;
}

/* At once when the peer may wait for its memory or run out of room, else a while later. */
static void acknowledge(struct retain *r, size_t len) {
    struct reactor *reactor = reactor_of(r);
    if (r->heard < RETAIN_ACK && len <= RETAIN_COPY) {
        r->tell_at = RETAIN_ACK;
        if (weft__timer_running(&r->lazy) ||
            weft__timer_start(reactor, &r->lazy, weft__now(reactor) + RETAIN_ACK_DELAY) == WEFT_OK)
            return;
    }
    r->tell_at = UINT64_MAX;
    r->ack_due = true;
    weft__job_post(reactor, &r->job);
}

static inline void count(struct retain *r, size_t len) {
    resume_count_delivered(&r->core);
    r->heard += len + RETAIN_COST;
    if (__builtin_expect(r->heard >= r->tell_at || (len > RETAIN_COPY && !r->ack_due), 0)) acknowledge(r, len);
}

static inline void came(struct lane *raw, unsigned id, const void *data, size_t len) {
    struct link *link = raw->owner;
    if (__builtin_expect(!link, 0)) return;
    struct retain *r = link->more->retain;
    count(r, len);
    r->up[id](&r->lane, data, len);
}

static void tell_landed(struct retain *r, weft_status_t status) {
    struct retain_landing landing = r->landing;
    r->landing.landed = NULL;
    landing.landed(&r->lane, landing.arg, status);
}

/* One that was stopped has come as well: nobody wants it again. */
static void landed(struct lane *raw, void *arg, weft_status_t status) {
    struct link *link = raw->owner;
    if (!link || !link->more->retain->landing.landed) return; /* it was told when its lane was lost */
    struct retain *r = link->more->retain;
    if (status == WEFT_OK || status == WEFT_ERR_CANCELLED) count(r, r->landing.len);
    if (r->ack_due) weft__job_post(reactor_of(r), &r->job); /* it may have waited for this one */
    tell_landed(r, status);
}

void weft__retain_land(struct retain *r, size_t len, struct landing *to) {
    r->landing = (struct retain_landing){to->landed, to->arg, len};
    to->landed = landed;
}

void weft__retain_land_lost(struct retain *r) {
    if (r->landing.landed) tell_landed(r, WEFT_ERR_PEER_FAILED);
}

void weft__retain_land_stop(struct lane *l, void *arg) {
    struct lane *raw = weft__retain_of(l)->raw;
    if (raw && raw->ops->land_stop) raw->ops->land_stop(raw, arg);
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
    fsm_step(&r->core.fsm, weft__resume_acked(&r->core, ack.count));
    weft__retain_pump(r);
}

static void was_asked(struct retain *r, const void *data, size_t len) {
    struct lane_count ask;
    if (!weft__lane_read_count(data, len, &ask) || ask.count) {
        weft__link_violation(r->link, "question for an acknowledgement");
        return;
    }
    r->heard = RETAIN_ACK_LANDING; /* whatever is on its way */
    r->ack_due = true;
    weft__job_post(reactor_of(r), &r->job);
}

static void heard_lane(struct lane *raw, const void *data, size_t len) {
    struct link *link = raw->owner;
    if (!link) return;
    struct retain *r = link->more->retain;
    switch (weft__lane_kind(data, len)) {
    case LANE_ACK: acknowledged(r, data, len); break;
    case LANE_ACK_ASK: was_asked(r, data, len); break;
    default: came(raw, WIRE_LANE, data, len); break; /* as any message: a lost one would be waited for in vain */
    }
}

/* Words of ours and greetings pass by; `id` is a constant here. */
static inline void heard(struct lane *raw, unsigned id, const void *data, size_t len) {
    struct link *link = raw->owner;
    if (id == WIRE_LANE)
        heard_lane(raw, data, len);
    else if (id != WIRE_HELLO)
        came(raw, id, data, len);
    else if (link)
        link->more->retain->up[id](&link->more->retain->lane, data, len);
}

#define HEARD(id)                                                            \
    static void heard_##id(struct lane *raw, const void *data, size_t len) { \
        heard(raw, id, data, len);                                           \
    }
LANE_EACH_AM_ID(HEARD)
#undef HEARD

static const lane_am_fn handlers[LANE_AM_IDS] = {
#define HEARD(id) [id] = heard_##id,
    LANE_EACH_AM_ID(HEARD)
#undef HEARD
};

void weft__retain_hear(struct retain *r, struct lane *raw) {
    raw->owner = r->link;
    raw->ops->hear(raw, handlers);
}

void weft__retain_tell(struct lane *l, const lane_am_fn *others) {
    l->handlers = others;
    weft__retain_of(l)->up = others ? others : l->iface->up->am;
}
