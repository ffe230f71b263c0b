/*
 * Puts and gets between device memory and a granted region (transports/cuda): the region lies on a
 * device of this host (CUDA IPC), or it is mapped and this side's memory lies on a device. They are
 * copies of the driver, which nothing waits for.
 */
#ifndef WEFT_TRANSPORTS_SHM_RMA_DEVICE_H
#define WEFT_TRANSPORTS_SHM_RMA_DEVICE_H

#include "key.h"

/* True if the operation is such a copy. */
bool weft__shm_needs_device(const struct lane_key *key, const struct rma_piece *piece);
/* IN_PROGRESS: `completion` steps. UNSUPPORTED: it has to go by message. */
weft_status_t weft__shm_device_copy(struct lane_key *key, bool put, const struct rma_piece *piece,
                                    size_t n, uint64_t remote, struct completion *completion);
/* The key leaves its memory: waits for the copies that are under way, which complete with
 * `status`, and closes handles. */
void weft__shm_device_leave(struct shm_key *key, weft_status_t status);

#endif
