/*
 * One-sided operations by a granted key. The hardware performs them in the order posted, except
 * that later operations may overtake gets until a fence. Pieces with strides are gathered, because
 * a request takes few pieces.
 */
#include "rc.h"

#include <transports/pieces.h>

static const struct rc_key *rc_key(const struct lane_key *key) {
    return (const struct rc_key *)key;
}

static weft_status_t too_big(const char *what) {
    return weft__fail(WEFT_ERR_TOO_BIG,
                      "%s over rdma_rc: the size exceeds the limit that weft-info shows", what);
}

/* A write or read between these pieces and the peer's memory. */
static struct ibv_send_wr transfer_of(enum ibv_wr_opcode opcode, struct ibv_sge *sge, int n_sge,
                                      uint64_t remote, const struct lane_key *key) {
    return (struct ibv_send_wr){.opcode = opcode,
                                .sg_list = sge,
                                .num_sge = n_sge,
                                .wr.rdma = {.remote_addr = remote, .rkey = rc_key(key)->rkey}};
}

/* ---- short and packed ------------------------------------------------------------------------ */

static struct rd_block *take_block(struct rc_lane *lane, weft_status_t *st_p) {
    *st_p = WEFT_NO_RESOURCE;
    return rc_has_room(lane, RC_KEEP) ? weft__rd_pool_take(&rc_iface_of(lane)->send, st_p) : NULL;
}

static weft_status_t put_block(struct rc_lane *lane, struct rd_block *block, size_t len,
                               uint64_t remote, const struct lane_key *key) {
    struct ibv_sge sge = {(uintptr_t)block->bytes, (uint32_t)len, block->lkey};
    lane->bytes += len;
    struct ibv_send_wr wr = transfer_of(IBV_WR_RDMA_WRITE, &sge, 1, remote, key);
    weft__rc_post(lane, &wr, &(struct rc_work){.block = block}, false);
    return WEFT_OK;
}

weft_status_t weft__rc_put_short(struct lane *l, const void *data, size_t len, uint64_t remote,
                                 struct lane_key *key) {
    struct rc_lane *lane = rc_lane(l);
    if (len > l->iface->attr.max_put_short) return too_big("put_short");
    if (len == 0) return WEFT_OK;
    if (!rc_has_room(lane, RC_KEEP)) return WEFT_NO_RESOURCE;
    if (len > rc_iface_of(lane)->max_inline) {
        weft_status_t st;
        struct rd_block *block = take_block(lane, &st);
        if (!block) return st;
        memcpy(block->bytes, data, len);
        return put_block(lane, block, len, remote, key);
    }
    struct ibv_sge sge = {.addr = (uintptr_t)data, .length = (uint32_t)len};
    lane->bytes += len;
    struct ibv_send_wr wr = transfer_of(IBV_WR_RDMA_WRITE, &sge, 1, remote, key);
    wr.send_flags = IBV_SEND_INLINE;
    weft__rc_post(lane, &wr, NULL, false);
    return WEFT_OK;
}

weft_status_t weft__rc_put_bcopy(struct lane *l, size_t len, size_t (*pack)(void *, void *),
                                 void *arg, uint64_t remote, struct lane_key *key) {
    struct rc_lane *lane = rc_lane(l);
    weft_status_t st;
    if (len > l->iface->attr.max_put_bcopy) return too_big("put_bcopy");
    if (len == 0) return WEFT_OK;
    struct rd_block *block = take_block(lane, &st);
    if (!block) return st;
    pack(block->bytes, arg);
    return put_block(lane, block, len, remote, key);
}

/* ---- memory of one operation ----------------------------------------------------------------- */

weft_status_t weft__rc_local_key(struct rc_lane *lane, struct rc_op *op, void *base, size_t len,
                                 bool writes, uint32_t *lkey_p) {
    struct rc_iface *iface = rc_iface_of(lane);
    struct rd_buf_ref *ref = weft__rc_mem_hold(iface, base, len, writes);
    weft_status_t st =
        ref ? WEFT_OK : weft__rd_buf_ref_take(&iface->buf_refs, base, len, writes, &ref);
    if (st < 0) return st;
    op->buf_ref[op->n_buf_refs++] = ref;
    *lkey_p = ref->mr->lkey;
    return WEFT_OK;
}

static bool has_strides(const struct rma_piece *pieces, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (pieces[i].count > 1 && pieces[i].stride != pieces[i].len && pieces[i].len) return true;
    return false;
}

/* The memory of one operation at this side. */
struct local_pieces {
    const struct rma_piece *piece;
    size_t n, total;
    bool written; /* by the device */
};

