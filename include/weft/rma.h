/* One-sided operations: put, get, atomics, fence, and the flushes that say what is done. */
#ifndef WEFT_RMA_H
#define WEFT_RMA_H

#include <weft/memory.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The target's program takes no part: mapped memory is touched directly; else the target's worker serves the
 * operation in its turn (a worker on a thread of its own does so while the program computes:
 * weft_worker_start_thread).
 *
 * `remote` is an address in the owner's process, inside the key's region (weft_rkey_describe tells where that
 * begins), or, where no bytes are moved, its end. What is out of range, not among the key's rights, or not aligned
 * (atomics) is refused here as INVALID_PARAM and again, whatever a peer says, at the target. REVOKED: the owner took the
 * key back. UNREACHABLE: the key is of another worker than the endpoint's peer. Operations may be posted before the
 * endpoint is ready, and while a key is being opened: then they go by message, all of one that has begun so
 * (weft_rkey_pointer tells when a region is mapped, for who has much to move).
 *
 * On mapped memory up to 8 MiB are done within the call (WEFT_OK); more is an operation under way, part by part.
 *
 * The memory here and the peer's range may be the same (an endpoint to its own worker, or one memory mapped twice) where they do
 * not overlap, or are equal; what is in an overlap is undefined afterwards.
 *
 * Completion is local: the buffer is free (put), or holds the data (get, fetching atomics). With WEFT_RMA_REMOTE in
 * op->flags a put or posted atomic completes when it is performed at the target, and then with its outcome. Without
 * it, a refusal that only the target could find is told by the next flush with WEFT_FLUSH_REMOTE: INVALID_PARAM,
 * REVOKED, QUOTA or UNSUPPORTED.
 *
 * Operations of one endpoint may be performed in any order, except as weft_ep_rma_attributes promises, and around a
 * fence. They are not ordered with messages, except by a remote flush or WEFT_RMA_REMOTE before the message.
 */
enum { WEFT_RMA_REMOTE = 1 }; /* weft_op_t.flags */

/* op->layout, if there is one, says how `buf` is laid out (weft/layout.h). */
WEFT_API weft_status_t weft_put(weft_ep_t *ep, const void *buf, size_t len, uint64_t remote, weft_rkey_t *rkey,
                                const weft_op_t *op);
WEFT_API weft_status_t weft_get(weft_ep_t *ep, void *buf, size_t len, uint64_t remote, weft_rkey_t *rkey,
                                const weft_op_t *op);

/* A piece of memory here: `count` blocks of `len` bytes, `stride` bytes from one's begin to the next's. count 0 is
 * 1. */
typedef struct weft_local {
    void *base;
    size_t len, stride, count;
    weft_mem_t *mem; /* its registration; NULL: found in the cache where the transport needs one */
} weft_local_t;

/* The same of the peer's memory, each piece under a key of its own. */
typedef struct weft_remote {
    uint64_t base;
    size_t len, stride, count;
    weft_rkey_t *rkey;
} weft_remote_t;

/*
 * Scatter and gather on one side: `local` and `remote` hold equally many bytes, and one of the two is a single
 * contiguous piece (INVALID_PARAM otherwise). One completion for all; the arrays are copied. A local piece of no bytes is legal
 * wherever it is, NULL too, also one that names its registration; a piece of the peer's has a key, and its `base` is inside the
 * key's region, as of a put of no bytes. Where there are none to move at all, neither side need have a piece: WEFT_OK.
 * TOO_BIG: more than 16 Mi pieces on a side.
 */
WEFT_API weft_status_t weft_put_pieces(weft_ep_t *ep, const weft_local_t *local, size_t n_local,
                                       const weft_remote_t *remote, size_t n_remote, const weft_op_t *op);
WEFT_API weft_status_t weft_get_pieces(weft_ep_t *ep, const weft_local_t *local, size_t n_local,
                                       const weft_remote_t *remote, size_t n_remote, const weft_op_t *op);

