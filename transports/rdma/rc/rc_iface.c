/* The rdma_rc interface: opening a device, and its attributes. */
#include "rc.h"

#include <errno.h>
#include <stdio.h>
#include <transports/common.h>
#include <transports/rdma/verbs/domain.h>

/* ---- what the device has --------------------------------------------------------------------- */

static uint32_t least(uint64_t a, uint64_t b) {
    return (uint32_t)(a < b ? a : b);
}

/* What it says of inline data is known only of a queue pair. */
static weft_status_t probe(struct rc_iface *iface) {
    if (weft__rc_given(iface)->n_qp) return WEFT_OK; /* known, of the given ones */
    struct ibv_qp_init_attr init = {.send_cq = iface->cq.cq,
                                    .recv_cq = iface->cq.cq,
                                    .srq = iface->srq,
                                    .cap = {.max_send_wr = iface->depth,
                                            .max_send_sge = iface->iface.attr.max_iov + 1,
                                            .max_inline_data = RC_INLINE},
                                    .qp_type = IBV_QPT_RC};
    struct ibv_qp *qp = ibv_create_qp(iface->device->pd, &init);
    if (!qp) {
        init.cap.max_inline_data = 0;
        qp = ibv_create_qp(iface->device->pd, &init);
    }
    if (!qp) return weft__rd_fail("ibv_create_qp", errno);
    iface->max_inline = least(init.cap.max_inline_data, RC_INLINE);
    ibv_destroy_qp(qp);
    return WEFT_OK;
}

static weft_status_t limits(struct rc_iface *iface) {
    weft_context_t *context = weft__reactor_context(iface->iface.reactor);
    const struct ibv_device_attr *has = &iface->device->attr;
    uint64_t buffer = weft__setting_u64(context, SETTING_RDMA_BUFFER);
    if (has->max_sge < 2 || has->max_srq < 1)
        return weft__fail(WEFT_ERR_UNSUPPORTED, "device %s has too few resources",
                          iface->device->name);
    iface->buffer = (uint32_t)buffer;
    iface->depth = least(RC_DEPTH, (uint64_t)has->max_qp_wr);
    while (iface->depth & (iface->depth - 1)) iface->depth &= iface->depth - 1; /* a power of two */
    iface->most_receives =
        least(weft__setting_u64(context, SETTING_RDMA_RECEIVES), (uint64_t)has->max_srq_wr);
    if (iface->most_receives < 16) iface->most_receives = 16;
    iface->iface.attr.max_iov = least(RC_IOV, (uint64_t)has->max_sge - 1);
    uint32_t cqe = least((uint64_t)has->max_cqe, INT32_MAX);
    weft_status_t st = weft__rc_given_limits(iface, &cqe);
    if (st < 0) return st;
    uint64_t fit = (cqe - iface->most_receives) / iface->depth;
    iface->most_lanes = least(weft__setting_u64(context, SETTING_RDMA_QUEUE_PAIRS), fit);
    if (weft__rc_given(iface)->n_qp)
        iface->most_lanes = least(iface->most_lanes, weft__rc_given(iface)->n_qp);
    if (iface->most_lanes > (unsigned)has->max_qp) iface->most_lanes = (unsigned)has->max_qp;
    iface->reads =
        (uint8_t)least(RC_READS, (uint64_t)(has->max_qp_rd_atom < has->max_qp_init_rd_atom
                                                ? has->max_qp_rd_atom
                                                : has->max_qp_init_rd_atom));
    iface->atomics = has->atomic_cap == IBV_ATOMIC_NONE || iface->reads == 0 ? RC_ATOMICS_NONE
                     : has->atomic_cap == IBV_ATOMIC_GLOB                    ? RC_ATOMICS_GLOBAL
                                                                             : RC_ATOMICS_DEVICE;
    iface->max_grants = weft__setting_u32(context, SETTING_RDMA_MAX_GRANTS, UINT32_MAX);
    iface->software = rd_is_software(iface->device);
    return WEFT_OK;
}

/* Nothing was measured on hardware: these are what its makers' data sheets promise. In software
 * it is slower than tcp. */
static void attributes_iface(struct rc_iface *iface) {
    struct iface_attr *attr = &iface->iface.attr;
    attr->caps = CAP_AM_SHORT | CAP_AM_BCOPY | CAP_AM_ZCOPY | CAP_RELIABLE | CAP_CONNECT_TO_IFACE |
                 CAP_CONNECT_TO_LANE | CAP_LISTEN | CAP_PUT | CAP_GET | CAP_WAKEUP |
                 CAP_PEER_DEATH | CAP_INTER_NODE | CAP_DEVICE_MEMORY;
    if (iface->atomics != RC_ATOMICS_NONE) attr->caps |= CAP_ATOMIC_DEVICE;
    attr->max_short = RC_INLINE - 8;
    attr->max_bcopy = RC_PACKED;
    attr->max_zcopy_header = RC_HEADER;
    attr->max_zcopy = iface->buffer - RC_HEADER;
    attr->latency_ns = iface->software ? 20000 : 1500;
    attr->bandwidth = iface->software ? 1e9 : 12e9;
    attr->overhead_ns = iface->software ? 5000 : 150;
    attr->scarce = iface->most_lanes;
    attr->max_put_short = RC_INLINE;
    attr->max_put_bcopy = attr->max_get_bcopy = RC_PACKED;
    attr->max_put_zcopy = attr->max_get_zcopy = RC_ONE_SIDED;
    attr->order = RMA_ORDER_PUTS;
    attr->done = RMA_DONE_SCHEDULED;
}

