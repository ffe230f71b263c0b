/*
 * A frame of the window: little-endian, 24 bytes of header, then the payload of DATA, or the
 * handshake of HELLO and WELCOME.
 *
 *      0 kind   1 id   2 more   4 tag   8 seq   12 ack   16 sack   24 …
 *
 * The highest bit of `kind` says that the sender of the frame is paused: it stores nothing, so
 * frames wait for their acknowledgement. `tag` is the number that the receiver chose for this
 * conversation (as the verification tag of SCTP, RFC 9260, section 8.5). It distinguishes frames of
 * an earlier conversation apart. The first frame is numbered by the tag of its sender.
 */
#ifndef WEFT_TRANSPORTS_RELIABLE_WINDOW_WIRE_H
#define WEFT_TRANSPORTS_RELIABLE_WINDOW_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WINDOW_HEAD = 24,
    WINDOW_HANDSHAKE = 32,
    WINDOW_VERSION = 1,
    WINDOW_FRAGMENTS = 128,
    WINDOW_PAUSED = 0x80
};

enum window_kind {
    WINDOW_HELLO = 1, /* opens a conversation; tag 0 */
    WINDOW_WELCOME,   /* accepts it */
    WINDOW_DATA,
    WINDOW_ACK,
    WINDOW_FIN,  /* numbered: the last frame */
    WINDOW_RST,  /* ends the conversation */
    WINDOW_ECHO, /* confirms the end; `tag` is the tag of the frame that it answers */
    WINDOW_N_KINDS
};

struct window_frame {
    uint8_t kind, id; /* id: of the lane message */
    uint16_t more;    /* fragments of the message that follow */
    uint32_t tag, seq, ack;
    uint64_t sack;
    uint32_t my_tag; /* HELLO, WELCOME */
    uint16_t version;
    bool paused;
    const uint8_t *data; /* DATA */
    size_t len;
};

/* Writes at most WINDOW_HANDSHAKE bytes. Returns their number, without the payload. */
size_t weft__window_encode(const struct window_frame *f, uint8_t *to);
/* False: the bytes are no frame. `f->data` points into them. */
bool weft__window_decode(const void *bytes, size_t len, struct window_frame *f);

#endif
