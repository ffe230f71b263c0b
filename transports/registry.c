/* Every transport, in the order in which a worker opens them. Add a new transport here. */
#include <transports/registry.h>

const struct transport *const weft__transports[] = {
    &weft__transport_self,
    &weft__transport_shm,
    &weft__transport_tcp,
    &weft__transport_sim,
    &weft__transport_simfast,
#ifdef WEFT_HAVE_RDMA
    &weft__transport_rdma_rc,
    &weft__transport_rdma_ud,
#endif
    NULL,
};
