/* What breaks: nodes, lanes at a time, and the scarce kind when there shall be less of it. */
#include "local.h"
#include <stddef.h>

#define OF_FATE(t) container_of(t, struct sim_lane, fate)

static void break_lane(struct sim_lane *lane) {
    weft__sim_lane_post(lane, SIM_LANE_EV_LOST, WEFT_ERR_PEER_FAILED);
}

void weft__sim_crash(struct sim_fabric *f, unsigned node) {
    f->dead[node] = true;
    for (unsigned i = 0; i < SIM_NODES; i++)
        for (struct sim_lane *lane = f->node[i] ? f->node[i]->lanes : NULL; lane;
             lane = lane->next_of_iface)
            if (i == node ||
                (f->profile.reliable && lane->remote_node == node && !sim_lane_is_new(&lane->fsm)))
                break_lane(lane);
}

void weft__sim_kill(struct lane *l) {
    struct sim_lane *lane = (struct sim_lane *)l,
                    *other = weft__sim_lane(lane->fabric, lane->remote);
    break_lane(lane);
    if (other) break_lane(other);
}

/* ---- at a time ------------------------------------------------------------------------------- */

static weft_status_t fate_start(struct sim_lane *lane, uint64_t ns, uint64_t later) {
    struct reactor *r = lane->lane.iface->reactor;
    lane->fate_of_other = later;
    return weft__timer_start(r, &lane->fate, weft__now(r) + ns);
}

/* Out of memory the other end is notified now. */
void weft__sim_fate(struct timer *timer) {
    struct sim_lane *lane = OF_FATE(timer);
    struct sim_lane *other =
        lane->fate_of_other == SIM_NEVER ? NULL : weft__sim_lane(lane->fabric, lane->remote);
    break_lane(lane);
    if (other && fate_start(other, lane->fate_of_other, SIM_NEVER) < 0) break_lane(other);
}

weft_status_t weft__sim_fail(struct lane *lane, uint64_t ns, uint64_t later) {
    return fate_start((struct sim_lane *)lane, ns, later);
}

struct lane *weft__sim_nth_lane(const struct sim_fabric *f, unsigned from, unsigned to,
                                unsigned nth) {
    struct sim_lane *lane = f->node[from] ? f->node[from]->lanes : NULL;
    for (; lane; lane = lane->next_of_iface)
        if (lane->remote_node == to && !sim_lane_is_new(&lane->fsm) && nth-- == 0)
            return &lane->lane;
    return NULL;
}

struct lane *weft__sim_other_end(const struct lane *l) {
    const struct sim_lane *lane = (const struct sim_lane *)l;
    struct sim_lane *other = lane->remote ? weft__sim_lane(lane->fabric, lane->remote) : NULL;
    return other ? &other->lane : NULL;
}

/* ---- the scarce kind ------------------------------------------------------------------------- */

uint32_t weft__sim_scarce(const struct sim_fabric *f, unsigned node) {
    return f->node[node] ? f->node[node]->n_scarce : 0;
}

void weft__sim_capacity(struct sim_fabric *f, unsigned node, uint32_t scarce) {
    struct sim_iface *iface = f->node[node];
    if (!iface) return;
    iface->iface.attr.scarce = scarce;
    uint32_t beyond = iface->n_scarce > scarce ? iface->n_scarce - scarce : 0;
    for (struct sim_lane *lane = iface->lanes; lane && beyond; lane = lane->next_of_iface) {
        if (!lane->lane.scarce) continue;
        weft__sim_kill(&lane->lane);
        beyond--;
    }
}
