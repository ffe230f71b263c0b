/* A whole transport in one file, as docs/transports.md describes it: an example, and a check of
 * that page. */
#ifndef WEFT_TESTS_TRANSPORTS_NULL_TRANSPORT_H
#define WEFT_TESTS_TRANSPORTS_NULL_TRANSPORT_H

#include <transports/transport.h>

/* Connects an iface to itself. A message is copied into the inbox of the peer's lane. */
extern const struct transport weft__transport_null;

#endif
