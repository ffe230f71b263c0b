/* Who may connect. */
#include "rc.h"

static void random_bytes(struct reactor *r, uint8_t *to, size_t len) {
    for (size_t i = 0; i < len; i += 8) rd_put64(to + i, weft__random(r));
}

void rc_trust_token(struct rc_iface *iface) {
    random_bytes(iface->iface.reactor, iface->token, RC_TOKEN);
}

weft_status_t rc_trust_ready(struct rc_iface *iface) {
    return WEFT_OK;
}

weft_status_t rc_trust_may_listen(struct rc_iface *iface) {
    if (weft__setting_u64(weft__reactor_context(iface->iface.reactor), SETTING_RDMA_INSECURE)) return WEFT_OK;
    return weft__fail(WEFT_ERR_INSECURE, "set rdma.insecure = yes, if everybody who reaches that port may connect");
}

weft_status_t rc_trust_hello(struct rc_lane *lane) {
    lane->hello.worker = rc_iface_of(lane)->worker_id;
    lane->hello.buffer = rc_iface_of(lane)->buffer;
    random_bytes(rc_reactor(lane), lane->hello.nonce, RC_NONCE);
    return WEFT_OK;
}

weft_status_t rc_trust_challenge(struct rc_lane *lane) {
    if (lane->hello.flags & RC_FLAG_KEYED) return WEFT_ERR_AUTH;
    lane->answer.worker = rc_iface_of(lane)->worker_id;
    random_bytes(rc_reactor(lane), lane->answer.nonce, RC_NONCE);
    return WEFT_OK;
}

weft_status_t rc_trust_answer(struct rc_lane *lane) {
    return WEFT_OK;
}

static bool equal(const uint8_t *a, const uint8_t *b, size_t len) {
    uint8_t differs = 0;
    for (size_t i = 0; i < len; i++) differs |= a[i] ^ b[i];
    return differs == 0;
}

bool rc_trust_equal(const uint8_t a[RC_PROOF], const uint8_t b[RC_PROOF]) {
    return equal(a, b, RC_PROOF);
}

bool rc_trust_equal_token(const uint8_t a[RC_TOKEN], const uint8_t b[RC_TOKEN]) {
    return equal(a, b, RC_TOKEN);
}
