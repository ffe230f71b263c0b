/* The queue pair of an iface: creation, activation, and recovery after a fault. */
#include "ud.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum {
    PAUSE_FIRST_NS = NS_PER_MS,
    PAUSE_MOST_NS = 100 * NS_PER_MS,
    QUIESCED_NS = 1000 * NS_PER_MS
};

#define OF_FSM(m)      container_of(m, struct ud_iface, fsm)
#define OF_USER(u)     container_of(u, struct ud_iface, user)
#define OF_REPAIR(t)   container_of(t, struct ud_iface, repair)
#define OF_NOTIFIED(j) container_of(j, struct ud_iface, notified)

/* ---- the machine ----------------------------------------------------------------------------- */

#define FSM_NAME   ud_qp
#define FSM_PREFIX UD_QP
#include <fsm/define.h>

static void ud_qp_act_halt(struct fsm *m) {
    fsm_effect(m, UD_QP_FX_HALT);
    fsm_effect(m, UD_QP_FX_REPAIR_SOON);
}

static void ud_qp_act_raise(struct fsm *m) {
    fsm_effect(m, UD_QP_FX_RAISE);
}

static void ud_qp_act_darken(struct fsm *m) {
    fsm_effect(m, UD_QP_FX_HALT);
    fsm_effect(m, UD_QP_FX_LOSE);
}

static void ud_qp_act_fail(struct fsm *m) {
    fsm_effect(m, UD_QP_FX_HALT);
    fsm_effect(m, UD_QP_FX_LOSE);
}

static void ud_qp_act_remove(struct fsm *m) {
    fsm_effect(m, UD_QP_FX_HALT);
    fsm_effect(m, UD_QP_FX_DESTROY);
    fsm_effect(m, UD_QP_FX_LOSE);
}

/* ---- making it ready ------------------------------------------------------------------------- */

static weft_status_t modify(struct ud_iface *iface, struct ibv_qp_attr *attr, int mask,
                            const char *what) {
    int error = ibv_modify_qp(iface->qp, attr, mask);
    return error ? weft__rd_fail(what, error) : WEFT_OK;
}

/* From wherever it is, through RESET: what is queued is forgotten, and what the queue still
 * reports that belongs to an earlier epoch. The numbers of packets begin anywhere. */
static weft_status_t raise(struct ud_iface *iface) {
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
    struct ibv_qp_attr init = {
        .qp_state = IBV_QPS_INIT, .port_num = iface->device->port, .qkey = iface->qkey};
    struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR};
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
                              .sq_psn = (uint32_t)weft__random(iface->iface.reactor) & 0xffffff};
    weft_status_t st = modify(iface, &reset, IBV_QP_STATE, "RESET of a queue pair");
    if (st < 0) return st;
    iface->epoch++;
    if (weft__ud_paths_are_old(&iface->paths)) weft__ud_paths_renew(&iface->paths);
    st = modify(iface, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY,
                "INIT of a queue pair");
    if (st == WEFT_OK) st = weft__ud_receive_reset(iface);
    if (st == WEFT_OK) st = modify(iface, &rtr, IBV_QP_STATE, "RTR of a queue pair");
    if (st == WEFT_OK)
        st = modify(iface, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN, "RTS of a queue pair");
    if (st == WEFT_OK) weft__ud_send_reset(iface);
    return st;
}

static void post_notified(struct ud_iface *iface) {
    weft__job_post(iface->iface.reactor, &iface->notified);
}

static void raise_again(struct ud_iface *iface) {
    weft_status_t st = raise(iface);
    ud_count(iface)->rdma_ud_resets++;
    if (st < 0) {
        iface->why = st;
        (void)weft__causes_line(st, iface->cause, sizeof iface->cause);
    }
    post_notified(iface);
}

/* What its lanes were lost by: the event, or what failed before it. */
static const char *loss_by(enum ud_qp_event event) {
    switch (event) {
    case UD_QP_EV_PORT_DOWN: return "the port of this side's RDMA device went down";
    case UD_QP_EV_REMOVED: return "this side's RDMA device was removed";
    default: return "this side's queue pair cannot be used any more";
    }
}

/* At once; later if it was not long ago. The timer is reserved, so that starting it cannot fail. */
static void repair_soon(struct ud_iface *iface) {
    struct reactor *r = iface->iface.reactor;
    uint64_t now = weft__now(r);
    bool quiesced = now - iface->broke_at > QUIESCED_NS;
    if (quiesced)
        iface->pause = 0;
    else
        iface->pause = iface->pause ? 2 * iface->pause : PAUSE_FIRST_NS;
    if (iface->pause > PAUSE_MOST_NS) iface->pause = PAUSE_MOST_NS;
    iface->broke_at = now;
    (void)weft__timer_start(r, &iface->repair, now + iface->pause);
}