/* The pieces as they are, or all of them beside each other in memory of our own. */
static weft_status_t describe_pieces(struct rc_lane *lane, struct rc_op *op,
                                     const struct local_pieces *local, struct ibv_sge *sge,
                                     int *n_sge_p) {
    const struct rma_piece *pieces = local->piece;
    size_t n = local->n, total = local->total;
    bool writes = local->written;
    weft_status_t st = WEFT_OK;
    *n_sge_p = 0;
    if (has_strides(pieces, n)) {
        op->staging = weft__alloc(rc_iface_of(lane), total, "gathered pieces");
        if (!op->staging)
            return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to gather %zu bytes", total);
        if (!writes) pieces_gather(op->staging, pieces, n);
        sge[0] = (struct ibv_sge){.addr = (uintptr_t)op->staging, .length = (uint32_t)total};
        *n_sge_p = 1;
        return weft__rc_local_key(lane, op, op->staging, total, writes, &sge[0].lkey);
    }
    for (size_t i = 0; i < n && st == WEFT_OK; i++) {
        size_t len = pieces[i].len * pieces[i].count;
        if (len == 0) continue;
        struct ibv_sge *one = &sge[(*n_sge_p)++];
        *one = (struct ibv_sge){.addr = (uintptr_t)pieces[i].base, .length = (uint32_t)len};
        st = weft__rc_local_key(lane, op, pieces[i].base, len, writes, &one->lkey);
    }
    return st;
}

static struct rc_op *op_new(struct rc_lane *lane, struct completion *completion) {
    struct rc_op *op = weft__slab_take(&rc_iface_of(lane)->op_slab);
    if (op)
        op->completion = completion;
    else
        weft__fail(WEFT_ERR_NO_MEMORY, "no memory for an operation");
    return op;
}

static bool scatter(struct rc_lane *lane, struct rc_op *op) {
    if (op->staging) pieces_scatter(op->piece, op->n_pieces, op->staging);
    return false;
}

/* Writes them to the peer's memory, or reads that into them. */
static weft_status_t transfer_pieces(struct rc_lane *lane, const struct local_pieces *local,
                                     uint64_t remote, const struct lane_key *key,
                                     struct completion *completion) {
    struct ibv_sge sge[RC_IOV];
    int n;
    if (!rc_has_room(lane, RC_KEEP)) return WEFT_NO_RESOURCE;
    struct rc_op *op = op_new(lane, completion);
    if (!op) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = describe_pieces(lane, op, local, sge, &n);
    if (st < 0) {
        weft__rc_op_free(lane, op);
        return st;
    }
    if (local->written) {
        op->finish = scatter;
        op->n_pieces = (unsigned)local->n;
        memcpy(op->piece, local->piece, local->n * sizeof *local->piece);
    }
    lane->bytes += local->total;
    struct ibv_send_wr wr =
        transfer_of(local->written ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, sge, n, remote, key);
    weft__rc_post(lane, &wr, &(struct rc_work){.op = op}, true);
    return WEFT_IN_PROGRESS;
}

weft_status_t weft__rc_put_zcopy(struct lane *l, const struct rma_piece *from, size_t n_from,
                                 uint64_t remote, struct lane_key *key,
                                 struct completion *completion) {
    struct rc_lane *lane = rc_lane(l);
    size_t total;
    if (!pieces_fit(from, n_from, l->iface->attr.max_put_zcopy, l->iface->attr.max_iov, &total))
        return too_big("put_zcopy");
    if (total == 0) return WEFT_OK;
    if (total <= RC_COPY_BELOW) {
        weft_status_t st;
        struct rd_block *block = take_block(lane, &st);
        if (!block) return st;
        pieces_gather((char *)block->bytes, from, n_from);
        return put_block(lane, block, total, remote, key);
    }
    return transfer_pieces(lane, &(struct local_pieces){from, n_from, total, false}, remote, key,
                           completion);
}

/* ---- get ------------------------------------------------------------------------------------- */

static bool unpack_block(struct rc_lane *lane, struct rc_op *op) {
    op->unpack.fn(op->unpack.arg, op->block->bytes, op->unpack.len);
    return false;
}

weft_status_t weft__rc_get_bcopy(struct lane *l, const struct rma_unpack *to, uint64_t remote,
                                 struct lane_key *key, struct completion *completion) {
    struct rc_lane *lane = rc_lane(l);
    weft_status_t st;
    if (to->len > l->iface->attr.max_get_bcopy) return too_big("get_bcopy");
    if (to->len == 0) {
        to->fn(to->arg, "", 0);
        return WEFT_OK;
    }
    struct rd_block *block = take_block(lane, &st);
    if (!block) return st;
    struct rc_op *op = op_new(lane, completion);
    if (!op) {
        rd_pool_put(&rc_iface_of(lane)->send, block);
        return WEFT_ERR_NO_MEMORY;
    }
    op->finish = unpack_block;
    op->block = block;
    op->unpack = *to;
    struct ibv_sge sge = {(uintptr_t)block->bytes, (uint32_t)to->len, block->lkey};
    lane->bytes += to->len;
    struct ibv_send_wr wr = transfer_of(IBV_WR_RDMA_READ, &sge, 1, remote, key);
    weft__rc_post(lane, &wr, &(struct rc_work){.op = op}, true);
    return WEFT_IN_PROGRESS;
}

weft_status_t weft__rc_get_zcopy(struct lane *l, const struct rma_piece *to, size_t n_to,
                                 uint64_t remote, struct lane_key *key,
                                 struct completion *completion) {
    size_t total;
    if (!pieces_fit(to, n_to, l->iface->attr.max_get_zcopy, l->iface->attr.max_iov, &total))
        return too_big("get_zcopy");
    if (total == 0) return WEFT_OK;
    return transfer_pieces(rc_lane(l), &(struct local_pieces){to, n_to, total, true}, remote, key,
                           completion);
}

weft_status_t weft__rc_fence(struct lane *l) {
    rc_lane(l)->fence = true;
    return WEFT_OK;
}
