/*
 * One-sided operations by a granted key. Where the region is mapped they are plain memory access, and over when the call
 * returns; the compiler keeps their order, and the processor that of stores among each other. Stores past the cache were slower
 * than others at every size (at 64 KiB by more than half, at 4 MiB by a tenth), so there are none.
 */
#include "key.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <transports/atomics.h>
#include <transports/copy.h>
#include <transports/pieces.h>

#define UNLIKELY(x) __builtin_expect(!!(x), 0)

static inline char *place(const struct lane_key *key, uint64_t remote) {
    return key->local + (remote - key->region.base);
}

static __attribute__((noinline)) weft_status_t too_big(const char *what) {
    return weft__fail(WEFT_ERR_TOO_BIG, "%s over shm: see the limits of the iface", what);
}

/* A word is one access: nobody sees half of it. */
static inline void copy(void *to, const void *from, size_t len) {
    if (len == 8)
        memcpy(to, from, 8);
    else if (len)
        weft__copy(to, from, len);
}

static inline bool is_simple(const struct rma_piece *pieces, size_t n) {
    return n == 1 && pieces->count == 1 && pieces->len <= SHM_RMA_ZCOPY;
}

/* ---- put --------------------------------------------------------------------------------------------------------------- */

static __attribute__((noinline)) weft_status_t vm_put(struct lane *l, const void *data, size_t len,
                                                      uint64_t remote) {
    return weft__shm_vm_copy(l, true, &(struct rma_piece){(void *)data, len, 0, 1, NULL}, 1, remote);
}

weft_status_t weft__shm_put_short(struct lane *l, const void *data, size_t len, uint64_t remote,
                                  struct lane_key *key) {
    if (UNLIKELY(len > SHM_RMA_SHORT)) return too_big("put_short");
    if (UNLIKELY(!key->local)) return vm_put(l, data, len, remote);
    atomic_thread_fence(memory_order_release);
    copy(place(key, remote), data, len);
    return WEFT_OK;
}

/* Packed where it belongs. */
weft_status_t weft__shm_put_bcopy(struct lane *l, size_t len, size_t (*pack)(void *, void *), void *arg,
                                  uint64_t remote, struct lane_key *key) {
    if (UNLIKELY(len > SHM_RMA_BCOPY)) return too_big("put_bcopy");
    if (UNLIKELY(len == 0)) return WEFT_OK;
    atomic_thread_fence(memory_order_release);
    if (!UNLIKELY(!key->local)) {
        pack(place(key, remote), arg);
        return WEFT_OK;
    }
    char *bounce = weft__shm_bounce((struct shm_lane *)l);
    if (!bounce) return WEFT_ERR_NO_MEMORY;
    pack(bounce, arg);
    return vm_put(l, bounce, len, remote);
}

weft_status_t weft__shm_put_zcopy(struct lane *l, const struct rma_piece *from, size_t n_from, uint64_t remote,
                                  struct lane_key *key, struct completion *completion) {
    size_t total;
    if (key->local && is_simple(from, n_from)) {
        atomic_thread_fence(memory_order_release);
        copy(place(key, remote), from->base, from->len);
        return WEFT_OK;
    }
    if (UNLIKELY(!pieces_fit(from, n_from, SHM_RMA_ZCOPY, SHM_IOV, &total))) return too_big("put_zcopy");
    if (UNLIKELY(!key->local)) return weft__shm_vm_copy(l, true, from, n_from, remote);
    atomic_thread_fence(memory_order_release);
    pieces_gather(place(key, remote), from, n_from);
    return WEFT_OK;
}

/* ---- get --------------------------------------------------------------------------------------------------------------- */

weft_status_t weft__shm_get_bcopy(struct lane *l, size_t len, void (*unpack)(void *, const void *, size_t),
                                  void *arg, uint64_t remote, struct lane_key *key, struct completion *completion) {
    if (UNLIKELY(len > SHM_RMA_BCOPY)) return too_big("get_bcopy");
    if (!UNLIKELY(!key->local)) {
        unpack(arg, place(key, remote), len);
        atomic_thread_fence(memory_order_acquire);
        return WEFT_OK;
    }
    char *bounce = weft__shm_bounce((struct shm_lane *)l);
    if (!bounce) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = weft__shm_vm_copy(l, false, &(struct rma_piece){bounce, len, 0, 1, NULL}, 1, remote);
    if (st == WEFT_OK) unpack(arg, bounce, len);
    return st;
}

weft_status_t weft__shm_get_zcopy(struct lane *l, const struct rma_piece *to, size_t n_to, uint64_t remote,
                                  struct lane_key *key, struct completion *completion) {
    size_t total;
    if (key->local && is_simple(to, n_to)) {
        copy(to->base, place(key, remote), to->len);
        atomic_thread_fence(memory_order_acquire);
        return WEFT_OK;
    }
    if (UNLIKELY(!pieces_fit(to, n_to, SHM_RMA_ZCOPY, SHM_IOV, &total))) return too_big("get_zcopy");
    if (UNLIKELY(!key->local)) return weft__shm_vm_copy(l, false, to, n_to, remote);
    pieces_scatter(to, n_to, place(key, remote));
    atomic_thread_fence(memory_order_acquire);
    return WEFT_OK;
}

/* ---- atomics, and order ----------------------------------------------------------------------------------------------- */

weft_status_t weft__shm_atomic_post(struct lane *l, enum rma_atomic op, size_t size, uint64_t operand,
                                    uint64_t remote, struct lane_key *key) {
    if (UNLIKELY(!key->local || !atomic_is_one(op, size, true))) return WEFT_ERR_UNSUPPORTED;
    atomic_post_at(op, size, place(key, remote), operand);
    return WEFT_OK;
}

weft_status_t weft__shm_atomic_fetch(struct lane *l, enum rma_atomic op, size_t size, uint64_t operand,
                                     uint64_t compare, void *old_p, uint64_t remote, struct lane_key *key,
                                     struct completion *completion) {
    if (UNLIKELY(!key->local || !atomic_is_one(op, size, false))) return WEFT_ERR_UNSUPPORTED;
    atomic_fetch_at(op, size, place(key, remote), operand, compare, old_p);
    return WEFT_OK;
}

/* A get could overtake a put in the processor's store buffer. */
weft_status_t weft__shm_fence(struct lane *l) {
    atomic_thread_fence(memory_order_seq_cst);
    return WEFT_OK;
}