static void fire_repair(struct timer *timer) {
    struct ud_iface *iface = OF_REPAIR(timer);
    weft__ud_qp_step(iface, UD_QP_EV_REPAIR);
}

/* ---- what it asks for ------------------------------------------------------------------------ */

static void on_effect(struct fsm *m, unsigned effect) {
    struct ud_iface *iface = OF_FSM(m);
    switch ((enum ud_qp_effect)effect) {
    case UD_QP_FX_HALT: weft__ud_send_halt(iface); break;
    case UD_QP_FX_REPAIR_SOON: repair_soon(iface); break;
    case UD_QP_FX_RAISE: raise_again(iface); break;
    case UD_QP_FX_LOSE:
        iface->lost = true;
        post_notified(iface);
        break;
    case UD_QP_FX_DESTROY:
        weft__ud_qp_close(iface);
        weft__rd_device_drop(iface->device, &iface->user);
        iface->device = NULL;
        break;
    case UD_QP_N_EFFECTS: break;
    }
}

static void on_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    weft__log(weft__reactor_context(OF_FSM(m)->iface.reactor), WEFT_LOG_ERROR, "rdma",
              "rdma_ud: %s in state %s", m->port->machine->event_name[event], fsm_state_name(m));
}

static const struct fsm_port port = {&weft__ud_qp_machine, on_effect, on_fail};

void weft__ud_qp_step(struct ud_iface *iface, enum ud_qp_event event) {
    bool was = iface->lost;
    weft__fsm_step(&iface->fsm, event);
    bool known = event == UD_QP_EV_FAILED && iface->why < 0 && *iface->cause;
    if (iface->lost && !was && !known)
        snprintf(iface->cause, sizeof iface->cause, "%s", loss_by(event));
}

/* Lanes learn of it outside of the call that found it. */
static void run_notified(struct job *job) {
    struct ud_iface *iface = OF_NOTIFIED(job);
    if (iface->why < 0 && !ud_qp_is_dead(&iface->fsm) && !iface->lost)
        weft__ud_qp_step(iface, UD_QP_EV_FAILED);
    if (iface->lost) {
        struct ud_lane *lane, *next;
        iface->lost = false;
        for (lane = TAILQ_FIRST(&iface->lanes); lane; lane = next) {
            next = TAILQ_NEXT(lane, of_iface);
            weft__ud_lane_lost(lane, iface->why < 0 ? iface->why : WEFT_ERR_IO);
        }
    }
    weft__ud_send_turn(iface);
}

/* ---- what the device says -------------------------------------------------------------------- */

static void broke(struct rd_cq *cq) {
    weft__ud_qp_step(container_of(cq, struct ud_iface, cq), UD_QP_EV_FAILED);
}

static void device_event(struct rd_user *user, const struct ibv_async_event *event) {
    struct ud_iface *iface = OF_USER(user);
    switch (event->event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
        if (event->element.qp == iface->qp) weft__ud_qp_step(iface, UD_QP_EV_FAULT);
        break;
    case IBV_EVENT_PORT_ERR:
        if (event->element.port_num == iface->device->port)
            weft__ud_qp_step(iface, UD_QP_EV_PORT_DOWN);
        break;
    case IBV_EVENT_PORT_ACTIVE:
        if (event->element.port_num == iface->device->port)
            weft__ud_qp_step(iface, UD_QP_EV_PORT_UP);
        break;
    case IBV_EVENT_GID_CHANGE: /* what is under way goes by the old place of ours, and would fail */
        if (weft__ud_paths_are_old(&iface->paths)) weft__ud_qp_step(iface, UD_QP_EV_FAULT);
        break;
    case IBV_EVENT_CQ_ERR:
        if (event->element.cq == iface->cq.cq) broke(&iface->cq);
        break;
    default: break;
    }
}

static void device_gone(struct rd_user *user) {
    weft__ud_qp_step(OF_USER(user), UD_QP_EV_REMOVED);
}

/* ---- completions ----------------------------------------------------------------------------- */

