/* What the transport costs. */
#ifndef WEFT_TRANSPORTS_SHM_COST_H
#define WEFT_TRANSPORTS_SHM_COST_H

#include <transports/transport.h>

bool weft__shm_measure(struct iface_cost *cost_p);

#endif
