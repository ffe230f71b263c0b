/* Protection domains of other processes (transports/domain.h). */
#ifndef WEFT_TRANSPORTS_RDMA_VERBS_DOMAIN_H
#define WEFT_TRANSPORTS_RDMA_VERBS_DOMAIN_H

#include <transports/domain.h>

extern const struct domain_ops weft__rd_domains;

#endif
