/* Encoders and decoders of tcp: handshake, frames, and addresses. */
#include "wire.h"

static void put16(uint8_t *to, uint16_t v) {
    to[0] = (uint8_t)v;
    to[1] = (uint8_t)(v >> 8);
}
static void tcp_put32(uint8_t *to, uint32_t v) {
    put16(to, (uint16_t)v);
    put16(to + 2, (uint16_t)(v >> 16));
}
static uint16_t get16(const uint8_t *from) {
    return (uint16_t)(from[0] | from[1] << 8);
}
static uint32_t tcp_get32(const uint8_t *from) {
    return get16(from) | (uint32_t)get16(from + 2) << 16;
}
static uint64_t get64(const uint8_t *from) {
    return tcp_get32(from) | (uint64_t)tcp_get32(from + 4) << 32;
}

/* ---- handshake ------------------------------------------------------------------------------- */

static const uint8_t magic[4] = {'W', 'E', 'F', 'T'};

size_t weft__tcp_handshake_size(uint8_t kind) {
    switch (kind) {
    case TCP_HELLO: return TCP_HELLO_SIZE;
    case TCP_CHALLENGE: return TCP_CHALLENGE_SIZE;
    case TCP_PROVE: return TCP_PROOF_SIZE;
    case TCP_REFUSAL: return TCP_REFUSAL_SIZE;
    default: return 0;
    }
}

size_t weft__tcp_handshake_encode(const struct tcp_handshake *g, void *to) {
    uint8_t *p = to;
    size_t size = weft__tcp_handshake_size(g->kind);
    memset(p, 0, size);
    memcpy(p, magic, 4);
    put16(p + 4, TCP_VERSION);
    p[6] = g->kind;
    switch (g->kind) {
    case TCP_CHALLENGE:
        memcpy(p + 64, g->proof, TCP_PROOF);
        /* fall through */
    case TCP_HELLO:
        tcp_put64(p + 8, g->worker);
        tcp_put64(p + 16, g->target);
        tcp_put32(p + 24, g->flags);
        memcpy(p + 32, g->nonce, TCP_NONCE);
        break;
    case TCP_PROVE: memcpy(p + 8, g->proof, TCP_PROOF); break;
    case TCP_REFUSAL: tcp_put32(p + 8, (uint32_t)g->status); break;
    }
    return size;
}

/* Each byte of the prefix is judged as soon as it is there, so that junk is not waited upon. */
static weft_status_t check_prefix(const uint8_t *p, size_t len) {
    if (memcmp(p, magic, len < 4 ? len : 4) != 0) return WEFT_ERR_PROTOCOL;
    if (len >= 6 && get16(p + 4) != TCP_VERSION) return WEFT_ERR_VERSION;
    if (len >= 7 && weft__tcp_handshake_size(p[6]) == 0) return WEFT_ERR_PROTOCOL;
    if (len >= 8 && p[7] != 0) return WEFT_ERR_PROTOCOL;
    return WEFT_OK;
}

static weft_status_t decode_hello(const uint8_t *p, struct tcp_handshake *g) {
    g->worker = get64(p + 8);
    g->target = get64(p + 16);
    g->flags = tcp_get32(p + 24);
    memcpy(g->nonce, p + 32, TCP_NONCE);
    if (tcp_get32(p + 28) != 0 || g->flags & ~(uint32_t)TCP_FLAG_KEYED || g->worker == 0)
        return WEFT_ERR_PROTOCOL;
    return WEFT_OK;
}

static weft_status_t decode_refusal(const uint8_t *p, struct tcp_handshake *g) {
    int32_t status = (int32_t)tcp_get32(p + 8);
    if (status >= 0 || status < WEFT_STATUS_LAST || tcp_get32(p + 12) != 0)
        return WEFT_ERR_PROTOCOL;
    g->status = (weft_status_t)status;
    return WEFT_OK;
}

