/* Encoders and decoders of rdma_rc: handshake, addresses, and messages about keys. */
#include "rc_wire.h"

#include <string.h>

static const uint8_t magic[2] = {'R', 'C'};

static void head(uint8_t *to, uint8_t kind) {
    memcpy(to, magic, 2);
    to[2] = RC_VERSION;
    to[3] = kind;
}

static weft_status_t check_head(const uint8_t *from, size_t len, size_t size, uint8_t kind) {
    if (len < 4 || memcmp(from, magic, 2) != 0) return WEFT_ERR_PROTOCOL;
    if (from[2] != RC_VERSION) return WEFT_ERR_VERSION;
    return len >= size && from[3] == kind ? WEFT_OK : WEFT_ERR_PROTOCOL;
}

/* ---- handshake ------------------------------------------------------------------------------- */

void weft__rc_hello_encode(const struct rc_hello *hello, uint8_t to[RC_HELLO_SIZE]) {
    memset(to, 0, RC_HELLO_SIZE);
    head(to, 'h');
    rd_put64(to + 4, hello->worker);
    rd_put32(to + 12, hello->buffer);
    to[16] = hello->flags;
    memcpy(to + 20, hello->token, RC_TOKEN);
    memcpy(to + 36, hello->nonce, RC_NONCE);
}

weft_status_t weft__rc_hello_decode(const void *bytes, size_t len, struct rc_hello *hello_p) {
    const uint8_t *from = bytes;
    weft_status_t st = check_head(from, len, RC_HELLO_SIZE, 'h');
    if (st < 0) return st;
    hello_p->worker = rd_get64(from + 4);
    hello_p->buffer = rd_get32(from + 12);
    hello_p->flags = from[16];
    memcpy(hello_p->token, from + 20, RC_TOKEN);
    memcpy(hello_p->nonce, from + 36, RC_NONCE);
    return WEFT_OK;
}

void weft__rc_answer_encode(const struct rc_answer *answer, uint8_t to[RC_ANSWER_SIZE]) {
    memset(to, 0, RC_ANSWER_SIZE);
    head(to, 'a');
    rd_put64(to + 4, answer->worker);
    memcpy(to + 12, answer->nonce, RC_NONCE);
    memcpy(to + 28, answer->proof, RC_PROOF);
}

weft_status_t weft__rc_answer_decode(const void *bytes, size_t len, struct rc_answer *answer_p) {
    const uint8_t *from = bytes;
    weft_status_t st = check_head(from, len, RC_ANSWER_SIZE, 'a');
    if (st < 0) return st;
    answer_p->worker = rd_get64(from + 4);
    memcpy(answer_p->nonce, from + 12, RC_NONCE);
    memcpy(answer_p->proof, from + 28, RC_PROOF);
    return WEFT_OK;
}

void weft__rc_refusal_encode(weft_status_t why, uint8_t to[RC_REFUSAL_SIZE]) {
    head(to, 'r');
    rd_put32(to + 4, (uint32_t)-why);
}

weft_status_t weft__rc_refusal_decode(const void *bytes, size_t len) {
    const uint8_t *from = bytes;
    if (check_head(from, len, RC_REFUSAL_SIZE, 'r') < 0) return WEFT_ERR_REFUSED;
    uint32_t why = rd_get32(from + 4);
    return why >= 1 && why <= -WEFT_STATUS_LAST ? (weft_status_t) - (int)why : WEFT_ERR_REFUSED;
}

/* ---- addresses ------------------------------------------------------------------------------- */

void weft__rc_address_encode(const struct rc_address *address, uint8_t to[RC_ADDRESS_SIZE]) {
    head(to, address->v6 ? 6 : 4);
    rd_put64(to + 4, address->worker);
    memcpy(to + 12, address->token, RC_TOKEN);
    weft__rd_place_encode(&address->place, to + 28);
    rd_put16(to + 48, address->port);
    memset(to + 50, 0, 2);
    memcpy(to + 52, address->ip, 16);
}

weft_status_t weft__rc_address_decode(const void *bytes, size_t len, struct rc_address *address_p) {
    const uint8_t *from = bytes;
    struct rc_address a;
    if (len != RC_ADDRESS_SIZE || memcmp(from, magic, 2) != 0 || from[2] != RC_VERSION)
        return WEFT_ERR_ADDRESS;
    if (from[3] != 4 && from[3] != 6) return WEFT_ERR_ADDRESS;
    a.v6 = from[3] == 6;
    a.worker = rd_get64(from + 4);
    memcpy(a.token, from + 12, RC_TOKEN);
    if (weft__rd_place_decode(from + 28, RD_PLACE_SIZE, &a.place) < 0) return WEFT_ERR_ADDRESS;
    a.port = rd_get16(from + 48);
    memcpy(a.ip, from + 52, 16);
    if (a.port == 0) return WEFT_ERR_ADDRESS;
    *address_p = a;
    return WEFT_OK;
}

