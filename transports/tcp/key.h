/* What the two ends of a connection prove to each other (transports/trust.h). */
#ifndef WEFT_TRANSPORTS_TCP_KEY_H
#define WEFT_TRANSPORTS_TCP_KEY_H

#include "wire.h"

#include <transports/trust.h>

/* The roles have labels of their own. `hello` and `challenge` as they were on the wire (of the
 * latter the first 64 bytes count). */
enum tcp_role { TCP_ROLE_DIALER, TCP_ROLE_ACCEPTOR };
weft_status_t weft__tcp_prove(const struct trust_key *key, enum tcp_role role, const void *hello,
                              const void *challenge, uint8_t proof[TCP_PROOF]);

#endif
