/* A pair over a simulated network, which is as `profile` says, and replayed by `seed`. */
#ifndef WEFT_TESTS_TRANSPORTS_FABRIC_H
#define WEFT_TESTS_TRANSPORTS_FABRIC_H

#include "pair.h"
#include <transports/sim/sim.h>

static struct sim_fabric *fabric;
static struct sim_profile profile;
static uint64_t seed = 1;

static inline void fabric_make(struct reactor_clock *clock) {
    fabric = weft__sim_create(clock, seed, &profile);
    weft__sim_use(fabric);
}

/* `transport`: sim, or one around it. */
static inline void fabric_open(struct pair *p, const struct transport *transport,
                               const weft_setting_t *settings, size_t n) {
    pair_clock_made = fabric_make;
    pair_open_with(p, transport, PAIR_VIRTUAL, settings, n);
}

/* Lanes that were not dialed, and where they are. */
struct apart {
    uint8_t a[96], b[96];
    size_t len_a, len_b;
};

static inline void fabric_lanes(struct pair *p, struct apart *at) {
    at->len_a = sizeof at->a;
    at->len_b = sizeof at->b;
    CHECK_EQ(p->iface_a->ops->lane_create(p->iface_a, &p->a.lane), WEFT_OK);
    CHECK_EQ(p->iface_b->ops->lane_create(p->iface_b, &p->b.lane), WEFT_OK);
    p->a.lane->owner = &p->a;
    p->b.lane->owner = &p->b;
    CHECK_EQ(p->a.lane->ops->conn->address(p->a.lane, at->a, &at->len_a), WEFT_OK);
    CHECK_EQ(p->b.lane->ops->conn->address(p->b.lane, at->b, &at->len_b), WEFT_OK);
}

#endif
