/*
 * Layouts of puts and gets. Blocks at a stride are a piece, which all ways of an operation know.
 * What the program packs itself is packed into memory beside, whole, and unpacked out of it before
 * the operation completes. It therefore uses any protocol, in the order of that protocol, and may
 * be tried again from the beginning.
 */
#include "rma.h"
#include <endpoints/transfer/layout.h>

struct rma_packed {
    struct weft_worker *worker;
    const weft_pack_ops_t *user;
    void *state;
    bool gets;
    size_t len;
    _Alignas(16) uint8_t bytes[];
};

static weft_status_t blocks(struct rma_op *op, const weft_layout_t *layout, void *base) {
    size_t len;
    weft_status_t st = weft__layout_measure(layout, "buf", base, &len);
    if (st < 0) return st;
    if (weft__layout_is_dense(layout))
        op->piece = (struct rma_piece){.base = base, .len = len, .count = 1};
    else
        op->piece = (struct rma_piece){
            .base = base, .len = layout->block, .stride = layout->stride, .count = layout->count};
    return WEFT_OK;
}

static weft_status_t packed(struct weft_worker *worker, struct rma_op *op,
                            const weft_pack_ops_t *user, void *object, size_t count) {
    bool gets = op->what == RMA_GET;
    void *state;
    size_t len, size;
    weft_status_t st = weft__layout_start(user, object, count, gets, &state, &len);
    weft__program_returned(worker->reactor);
    if (st < 0) return st;
    /* Not zeroed: every byte is packed, or comes from the peer, before anybody reads it. */
    struct rma_packed *p = __builtin_add_overflow(sizeof *p, len, &size)
                               ? NULL
                               : weft__realloc(worker, NULL, size, "packed for a put or get");
    if (p) {
        *p = (struct rma_packed){
            .worker = worker, .user = user, .state = state, .gets = gets, .len = len};
        st = gets || len == 0 ? WEFT_OK : user->pack(state, 0, p->bytes, len);
        weft__program_returned(worker->reactor);
    }
    if (!p || st < 0) {
        if (user->end) user->end(state);
        weft__program_returned(worker->reactor);
        talloc_free(p);
        return p ? st : WEFT_ERR_NO_MEMORY;
    }
    op->packed = p;
    op->piece = (struct rma_piece){.base = p->bytes, .len = len, .count = 1};
    return WEFT_OK;
}

weft_status_t weft__rma_lay_out(struct weft_worker *worker, struct rma_op *op,
                                const weft_layout_t *layout, void *base, size_t len) {
    weft_status_t st = weft__layout_check(layout);
    if (st < 0) return st;
    return layout->kind == WEFT_LAYOUT_USER ? packed(worker, op, layout->user, base, len)
                                            : blocks(op, layout, base);
}

weft_status_t weft__rma_unpack(struct rma_packed *p, weft_status_t status) {
    weft_status_t st = status;
    if (status == WEFT_OK && p->gets && p->len) st = p->user->unpack(p->state, 0, p->bytes, p->len);
    weft__program_returned(p->worker->reactor);
    if (p->user->end) p->user->end(p->state);
    weft__program_returned(p->worker->reactor);
    talloc_free(p);
    return st < 0 ? st : status;
}
