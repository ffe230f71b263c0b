/*
 * Authentication. Each side proves by a fresh nonce of the other that it holds the key: the
 * acceptor in its ANSWER, the dialer in its PROOF. Both cover all previous messages and a label of
 * the role. A connection to the worker's own address also needs the worker's token.
 */
#include "rc.h"

_Static_assert((int)RC_PROOF == (int)TRUST_PROOF, "a proof goes onto the wire as it is");

weft_status_t weft__rc_trust_open(struct rc_iface *iface) {
    return weft__trust_secret_bytes(iface->token, RC_TOKEN);
}

void weft__rc_trust_close(struct rc_iface *iface) {
    weft__trust_key_end(&iface->key);
    explicit_bzero(iface->token, sizeof iface->token);
}

weft_status_t weft__rc_trust_ready(struct rc_iface *iface) {
    weft_context_t *context = weft__reactor_context(iface->iface.reactor);
    if (iface->have_key) return WEFT_OK;
    weft_status_t st = weft__trust_key_load(
        context, weft__setting_u64(context, SETTING_RDMA_INSECURE), &iface->key);
    iface->have_key = st == WEFT_OK;
    return st;
}

/* A place that anybody may know of wants a key that is meant for it; a worker's own address is
 * known to those it was given to. */
weft_status_t weft__rc_trust_check_listen(struct rc_iface *iface, bool own) {
    weft_status_t st = weft__rc_trust_ready(iface);
    if (st < 0 || own || iface->key.trust != TRUST_USER) return st;
    return weft__fail(
        WEFT_ERR_INSECURE,
        "to listen, rdma needs a cluster key: set tcp.key_file (or rdma.insecure = yes, "
        "which lets any host that reaches the port connect)");
}

static uint8_t flags_of(const struct rc_iface *iface) {
    return iface->key.trust == TRUST_ANYONE ? 0 : RC_FLAG_KEYED;
}

static weft_status_t prove(const struct rc_lane *lane, bool acceptor, uint8_t proof[RC_PROOF]) {
    static const char label[2][16] = {"weft-1 rc dials", "weft-1 rc lets"};
    uint8_t sent[RC_HELLO_SIZE + RC_ANSWER_SIZE];
    weft__rc_hello_encode(&lane->hello, sent);
    weft__rc_answer_encode(&lane->answer, sent + RC_HELLO_SIZE);
    size_t len = sizeof sent - (RC_ANSWER_SIZE - RC_ANSWER_SENT); /* without the proof in it */
    return weft__trust_prove(&rc_iface_of(lane)->key, label[acceptor], sent, len, proof);
}

weft_status_t weft__rc_trust_hello(struct rc_lane *lane) {
    const struct rc_iface *iface = rc_iface_of(lane);
    lane->hello.worker = iface->iface.worker_id;
    lane->hello.buffer = iface->buffer;
    lane->hello.flags = flags_of(iface);
    return weft__trust_secret_bytes(lane->hello.nonce, RC_NONCE);
}

weft_status_t weft__rc_trust_challenge(struct rc_lane *lane) {
    const struct rc_iface *iface = rc_iface_of(lane);
    /* one side has a key, the other is insecure */
    if (lane->hello.flags != flags_of(iface)) return WEFT_ERR_AUTH;
    /* our own id: a relay, or ourselves */
    if (lane->hello.worker == iface->iface.worker_id) return WEFT_ERR_REFUSED;
    lane->answer.worker = iface->iface.worker_id;
    weft_status_t st = weft__trust_secret_bytes(lane->answer.nonce, RC_NONCE);
    if (st == WEFT_OK) st = prove(lane, true, lane->answer.proof);
    if (st == WEFT_OK) st = prove(lane, false, lane->proof);
    return st;
}

weft_status_t weft__rc_trust_answer(struct rc_lane *lane) {
    uint8_t expected[RC_PROOF];
    if (lane->answer.worker == lane->lane.iface->worker_id) return WEFT_ERR_REFUSED;
    weft_status_t st = prove(lane, true, expected);
    if (st == WEFT_OK) st = prove(lane, false, lane->proof);
    if (st < 0) return st;
    bool proved = weft__trust_proof_equal(expected, lane->answer.proof);
    explicit_bzero(expected, sizeof expected);
    return proved ? WEFT_OK : WEFT_ERR_AUTH;
}

bool weft__rc_trust_token_equal(const uint8_t a[RC_TOKEN], const uint8_t b[RC_TOKEN]) {
    uint8_t differs = 0;
    for (unsigned i = 0; i < RC_TOKEN; i++) differs |= a[i] ^ b[i];
    return differs == 0;
}
