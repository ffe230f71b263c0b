/* What peers of rdma_rc may say while they connect and about keys, what its addresses hold, and
 * where the handshake says: any bytes are answered, and what is accepted is what its encoder
 * would have written. */
#include "fuzz.h"

#ifdef WEFT_HAVE_RDMA
#include <transports/rdma/rc/rc_wire.h>

static void hello(const uint8_t *p, size_t len) {
    struct rc_hello h, again;
    uint8_t bytes[RC_HELLO_SIZE];
    if (weft__rc_hello_decode(p, len, &h) != WEFT_OK) return;
    weft__rc_hello_encode(&h, bytes);
    insist(len >= RC_HELLO_SIZE && weft__rc_hello_decode(bytes, sizeof bytes, &again) == WEFT_OK);
    insist(again.worker == h.worker && again.buffer == h.buffer && again.flags == h.flags);
    insist(memcmp(bytes + 20, p + 20, RC_TOKEN + RC_NONCE) == 0);
}

static void answer(const uint8_t *p, size_t len) {
    struct rc_answer a;
    uint8_t bytes[RC_ANSWER_SIZE];
    if (weft__rc_answer_decode(p, len, &a) != WEFT_OK) return;
    weft__rc_answer_encode(&a, bytes);
    insist(len >= RC_ANSWER_SIZE && memcmp(bytes, p, sizeof bytes) == 0);
}

static void refusal(const uint8_t *p, size_t len) {
    weft_status_t st = weft__rc_refusal_decode(p, len);
    insist(st < 0 && st >= WEFT_STATUS_LAST);
}

static void address(const uint8_t *p, size_t len) {
    struct rc_address a;
    uint8_t bytes[RC_ADDRESS_SIZE];
    if (weft__rc_address_decode(p, len, &a) != WEFT_OK) return;
    weft__rc_address_encode(&a, bytes);
    insist(len == RC_ADDRESS_SIZE && memcmp(bytes, p, 50) == 0 &&
           memcmp(bytes + 52, p + 52, 16) == 0);
}

static void lane_address(const uint8_t *p, size_t len) {
    struct rc_lane_address a;
    uint8_t bytes[RC_LANE_ADDRESS_SIZE];
    if (weft__rc_lane_address_decode(p, len, &a) != WEFT_OK) return;
    weft__rc_lane_address_encode(&a, bytes);
    insist(len == RC_LANE_ADDRESS_SIZE && memcmp(bytes, p, 37) == 0);
}

static void want(const uint8_t *p, size_t len) {
    struct rc_want w;
    uint8_t bytes[RC_WANT_SIZE];
    if (weft__rc_want_decode(p, len, &w) != WEFT_OK) return;
    weft__rc_want_encode(&w, bytes);
    insist(len == RC_WANT_SIZE && memcmp(bytes, p, len) == 0);
}

static void word(const uint8_t *p, size_t len) {
    struct rc_word w;
    uint8_t bytes[RC_WORD_SIZE];
    if (weft__rc_word_decode(p, len, &w) != WEFT_OK) return;
    weft__rc_word_encode(&w, bytes);
    insist(len == RC_WORD_SIZE && memcmp(bytes, p, len) == 0);
}

static void key(const uint8_t *p, size_t len) {
    enum rc_atomics a;
    uint8_t bytes[RC_KEY_SIZE];
    if (weft__rc_key_atomics_decode(p, len, &a) != WEFT_OK) return;
    weft__rc_key_atomics_encode(a, bytes);
    insist(len == RC_KEY_SIZE && memcmp(bytes, p, len) == 0);
}

static void where(const uint8_t *p, size_t len) {
    struct rc_where w;
    if (weft__rc_where_parse((const char *)p, len, &w) != WEFT_OK) return;
    size_t n = strnlen(w.host, sizeof w.host);
    insist(n > 0 && n < sizeof w.host && n + 2 <= len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const decode_fn decoders[] = {hello, answer, refusal, address, lane_address,
                                         want,  word,   where,   key};
    return FUZZ_ONE_OF(decoders, data, size);
}
#else
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    return 0;
}
#endif
