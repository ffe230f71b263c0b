/* Encoders and decoders of datagrams and addresses. */
#include "ud_wire.h"
#include <string.h>
#include <transports/transport.h>

/* The keys with the highest bit are the kernel's to use. */
static bool is_qkey(uint32_t qkey) {
    return qkey != 0 && qkey < UINT32_C(1) << 31;
}

void weft__ud_frame_encode(const struct ud_frame *frame, void *to) {
    uint8_t *at = to;
    at[0] = UD_VERSION;
    at[1] = frame->kind;
    at[2] = frame->id;
    at[3] = 0;
    rd_put32(at + 4, frame->to);
    rd_put32(at + 8, frame->from);
    rd_put32(at + 12, frame->qkey);
    rd_put64(at + 16, frame->token);
    if (frame->kind == UD_HANDSHAKE) rd_put64(at + 24, frame->mine);
}

bool weft__ud_frame_decode(const void *bytes, size_t len, struct ud_frame *frame) {
    const uint8_t *from = bytes;
    if (len < UD_HEAD || from[0] != UD_VERSION || from[3] != 0) return false;
    size_t head = ud_head((enum ud_kind)from[1]);
    if (len < head) return false;
    *frame = (struct ud_frame){.kind = from[1],
                               .id = from[2],
                               .to = rd_get32(from + 4),
                               .from = rd_get32(from + 8),
                               .qkey = rd_get32(from + 12),
                               .token = rd_get64(from + 16),
                               .mine = head == UD_HEAD_MOST ? rd_get64(from + 24) : 0,
                               .data = from + head,
                               .len = len - head};
    if (frame->kind == UD_NOTHING) return frame->id == 0 && frame->len == 0;
    if (frame->kind < UD_MESSAGE || frame->kind >= UD_N_KINDS) return false;
    return frame->from != 0 && is_qkey(frame->qkey) && frame->id < LANE_AM_IDS;
}

void weft__ud_address_encode(const struct ud_address *address, void *to) {
    uint8_t *at = to;
    rd_put32(at, UD_VERSION | address->qpn << 8);
    rd_put32(at + 4, address->qkey);
    rd_put64(at + 8, address->token);
    weft__rd_place_encode(&address->place, at + 16);
}

weft_status_t weft__ud_address_decode(const void *bytes, size_t len, struct ud_address *address) {
    const uint8_t *from = bytes;
    if (len != UD_ADDRESS || from[0] != UD_VERSION) return WEFT_ERR_ADDRESS;
    struct ud_address a = {
        .qpn = rd_get32(from) >> 8, .qkey = rd_get32(from + 4), .token = rd_get64(from + 8)};
    if (a.qpn == 0 || !is_qkey(a.qkey)) return WEFT_ERR_ADDRESS;
    weft_status_t st = weft__rd_place_decode(from + 16, len - 16, &a.place);
    if (st < 0) return st;
    *address = a;
    return WEFT_OK;
}

static void map_v4(const uint8_t ip[4], uint8_t gid[16]) {
    memset(gid, 0, 10);
    gid[10] = gid[11] = 0xff;
    memcpy(gid + 12, ip, 4);
}

bool weft__ud_source_decode(const void *bytes, size_t len, bool v4, uint8_t gid[16]) {
    enum { V4_AT = 20, V4_SOURCE = 12, V4_PLAIN = 0x45, SOURCE = 8 };
    const uint8_t *from = bytes;
    if (len < UD_GRH) return false;
    if (v4) {
        if (from[V4_AT] != V4_PLAIN) return false;
        map_v4(from + V4_AT + V4_SOURCE, gid);
        return true;
    }
    if (from[0] >> 4 != 6) return false;
    memcpy(gid, from + SOURCE, 16);
    return true;
}

_Static_assert(16 + RD_PLACE_SIZE == UD_ADDRESS, "an address ends with its place");
