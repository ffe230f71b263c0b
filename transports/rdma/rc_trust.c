/*
 * Who may connect. Each side shows with a fresh nonce of the other's that it holds the key: the acceptor in its ANSWER, the dialer in its
 * PROOF; both cover all that was said and a label of the role. A worker's own address asks for its token besides.
 */
#include "rc.h"

_Static_assert((int)RC_PROOF == (int)TRUST_PROOF, "a proof goes onto the wire as it is");

weft_status_t rc_trust_open(struct rc_iface *iface) {
    return trust_secret_bytes(iface->token, RC_TOKEN);
}

void rc_trust_close(struct rc_iface *iface) {
    explicit_bzero(&iface->key, sizeof iface->key);
    explicit_bzero(iface->token, sizeof iface->token);
}

weft_status_t rc_trust_ready(struct rc_iface *iface) {
    weft_context_t *context = weft__reactor_context(iface->iface.reactor);
    if (iface->have_key) return WEFT_OK;
    weft_status_t st = trust_key_load(context, weft__setting_u64(context, SETTING_RDMA_INSECURE), &iface->key);
    iface->have_key = st == WEFT_OK;
    return st;
}

/* A place that anybody may know of wants a key that is meant for it; a worker's own address is known to those it was given to. */
weft_status_t rc_trust_may_listen(struct rc_iface *iface, bool own) {
    weft_status_t st = rc_trust_ready(iface);
    if (st < 0 || own || iface->key.trust != TRUST_USER) return st;
    return weft__fail(WEFT_ERR_INSECURE,
                      "to listen, rdma needs a cluster key: set tcp.key_file (or rdma.insecure = yes, "
                      "if everybody who reaches that port may connect)");
}

static uint8_t flags_of(const struct rc_iface *iface) {
    return iface->key.trust == TRUST_ANYONE ? 0 : RC_FLAG_KEYED;
}

static weft_status_t prove(const struct rc_lane *lane, bool acceptor, uint8_t proof[RC_PROOF]) {
    static const char label[2][16] = {"weft-1 rc dials", "weft-1 rc lets"};
    uint8_t said[RC_HELLO_SIZE + RC_ANSWER_SIZE];
    rc_hello_encode(&lane->hello, said);
    rc_answer_encode(&lane->answer, said + RC_HELLO_SIZE);
    size_t len = sizeof said - (RC_ANSWER_SIZE - RC_ANSWER_SAID); /* without the proof in it */
    return trust_prove(&rc_iface_of(lane)->key, label[acceptor], said, len, proof);
}

weft_status_t rc_trust_hello(struct rc_lane *lane) {
    const struct rc_iface *iface = rc_iface_of(lane);
    lane->hello.worker = iface->worker_id;
    lane->hello.buffer = iface->buffer;
    lane->hello.flags = flags_of(iface);
    return trust_secret_bytes(lane->hello.nonce, RC_NONCE);
}

weft_status_t rc_trust_challenge(struct rc_lane *lane) {
    const struct rc_iface *iface = rc_iface_of(lane);
    if (lane->hello.flags != flags_of(iface)) return WEFT_ERR_AUTH; /* one side has a key, the other is insecure */
    lane->answer.worker = iface->worker_id;
    weft_status_t st = trust_secret_bytes(lane->answer.nonce, RC_NONCE);
    if (st == WEFT_OK) st = prove(lane, true, lane->answer.proof);
    if (st == WEFT_OK) st = prove(lane, false, lane->proof);
    return st;
}

weft_status_t rc_trust_answer(struct rc_lane *lane) {
    uint8_t expected[RC_PROOF];
    weft_status_t st = prove(lane, true, expected);
    if (st == WEFT_OK) st = prove(lane, false, lane->proof);
    if (st < 0) return st;
    bool proved = trust_proof_equal(expected, lane->answer.proof);
    explicit_bzero(expected, sizeof expected);
    return proved ? WEFT_OK : WEFT_ERR_AUTH;
}

bool rc_trust_token_equal(const uint8_t a[RC_TOKEN], const uint8_t b[RC_TOKEN]) {
    uint8_t differs = 0;
    for (unsigned i = 0; i < RC_TOKEN; i++) differs |= a[i] ^ b[i];
    return differs == 0;
}
