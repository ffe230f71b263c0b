/*
 * A frame of the window: little-endian, 24 bytes of head, then the payload of DATA or the greeting of HELLO and WELCOME.
 *
 *      0 kind   1 id   2 more   4 tag   8 seq   12 ack   16 sack   24 …
 *
 * The highest bit of `kind`: who says it takes nothing for now, so frames wait for their acknowledgement.
 * `tag` is the number that the receiver chose for this conversation (as SCTP's verification tag, RFC 9260, section 8.5):
 * what was meant for an earlier one is recognised. The first frame is numbered by its sender's tag.
 */
#ifndef WEFT_ENDPOINTS_WINDOW_WIRE_H
#define WEFT_ENDPOINTS_WINDOW_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WINDOW_HEAD = 24, WINDOW_GREETING = 32, WINDOW_VERSION = 1, WINDOW_FRAGMENTS = 128, WINDOW_PAUSED = 0x80 };

enum window_kind {
    WINDOW_HELLO = 1, /* let us talk; tag 0 */
    WINDOW_WELCOME,   /* let us */
    WINDOW_DATA,
    WINDOW_ACK,
    WINDOW_FIN,  /* numbered: nothing comes behind it */
    WINDOW_RST,  /* it is over */
    WINDOW_ECHO, /* it is over here as well; `tag` is the offending frame's */
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

/* Into at least WINDOW_GREETING bytes; returns how many, without the payload. */
size_t weft__window_encode(const struct window_frame *f, uint8_t *to);
/* False when the bytes are no frame. `f->data` points into them. */
bool weft__window_decode(const void *bytes, size_t len, struct window_frame *f);

#endif
