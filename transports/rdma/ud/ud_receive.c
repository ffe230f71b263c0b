/* Receiving: delivers datagrams from the device's buffers, and reposts the buffers in batches. */
#include "ud.h"

#include <base/compiler.h>
#include <errno.h>
#include <string.h>

/* ---- the ring -------------------------------------------------------------------------------- */

weft_status_t weft__ud_receive_open(struct ud_iface *iface) {
    struct ud_receive *rx = &iface->receive;
    rx->batch = rx->size / UD_BATCH_PART;
    rx->wr = weft__alloc(iface, rx->size * sizeof *rx->wr, "rdma_ud receives");
    rx->sge = weft__alloc(iface, rx->size * sizeof *rx->sge, "rdma_ud pieces");
    if (!rx->wr || !rx->sge)
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %u receives", rx->size);
    for (uint32_t i = 0; i < rx->size; i++) {
        rx->sge[i] = (struct ibv_sge){.addr = (uintptr_t)(rx->bytes + (size_t)i * rx->stride),
                                      .length = UD_ROOM};
        rx->wr[i] = (struct ibv_recv_wr){
            .next = &rx->wr[(i + 1) & (rx->size - 1)], .sg_list = &rx->sge[i], .num_sge = 1};
    }
    return WEFT_OK;
}

/* The next `n` of the circle. The circle is cut behind them during the walk. */
static weft_status_t post_datagram(struct ud_iface *iface, uint32_t n) {
    struct ud_receive *rx = &iface->receive;
    struct ibv_recv_wr *bad, *first = &rx->wr[rx->posted & (rx->size - 1)];
    uint64_t epoch = (uint64_t)(iface->epoch & 0x7fff) << 48;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t number = rx->posted + i;
        rx->wr[number & (rx->size - 1)].wr_id = epoch | number;
    }
    struct ibv_recv_wr *last = &rx->wr[(rx->posted + n - 1) & (rx->size - 1)], *next = last->next;
    last->next = NULL;
    int error = ibv_post_recv(iface->qp, first, &bad);
    last->next = next;
    rx->posted += n;
    return error ? weft__rd_fail("ibv_post_recv", error) : WEFT_OK;
}

weft_status_t weft__ud_receive_reset(struct ud_iface *iface) {
    struct ud_receive *rx = &iface->receive;
    rx->next = rx->posted;
    return post_datagram(iface, rx->size);
}

weft_status_t weft__ud_receive_turn(struct ud_iface *iface) {
    struct ud_receive *rx = &iface->receive;
    uint32_t used = rx->size - (uint32_t)(rx->posted - rx->next);
    return used < rx->batch ? WEFT_OK : post_datagram(iface, used);
}

/* ---- who it is from -------------------------------------------------------------------------- */

static void drop_datagram(struct ud_iface *iface) {
    ud_count(iface)->rdma_ud_dropped++;
}

/* The port that it came from. */
static bool source(const struct ud_iface *iface, const struct ibv_wc *wc, const uint8_t *bytes,
                   struct rd_place *place) {
    *place = (struct rd_place){.link = iface->device->place.link};
    if (place->link == RD_LINK_INFINIBAND) {
        place->lid = wc->slid;
        memcpy(place->gid, iface->device->place.gid, sizeof place->gid);
        if (!(wc->wc_flags & IBV_WC_GRH)) return true;
    }
    return (wc->wc_flags & IBV_WC_GRH) &&
           weft__ud_source_decode(bytes, UD_GRH, iface->v4, place->gid);
}

/* The sender is unknown: the window above needs a lane to answer by. The number of such lanes is
 * bounded. */
static struct ud_lane *accept_unverified(struct ud_iface *iface, const struct rd_place *place,
                                         uint32_t qpn, const struct ud_frame *frame) {
    struct ud_address peer = {
        .place = *place, .qpn = qpn, .qkey = frame->qkey, .token = frame->mine};
    struct ud_path *path;
    struct ud_lane *lane;
    if (frame->token != iface->token || iface->n_unverified >= iface->most_unverified) return NULL;
    if (weft__ud_path_hold(&iface->paths, place, iface->send.done, &path) < 0) return NULL;
    if (weft__ud_lane_new(iface, path, &peer, &lane) < 0) return NULL;
    weft__ud_table_answer(&iface->table, &lane->node, frame->from);
    weft__ud_lane_accept(lane);
    return lane;
}

static struct ud_lane *of_source(struct ud_iface *iface, const struct ibv_wc *wc,
                                 const uint8_t *bytes, const struct ud_frame *frame) {
    struct rd_place place;
    if (!source(iface, wc, bytes, &place)) return NULL;
    const struct ud_path *path = weft__ud_path_find(&iface->paths, &place);
    struct ud_node *node =
        path ? weft__ud_table_of_peer(&iface->table, path, wc->src_qp, frame->from) : NULL;
    return node ? ud_lane_of(node) : accept_unverified(iface, &place, wc->src_qp, frame);
}

/* A dialed lane learns who answers. */
static struct ud_lane *lane_of(struct ud_iface *iface, const struct ibv_wc *wc,
                               const uint8_t *bytes, const struct ud_frame *frame) {
    struct ud_node *node = ud_table_find(&iface->table, frame->to, wc->src_qp);
    if (UNLIKELY(!node)) return of_source(iface, wc, bytes, frame);
    struct ud_lane *lane = ud_lane_of(node);
    if (UNLIKELY(node->remote != frame->from))
        weft__ud_table_answer(&iface->table, node, frame->from);
    if (UNLIKELY(lane->unverified)) weft__ud_lane_received(lane);
    return lane;
}

void weft__ud_receive_took(struct ud_iface *iface, const struct ibv_wc *wc) {
    struct ud_receive *rx = &iface->receive;
    uint64_t number = wc->wr_id & ((UINT64_C(1) << 48) - 1);
    const uint8_t *bytes = rx->bytes + (size_t)(number & (rx->size - 1)) * rx->stride;
    struct ud_frame frame;
    rx->next = number + 1;
    if (wc->byte_len < UD_GRH ||
        !weft__ud_frame_decode(bytes + UD_GRH, wc->byte_len - UD_GRH, &frame))
        return drop_datagram(iface);
    if (frame.kind == UD_NOTHING) return;
    struct ud_lane *lane = lane_of(iface, wc, bytes, &frame);
    if (!lane) return drop_datagram(iface);
    lane->take(lane, &frame);
}
