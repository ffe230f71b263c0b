/* Memory of pools (cuMemAllocFromPoolAsync, cudaMallocAsync) for other processes: the pool has a
 * file descriptor, and the driver's data name an allocation in it. memory_file.h uses it. */
#ifndef WEFT_TRANSPORTS_CUDA_POOL_FILE_H
#define WEFT_TRANSPORTS_CUDA_POOL_FILE_H

#include "driver.h"

/* The pool of an address; NULL: it is of none. */
cuda_pool weft__cuda_pool_of(const struct cuda_driver *driver, cuda_pointer at);
/* `at`: where an allocation of the pool begins. The caller closes the descriptor. */
weft_status_t weft__cuda_pool_export(const struct cuda_driver *driver, cuda_pool pool,
                                     cuda_pointer at, int *fd_p,
                                     struct cuda_pool_pointer *pointer_p);
/* For the current context's device. The descriptor stays the caller's. */
weft_status_t weft__cuda_pool_open(const struct cuda_driver *driver, int fd,
                                   const struct cuda_pool_pointer *pointer, cuda_pool *pool_p,
                                   cuda_pointer *at_p);
void weft__cuda_pool_close(const struct cuda_driver *driver, cuda_pool pool, cuda_pointer at);

#endif
