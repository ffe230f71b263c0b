/*
 * What tcp lanes say to each other, as bytes: handshakes, frames, and the address of an interface.
 * No I/O and no state here; every decoder takes (pointer, length) and believes nothing. All numbers
 * are little-endian.
 *
 *   handshake, 64, 96, 40 or 16 bytes
 *     0 "WEFT"  4 version u16  6 kind u8  7 zero u8, then by kind
 *     HELLO      8 worker u64  16 target u64 (0: any listener)  24 flags u32  28 zero u32
 *                32 nonce[32]
 *     CHALLENGE  8 worker u64  16 zero u64  24 flags u32  28 zero u32  32 nonce[32]
 *                64 proof[32]
 *     PROOF      8 proof[32]
 *     REFUSAL    8 status i32  12 zero u32
 *   frame
 *     0 length u32 (of what follows)  4 kind u8  5 am id u8  6 zero u16, payload, zeros up to a
 *     multiple of 8
 *   address, 40 bytes
 *     0 version u8  1 family u8 (4, 6)  2 port u16  4 scope u32  8 ip[16]  24 worker u64
 *     32 host u64
 *     then further places of 8 or 24 bytes: family u8  zero u8  port u16, ip[4] or scope u32 and
 *     ip[16]
 *
 * The dialer says HELLO, the acceptor CHALLENGE, the dialer PROOF; frames follow in both
 * directions. A proof is a MAC over a label of the role, the HELLO and the CHALLENGE without its
 * proof (transports/tcp/key.h).
 */
#ifndef WEFT_TRANSPORTS_TCP_WIRE_H
#define WEFT_TRANSPORTS_TCP_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <transports/transport.h>
#include <weft/base.h>

enum {
    TCP_VERSION = 1,
    TCP_NONCE = 32,
    TCP_PROOF = 32,
    TCP_PREFIX = 8,
    TCP_HELLO_SIZE = 64,
    TCP_CHALLENGE_SIZE = 96,
    TCP_PROOF_SIZE = 40,
    TCP_REFUSAL_SIZE = 16,
    TCP_HANDSHAKE_MAX = 96,
    TCP_FRAME_HEAD = 8,
    TCP_MAX_HEADER = 384,         /* of a zcopy message */
    TCP_MAX_PAYLOAD = 256 * 1024, /* of one frame */
    TCP_MAX_FRAME = TCP_MAX_HEADER + TCP_MAX_PAYLOAD,
    TCP_ADDRESS_SIZE = 40, /* of an address with one place */
    TCP_MAX_PLACES = 4,
    TCP_ADDRESS_MAX = 96
};

enum tcp_handshake_kind { TCP_HELLO = 1, TCP_CHALLENGE, TCP_PROVE, TCP_REFUSAL };

/* the sender holds a key; without, its proof is made with the empty one */
enum { TCP_FLAG_KEYED = 1 };

struct tcp_handshake {
    uint8_t kind;
    uint32_t flags;
    uint64_t worker, target;
    uint8_t nonce[TCP_NONCE], proof[TCP_PROOF];
    weft_status_t status; /* of a refusal */
};

/* Bytes of a handshake of that kind; 0: no such kind. */
size_t weft__tcp_handshake_size(uint8_t kind);
/* Into at least TCP_HANDSHAKE_MAX bytes; returns the length. */
size_t weft__tcp_handshake_encode(const struct tcp_handshake *g, void *to);
/*
 * OK; IN_PROGRESS: `*size_p` bytes are needed to go on; WEFT_ERR_PROTOCOL (not a handshake) or
 * WEFT_ERR_VERSION. `g` and `*size_p` (the length taken) are written only then.
 */
weft_status_t weft__tcp_handshake_decode(const void *from, size_t len, struct tcp_handshake *g,
                                         size_t *size_p);

enum tcp_frame_kind { TCP_FRAME_AM = 1, TCP_FRAME_GOODBYE };

struct tcp_frame {
    uint32_t len; /* of the payload */
    uint8_t kind, id;
};

static inline size_t tcp_frame_size(uint32_t len) {
    return TCP_FRAME_HEAD + (((size_t)len + 7) & ~(size_t)7);
}
static inline void tcp_put64(void *to, uint64_t v) {
    memcpy(to, &v, 8);
}
static inline void tcp_frame_encode(void *to, uint8_t kind, uint8_t id, uint32_t len) {
    tcp_put64(to, (uint64_t)len | (uint64_t)kind << 32 | (uint64_t)id << 40);
}
/* OK: the head is sound (the payload may still be on its way); IN_PROGRESS: fewer than 8 bytes;
 * WEFT_ERR_PROTOCOL. */
static inline weft_status_t tcp_frame_decode(const void *from, size_t len, struct tcp_frame *f) {
    uint64_t head;
    if (len < TCP_FRAME_HEAD) return WEFT_IN_PROGRESS;
    memcpy(&head, from, sizeof head);
    uint32_t size = (uint32_t)head;
    uint8_t kind = (uint8_t)(head >> 32), id = (uint8_t)(head >> 40);
    if (head >> 48 != 0) return WEFT_ERR_PROTOCOL;
    if (kind == TCP_FRAME_AM ? id >= LANE_AM_IDS || size > TCP_MAX_FRAME
                             : kind != TCP_FRAME_GOODBYE || id != 0 || size != 0)
        return WEFT_ERR_PROTOCOL;
    *f = (struct tcp_frame){.len = size, .kind = kind, .id = id};
    return WEFT_OK;
}

/* The address of a listener. */
struct tcp_place {
    uint8_t family; /* 4 or 6 */
    uint16_t port;
    uint32_t scope;
    uint8_t ip[16]; /* the first four of them for IPv4 */
};
struct tcp_address {
    struct tcp_place place[TCP_MAX_PLACES];
    unsigned n; /* 1 at least */
    uint64_t worker, host;
};
size_t weft__tcp_address_size(const struct tcp_address *a);
void weft__tcp_address_encode(const struct tcp_address *a, void *to); /* of that length */
/* WEFT_ERR_ADDRESS */
weft_status_t weft__tcp_address_decode(const void *from, size_t len, struct tcp_address *a);

#endif
