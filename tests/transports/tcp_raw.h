/* The tcp handshake as bytes, for peers that tests make of bare sockets. Each buffer holds
 * TCP_HANDSHAKE_MAX bytes. */
#ifndef WEFT_TESTS_TRANSPORTS_TCP_RAW_H
#define WEFT_TESTS_TRANSPORTS_TCP_RAW_H

#include <string.h>
#include <transports/tcp/key.h>

/* The first message of a dialer; returns its length, as the others do. */
static inline size_t tcp_raw_hello(uint64_t worker, uint8_t *hello) {
    struct tcp_handshake g = {.kind = TCP_HELLO, .worker = worker, .flags = TCP_FLAG_KEYED};
    memset(g.nonce, 0x11, sizeof g.nonce);
    return weft__tcp_handshake_encode(&g, hello);
}

/* The answer of an acceptor; 0: no proof could be made. */
static inline size_t tcp_raw_challenge(const struct trust_key *key, uint64_t worker,
                                       const uint8_t *hello, uint8_t *challenge) {
    struct tcp_handshake g = {.kind = TCP_CHALLENGE, .worker = worker, .flags = TCP_FLAG_KEYED};
    memset(g.nonce, 0x22, sizeof g.nonce);
    weft__tcp_handshake_encode(&g, challenge);
    if (weft__tcp_prove(key, TCP_ROLE_ACCEPTOR, hello, challenge, g.proof) != WEFT_OK) return 0;
    return weft__tcp_handshake_encode(&g, challenge);
}

/* The last message of a dialer; 0: no proof could be made. */
static inline size_t tcp_raw_proof(const struct trust_key *key, const uint8_t *hello,
                                   const uint8_t *challenge, uint8_t *proof) {
    struct tcp_handshake g = {.kind = TCP_PROVE};
    if (weft__tcp_prove(key, TCP_ROLE_DIALER, hello, challenge, g.proof) != WEFT_OK) return 0;
    return weft__tcp_handshake_encode(&g, proof);
}

#endif
