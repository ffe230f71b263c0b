/* Functions of libibverbs that not every version has. A test may define them in their place. */
#ifndef WEFT_TRANSPORTS_RDMA_VERBS_IMPORTS_H
#define WEFT_TRANSPORTS_RDMA_VERBS_IMPORTS_H

#include "verbs.h"

/* NULL, with errno: this device, or this version of the library (ENOSYS), does not import. */
struct ibv_context *weft__rd_import_device(int fd);
struct ibv_pd *weft__rd_import_pd(struct ibv_context *context, uint32_t handle);
/* Of what was imported. */
void weft__rd_unimport_pd(struct ibv_pd *pd);
int weft__rd_unimport_device(struct ibv_context *context);

#endif
