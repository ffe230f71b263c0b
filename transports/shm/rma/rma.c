/*
 * One-sided operations by a granted key. On a mapped region they are plain memory accesses,
 * complete when the call returns. Fences keep their order in the compiler, and the processor keeps
 * stores in order. Non-temporal stores are not used: they were slower at every size (64 KiB: more
 * than half, 4 MiB: a tenth).
 */
#include "device.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <transports/atomics.h>
#include <transports/copy.h>
#include <transports/pieces.h>

static inline char *place_rma(const struct lane_key *key, uint64_t remote) {
    return key->local + (remote - key->region.base);
}

static NOINLINE weft_status_t too_big(const char *what) {
    return weft__fail(WEFT_ERR_TOO_BIG,
                      "%s over shm: the size exceeds the limit that weft-info shows", what);
}

/* A word of 8 bytes is one access, so no reader sees half of it. */
static inline void copy_rma(void *to, const void *from, size_t len) {
    if (len == 8)
        memcpy(to, from, 8);
    else if (len)
        weft__copy(to, from, len);
}

static inline bool is_simple(const struct rma_piece *pieces, size_t n) {
    return n == 1 && pieces->count == 1 && pieces->len <= SHM_RMA_ZCOPY;
}

/* ---- put ------------------------------------------------------------------------------------- */

static NOINLINE weft_status_t vm_put(struct lane *l, const void *data, size_t len,
                                     uint64_t remote) {
    return weft__shm_vm_copy(l, true, &(struct rma_piece){(void *)data, len, 0, 1, NULL}, 1,
                             remote);
}

weft_status_t weft__shm_put_short(struct lane *l, const void *data, size_t len, uint64_t remote,
                                  struct lane_key *key) {
    if (UNLIKELY(len > SHM_RMA_SHORT)) return too_big("put_short");
    if (UNLIKELY(!key->local)) return vm_put(l, data, len, remote);
    atomic_thread_fence(memory_order_release);
    copy_rma(place_rma(key, remote), data, len);
    return WEFT_OK;
}

/* Packs straight into the mapping. */
weft_status_t weft__shm_put_bcopy(struct lane *l, size_t len, size_t (*pack)(void *, void *),
                                  void *arg, uint64_t remote, struct lane_key *key) {
    if (UNLIKELY(len > SHM_RMA_BCOPY)) return too_big("put_bcopy");
    if (UNLIKELY(len == 0)) return WEFT_OK;
    atomic_thread_fence(memory_order_release);
    if (!UNLIKELY(!key->local)) {
        pack(place_rma(key, remote), arg);
        return WEFT_OK;
    }
    char *bounce = weft__shm_bounce((struct shm_lane *)l);
    if (!bounce) return WEFT_ERR_NO_MEMORY;
    pack(bounce, arg);
    return vm_put(l, bounce, len, remote);
}

weft_status_t weft__shm_put_zcopy(struct lane *l, const struct rma_piece *from, size_t n_from,
                                  uint64_t remote, struct lane_key *key,
                                  struct completion *completion) {
    size_t total;
    if (UNLIKELY(weft__cuda_active && weft__shm_needs_device(key, from)))
        return weft__shm_device_copy(key, true, from, n_from, remote, completion);
    if (key->local && is_simple(from, n_from)) {
        atomic_thread_fence(memory_order_release);
        copy_rma(place_rma(key, remote), from->base, from->len);
        return WEFT_OK;
    }
    if (UNLIKELY(!pieces_fit(from, n_from, SHM_RMA_ZCOPY, SHM_IOV, &total)))
        return too_big("put_zcopy");
    if (UNLIKELY(!key->local)) return weft__shm_vm_copy(l, true, from, n_from, remote);
    atomic_thread_fence(memory_order_release);
    pieces_gather(place_rma(key, remote), from, n_from);
    return WEFT_OK;
}

/* ---- get ------------------------------------------------------------------------------------- */

weft_status_t weft__shm_get_bcopy(struct lane *l, const struct rma_unpack *to, uint64_t remote,
                                  struct lane_key *key, struct completion *completion) {
    if (UNLIKELY(to->len > SHM_RMA_BCOPY)) return too_big("get_bcopy");
    if (!UNLIKELY(!key->local)) {
        to->fn(to->arg, place_rma(key, remote), to->len);
        atomic_thread_fence(memory_order_acquire);
        return WEFT_OK;
    }
    char *bounce = weft__shm_bounce((struct shm_lane *)l);
    if (!bounce) return WEFT_ERR_NO_MEMORY;
    weft_status_t st =
        weft__shm_vm_copy(l, false, &(struct rma_piece){bounce, to->len, 0, 1, NULL}, 1, remote);
    if (st == WEFT_OK) to->fn(to->arg, bounce, to->len);
    return st;
}

weft_status_t weft__shm_get_zcopy(struct lane *l, const struct rma_piece *to, size_t n_to,
                                  uint64_t remote, struct lane_key *key,
                                  struct completion *completion) {
    size_t total;
    if (UNLIKELY(weft__cuda_active && weft__shm_needs_device(key, to)))
        return weft__shm_device_copy(key, false, to, n_to, remote, completion);
    if (key->local && is_simple(to, n_to)) {
        copy_rma(to->base, place_rma(key, remote), to->len);
        atomic_thread_fence(memory_order_acquire);
        return WEFT_OK;
    }
    if (UNLIKELY(!pieces_fit(to, n_to, SHM_RMA_ZCOPY, SHM_IOV, &total)))
        return too_big("get_zcopy");
    if (UNLIKELY(!key->local)) return weft__shm_vm_copy(l, false, to, n_to, remote);
    pieces_scatter(to, n_to, place_rma(key, remote));
    atomic_thread_fence(memory_order_acquire);
    return WEFT_OK;
}

/* ---- atomics, and order ---------------------------------------------------------------------- */

weft_status_t weft__shm_atomic_post(struct lane *l, const struct lane_atomic *atomic,
                                    struct lane_key *key) {
    if (UNLIKELY(!key->local || !atomic_is_one(atomic->op, atomic->size, true)))
        return WEFT_ERR_UNSUPPORTED;
    atomic_post_at(atomic->op, atomic->size, place_rma(key, atomic->remote), atomic->operand);
    return WEFT_OK;
}

weft_status_t weft__shm_atomic_fetch(struct lane *l, const struct lane_atomic *atomic, void *old_p,
                                     struct lane_key *key, struct completion *completion) {
    if (UNLIKELY(!key->local || !atomic_is_one(atomic->op, atomic->size, false)))
        return WEFT_ERR_UNSUPPORTED;
    atomic_fetch_at(atomic->op, atomic->size, place_rma(key, atomic->remote), atomic->operand,
                    atomic->compare, old_p);
    return WEFT_OK;
}

/* Without the fence a get could overtake a put in the store buffer. */
weft_status_t weft__shm_fence(struct lane *l) {
    atomic_thread_fence(memory_order_seq_cst);
    return WEFT_OK;
}
