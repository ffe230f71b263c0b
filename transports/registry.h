/* The symbol of each transport. Most callers walk weft__transports (transport.h) instead. */
#ifndef WEFT_TRANSPORTS_REGISTRY_H
#define WEFT_TRANSPORTS_REGISTRY_H

#include <transports/transport.h>

extern const struct transport weft__transport_self, weft__transport_shm, weft__transport_tcp,
    weft__transport_sim, weft__transport_simfast;
/* Registered only in builds with --//:rdma. */
extern const struct transport weft__transport_rdma_rc, weft__transport_rdma_ud;

#endif