weft_status_t weft__tcp_handshake_decode(const void *from, size_t len, struct tcp_handshake *g_out,
                                         size_t *size_p) {
    const uint8_t *p = from;
    weft_status_t st = len ? check_prefix(p, len) : WEFT_OK;
    if (st < 0) return st;
    size_t size = len < TCP_PREFIX ? (size_t)TCP_PREFIX : weft__tcp_handshake_size(p[6]);
    if (len < size) {
        *size_p = size;
        return WEFT_IN_PROGRESS;
    }
    struct tcp_handshake g = {.kind = p[6]};
    switch (g.kind) {
    case TCP_HELLO: st = decode_hello(p, &g); break;
    case TCP_CHALLENGE:
        st = decode_hello(p, &g);
        if (g.target != 0) st = WEFT_ERR_PROTOCOL;
        memcpy(g.proof, p + 64, TCP_PROOF);
        break;
    case TCP_PROVE: memcpy(g.proof, p + 8, TCP_PROOF); break;
    default: st = decode_refusal(p, &g); break;
    }
    if (st < 0) return st;
    *g_out = g;
    *size_p = size;
    return WEFT_OK;
}

/* ---- addresses ------------------------------------------------------------------------------- */

static size_t place_size(const struct tcp_place *place) {
    return place->family == 4 ? 8 : 24;
}

size_t weft__tcp_address_size(const struct tcp_address *a) {
    size_t size = TCP_ADDRESS_SIZE;
    for (unsigned i = 1; i < a->n; i++) size += place_size(&a->place[i]);
    return size;
}

/* After the first. */
static uint8_t *put_place(const struct tcp_place *place, uint8_t *p) {
    p[0] = place->family;
    p[1] = 0;
    put16(p + 2, place->port);
    if (place->family == 6) tcp_put32(p + 4, place->scope);
    memcpy(p + (place->family == 4 ? 4 : 8), place->ip, place->family == 4 ? 4 : 16);
    return p + place_size(place);
}

void weft__tcp_address_encode(const struct tcp_address *a, void *to) {
    const struct tcp_place *first = &a->place[0];
    uint8_t *p = to;
    memset(p, 0, TCP_ADDRESS_SIZE);
    p[0] = TCP_VERSION;
    p[1] = first->family;
    put16(p + 2, first->port);
    tcp_put32(p + 4, first->scope);
    memcpy(p + 8, first->ip, 16);
    tcp_put64(p + 24, a->worker);
    tcp_put64(p + 32, a->host);
    p += TCP_ADDRESS_SIZE;
    for (unsigned i = 1; i < a->n; i++) p = put_place(&a->place[i], p);
}

static weft_status_t first_place(const uint8_t *p, struct tcp_place *place) {
    static const uint8_t zeros[12];
    if (p[1] != 4 && p[1] != 6) return WEFT_ERR_ADDRESS;
    if (p[1] == 4 && (memcmp(p + 12, zeros, 12) != 0 || tcp_get32(p + 4) != 0))
        return WEFT_ERR_ADDRESS;
    *place = (struct tcp_place){.family = p[1], .port = get16(p + 2), .scope = tcp_get32(p + 4)};
    memcpy(place->ip, p + 8, 16);
    return place->port ? WEFT_OK : WEFT_ERR_ADDRESS;
}

/* The next one at `p`; its length, or 0. */
static size_t next_place(const uint8_t *p, size_t len, struct tcp_place *place) {
    *place = (struct tcp_place){0};
    if (len < 8 || (p[0] != 4 && p[0] != 6) || p[1] != 0 || get16(p + 2) == 0) return 0;
    place->family = p[0];
    place->port = get16(p + 2);
    if (len < place_size(place)) return 0;
    if (p[0] == 6) place->scope = tcp_get32(p + 4);
    memcpy(place->ip, p + (p[0] == 4 ? 4 : 8), p[0] == 4 ? 4 : 16);
    return place_size(place);
}

weft_status_t weft__tcp_address_decode(const void *from, size_t len, struct tcp_address *a_p) {
    const uint8_t *p = from;
    struct tcp_address a = {.n = 1};
    if (len < TCP_ADDRESS_SIZE || len > TCP_ADDRESS_MAX || p[0] != TCP_VERSION)
        return WEFT_ERR_ADDRESS;
    if (first_place(p, &a.place[0]) < 0 || get64(p + 24) == 0) return WEFT_ERR_ADDRESS;
    a.worker = get64(p + 24);
    a.host = get64(p + 32);
    for (size_t at = TCP_ADDRESS_SIZE, n; at < len; at += n) {
        if (a.n == TCP_MAX_PLACES) return WEFT_ERR_ADDRESS;
        n = next_place(p + at, len - at, &a.place[a.n++]);
        if (n == 0) return WEFT_ERR_ADDRESS;
    }
    *a_p = a;
    return WEFT_OK;
}
