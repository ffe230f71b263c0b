/* The rdma_ud interface: its memory, its address, and lanes to other addresses. */
#include "ud.h"

#include <stdio.h>
#include <string.h>
#include <transports/common.h>

/* ---- the device comes and goes --------------------------------------------------------------- */

static weft_status_t hold_device(struct ud_iface *iface) {
    weft_status_t st = weft__rd_device_hold(iface->iface.reactor, &iface->user, &iface->device);
    if (st < 0) return st;
    snprintf(iface->device_name, sizeof iface->device_name, "%s", iface->device->name);
    iface->v4 = weft__rd_gid_is_v4(iface->device->place.gid);
    return WEFT_OK;
}

static void leave_device(struct ud_iface *iface) {
    weft__ud_qp_close(iface);
    weft__rd_device_drop(iface->device, &iface->user);
    iface->device = NULL;
}

/* What was promised of messages' lengths holds. */
static weft_status_t open_again(struct ud_iface *iface) {
    if (rd_mtu_bytes((enum ibv_mtu)iface->device->place.mtu) <
        iface->iface.attr.max_bcopy + UD_HEAD_MOST)
        return weft__fail(WEFT_ERR_UNREACHABLE,
                          "the MTU of this side's RDMA device became smaller");
    weft__ud_paths_move(&iface->paths, iface->device);
    return weft__ud_qp_open(iface);
}

/* No event reports that a device has come back. A request for the address and a connect
 * therefore check. Lanes of the earlier device are first notified of their loss. */
static weft_status_t ready_iface(struct ud_iface *iface) {
    if (!ud_qp_is_dead(&iface->fsm)) return WEFT_OK;
    if (iface->lost) return weft__fail(WEFT_ERR_UNREACHABLE, "this side's RDMA device was removed");
    leave_device(iface);
    weft_status_t st = hold_device(iface);
    if (st == WEFT_OK) st = open_again(iface);
    if (st < 0) {
        leave_device(iface);
        return weft__fail_in(WEFT_ERR_UNREACHABLE, "this side's RDMA device was removed");
    }
    iface->why = WEFT_OK;
    weft__ud_qp_step(iface, UD_QP_EV_REVIVED);
    return WEFT_OK;
}

/* ---- addresses ------------------------------------------------------------------------------- */

static weft_status_t address_iface(struct iface *i, void *buf, size_t *len_p) {
    struct ud_iface *iface = ud_iface(i);
    if (*len_p < UD_ADDRESS)
        return weft__fail(WEFT_ERR_TRUNCATED, "an address of rdma_ud takes %d bytes", UD_ADDRESS);
    weft_status_t st = ready_iface(iface);
    if (st < 0) return st;
    weft__ud_address_encode(
        &(struct ud_address){iface->device->place, iface->qpn, iface->qkey, iface->token}, buf);
    *len_p = UD_ADDRESS;
    return WEFT_OK;
}

/* Datagrams are as long as the port's MTU lets them be, and are not cut again: both ends need
 * the same. */
static const char *obstacle(struct ud_iface *iface, const struct ud_address *peer) {
    if (ready_iface(iface) < 0) return "this side's RDMA device was removed";
    if (ud_qp_is_dark(&iface->fsm)) return "the port of our RDMA device is down";
    const struct rd_place *mine = &iface->device->place, *theirs = &peer->place;
    if (theirs->link != mine->link) return "another kind of link";
    if (theirs->mtu != mine->mtu) return "its port has another MTU";
    if (mine->link == RD_LINK_ROCE &&
        weft__rd_gid_is_v4(theirs->gid) != weft__rd_gid_is_v4(mine->gid))
        return "one side has an IPv4 address and the other an IPv6 address";
    return NULL;
}

static weft_status_t reachable_iface(struct iface *i, const void *bytes, size_t len,
                                     const char **why_p) {
    struct ud_address peer;
    *why_p = "not an address of rdma_ud";
    if (weft__ud_address_decode(bytes, len, &peer) < 0) return WEFT_ERR_UNREACHABLE;
    *why_p = obstacle(ud_iface(i), &peer);
    if (*why_p) return WEFT_ERR_UNREACHABLE;
    *why_p = "on the same fabric, as far as one can know";
    return WEFT_OK;
}

static weft_status_t connect_iface(struct iface *i, const void *bytes, size_t len,
                                   struct lane **lane_p) {
    struct ud_iface *iface = ud_iface(i);
    struct ud_address peer;
    struct ud_path *path;
    struct ud_lane *lane;
    if (weft__ud_address_decode(bytes, len, &peer) < 0)
        return weft__fail(WEFT_ERR_ADDRESS, "not an address of rdma_ud");
    const char *why = obstacle(iface, &peer);
    if (why) return weft__fail(WEFT_ERR_UNREACHABLE, "%s", why);
    weft_status_t st = weft__ud_path_hold(&iface->paths, &peer.place, iface->send.done, &path);
    if (st == WEFT_OK) st = weft__ud_lane_new(iface, path, &peer, &lane);
    if (st < 0) return st;
    weft__ud_lane_dial(lane);
    *lane_p = &lane->lane;
    return WEFT_OK;
}

/* ---- opening and closing --------------------------------------------------------------------- */

