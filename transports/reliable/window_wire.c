/* Encoder and decoder of the window's frames. */
#include "window_wire.h"
#include <string.h>
#include <transports/transport.h>

static void put_window_wire(uint8_t *to, uint64_t value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; i++) to[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t get_window_wire(const uint8_t *from, unsigned bytes) {
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++) value |= (uint64_t)from[i] << 8 * i;
    return value;
}

static bool handshakes(uint8_t kind) {
    return kind == WINDOW_HELLO || kind == WINDOW_WELCOME;
}

size_t weft__window_encode(const struct window_frame *f, uint8_t *to) {
    to[0] = (uint8_t)(f->kind | f->paused * WINDOW_PAUSED);
    to[1] = f->id;
    put_window_wire(to + 2, f->more, 2);
    put_window_wire(to + 4, f->tag, 4);
    put_window_wire(to + 8, f->seq, 4);
    put_window_wire(to + 12, f->ack, 4);
    put_window_wire(to + 16, f->sack, 8);
    if (!handshakes(f->kind)) return WINDOW_HEAD;
    put_window_wire(to + 24, f->my_tag, 4);
    put_window_wire(to + 28, f->version, 2);
    put_window_wire(to + 30, 0, 2);
    return WINDOW_HANDSHAKE;
}

bool weft__window_decode(const void *bytes, size_t len, struct window_frame *f) {
    const uint8_t *from = bytes;
    if (len < WINDOW_HEAD) return false;
    *f = (struct window_frame){.kind = from[0] & (uint8_t)~WINDOW_PAUSED,
                               .paused = from[0] & WINDOW_PAUSED,
                               .id = from[1],
                               .more = (uint16_t)get_window_wire(from + 2, 2),
                               .tag = (uint32_t)get_window_wire(from + 4, 4),
                               .seq = (uint32_t)get_window_wire(from + 8, 4),
                               .ack = (uint32_t)get_window_wire(from + 12, 4),
                               .sack = get_window_wire(from + 16, 8),
                               .data = from + WINDOW_HEAD,
                               .len = len - WINDOW_HEAD};
    if (f->kind < WINDOW_HELLO || f->kind >= WINDOW_N_KINDS) return false;
    if (f->kind == WINDOW_DATA) return f->id < LANE_AM_IDS && f->more < WINDOW_FRAGMENTS;
    if (f->id || f->more) return false;
    if (!handshakes(f->kind)) return f->len == 0;
    if (len != WINDOW_HANDSHAKE || get_window_wire(from + 30, 2)) return false;
    f->my_tag = (uint32_t)get_window_wire(from + 24, 4);
    f->version = (uint16_t)get_window_wire(from + 28, 2);
    return f->my_tag != 0;
}
