/*
 * Large payloads that go straight to where their owner wants them, over a reliable fabric. They come a slice at a time, so that
 * all that ends a landing half way happens here too: a stop, a close, a break, a partition.
 */
#include "local.h"

static size_t length(const struct sim_packet *p) {
    size_t len = p->len;
    for (unsigned i = 0; i < p->n_iov; i++) len += p->iov[i].len;
    return len;
}

/* Exactly the rest of the message must fit, or it does not land. */
static bool fits(const struct landing *to, size_t len) {
    size_t room = to->skip;
    if (to->n_iov == 0 || to->n_iov > LAND_IOV || to->skip > LAND_HEAD) return false;
    for (size_t i = 0; i < to->n_iov; i++) room += to->iov[i].len;
    return room == len;
}

static bool begin(struct sim_lane *lane, const struct sim_packet *p) {
    const struct iface_up *up = lane->lane.iface->up;
    size_t len = length(p);
    uint8_t head[LAND_HEAD];
    struct landing to;
    /* Whoever stopped the one before may not have been told yet. */
    if (!up->land || len < LAND_HEAD + LAND_LEAST || lane->landing.to.landed) return false;
    weft__sim_packet_read(p, 0, head, sizeof head);
    if (!up->land(&lane->lane, p->id, head, sizeof head, len, &to) || !fits(&to, len)) return false;
    lane->landing = (struct sim_landing){.to = to, .at = to.skip, .end = len};
    return true;
}

/* The next `n` bytes of it, each in its place. */
static void place(const struct sim_landing *l, const struct sim_packet *p, size_t n) {
    size_t at = l->to.skip;
    for (unsigned i = 0; i < l->to.n_iov; at += l->to.iov[i++].len) {
        size_t from = l->at > at ? l->at : at, end = at + l->to.iov[i].len;
        if (end > l->at + n) end = l->at + n;
        if (from < end) weft__sim_packet_read(p, from, (char *)l->to.iov[i].base + (from - at), end - from);
    }
}

bool weft__sim_land(struct sim_lane *lane, struct sim_packet *p) {
    struct sim_landing *l = &lane->landing;
    if (lane->take != weft__sim_take) return false;
    if (!p->asked) {
        p->asked = true;
        p->lands = begin(lane, p);
        return p->lands;
    }
    if (!p->lands) return false;
    size_t n = l->end - l->at < SIM_SLICE ? l->end - l->at : SIM_SLICE;
    if (l->why == WEFT_OK) place(l, p, n);
    l->at += n;
    return l->at < l->end;
}

static void tell(struct sim_lane *lane) {
    void (*landed)(struct lane *, void *, weft_status_t) = lane->landing.to.landed;
    lane->landing.to.landed = NULL;
    landed(&lane->lane, lane->landing.to.arg, lane->landing.why);
}

void weft__sim_landed(struct sim_lane *lane) {
    if (lane->landing.why < 0) return; /* told in a turn of its own */
    tell(lane);
}

void weft__sim_land_tell(struct sim_lane *lane) {
    if (lane->landing.to.landed && lane->landing.why < 0) tell(lane);
}

void weft__sim_land_end(struct sim_lane *lane, weft_status_t why) {
    if (!lane->landing.to.landed || lane->landing.why < 0) return;
    lane->landing.why = why;
    weft__job_post(lane->lane.iface->reactor, &lane->job);
}

void weft__sim_land_stop(struct lane *l, void *arg) {
    struct sim_lane *lane = (struct sim_lane *)l;
    if (lane->landing.to.arg == arg) weft__sim_land_end(lane, WEFT_ERR_CANCELLED);
}
