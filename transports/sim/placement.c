/*
 * Large payloads that go straight to where their owner wants them, over a reliable fabric. They
 * come a slice at a time, so that all that ends a placement half way happens here too: a stop, a
 * close, a break, a partition.
 */
#include "local.h"

#include <assert.h>

static size_t length(const struct sim_packet *p) {
    size_t len = p->len;
    for (unsigned i = 0; i < p->n_iov; i++) len += p->iov[i].len;
    return len;
}

/* Exactly the rest of the message must fit, or it does not land. */
static bool fits_placement(const struct placement *to, size_t len) {
    size_t room = to->skip;
    if (to->n_iov == 0 || to->n_iov > PLACE_IOV || to->skip > PLACE_HEAD) return false;
    for (size_t i = 0; i < to->n_iov; i++) room += to->iov[i].len;
    return room == len;
}

static bool begin_placement(struct sim_lane *lane, const struct sim_packet *p) {
    const struct iface_up *up = lane->lane.iface->up;
    size_t len = length(p);
    uint8_t head[PLACE_HEAD];
    struct placement to;
    if (!up->place || len < PLACE_HEAD + PLACE_LEAST) return false;
    assert(lane->placement.to.id == 0);
    weft__sim_packet_read(p, 0, head, sizeof head);
    if (!up->place(&lane->lane, p->id, head, sizeof head, len, &to) || !fits_placement(&to, len))
        return false;
    lane->placement = (struct sim_placement){.to = to, .at = to.skip, .end = len};
    return true;
}

/* The next `n` bytes of it, each in its place. */
static void place_placement(const struct sim_placement *l, const struct sim_packet *p, size_t n) {
    size_t at = l->to.skip;
    for (unsigned i = 0; i < l->to.n_iov; at += l->to.iov[i++].len) {
        size_t from = l->at > at ? l->at : at, end = at + l->to.iov[i].len;
        if (end > l->at + n) end = l->at + n;
        if (from < end)
            weft__sim_packet_read(p, from, (char *)l->to.iov[i].base + (from - at), end - from);
    }
}

void weft__sim_on_slice(struct sim_fabric *f, sim_slice_fn fn, void *arg) {
    f->on_slice = fn;
    f->slice_arg = arg;
}

/* How many bytes come next. The owner may stop the placement from here. */
static size_t slice(struct sim_lane *lane) {
    const struct sim_placement *l = &lane->placement;
    struct sim_fabric *f = lane->fabric;
    size_t left = l->end - l->at, n = 0;
    if (f->on_slice && l->to.id && l->why == WEFT_OK)
        n = f->on_slice(f->slice_arg, &lane->lane,
                        &(struct sim_slice){.placement = l->to.id, .at = l->at, .end = l->end});
    if (n == 0) n = SIM_SLICE;
    return n < left ? n : left;
}

bool weft__sim_place(struct sim_lane *lane, struct sim_packet *p) {
    struct sim_placement *l = &lane->placement;
    if (lane->take != weft__sim_take) return false;
    if (!p->asked) {
        p->asked = true;
        p->places = begin_placement(lane, p);
        return p->places;
    }
    if (!p->places) return false;
    size_t n = slice(lane);
    if (l->why == WEFT_OK) place_placement(l, p, n);
    l->at += n;
    return l->at < l->end;
}

/* Once. */
static void sim_placement_report(struct sim_lane *lane) {
    uint32_t id = lane->placement.to.id;
    if (id == 0) return;
    lane->placement.to.id = 0;
    lane->lane.iface->up->placed(&lane->lane, id, lane->placement.why);
}

/* Here, also when it was stopped and the job has not run yet: the next message may land at once,
 * as over TCP. */
void weft__sim_placed(struct sim_lane *lane) {
    sim_placement_report(lane);
}

void weft__sim_place_report(struct sim_lane *lane) {
    lane->place_due = false;
    if (lane->placement.why < 0) sim_placement_report(lane);
}

void weft__sim_place_end(struct sim_lane *lane, weft_status_t why) {
    if (lane->placement.to.id == 0 || lane->placement.why < 0) return;
    lane->placement.why = why;
    lane->place_due = true;
    weft__job_post(lane->lane.iface->reactor, &lane->job);
}

void weft__sim_place_stop(struct lane *l, uint32_t id) {
    struct sim_lane *lane = (struct sim_lane *)l;
    if (lane->placement.to.id == id) weft__sim_place_end(lane, WEFT_ERR_CANCELLED);
}
