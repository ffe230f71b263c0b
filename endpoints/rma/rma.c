/* Puts and gets: the program's calls, and which way an operation takes. atomic.c and
 * rma_pieces.c have the others. */
#include "rma.h"

#include <base/counters.h>
#include <transports/region.h>

#include <endpoints/core/submit.h>
#include <endpoints/transfer/device_memory.h>
#include <endpoints/transfer/layout.h>

/* ---- which way */

weft_status_t weft__rma_later(struct weft_ep *ep, const struct rma_op *op, const weft_op_t *how,
                              void *group) {
    struct weft_request *req;
    weft_status_t st = weft__rma_request(ep, op, how, group, &req);
    if (st < 0) return st;
    weft__rma_launch(req, group == NULL);
    return WEFT_IN_PROGRESS;
}

weft_status_t weft__rma_start(struct weft_ep *ep, const struct rma_op *op, const weft_op_t *how,
                              void *group) {
    bool remote = how && how->flags & WEFT_RMA_REMOTE;
    weft_status_t st = WEFT_NO_RESOURCE;
    if (op->on_device) return weft__rma_later(ep, op, how, group);
    if (weft__rma_is_native(ep, op->rkey, op->what, op->atomic, op->size)) {
        st = weft__rma_native_now(op, remote);
        if (st == WEFT_OK) ep->worker->count->rma_native++;
    } else if (weft__rma_is_of_device(op->rkey, op->what)) {
        if (!weft__rma_awaits_device(ep, op->rkey)) return weft__rma_without_device(op->rkey);
    } else if (!remote && (op->what == RMA_PUT || op->what == RMA_POST)) {
        st = weft__rma_send_now(ep, op);
    }
    return st == WEFT_NO_RESOURCE ? weft__rma_later(ep, op, how, group) : st;
}

weft_status_t weft__rma_wait(struct weft_ep *ep, const struct rma_op *op, const weft_op_t *how) {
    return weft__rma_later(ep, op, how, NULL);
}

weft_status_t weft__rma_ready(struct weft_ep *ep, const struct rma_op *op, const weft_op_t *how) {
    bool waits = !list_empty(&ep->rma->queue) || ep->rma->ordered;
    return waits ? weft__rma_later(ep, op, how, NULL) : weft__rma_start(ep, op, how, NULL);
}

/* ---- the program's calls */

weft_status_t weft__rma_foreign_key(const weft_ep_t *ep) {
    if (weft__is_stub_worker(ep->worker)) return weft__worker_check(ep->worker);
    return weft__fail(WEFT_ERR_INVALID_PARAM, "the key was unpacked for another endpoint");
}

static weft_status_t check_rma(const weft_ep_t *ep, const void *buf, size_t len,
                               const weft_rkey_t *rkey, const weft_op_t *op) {
    if (!ep || !rkey) return weft__fail(WEFT_ERR_INVALID_PARAM, "ep or rkey is NULL");
    weft_status_t st = weft__check_memory("buf", buf, len);
    if (st == WEFT_OK) st = weft__check_streamed_op(op, WEFT_RMA_REMOTE);
    if (st < 0) return st;
    if (rkey->ep != ep) return weft__rma_foreign_key(ep);
    return weft__call_enter(ep->worker, op);
}

static weft_status_t put_posted(void *ep, const struct submit_args *args, const weft_op_t *op) {
    return weft_put(ep, (const void *)(uintptr_t)args->word[0], args->word[1], args->word[2],
                    (weft_rkey_t *)(uintptr_t)args->word[3], op);
}
static weft_status_t get_posted(void *ep, const struct submit_args *args, const weft_op_t *op) {
    return weft_get(ep, (void *)(uintptr_t)args->word[0], args->word[1], args->word[2],
                    (weft_rkey_t *)(uintptr_t)args->word[3], op);
}

/* Its length is known, and what is to be put is packed, before anything is asked of the key. */
static weft_status_t move_laid_out(weft_ep_t *ep, struct rma_op *op, void *base, size_t len,
                                   const weft_op_t *how) {
    weft_status_t st = weft__rma_lay_out(ep->worker, op, how->layout, base, len);
    if (st < 0) return st;
    size_t bytes = rma_piece_len(&op->piece);
    st = weft__rkey_check(op->rkey, op->remote, bytes,
                          op->what == RMA_PUT ? WEFT_MEM_WRITE : WEFT_MEM_READ);
    if (st == WEFT_OK && (bytes || ep->refuses)) st = ep->ops->rma(ep, op, how);
    return op->packed && st != WEFT_IN_PROGRESS ? weft__rma_unpack(op->packed, st) : st;
}

/* Copies that nothing waits for: of the transport, or of messages through staging buffers. A
 * program's own functions see to a device themselves. */
static weft_status_t move_on_device(weft_ep_t *ep, struct rma_op *op, void *buf, size_t len,
                                    const weft_op_t *how) {
    weft_status_t st = WEFT_OK;
    op->piece = (struct rma_piece){.base = buf, .len = len, .count = 1};
    if (how && how->layout) st = weft__rma_lay_out(ep->worker, op, how->layout, buf, len);
    len = rma_piece_len(&op->piece);
    if (st == WEFT_OK)
        st = weft__rkey_check(op->rkey, op->remote, len,
                              op->what == RMA_PUT ? WEFT_MEM_WRITE : WEFT_MEM_READ);
    if (st < 0) return st;
    op->on_device = len > 0;
    return len || ep->refuses ? ep->ops->rma(ep, op, how) : WEFT_OK;
}

static bool is_on_device(const void *buf, const weft_layout_t *layout) {
    return weft__is_device_memory(buf) && !(layout && layout->kind == WEFT_LAYOUT_USER);
}

