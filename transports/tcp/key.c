/* Proofs of the handshake: MACs by role over both messages. */
#include "key.h"

#include <string.h>

_Static_assert((int)TCP_PROOF == (int)TRUST_PROOF, "a proof goes onto the wire as it is");

weft_status_t weft__tcp_prove(const struct trust_key *key, enum tcp_role role, const void *hello,
                              const void *challenge, uint8_t proof[TCP_PROOF]) {
    static const char label[2][16] = {"weft-1 dialer", "weft-1 acceptor"};
    uint8_t sent[TCP_HELLO_SIZE + TCP_CHALLENGE_SIZE - TCP_PROOF];
    memcpy(sent, hello, TCP_HELLO_SIZE);
    memcpy(sent + TCP_HELLO_SIZE, challenge, TCP_CHALLENGE_SIZE - TCP_PROOF);
    return weft__trust_prove(key, label[role], sent, sizeof sent, proof);
}