/* A window may have accepted lanes that its owner never learned of. */
static void iface_close(struct iface *i) {
    struct ud_iface *iface = ud_iface(i);
    while (!TAILQ_EMPTY(&iface->lanes)) weft__ud_lane_free(TAILQ_FIRST(&iface->lanes));
    leave_device(iface);
    weft__timer_release(i->reactor, &iface->late);
    weft__job_drop(i->reactor, &iface->notified);
    weft__slab_end(&iface->lane_slab);
    weft__free_later(i->reactor, iface);
}

static const struct iface_ops ops = {.address = address_iface,
                                     .reachable = reachable_iface,
                                     .connect = connect_iface,
                                     .close = iface_close};

static uint32_t power_of_two(uint64_t least) {
    uint32_t n = 16;
    while (n < least && n < UD_RINGS_MOST) n *= 2;
    return n;
}

/* As the settings say, and as the device allows. */
static uint32_t ring(const struct ud_iface *iface, enum setting which) {
    uint32_t n =
        power_of_two(weft__setting_u64(weft__reactor_context(iface->iface.reactor), which));
    while (n > 16 && n > (uint32_t)iface->device->attr.max_qp_wr) n /= 2;
    return n;
}

static uint32_t lines(uint32_t bytes) {
    return (bytes + 63) & ~UINT32_C(63);
}

/* Both rings are to lie in one registration. */
static weft_status_t make_rings(struct ud_iface *iface) {
    struct ud_send *tx = &iface->send;
    struct ud_receive *rx = &iface->receive;
    tx->size = ring(iface, SETTING_RDMA_UD_SENDS);
    rx->size = ring(iface, SETTING_RDMA_UD_RECEIVES);
    tx->stride = lines(rd_mtu_bytes((enum ibv_mtu)iface->device->place.mtu));
    rx->stride = lines(UD_ROOM);
    size_t sends = (size_t)tx->size * tx->stride, all = sends + (size_t)rx->size * rx->stride;
    uint8_t *memory = weft__alloc(iface, all + 63, "rdma_ud datagrams");
    if (!memory) return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %zu bytes of datagrams", all);
    memory = (uint8_t *)(((uintptr_t)memory + 63) & ~(uintptr_t)63);
    tx->bytes = memory;
    rx->bytes = memory + sends;
    return WEFT_OK;
}

/* Nothing was measured on hardware. What counts is that a queue pair of one's own is the faster
 * one everywhere. */
static struct iface_attr attributes_iface(const struct ud_iface *iface) {
    bool software = rd_is_software(iface->device);
    uint32_t frame = rd_mtu_bytes((enum ibv_mtu)iface->device->place.mtu) - UD_HEAD_MOST;
    return (struct iface_attr){.caps = CAP_AM_SHORT | CAP_AM_BCOPY | CAP_CONNECT_TO_IFACE |
                                       CAP_WAKEUP | CAP_INTER_NODE,
                               .max_short = frame - 8,
                               .max_bcopy = frame,
                               .latency_ns = software ? 30000 : 1500,
                               .bandwidth = software ? 5e8 : 3e9,
                               .overhead_ns = software ? 8000 : 300};
}

static void ud_init(struct ud_iface *iface, struct reactor *r, const struct iface_params *params) {
    iface_init(&iface->iface, &ops, &weft__transport_rdma_ud, iface->device_name, r, params);
    weft__ud_qp_init(iface);
    TAILQ_INIT(&iface->lanes);
    TAILQ_INIT(&iface->waiting);
    TAILQ_INIT(&iface->marks);
    weft__slab_init(&iface->lane_slab, r, iface, sizeof(struct ud_lane), "rdma_ud lanes");
    weft__ud_table_init(&iface->table, iface, (uint32_t)weft__random(r));
    iface->most_unverified =
        weft__setting_u32(weft__reactor_context(r), SETTING_RDMA_UD_UNVERIFIED, UINT32_MAX);
}

static weft_status_t ud_open(struct reactor *r, const struct iface_params *params,
                             struct iface **iface_p) {
    struct ud_iface *iface = weft__new(r, struct ud_iface);
    if (!iface) return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the interface of rdma_ud");
    ud_init(iface, r, params);
    weft_status_t st = hold_device(iface);
    if (st < 0) goto free_iface;
    iface->iface.attr = attributes_iface(iface);
    uint32_t handles =
        weft__setting_u32(weft__reactor_context(r), SETTING_RDMA_UD_ADDRESS_HANDLES, UINT32_MAX);
    st = make_rings(iface);
    if (st == WEFT_OK) st = weft__ud_paths_open(&iface->paths, iface->device, iface, handles);
    if (st == WEFT_OK) st = weft__ud_receive_open(iface);
    if (st == WEFT_OK) st = weft__ud_send_open(iface);
    if (st == WEFT_OK) st = weft__ud_qp_open(iface);
    if (st < 0) goto close_iface;
    *iface_p = &iface->iface;
    return WEFT_OK;

close_iface:
    iface_close(&iface->iface);
    return st;
free_iface:
    talloc_free(iface);
    return st;
}

const struct transport weft__transport_rdma_ud = {.name = "rdma_ud", .open = ud_open};