/* `op` has no piece yet: `len` bytes at `buf`, or what a layout selects there. */
static NOINLINE weft_status_t rma_move(weft_ep_t *ep, struct rma_op *op, void *buf, size_t len,
                                       const weft_op_t *how) {
    const weft_layout_t *layout = how ? how->layout : NULL;
    bool puts = op->what == RMA_PUT;
    weft_status_t st = check_rma(ep, buf, layout ? 0 : len, op->rkey, how);
    if (st == WEFT_IN_PROGRESS) {
        struct submit_args args = {.word = {(uintptr_t)buf, len, op->remote, (uintptr_t)op->rkey}};
        return weft__post(ep->worker, ep, puts ? put_posted : get_posted, &args, how);
    }
    if (st == WEFT_OK && is_on_device(buf, layout)) return move_on_device(ep, op, buf, len, how);
    if (st == WEFT_OK && layout) return move_laid_out(ep, op, buf, len, how);
    if (st == WEFT_OK)
        st = weft__rkey_check(op->rkey, op->remote, len, puts ? WEFT_MEM_WRITE : WEFT_MEM_READ);
    if (st < 0) return st;
    op->piece = (struct rma_piece){.base = buf, .len = len, .count = 1};
    if (len == 0) return ep->refuses ? ep->ops->rma(ep, op, how) : WEFT_OK;
    return ep->ops->rma(ep, op, how);
}

/* Of the same parameters as the calls below, so that these get there by a jump and save nothing
 * before. */
static NOINLINE weft_status_t put_slowly(weft_ep_t *ep, const void *buf, size_t len,
                                         uint64_t remote, weft_rkey_t *rkey, const weft_op_t *op) {
    struct rma_op put = {.what = RMA_PUT, .rkey = rkey, .remote = remote};
    return rma_move(ep, &put, (void *)(uintptr_t)buf, len, op);
}
static NOINLINE weft_status_t get_slowly(weft_ep_t *ep, void *buf, size_t len, uint64_t remote,
                                         weft_rkey_t *rkey, const weft_op_t *op) {
    struct rma_op get = {.what = RMA_GET, .rkey = rkey, .remote = remote};
    return rma_move(ep, &get, buf, len, op);
}

/* On mapped memory a put is performed when the call returns, WEFT_RMA_REMOTE or not. */
static inline bool is_special(const weft_op_t *op) {
    return op && weft__op_is_extended(op, WEFT_RMA_REMOTE);
}

static inline weft_status_t put_mapped(weft_ep_t *ep, const void *buf, size_t len, uint64_t remote,
                                       weft_rkey_t *rkey) {
    struct lane_key *key = rkey->key;
    char *to = key->local + (remote - rkey->region.base);
    ep->worker->count->rma_native++;
    if (len != 8) return key->lane->ops->rma->put_short(key->lane, buf, len, remote, key);
    atomic_thread_fence(memory_order_release); /* it comes after the puts before it */
    memcpy(to, buf, 8);                        /* a word at once: never seen half written */
    return WEFT_OK;
}
static inline weft_status_t get_mapped(weft_ep_t *ep, void *buf, size_t len, uint64_t remote,
                                       const weft_rkey_t *rkey) {
    const char *from = rkey->key->local + (remote - rkey->region.base);
    ep->worker->count->rma_native++;
    if (len == 8)
        memcpy(buf, from, 8);
    else
        memcpy(buf, from, len);
    atomic_thread_fence(memory_order_acquire); /* what is read next is no older */
    return WEFT_OK;
}

/* In a process with a CUDA driver `buf` may lie on a device. */
static NOINLINE weft_status_t put_beside_cuda(weft_ep_t *ep, const void *buf, size_t len,
                                              uint64_t remote, weft_rkey_t *rkey,
                                              const weft_op_t *op) {
    return weft__is_device_memory(buf) ? put_slowly(ep, buf, len, remote, rkey, op)
                                       : put_mapped(ep, buf, len, remote, rkey);
}
static NOINLINE weft_status_t get_beside_cuda(weft_ep_t *ep, void *buf, size_t len, uint64_t remote,
                                              weft_rkey_t *rkey, const weft_op_t *op) {
    return weft__is_device_memory(buf) ? get_slowly(ep, buf, len, remote, rkey, op)
                                       : get_mapped(ep, buf, len, remote, rkey);
}

weft_status_t weft_put(weft_ep_t *ep, const void *buf, size_t len, uint64_t remote,
                       weft_rkey_t *rkey, const weft_op_t *op) {
    if (!weft__rma_is_mapped(ep, rkey, remote, len, CAP_PUT) || len > rkey->max_short || !buf ||
        is_special(op))
        return put_slowly(ep, buf, len, remote, rkey, op);
    if (UNLIKELY(weft__cuda_active)) return put_beside_cuda(ep, buf, len, remote, rkey, op);
    return put_mapped(ep, buf, len, remote, rkey);
}

weft_status_t weft_get(weft_ep_t *ep, void *buf, size_t len, uint64_t remote, weft_rkey_t *rkey,
                       const weft_op_t *op) {
    if (!weft__rma_is_mapped(ep, rkey, remote, len, CAP_GET) || len > rkey->max_short || !buf ||
        is_special(op))
        return get_slowly(ep, buf, len, remote, rkey, op);
    if (UNLIKELY(weft__cuda_active)) return get_beside_cuda(ep, buf, len, remote, rkey, op);
    return get_mapped(ep, buf, len, remote, rkey);
}

static const struct memory_users memory_users = {.revoked = weft__rma_evict,
                                                 .first_key = weft__rma_first_key};

void weft__rma_open(struct weft_worker *worker) {
    worker->memory.users = &memory_users;
    list_init(&worker->memory.outstanding);
    weft__rma_copy_job_init(&worker->memory);
}
