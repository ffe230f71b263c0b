/* Atomics, as programs call them. */
#include <base/counters.h>
#include <transports/atomics.h>
#include <transports/region.h>

#include "rma.h"
#include <endpoints/core/submit.h>

_Static_assert((int)WEFT_ATOMIC_ADD == (int)RMA_ADD && (int)WEFT_ATOMIC_AND == (int)RMA_AND &&
                   (int)WEFT_ATOMIC_OR == (int)RMA_OR && (int)WEFT_ATOMIC_XOR == (int)RMA_XOR &&
                   (int)WEFT_ATOMIC_SWAP == (int)RMA_SWAP &&
                   (int)WEFT_ATOMIC_CSWAP == (int)RMA_CSWAP,
               "the same on both sides of the transports' contract");

static NOINLINE weft_status_t fail_atomic(const struct rma_op *op) {
    if (op->atomic > RMA_CSWAP) return weft__fail(WEFT_ERR_INVALID_PARAM, "what: it is no atomic");
    if (op->size != 4 && op->size != 8)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "size: atomics have 4 or 8 bytes");
    return weft__fail(WEFT_ERR_INVALID_PARAM,
                      "what: a compare-and-swap has no posted form; use weft_atomic_fetch");
}

static weft_status_t check_atomic(const weft_ep_t *ep, const struct rma_op *op,
                                  const weft_op_t *how) {
    if (!ep || !op->rkey || (op->what == RMA_FETCH && !op->old_p))
        return weft__fail(WEFT_ERR_INVALID_PARAM, "ep, rkey or old_p is NULL");
    if (op->rkey->ep != ep) return weft__rma_foreign_key(ep);
    if (!atomic_is_one(op->atomic, op->size, op->what == RMA_POST)) return fail_atomic(op);
    if (op->remote % op->size)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "remote: %#llx is no multiple of %u",
                          (unsigned long long)op->remote, (unsigned)op->size);
    weft_status_t st = weft__check_streamed_op(how, WEFT_RMA_REMOTE);
    if (st == WEFT_OK) st = weft__check_no_layout(how);
    return st < 0 ? st : weft__call_enter(ep->worker, how);
}

static weft_status_t post_posted(void *ep, const struct submit_args *args, const weft_op_t *op) {
    return weft_atomic_post(ep, (weft_atomic_t)args->word[0], args->word[1], args->word[2],
                            args->word[3], (weft_rkey_t *)(uintptr_t)args->word[4], op);
}
static weft_status_t fetch_posted(void *ep, const struct submit_args *args, const weft_op_t *op) {
    return weft_atomic_fetch(ep, (weft_atomic_t)args->word[0], args->word[1], args->word[2],
                             args->word[5], (void *)(uintptr_t)args->word[6], args->word[3],
                             (weft_rkey_t *)(uintptr_t)args->word[4], op);
}

static weft_status_t elsewhere_atomic(weft_ep_t *ep, const struct rma_op *op,
                                      const weft_op_t *how) {
    struct submit_args args = {.word = {op->atomic, op->size, op->operand, op->remote,
                                        (uintptr_t)op->rkey, op->compare, (uintptr_t)op->old_p}};
    return weft__post(ep->worker, ep, op->what == RMA_POST ? post_posted : fetch_posted, &args,
                      how);
}

static NOINLINE weft_status_t perform(weft_ep_t *ep, const struct rma_op *op,
                                      const weft_op_t *how) {
    weft_status_t st = check_atomic(ep, op, how);
    if (st == WEFT_IN_PROGRESS) return elsewhere_atomic(ep, op, how);
    if (st == WEFT_OK) st = weft__rkey_check(op->rkey, op->remote, op->size, WEFT_MEM_ATOMIC);
    if (st == WEFT_OK) st = weft__rma_device_check(op);
    return st < 0 ? st : ep->ops->rma(ep, op, how);
}

/* Of a region that is not mapped: usually the message can go at once. */
static inline bool may_be_plain(const weft_ep_t *ep, const struct rma_op *op) {
    const weft_rkey_t *rkey = op->rkey;
    return ep && rkey && op->old_p && rkey->ep == ep && weft__reactor_mine(ep->worker->reactor) &&
           atomic_is_one(op->atomic, op->size, false) && (op->remote & (op->size - 1u)) == 0 &&
           weft__rkey_check(rkey, op->remote, op->size, WEFT_MEM_ATOMIC) == WEFT_OK;
}

static NOINLINE weft_status_t fetch_slowly(weft_ep_t *ep, const struct rma_op *op,
                                           const weft_op_t *how) {
    if (may_be_plain(ep, op)) {
        weft_status_t st = weft__rma_fetch_now(ep, op, how);
        if (st != WEFT_NO_RESOURCE) return st;
    }
    return perform(ep, op, how);
}

/* As they are in an operation: a value that is none stays none. */
static inline uint8_t atomic_byte(weft_atomic_t what) {
    return (unsigned)what > RMA_CSWAP ? UINT8_MAX : (uint8_t)what;
}
static inline uint8_t size_byte(size_t size) {
    return size > 8 ? UINT8_MAX : (uint8_t)size;
}

/* What decides whether an atomic can be performed at once, on mapped memory. */
struct atomic_place {
    const weft_rkey_t *rkey;
    weft_atomic_t what;
    size_t size;
    uint64_t remote;
    bool posted;
};

static inline bool is_at_hand(const weft_ep_t *ep, struct atomic_place a, const weft_op_t *op) {
    return !(op && weft__op_is_extended(op, WEFT_RMA_REMOTE)) &&
           atomic_is_one((unsigned)a.what, a.size, a.posted) && (a.remote & (a.size - 1)) == 0 &&
           weft__rma_is_mapped(ep, a.rkey, a.remote, a.size, CAP_ATOMIC);
}

weft_status_t weft_atomic_post(weft_ep_t *ep, weft_atomic_t what, size_t size, uint64_t operand,
                               uint64_t remote, weft_rkey_t *rkey, const weft_op_t *op) {
    if (!is_at_hand(ep, (struct atomic_place){rkey, what, size, remote, true}, op))
        return perform(ep,
                       &(struct rma_op){.what = RMA_POST,
                                        .rkey = rkey,
                                        .remote = remote,
                                        .operand = operand,
                                        .atomic = atomic_byte(what),
                                        .size = size_byte(size)},
                       op);
    ep->worker->count->rma_native++;
    atomic_post_at((enum rma_atomic)what, size, rkey->key->local + (remote - rkey->region.base),
                   operand);
    return WEFT_OK;
}

weft_status_t weft_atomic_fetch(weft_ep_t *ep, weft_atomic_t what, size_t size, uint64_t operand,
                                uint64_t compare, void *old_p, uint64_t remote, weft_rkey_t *rkey,
                                const weft_op_t *op) {
    if (!is_at_hand(ep, (struct atomic_place){rkey, what, size, remote, false}, op) || !old_p)
        return fetch_slowly(ep,
                            &(struct rma_op){.what = RMA_FETCH,
                                             .rkey = rkey,
                                             .remote = remote,
                                             .operand = operand,
                                             .compare = compare,
                                             .old_p = old_p,
                                             .atomic = atomic_byte(what),
                                             .size = size_byte(size)},
                            op);
    ep->worker->count->rma_native++;
    atomic_fetch_at((enum rma_atomic)what, size, rkey->key->local + (remote - rkey->region.base),
                    operand, compare, old_p);
    return WEFT_OK;
}
