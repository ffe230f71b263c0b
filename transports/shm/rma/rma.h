/* One-sided operations by a granted key (rma.c), and by the kernel (vm.c). */
#ifndef WEFT_TRANSPORTS_SHM_RMA_RMA_H
#define WEFT_TRANSPORTS_SHM_RMA_RMA_H

#include <transports/shm/lane/shm.h>

weft_status_t weft__shm_put_short(struct lane *l, const void *data, size_t len, uint64_t remote,
                                  struct lane_key *key);
weft_status_t weft__shm_put_bcopy(struct lane *l, size_t len, size_t (*pack)(void *, void *),
                                  void *arg, uint64_t remote, struct lane_key *key);
weft_status_t weft__shm_put_zcopy(struct lane *l, const struct rma_piece *from, size_t n_from,
                                  uint64_t remote, struct lane_key *key,
                                  struct completion *completion);
weft_status_t weft__shm_get_bcopy(struct lane *lane, const struct rma_unpack *to, uint64_t remote,
                                  struct lane_key *key, struct completion *completion);
weft_status_t weft__shm_get_zcopy(struct lane *l, const struct rma_piece *to, size_t n_to,
                                  uint64_t remote, struct lane_key *key,
                                  struct completion *completion);
weft_status_t weft__shm_atomic_post(struct lane *l, const struct lane_atomic *atomic,
                                    struct lane_key *key);
weft_status_t weft__shm_atomic_fetch(struct lane *l, const struct lane_atomic *atomic, void *old_p,
                                     struct lane_key *key, struct completion *completion);
weft_status_t weft__shm_fence(struct lane *l);

bool weft__shm_vm_allowed(const struct shm_lane *lane);
weft_status_t weft__shm_vm_copy(struct lane *l, bool put, const struct rma_piece *pieces, size_t n,
                                uint64_t remote);
char *weft__shm_bounce(struct shm_lane *lane); /* NULL: no memory */
/* The peer has neither died nor closed: what was read of its memory was its own. */
bool weft__shm_peer_stays(const struct shm_lane *lane);

#endif
