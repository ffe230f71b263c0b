/* The life cycle of a lane: its machine, and its calls to the owner. */
#include "ud.h"

#include <arpa/inet.h>
#include <stddef.h>
#include <stdio.h>

#define OF_FSM(m)  container_of(m, struct ud_lane, fsm)
#define OF_JOB(j)  container_of(j, struct ud_lane, job)
#define OF_LEFT(m) container_of(m, struct ud_lane, left)

/* ---- the machine ----------------------------------------------------------------------------- */

#define FSM_NAME   ud_lane
#define FSM_PREFIX UD_LANE
#include <fsm/define.h>

static void ud_lane_act_open(struct fsm *m) {
    fsm_effect(m, UD_LANE_FX_OPEN);
}

static void ud_lane_act_broke(struct fsm *m) {
    fsm_effect(m, UD_LANE_FX_BREAK);
}

static void ud_lane_act_leave(struct fsm *m) {
    fsm_effect(m, UD_LANE_FX_PURGE);
    fsm_effect(m, UD_LANE_FX_AWAIT);
}

static void ud_lane_act_end(struct fsm *m) {
    fsm_effect(m, UD_LANE_FX_PURGE);
    fsm_effect(m, UD_LANE_FX_NOTIFY_CLOSED);
}

/* ---- what its states do with a datagram ------------------------------------------------------ */

static void take_frame(struct ud_lane *lane, const struct ud_frame *frame) {
    lane_handlers(&lane->lane)[frame->id](&lane->lane, frame->id, frame->data, frame->len);
}

static void drop_frame(struct ud_lane *lane, const struct ud_frame *frame) {
    ud_count(ud_iface_of(lane))->rdma_ud_dropped++;
}

/* ---- what it asks for ------------------------------------------------------------------------ */

/* The owner's callbacks wait until the machine has come to rest. */
static void add_due(struct ud_lane *lane, enum ud_lane_effect effect) {
    lane->due |= 1u << effect;
    weft__job_post(lane->lane.iface->reactor, &lane->job);
}

static bool take_due(struct ud_lane *lane, enum ud_lane_effect effect) {
    bool is = lane->due >> effect & 1;
    lane->due &= ~(1u << effect);
    return is;
}

static void stop_lane(struct ud_lane *lane, const struct lane_ops *ops) {
    lane->lane.ops = ops;
    lane->take = drop_frame;
    weft__ud_purge(lane);
}

static void on_effect(struct fsm *m, unsigned effect) {
    struct ud_lane *lane = OF_FSM(m);
    switch ((enum ud_lane_effect)effect) {
    case UD_LANE_FX_OPEN:
        lane->lane.ops = &weft__ud_ops_up;
        lane->take = take_frame;
        lane->due |= 1u << UD_LANE_FX_OPEN;
        break;
    case UD_LANE_FX_BREAK:
        stop_lane(lane, &weft__ud_ops_down);
        lane->due &= ~(1u << UD_LANE_FX_OPEN);
        add_due(lane, UD_LANE_FX_BREAK);
        break;
    case UD_LANE_FX_PURGE:
        stop_lane(lane, &weft__ud_ops_closed);
        lane->due &= ~(1u << UD_LANE_FX_OPEN | 1u << UD_LANE_FX_BREAK);
        break;
    case UD_LANE_FX_AWAIT: weft__ud_mark_add(ud_iface_of(lane), &lane->left, lane->until); break;
    case UD_LANE_FX_NOTIFY_CLOSED: add_due(lane, UD_LANE_FX_NOTIFY_CLOSED); break;
    case UD_LANE_N_EFFECTS: break;
    }
}

static void on_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    weft__log(weft__reactor_context(OF_FSM(m)->lane.iface->reactor), WEFT_LOG_ERROR, "rdma",
              "rdma_ud lane %u: %s in state %s", m->id, m->port->machine->event_name[event],
              fsm_state_name(m));
}

static const struct fsm_port port = {&weft__ud_lane_machine, on_effect, on_fail};

static void left(struct ud_mark *mark, weft_status_t status) {
    weft__fsm_step(&OF_LEFT(mark)->fsm, UD_LANE_EV_LEFT);
}

/* ---- reports to the owner -------------------------------------------------------------------- */

