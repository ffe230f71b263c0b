/* Atomics, as programs call them. */
#include <reactor/counters.h>
#include <transports/atomics.h>
#include <transports/region.h>

#include "posted.h"
#include "rma.h"

_Static_assert((int)WEFT_ATOMIC_ADD == (int)RMA_ADD && (int)WEFT_ATOMIC_AND == (int)RMA_AND &&
                   (int)WEFT_ATOMIC_OR == (int)RMA_OR && (int)WEFT_ATOMIC_XOR == (int)RMA_XOR &&
                   (int)WEFT_ATOMIC_SWAP == (int)RMA_SWAP && (int)WEFT_ATOMIC_CSWAP == (int)RMA_CSWAP,
               "the same on both sides of the transports' contract");

static weft_status_t check(const weft_ep_t *ep, const struct rma_op *op) {
    if (!ep || !op->rkey || (op->what == RMA_FETCH && !op->old_p))
        return weft__fail(WEFT_ERR_INVALID_PARAM, "ep, rkey or old_p is NULL");
    if (op->rkey->ep != ep) return weft__fail(WEFT_ERR_INVALID_PARAM, "the key was unpacked for another endpoint");
    if (!atomic_is_one(op->atomic, op->size, op->what == RMA_POST))
        return weft__fail(WEFT_ERR_INVALID_PARAM, "no atomic %u of %u bytes", op->atomic, op->size);
    if (op->remote % op->size)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "%#llx is not aligned", (unsigned long long)op->remote);
    return weft__worker_enter(ep->worker);
}

static weft_status_t post_posted(void *ep, const struct posted_args *args, const weft_op_t *op) {
    return weft_atomic_post(ep, (weft_atomic_t)args->word[0], args->word[1], args->word[2], args->word[3],
                            (weft_rkey_t *)(uintptr_t)args->word[4], op);
}
static weft_status_t fetch_posted(void *ep, const struct posted_args *args, const weft_op_t *op) {
    return weft_atomic_fetch(ep, (weft_atomic_t)args->word[0], args->word[1], args->word[2], args->word[5],
                             (void *)(uintptr_t)args->word[6], args->word[3],
                             (weft_rkey_t *)(uintptr_t)args->word[4], op);
}

static weft_status_t elsewhere(weft_ep_t *ep, const struct rma_op *op, const weft_op_t *how) {
    struct posted_args args = {.word = {op->atomic, op->size, op->operand, op->remote, (uintptr_t)op->rkey,
                                        op->compare, (uintptr_t)op->old_p}};
    return weft__post(ep->worker, ep, op->what == RMA_POST ? post_posted : fetch_posted, &args, how);
}

static __attribute__((noinline)) weft_status_t perform(weft_ep_t *ep, const struct rma_op *op,
                                                       const weft_op_t *how) {
    weft_status_t st = check(ep, op);
    if (st == WEFT_IN_PROGRESS) return elsewhere(ep, op, how);
    if (st == WEFT_OK) st = weft__rkey_check(op->rkey, op->remote, op->size, WEFT_MEM_ATOMIC);
    return st < 0 ? st : ep->ops->rma(ep, op, how);
}

weft_status_t weft_atomic_post(weft_ep_t *ep, weft_atomic_t what, size_t size, uint64_t operand, uint64_t remote,
                               weft_rkey_t *rkey, const weft_op_t *op) {
    struct rma_op o = {.what = RMA_POST,
                       .rkey = rkey,
                       .remote = remote,
                       .operand = operand,
                       .atomic = (unsigned)what > RMA_CSWAP ? UINT8_MAX : (uint8_t)what,
                       .size = size > 8 ? UINT8_MAX : (uint8_t)size};
    return perform(ep, &o, op);
}

/* The region is mapped here, and nothing stands in the way. */
static inline bool is_mapped(const weft_ep_t *ep, const weft_rkey_t *rkey, uint64_t remote, size_t size) {
    if (__builtin_expect(!ep || !rkey || rkey->ep != ep || ep->rma_slow, 0)) return false;
    const struct lane_key *key = rkey->key;
    return key->status == WEFT_OK && key->caps & CAP_ATOMIC && key->local && remote % size == 0 &&
           region_covers(rkey->region.base, rkey->region.len, remote, size) &&
           weft__worker_enter(ep->worker) == WEFT_OK;
}

weft_status_t weft_atomic_fetch(weft_ep_t *ep, weft_atomic_t what, size_t size, uint64_t operand, uint64_t compare,
                                void *old_p, uint64_t remote, weft_rkey_t *rkey, const weft_op_t *op) {
    bool is_one = old_p && (unsigned)what <= RMA_CSWAP && (size == 8 || size == 4);
    if (__builtin_expect(is_one && is_mapped(ep, rkey, remote, size), 1)) {
        atomic_fetch_at((enum rma_atomic)what, size, rkey->key->local + (remote - rkey->region.base), operand,
                        compare, old_p);
        ep->worker->count->rma_native++;
        return WEFT_OK;
    }
    struct rma_op o = {.what = RMA_FETCH,
                       .rkey = rkey,
                       .remote = remote,
                       .operand = operand,
                       .compare = compare,
                       .old_p = old_p,
                       .atomic = (unsigned)what > RMA_CSWAP ? UINT8_MAX : (uint8_t)what,
                       .size = size > 8 ? UINT8_MAX : (uint8_t)size};
    return perform(ep, &o, op);
}
