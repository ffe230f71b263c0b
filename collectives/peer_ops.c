/* The work of one member in collectives by peer memory: which pieces it folds or copies. */
#include "peer.h"

bool weft__peer_knows(enum coll_kind kind) {
    switch (kind) {
    case COLL_BCAST:
    case COLL_ALLREDUCE:
    case COLL_ALLGATHER:
    case COLL_GATHER:
    case COLL_SCATTER:
    case COLL_REDUCE:
    case COLL_REDUCE_SCATTER:
    case COLL_ALLTOALL:
    case COLL_SCAN:
    case COLL_EXSCAN: return true;
    default: return false;
    }
}

struct ops {
    struct peer_op *op;
    uint32_t n;
};

static void add(struct ops *ops, struct peer_op op) {
    if (op.len) ops->op[ops->n++] = op;
}

/* The fold of the first `n` members' SRC, from byte `from` on, to `to` in a member's DST. */
static void add_fold(struct ops *ops, uint32_t n, uint32_t to_rank, uint64_t to,
                     struct piece from) {
    add(ops, (struct peer_op){.fold = true,
                              .n = n,
                              .to_rank = to_rank,
                              .to = to,
                              .from = from.offset,
                              .len = n ? from.len : 0});
}

static void add_copy(struct ops *ops, uint32_t to_rank, uint64_t to, uint32_t from_rank,
                     enum coll_buffer from_buffer, struct piece from) {
    add(ops, (struct peer_op){.to_rank = to_rank,
                              .to = to,
                              .from_rank = from_rank,
                              .from_buffer = from_buffer,
                              .from = from.offset,
                              .len = from.len});
}

static struct piece own_piece(const struct coll_shape *shape, uint32_t rank) {
    return weft__piece(shape->count, shape->width, shape->size, rank);
}

static void first_stage(const struct coll_shape *shape, bool two, struct ops *ops) {
    uint32_t rank = shape->rank, root = shape->root;
    uint64_t bytes = shape->count * shape->width;
    struct piece all = {0, bytes}, own = own_piece(shape, rank), block = {rank * bytes, bytes};
    switch (shape->kind) {
    case COLL_ALLREDUCE:
        add_fold(ops, shape->size, rank, two ? own.offset : 0, two ? own : all);
        break;
    case COLL_REDUCE: add_fold(ops, shape->size, root, own.offset, own); break;
    case COLL_REDUCE_SCATTER: add_fold(ops, shape->size, rank, 0, block); break;
    case COLL_SCAN: add_fold(ops, rank + 1, rank, 0, all); break;
    case COLL_EXSCAN: add_fold(ops, rank, rank, 0, all); break;
    case COLL_BCAST:
        if (rank != root) add_copy(ops, rank, 0, root, COLL_DST, all);
        break;
    case COLL_GATHER: add_copy(ops, root, block.offset, rank, COLL_SRC, all); break;
    case COLL_SCATTER: add_copy(ops, rank, 0, root, COLL_SRC, block); break;
    case COLL_ALLGATHER:
        for (uint32_t i = 0; i < shape->size; i++) {
            uint32_t peer = (rank + i) % shape->size; /* not all from one at once */
            add_copy(ops, rank, peer * bytes, peer, COLL_SRC, all);
        }
        break;
    case COLL_ALLTOALL:
        for (uint32_t i = 0; i < shape->size; i++) {
            uint32_t peer = (rank + i) % shape->size;
            add_copy(ops, rank, peer * bytes, peer, COLL_SRC, block);
        }
        break;
    default: break;
    }
}

uint32_t weft__peer_ops(const struct coll_shape *shape, bool two, unsigned stage,
                        struct peer_op op[PEER_MOST_OPS]) {
    struct ops ops = {op, 0};
    if (stage == 0) first_stage(shape, two, &ops);
    if (stage == 1 && two && shape->kind == COLL_ALLREDUCE)
        for (uint32_t i = 1; i < shape->size; i++) {
            uint32_t peer = (shape->rank + i) % shape->size;
            struct piece piece = own_piece(shape, peer);
            add_copy(&ops, shape->rank, piece.offset, peer, COLL_DST, piece);
        }
    return ops.n;
}