void weft__rc_lane_address_encode(const struct rc_lane_address *address,
                                  uint8_t to[RC_LANE_ADDRESS_SIZE]) {
    memset(to, 0, RC_LANE_ADDRESS_SIZE);
    head(to, 'l');
    weft__rd_place_encode(&address->place, to + 4);
    rd_put32(to + 24, address->qp);
    rd_put32(to + 28, address->psn);
    rd_put32(to + 32, address->buffer);
    to[36] = address->reads;
}

weft_status_t weft__rc_lane_address_decode(const void *bytes, size_t len,
                                           struct rc_lane_address *address_p) {
    const uint8_t *from = bytes;
    struct rc_lane_address a;
    if (len != RC_LANE_ADDRESS_SIZE || check_head(from, len, RC_LANE_ADDRESS_SIZE, 'l') < 0)
        return WEFT_ERR_ADDRESS;
    if (weft__rd_place_decode(from + 4, RD_PLACE_SIZE, &a.place) < 0) return WEFT_ERR_ADDRESS;
    a.qp = rd_get32(from + 24);
    a.psn = rd_get32(from + 28);
    a.buffer = rd_get32(from + 32);
    a.reads = from[36];
    if (a.qp >> 24 || a.psn >> 24) return WEFT_ERR_ADDRESS;
    *address_p = a;
    return WEFT_OK;
}

void weft__rc_key_atomics_encode(enum rc_atomics atomics, uint8_t to[RC_KEY_SIZE]) {
    to[0] = (uint8_t)atomics;
}

weft_status_t weft__rc_key_atomics_decode(const void *bytes, size_t len,
                                          enum rc_atomics *atomics_p) {
    const uint8_t *from = bytes;
    if (len != RC_KEY_SIZE || from[0] > RC_ATOMICS_GLOBAL) return WEFT_ERR_ADDRESS;
    *atomics_p = (enum rc_atomics)from[0];
    return WEFT_OK;
}

/* ---- keys ------------------------------------------------------------------------------------ */

void weft__rc_want_encode(const struct rc_want *want, uint8_t to[RC_WANT_SIZE]) {
    rd_put32(to, want->serial);
    rd_put32(to + 4, want->region);
    rd_put32(to + 8, want->epoch);
    rd_put32(to + 12, want->rights);
    rd_put64(to + 16, want->base);
    rd_put64(to + 24, want->len);
    memcpy(to + 32, want->token, RC_TOKEN);
}

weft_status_t weft__rc_want_decode(const void *bytes, size_t len, struct rc_want *want_p) {
    const uint8_t *from = bytes;
    if (len != RC_WANT_SIZE) return WEFT_ERR_PROTOCOL;
    *want_p = (struct rc_want){rd_get32(from),
                               rd_get32(from + 4),
                               rd_get32(from + 8),
                               rd_get32(from + 12),
                               rd_get64(from + 16),
                               rd_get64(from + 24),
                               {0}};
    memcpy(want_p->token, from + 32, RC_TOKEN);
    return WEFT_OK;
}

void weft__rc_word_encode(const struct rc_word *word, uint8_t to[RC_WORD_SIZE]) {
    rd_put32(to, word->serial);
    rd_put32(to + 4, word->value);
}

weft_status_t weft__rc_word_decode(const void *bytes, size_t len, struct rc_word *word_p) {
    const uint8_t *from = bytes;
    if (len != RC_WORD_SIZE) return WEFT_ERR_PROTOCOL;
    *word_p = (struct rc_word){rd_get32(from), rd_get32(from + 4)};
    return WEFT_OK;
}

/* ---- "host:port" ----------------------------------------------------------------------------- */

static weft_status_t parse_port(const char *text, size_t len, uint16_t *port_p) {
    unsigned port = 0;
    if (len == 0 || len > 5) return WEFT_ERR_ADDRESS;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9') return WEFT_ERR_ADDRESS;
        port = port * 10 + (unsigned)(text[i] - '0');
    }
    if (port > 65535) return WEFT_ERR_ADDRESS;
    *port_p = (uint16_t)port;
    return WEFT_OK;
}

weft_status_t weft__rc_where_parse(const char *text, size_t len, struct rc_where *where_p) {
    struct rc_where where = {0};
    const char *host = text;
    size_t colon = len, n;
    while (colon > 0 && text[colon - 1] != ':') colon--;
    if (colon == 0) return WEFT_ERR_ADDRESS;
    n = colon - 1;
    if (n > 0 && host[0] == '[') {
        if (n < 3 || host[n - 1] != ']') return WEFT_ERR_ADDRESS;
        host++;
        n -= 2;
    } else if (memchr(host, ':', n)) {
        return WEFT_ERR_ADDRESS; /* IPv6 without brackets */
    }
    if (n == 0 || n >= sizeof where.host || memchr(host, 0, n)) return WEFT_ERR_ADDRESS;
    memcpy(where.host, host, n);
    weft_status_t st = parse_port(text + colon, len - colon, &where.port);
    if (st == WEFT_OK) *where_p = where;
    return st;
}
