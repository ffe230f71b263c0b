/* Datagrams that arrive: handed on from where the device wrote them, and their places given back by the batch. */
#include "ud.h"

#include <errno.h>
#include <string.h>

/* ---- the ring -------------------------------------------------------------------------------------------------- */

weft_status_t ud_receive_open(struct ud_iface *iface) {
    struct ud_receive *rx = &iface->receive;
    rx->batch = rx->size / UD_BATCH_PART;
    rx->wr = weft__alloc(iface, rx->size * sizeof *rx->wr, "rdma_ud receives");
    rx->sge = weft__alloc(iface, rx->size * sizeof *rx->sge, "rdma_ud pieces");
    if (!rx->wr || !rx->sge) return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %u receives", rx->size);
    for (uint32_t i = 0; i < rx->size; i++) {
        rx->sge[i] = (struct ibv_sge){.addr = (uintptr_t)(rx->bytes + (size_t)i * rx->stride), .length = UD_ROOM};
        rx->wr[i] =
            (struct ibv_recv_wr){.next = &rx->wr[(i + 1) & (rx->size - 1)], .sg_list = &rx->sge[i], .num_sge = 1};
    }
    return WEFT_OK;
}

/* The next `n` of the circle, which is cut behind them meanwhile. */
static weft_status_t post(struct ud_iface *iface, uint32_t n) {
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
    return error ? rd_fail("ibv_post_recv", error) : WEFT_OK;
}

weft_status_t ud_receive_reset(struct ud_iface *iface) {
    struct ud_receive *rx = &iface->receive;
    rx->next = rx->posted;
    return post(iface, rx->size);
}

weft_status_t ud_receive_turn(struct ud_iface *iface) {
    struct ud_receive *rx = &iface->receive;
    uint32_t used = rx->size - (uint32_t)(rx->posted - rx->next);
    return used < rx->batch ? WEFT_OK : post(iface, used);
}

/* ---- who it is from ---------------------------------------------------------------------------------------------- */

static void drop(struct ud_iface *iface) {
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
    return (wc->wc_flags & IBV_WC_GRH) && ud_source_decode(bytes, UD_GRH, iface->v4, place->gid);
}

/* Nobody known sent it: the window above wants a lane, to answer by. There are not many such at a time. */
static struct ud_lane *accept_stranger(struct ud_iface *iface, const struct rd_place *place, uint32_t qpn,
                                       const struct ud_frame *frame) {
    struct ud_address peer = {.place = *place, .qpn = qpn, .qkey = frame->qkey, .token = frame->mine};
    struct ud_path *path;
    struct ud_lane *lane;
    if (frame->token != iface->token || iface->n_strangers >= iface->most_strangers) return NULL;
    if (ud_path_hold(&iface->paths, place, iface->send.done, &path) < 0) return NULL;
    if (ud_lane_new(iface, path, &peer, &lane) < 0) return NULL;
    ud_table_answer(&iface->table, &lane->node, frame->from);
    ud_lane_accept(lane);
    return lane;
}

static struct ud_lane *of_source(struct ud_iface *iface, const struct ibv_wc *wc, const uint8_t *bytes,
                                 const struct ud_frame *frame) {
    struct rd_place place;
    if (!source(iface, wc, bytes, &place)) return NULL;
    const struct ud_path *path = ud_path_find(&iface->paths, &place);
    struct ud_node *node = path ? ud_table_of_peer(&iface->table, path, wc->src_qp, frame->from) : NULL;
    return node ? ud_lane_of(node) : accept_stranger(iface, &place, wc->src_qp, frame);
}

/* A dialed lane learns who answers. */
static struct ud_lane *lane_of(struct ud_iface *iface, const struct ibv_wc *wc, const uint8_t *bytes,
                               const struct ud_frame *frame) {
    struct ud_node *node = ud_table_find(&iface->table, frame->to, wc->src_qp);
    if (__builtin_expect(!node, 0)) return of_source(iface, wc, bytes, frame);
    struct ud_lane *lane = ud_lane_of(node);
    if (__builtin_expect(node->remote != frame->from, 0)) ud_table_answer(&iface->table, node, frame->from);
    if (__builtin_expect(lane->stranger, 0)) ud_lane_heard(lane);
    return lane;
}

void ud_receive_took(struct ud_iface *iface, const struct ibv_wc *wc) {
    struct ud_receive *rx = &iface->receive;
    uint64_t number = wc->wr_id & ((UINT64_C(1) << 48) - 1);
    const uint8_t *bytes = rx->bytes + (size_t)(number & (rx->size - 1)) * rx->stride;
    struct ud_frame frame;
    rx->next = number + 1;
    if (wc->byte_len < UD_GRH || !ud_frame_decode(bytes + UD_GRH, wc->byte_len - UD_GRH, &frame))
        return drop(iface);
    if (frame.kind == UD_NOTHING) return;
    struct ud_lane *lane = lane_of(iface, wc, bytes, &frame);
    if (!lane) return drop(iface);
    lane->take(lane, &frame);
}