typedef enum weft_atomic {
    WEFT_ATOMIC_ADD,
    WEFT_ATOMIC_AND,
    WEFT_ATOMIC_OR,
    WEFT_ATOMIC_XOR,
    WEFT_ATOMIC_SWAP,
    WEFT_ATOMIC_CSWAP /* stores `operand` where the old value equals `compare` */
} weft_atomic_t;

/* `size` is 4 or 8 bytes, of this host's byte order; `remote` a multiple of it. Atomic among each other and with
 * the target's own atomic instructions; of a region of WEFT_MEM_ATOMIC_DEVICE (memory.h tells), among each other alone,
 * and UNSUPPORTED where its device has no such operation or is not reached by this endpoint. The posted form has no CSWAP. */
WEFT_API weft_status_t weft_atomic_post(weft_ep_t *ep, weft_atomic_t what, size_t size, uint64_t operand,
                                        uint64_t remote, weft_rkey_t *rkey, const weft_op_t *op);
/* The old value goes to `old_p`, a uint32_t or uint64_t by `size`. */
WEFT_API weft_status_t weft_atomic_fetch(weft_ep_t *ep, weft_atomic_t what, size_t size, uint64_t operand,
                                         uint64_t compare, void *old_p, uint64_t remote, weft_rkey_t *rkey,
                                         const weft_op_t *op);

/* What is posted on `ep` after it is performed at the target after what was posted before it. It does not wait: WEFT_OK, or
 * NO_MEMORY, CLOSED and the endpoint's own error. */
WEFT_API weft_status_t weft_ep_fence(weft_ep_t *ep);

/* All endpoints of the worker: as weft_ep_flush on each, and what that may be asked for: that all is performed, by
 * WEFT_FLUSH_REMOTE alone. One that is lost is its status. */
WEFT_API weft_status_t weft_worker_flush(weft_worker_t *worker, const weft_op_t *op);
WEFT_API weft_status_t weft_worker_fence(weft_worker_t *worker);

typedef enum weft_rma_order { WEFT_ORDER_NONE, WEFT_ORDER_PUTS, WEFT_ORDER_ALL } weft_rma_order_t;

/* What holds for one-sided operations of an endpoint that are posted from now on, by `rkey` (NULL: by messages); it
 * may change when the key has been opened. CLOSED, or the endpoint's own error: it has no connection (yet). */
typedef struct weft_rma_attributes {
    weft_rma_order_t order; /* without a fence: nothing, puts and posted atomics among each other, or everything */
    int done_is_visible;    /* to the target's processor, when a remote completion comes; 0: beyond recall only */
    /* Operations for which the target's worker must be driven: WEFT_MEM_WRITE for puts, READ for gets, ATOMIC for (some) atomics, of
     * those that the key grants. 0: none. By process_vm puts and gets need nobody, and atomics go by message. */
    int needs_target_progress;
    size_t max_short;            /* bytes of a put that take the shortest way; WEFT_SHORT_MIN at least */
    size_t max_bcopy, max_zcopy; /* of one operation of the transport; larger ones are cut */
    double message_rate;         /* a second, estimated */
    double latency_ns, bandwidth, overhead_ns;
} weft_rma_attributes_t;
WEFT_API weft_status_t weft_ep_rma_attributes(weft_ep_t *ep, const weft_rkey_t *rkey,
                                              weft_rma_attributes_t *attributes_p);

WEFT_API weft_status_t weft_put_wait(weft_ep_t *ep, const void *buf, size_t len, uint64_t remote,
                                     weft_rkey_t *rkey);
WEFT_API weft_status_t weft_get_wait(weft_ep_t *ep, void *buf, size_t len, uint64_t remote, weft_rkey_t *rkey);
WEFT_API weft_status_t weft_atomic_fetch_wait(weft_ep_t *ep, weft_atomic_t what, size_t size, uint64_t operand,
                                              uint64_t compare, void *old_p, uint64_t remote, weft_rkey_t *rkey);

#ifdef __cplusplus
}
#endif
#endif