/* ---- the device comes and goes --------------------------------------------------------------- */

static struct rc_iface *of_user(struct rd_user *user) {
    return container_of(user, struct rc_iface, user);
}

static void close_queues(struct rc_iface *iface) {
    weft__rc_receives_close(iface);
    weft__rd_cq_close(&iface->cq);
    weft__rd_pool_end(&iface->send);
    weft__rd_pool_end(&iface->receive);
    weft__rd_pool_end(&iface->words);
    iface->discard_buf = NULL;
}

static void lanes_lose_device(struct rc_iface *iface, weft_status_t why, const char *what) {
    struct rc_lane *lane;
    TAILQ_FOREACH(lane, &iface->lanes, of_iface) {
        weft__rc_lane_noted(lane, weft__fail(why, "%s", what));
        weft__fsm_step(&lane->machine.fsm, RC_QP_EV_GONE);
    }
}

/* No event reports a new device; a listener on it checks from time to time. */
static void look_later(struct rc_iface *iface) {
    struct reactor *r = iface->iface.reactor;
    if (!LIST_EMPTY(&iface->listeners))
        (void)weft__timer_start(r, &iface->again, weft__now(r) + RC_AGAIN_MS * NS_PER_MS);
}

static void lose_device(struct rc_iface *iface, weft_status_t why, const char *what) {
    struct tl_listener *l;
    lanes_lose_device(iface, why, what);
    LIST_FOREACH(l, &iface->listeners, of_iface) weft__rd_cm_end(&l->cm);
    weft__rc_mems_end(iface, false);
    close_queues(iface);
    weft__rd_device_drop(iface->device, &iface->user);
    iface->device = NULL;
    weft__timer_stop(iface->iface.reactor, &iface->again);
    look_later(iface);
}

static void device_gone(struct rd_user *user) {
    lose_device(of_user(user), WEFT_ERR_PEER_FAILED, "the RDMA device was removed");
}

static void cq_broke(struct rd_cq *cq) {
    lose_device(container_of(cq, struct rc_iface, cq), WEFT_ERR_IO,
                "the completion queue overflowed or broke");
}

/* NULL: it is another's, of the same device. */
static struct rc_lane *lane_of_qp(const struct rc_iface *iface, const struct ibv_qp *qp) {
    struct rc_lane *lane = weft__rc_lane_find(iface, qp->qp_num);
    return lane && lane->qp == qp ? lane : NULL;
}

static void device_event(struct rd_user *user, const struct ibv_async_event *event) {
    struct rc_iface *iface = of_user(user);
    struct rc_lane *lane;
    switch (event->event_type) {
    case IBV_EVENT_QP_LAST_WQE_REACHED:
        lane = lane_of_qp(iface, event->element.qp);
        if (!lane) break;
        lane->last_received = true;
        weft__rd_cq_drain(&iface->cq);
        weft__rc_lane_drained(lane);
        break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
        lane = lane_of_qp(iface, event->element.qp);
        if (lane)
            weft__rc_lane_break(lane, weft__fail(WEFT_ERR_PEER_FAILED, "%s",
                                                 ibv_event_type_str(event->event_type)));
        break;
    case IBV_EVENT_SRQ_LIMIT_REACHED:
        if (event->element.srq == iface->srq) weft__rc_receives_more(iface);
        break;
    case IBV_EVENT_CQ_ERR:
        if (event->element.cq == iface->cq.cq) cq_broke(&iface->cq);
        break;
    /* a port that is down may come back; requests of that time are sent again, or fail */
    default: break;
    }
}

static weft_status_t open_queues(struct rc_iface *iface) {
    unsigned most = iface->most_lanes * RC_SIGNAL + 256;
    iface->cq.took = weft__rc_took;
    iface->cq.polled = weft__rc_polled;
    iface->cq.broke = cq_broke;
    weft__rd_pool_init(&iface->send, iface->device, iface, RC_PACKED, RC_CHUNK, most);
    weft__rd_pool_init(&iface->receive, iface->device, iface, iface->buffer, RC_CHUNK,
                       iface->most_receives);
    weft__rd_pool_init(&iface->words, iface->device, iface, sizeof(uint64_t), RC_WORDS,
                       iface->most_lanes * iface->depth + 1);
    weft__rd_buf_refs_init(&iface->buf_refs, iface->device, iface);
    struct ibv_cq *given = weft__rc_given(iface)->cq;
    unsigned depth = iface->most_lanes * iface->depth + iface->most_receives;
    weft_status_t st = given ? weft__rd_cq_use(&iface->cq, iface->device, given)
                             : weft__rd_cq_open(&iface->cq, iface->device, depth);
    if (st == WEFT_OK) st = weft__rc_receives_open(iface);
    if (st == WEFT_OK) st = probe(iface);
    return st;
}