/* Bit 63 is set on sends, then come 15 of the epoch; the rest is the datagram's number. */
static void took(struct rd_cq *cq, const struct ibv_wc *wc) {
    struct ud_iface *iface = container_of(cq, struct ud_iface, cq);
    if ((uint16_t)(wc->wr_id >> 48 & 0x7fff) != (iface->epoch & 0x7fff)) return;
    if (wc->status != IBV_WC_SUCCESS) {
        if (wc->status != IBV_WC_WR_FLUSH_ERR)
            weft__log_limited(weft__reactor_context(iface->iface.reactor), WEFT_LOG_WARN, "rdma",
                              "rdma_ud: %s", ibv_wc_status_str(wc->status));
        return weft__ud_qp_step(iface, UD_QP_EV_FAULT);
    }
    if (wc->wr_id >> 63)
        weft__ud_send_took(iface, wc->wr_id & ((UINT64_C(1) << 48) - 1));
    else
        weft__ud_receive_took(iface, wc);
}

static void polled(struct rd_cq *cq) {
    struct ud_iface *iface = container_of(cq, struct ud_iface, cq);
    if (ud_qp_is_running(&iface->fsm) && weft__ud_receive_turn(iface) < 0)
        weft__ud_qp_step(iface, UD_QP_EV_FAULT);
    weft__ud_send_turn(iface);
}

/* ---- opening and closing --------------------------------------------------------------------- */

static weft_status_t make_qp(struct ud_iface *iface) {
    struct ibv_qp_init_attr attr = {.send_cq = iface->cq.cq,
                                    .recv_cq = iface->cq.cq,
                                    .cap = {.max_send_wr = iface->send.size,
                                            .max_recv_wr = iface->receive.size,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1,
                                            .max_inline_data = UD_INLINE},
                                    .qp_type = IBV_QPT_UD};
    iface->qp = ibv_create_qp(iface->device->pd, &attr);
    if (!iface->qp) { /* perhaps it takes nothing inline */
        attr.cap.max_inline_data = 0;
        iface->qp = ibv_create_qp(iface->device->pd, &attr);
    }
    if (!iface->qp) return weft__rd_fail("ibv_create_qp", errno);
    iface->qpn = iface->qp->qp_num;
    iface->send.inline_most = attr.cap.max_inline_data;
    return WEFT_OK;
}

/* Both rings lie in one registration. */
static weft_status_t register_rings(struct ud_iface *iface) {
    struct ud_send *tx = &iface->send;
    struct ud_receive *rx = &iface->receive;
    size_t all = (size_t)tx->size * tx->stride + (size_t)rx->size * rx->stride;
    iface->mr = ibv_reg_mr(iface->device->pd, tx->bytes, all, IBV_ACCESS_LOCAL_WRITE);
    if (!iface->mr) return weft__rd_fail("ibv_reg_mr of datagrams (see ulimit -l)", errno);
    tx->sge.lkey = iface->mr->lkey;
    for (uint32_t i = 0; i < rx->size; i++) rx->sge[i].lkey = iface->mr->lkey;
    return WEFT_OK;
}

void weft__ud_qp_init(struct ud_iface *iface) {
    fsm_init(&iface->fsm, &port, UD_QP_RUNNING, 1);
    iface->user.event = device_event;
    iface->user.gone = device_gone;
    iface->notified.run = run_notified;
    iface->repair.fire = fire_repair;
    iface->cq.took = took;
    iface->cq.polled = polled;
    iface->cq.broke = broke;
}

weft_status_t weft__ud_qp_open(struct ud_iface *iface) {
    struct reactor *r = iface->iface.reactor;
    iface->token = weft__random(r);
    /* those with the highest bit are the kernel's */
    do iface->qkey = (uint32_t)weft__random(r) & INT32_MAX;
    while (iface->qkey == 0);
    iface->broke_at = weft__now(r) - 2 * (uint64_t)QUIESCED_NS;
    weft_status_t st = weft__timer_reserve(r, &iface->repair);
    if (st < 0) return st;
    st = register_rings(iface);
    if (st == WEFT_OK)
        st = weft__rd_cq_open(&iface->cq, iface->device, iface->send.size + iface->receive.size);
    if (st == WEFT_OK) st = make_qp(iface);
    if (st == WEFT_OK) st = raise(iface);
    if (st < 0) weft__ud_qp_close(iface);
    return st;
}

void weft__ud_qp_close(struct ud_iface *iface) {
    weft__timer_release(iface->iface.reactor, &iface->repair);
    if (iface->qp) ibv_destroy_qp(iface->qp);
    iface->qp = NULL;
    weft__rd_cq_close(&iface->cq);
    weft__ud_paths_end(&iface->paths);
    if (iface->mr) ibv_dereg_mr(iface->mr);
    iface->mr = NULL;
}