/* Everything here may call the owner, who may close. */
static void run_lane(struct job *job) {
    struct ud_lane *lane = OF_JOB(job);
    const struct iface_up *up = lane->lane.iface->up;
    if (ud_lane_is_new(&lane->fsm)) weft__fsm_step(&lane->fsm, UD_LANE_EV_OPENED);
    if (take_due(lane, UD_LANE_FX_OPEN)) {
        up->up(&lane->lane);
        weft__ud_send_turn(ud_iface_of(lane)); /* what was added while it was new */
    }
    if (lane->due >> UD_LANE_FX_BREAK & 1) weft__ud_flushes_end(lane, lane->why);
    if (take_due(lane, UD_LANE_FX_BREAK)) {
        (void)weft__fail(lane->why, "%s", ud_iface_of(lane)->cause);
        up->down(&lane->lane, lane->why);
    }
    if (!take_due(lane, UD_LANE_FX_NOTIFY_CLOSED)) return;
    up->closed(&lane->lane);
    weft__ud_lane_free(lane);
}

/* ---- making one ------------------------------------------------------------------------------ */

weft_status_t weft__ud_lane_new(struct ud_iface *iface, struct ud_path *path,
                                const struct ud_address *peer, struct ud_lane **lane_p) {
    struct ud_lane *lane = weft__slab_take(&iface->lane_slab);
    weft_status_t st = WEFT_ERR_NO_MEMORY;
    if (!lane) goto drop_path;
    lane->lane = (struct lane){.ops = &weft__ud_ops_new, .iface = &iface->iface};
    lane->node.path = path;
    lane->node.qpn = peer->qpn;
    lane->qkey = peer->qkey;
    lane->token = peer->token;
    lane->take = drop_frame;
    lane->job.run = run_lane;
    lane->left.passed = left;
    TAILQ_INIT(&lane->flushes);
    pending_queue_init(&lane->pending);
    fsm_init(&lane->fsm, &port, UD_LANE_NEW, ++iface->n_lanes);
    st = weft__ud_table_add(&iface->table, &lane->node);
    if (st < 0) goto free_lane;
    TAILQ_INSERT_TAIL(&iface->lanes, lane, of_iface);
    *lane_p = lane;
    return WEFT_OK;

free_lane:
    weft__slab_put(&iface->lane_slab, lane);
drop_path:
    weft__ud_path_drop(&iface->paths, path, 0);
    if (st == WEFT_ERR_QUOTA)
        return weft__fail(st, "rdma_ud: a worker has %u lanes at most", iface->table.most);
    return weft__fail(st, "rdma_ud: no memory for a lane");
}

void weft__ud_lane_dial(struct ud_lane *lane) {
    weft__job_post(lane->lane.iface->reactor, &lane->job);
}

void weft__ud_lane_accept(struct ud_lane *lane) {
    struct ud_iface *iface = ud_iface_of(lane);
    lane->unverified = true;
    iface->n_unverified++;
    weft__fsm_step(&lane->fsm, UD_LANE_EV_OPENED);
    (void)take_due(lane, UD_LANE_FX_OPEN);
    iface->iface.up->accepted(&lane->lane, NULL);
}

void weft__ud_lane_received(struct ud_lane *lane) {
    ud_iface_of(lane)->n_unverified -= lane->unverified;
    lane->unverified = false;
}

/* ---- its end --------------------------------------------------------------------------------- */

void weft__ud_lane_lost(struct ud_lane *lane, weft_status_t why) {
    lane->why = why;
    weft__fsm_step(&lane->fsm, UD_LANE_EV_LOST);
}

/* There is nothing to hurry: what was sent is in the device's hands. */
void weft__ud_lane_close(struct lane *lane, bool flush) {
    weft__fsm_step(&((struct ud_lane *)lane)->fsm, UD_LANE_EV_CLOSE);
}

void weft__ud_lane_free(struct ud_lane *lane) {
    struct ud_iface *iface = ud_iface_of(lane);
    weft__ud_purge(lane);
    weft__ud_flushes_end(lane, WEFT_ERR_CLOSED);
    if (ud_lane_is_leaving(&lane->fsm)) TAILQ_REMOVE(&iface->marks, &lane->left, of_iface);
    weft__ud_lane_received(lane);
    weft__ud_table_remove(&iface->table, &lane->node);
    weft__ud_path_drop(&iface->paths, (struct ud_path *)lane->node.path, lane->until);
    TAILQ_REMOVE(&iface->lanes, lane, of_iface);
    weft__job_drop(iface->iface.reactor, &lane->job);
    weft__slab_free_later(&iface->lane_slab, lane);
}

void weft__ud_lane_describe(struct lane *l, char *buf, size_t size) {
    const struct ud_lane *lane = (const struct ud_lane *)l;
    const struct rd_place *place = &((const struct ud_path *)lane->node.path)->place;
    bool v4 = weft__rd_gid_is_v4(place->gid);
    char text[INET6_ADDRSTRLEN] = "?";
    inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? place->gid + 12 : place->gid, text, sizeof text);
    if (place->lid)
        snprintf(buf, size, "lid %u queue pair %u", place->lid, lane->node.qpn);
    else
        snprintf(buf, size, "%s queue pair %u", text, lane->node.qpn);
}