static weft_status_t open_device(struct rc_iface *iface) {
    struct reactor *r = iface->iface.reactor;
    iface->user = (struct rd_user){.event = device_event, .gone = device_gone};
    weft_status_t st = weft__rd_device_hold(r, &iface->user, &iface->device);
    if (st < 0) return st;
    st = limits(iface);
    if (st == WEFT_OK) st = open_queues(iface);
    if (st < 0) {
        close_queues(iface);
        weft__rd_device_drop(iface->device, &iface->user);
        iface->device = NULL;
        return st;
    }
    snprintf(iface->device_name, sizeof iface->device_name, "%s", iface->device->name);
    return WEFT_OK;
}

weft_status_t weft__rc_iface_revive(struct rc_iface *iface) {
    weft_status_t st = open_device(iface);
    if (st < 0) return weft__fail_in(WEFT_ERR_UNREACHABLE, "the RDMA device was removed");
    weft__timer_stop(iface->iface.reactor, &iface->again);
    if (!weft__rc_listeners_again(iface)) look_later(iface);
    return WEFT_OK;
}

void weft__rc_look_again(struct timer *timer) {
    struct rc_iface *iface = container_of(timer, struct rc_iface, again);
    weft__rc_receives_again(iface);
    if (iface->device ? !weft__rc_listeners_again(iface) : weft__rc_iface_revive(iface) < 0)
        look_later(iface);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void iface_close(struct iface *i) {
    struct rc_iface *iface = (struct rc_iface *)i;
    while (!TAILQ_EMPTY(&iface->lanes)) weft__rc_lane_end(TAILQ_FIRST(&iface->lanes));
    while (!LIST_EMPTY(&iface->listeners)) weft__rc_listener_close(LIST_FIRST(&iface->listeners));
    weft__rc_mems_end(iface, true);
    close_queues(iface);
    weft__rd_device_drop(iface->device, &iface->user);
    weft__slab_end(&iface->lane_slab);
    weft__slab_end(&iface->op_slab);
    weft__timer_release(i->reactor, &iface->again);
    weft__rc_trust_close(iface);
    weft__free_later(i->reactor, iface);
}

static const struct iface_mem_ops mem_ops = {.mem_register = weft__rc_mem_register,
                                             .reuses = weft__rc_mem_reuses,
                                             .mem_revoke = weft__rc_mem_revoke,
                                             .key_pack = weft__rc_key_pack};
static const struct iface_ops ops = {.address = weft__rc_own_address,
                                     .reachable = weft__rc_reachable,
                                     .connect = weft__rc_connect_address,
                                     .connect_uri = weft__rc_connect_uri,
                                     .listen = weft__rc_listen,
                                     .listener_uri = weft__rc_listener_uri,
                                     .listener_close = weft__rc_listener_close,
                                     .lane_create = weft__rc_lane_create,
                                     .close = iface_close,
                                     .mem = &mem_ops};

static weft_status_t rc_open(struct reactor *r, const struct iface_params *params,
                             struct iface **iface_p) {
    struct rc_iface *iface = weft__new(r, struct rc_iface);
    if (!iface) return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the rdma_rc interface");
    iface_init(&iface->iface, &ops, &weft__transport_rdma_rc, iface->device_name, r, params);
    TAILQ_INIT(&iface->lanes);
    TAILQ_INIT(&iface->worked);
    TAILQ_INIT(&iface->starved);
    LIST_INIT(&iface->listeners);
    weft__slab_init(&iface->lane_slab, r, iface, sizeof(struct rc_lane), "rc lanes");
    weft__slab_init(&iface->op_slab, r, iface, sizeof(struct rc_op), "rc operations");
    iface->again.fire = weft__rc_look_again;
    iface->brief = (struct ibv_send_wr){
        .opcode = IBV_WR_SEND_WITH_IMM, .sg_list = &iface->brief_piece, .num_sge = 1};
    weft_status_t st = weft__rc_trust_open(iface);
    if (st == WEFT_OK) st = weft__timer_reserve(r, &iface->again);
    if (st == WEFT_OK) st = open_device(iface);
    if (st < 0) {
        weft__slab_end(&iface->lane_slab);
        weft__slab_end(&iface->op_slab);
        weft__timer_release(r, &iface->again);
        weft__free_later(r, iface);
        return st;
    }
    attributes_iface(iface);
    *iface_p = &iface->iface;
    return WEFT_OK;
}

const struct transport weft__transport_rdma_rc = {
    .name = "rdma_rc", .open = rc_open, .scheme = "rdma", .domains = &weft__rd_domains};
