/*
 * What a datagram of rdma_ud holds, and what an interface's address says. Little-endian.
 *
 *     0 version   1 kind   2 id   3 zero   4 to   8 from   12 qkey   16 token   24 …
 *     of a HANDSHAKE: 24 mine   32 …
 *
 * `to` is the receiver's number for the lane, 0 as long as the sender does not know it; `from` is
 * the sender's own. Numbers have generations (ud_table.h), so that a datagram of an earlier lane
 * finds nothing. `qkey` is what the sender's queue pair asks of datagrams. `token` is the
 * receiver's secret, looked at when the datagram finds no lane: a datagram without it creates no
 * lane. Q_Key and token are in the address, and so is `mine`.
 */
#ifndef WEFT_TRANSPORTS_RDMA_UD_UD_WIRE_H
#define WEFT_TRANSPORTS_RDMA_UD_UD_WIRE_H

#include <transports/rdma/verbs/wire.h>

enum { UD_VERSION = 1, UD_HEAD = 24, UD_HEAD_MOST = 32, UD_ADDRESS = 36, UD_GRH = 40 };

enum ud_kind {
    UD_MESSAGE = 1, /* a lane message of id `id` */
    UD_HANDSHAKE,   /* the same, from a sender that does not know the receiver's lane yet */
    UD_NOTHING,     /* thrown away: it was sent for its completion's sake */
    UD_N_KINDS
};

struct ud_frame {
    uint8_t kind, id;
    uint32_t to, from, qkey;
    uint64_t token, mine;
    const uint8_t *data;
    size_t len;
};

static inline size_t ud_head(enum ud_kind kind) {
    return kind == UD_HANDSHAKE ? UD_HEAD_MOST : UD_HEAD;
}
/* Its head; `data` is not looked at. */
void weft__ud_frame_encode(const struct ud_frame *frame, void *to);
/* False: no frame. `frame->data` points into the bytes. */
bool weft__ud_frame_decode(const void *bytes, size_t len, struct ud_frame *frame);

/* Where an interface is: its port, its queue pair, and what datagrams for it must carry. */
struct ud_address {
    struct rd_place place;
    uint32_t qpn, qkey;
    uint64_t token;
};
void weft__ud_address_encode(const struct ud_address *address, void *to);
weft_status_t weft__ud_address_decode(const void *bytes, size_t len, struct ud_address *address);

/* The GID in the UD_GRH bytes that stand before a datagram: an IPv4 header in their second half
 * when `v4`, else a global route header or an IPv6 one. False: another header stands there. */
bool weft__ud_source_decode(const void *bytes, size_t len, bool v4, uint8_t gid[16]);

#endif
