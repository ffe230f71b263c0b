/*
 * Atomics that the target's device performs: additions and compare-and-swaps of 8 bytes, in order
 * with puts. Both devices limit the number in progress (max_rd_atomic); the queue pair holds the
 * rest. The device always writes the old value to registered memory: to a word that is copied for a
 * fetch, else to a shared word that is never read.
 */
#include "rc.h"

#include <transports/atomics.h>

static struct ibv_send_wr request(const struct lane_atomic *atomic, const struct lane_key *key,
                                  struct ibv_sge *sge) {
    bool adds = atomic->op == RMA_ADD;
    struct ibv_send_wr wr = {.opcode =
                                 adds ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP,
                             .sg_list = sge,
                             .num_sge = 1};
    wr.wr.atomic.remote_addr = atomic->remote;
    wr.wr.atomic.compare_add = adds ? atomic->operand : atomic->compare;
    wr.wr.atomic.swap = adds ? 0 : atomic->operand;
    wr.wr.atomic.rkey = ((const struct rc_key *)key)->rkey;
    return wr;
}

static struct ibv_sge into(const struct rd_block *word) {
    return (struct ibv_sge){(uintptr_t)word->bytes, sizeof(uint64_t), word->lkey};
}

static weft_status_t check_atomic(const struct rc_lane *lane, const struct lane_atomic *atomic) {
    if (!atomic_is_of_devices(atomic->op, atomic->size))
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "rdma: devices do not support atomic %d of %zu bytes", (int)atomic->op,
                          atomic->size);
    return rc_has_room(lane, RC_KEEP) ? WEFT_OK : WEFT_NO_RESOURCE;
}

weft_status_t weft__rc_atomic_post(struct lane *l, const struct lane_atomic *atomic,
                                   struct lane_key *key) {
    struct rc_lane *lane = rc_lane(l);
    struct rc_iface *iface = rc_iface_of(lane);
    weft_status_t st = atomic->op == RMA_CSWAP ? WEFT_ERR_UNSUPPORTED : check_atomic(lane, atomic);
    if (st != WEFT_OK) return st;
    if (!iface->discard_buf) iface->discard_buf = weft__rd_pool_take(&iface->words, &st);
    if (!iface->discard_buf) return st;
    struct ibv_sge sge = into(iface->discard_buf);
    struct ibv_send_wr wr = request(atomic, key, &sge);
    lane->bytes += atomic->size;
    weft__rc_post(lane, &wr, NULL, false);
    return WEFT_OK;
}

static bool bring_old(struct rc_lane *lane, struct rc_op *op) {
    memcpy(op->old_p, op->word->bytes, sizeof(uint64_t));
    return false;
}

weft_status_t weft__rc_atomic_fetch(struct lane *l, const struct lane_atomic *atomic, void *old_p,
                                    struct lane_key *key, struct completion *completion) {
    struct rc_lane *lane = rc_lane(l);
    struct rc_iface *iface = rc_iface_of(lane);
    weft_status_t st = check_atomic(lane, atomic);
    if (st != WEFT_OK) return st;
    struct rd_block *word = weft__rd_pool_take(&iface->words, &st);
    if (!word) return st;
    struct rc_op *op = weft__slab_take(&iface->op_slab);
    if (!op) {
        rd_pool_put(&iface->words, word);
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for an operation");
    }
    op->finish = bring_old;
    op->completion = completion;
    op->word = word;
    op->old_p = old_p;
    struct ibv_sge sge = into(word);
    struct ibv_send_wr wr = request(atomic, key, &sge);
    lane->bytes += atomic->size;
    weft__rc_post(lane, &wr, &(struct rc_work){.op = op}, true);
    return WEFT_IN_PROGRESS;
}
