/* One-sided operations: put, get, atomics, fence, and flushes of a whole worker. */
#ifndef WEFT_RMA_H
#define WEFT_RMA_H

#include <weft/memory.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Contract of all one-sided operations.
 *
 * Target: the target's program takes no part. Mapped memory is accessed directly. Otherwise the
 * target's worker serves the operation in its progress; a worker with a thread of its own does so
 * while the program computes (weft_worker_start_thread).
 *
 * Address: `remote` is an address in the owner's process, inside the key's region
 * (weft_rkey_describe returns its base). It may be the region's end if no bytes are moved. An
 * address out of range, a missing right, or a misaligned atomic is refused here as INVALID_PARAM.
 * The target checks the same again.
 *
 * Errors: INVALID_PARAM; REVOKED if the owner revoked the key; UNREACHABLE if the key belongs to
 * another worker than the endpoint's peer; CLOSED, and the status that the endpoint was lost with.
 *
 * Start: operations may be posted before the endpoint is ready, and while a key is being opened.
 * They then go by message as a whole. So does an operation that follows its weft_rkey_unpack at
 * once: keep a key that is used again. Before moving much data, wait until weft_rkey_pointer
 * reports the region as mapped. On mapped memory, up to 8 MiB are moved within the call (WEFT_OK);
 * a larger operation is in progress and moves part by part.
 *
 * Overlap: local and remote memory may be the same memory, as over an endpoint to its own worker,
 * or memory mapped twice. The ranges must be disjoint or equal. Otherwise the content of the
 * overlap is undefined.
 *
 * Completion is local: the buffer is free (put), or holds the data (get, fetching atomics). With
 * WEFT_RMA_REMOTE in op->flags, a put or posted atomic completes when the target has performed it,
 * with the target's result. Without it, a refusal that only the target could find is reported by
 * the next flush with WEFT_FLUSH_REMOTE: INVALID_PARAM, REVOKED, QUOTA or UNSUPPORTED. Gets and
 * fetching atomics have the target's result in any case; the flag changes nothing there.
 *
 * Order: operations of one endpoint may be performed in any order, except as weft_ep_rma_attributes
 * promises, and around a fence. They are not ordered with messages, except by a remote flush or
 * WEFT_RMA_REMOTE before the message.
 */
enum { WEFT_RMA_REMOTE = 1 }; /* weft_op_t.flags */

/*
 * Writes `buf` to the peer's memory, or reads the peer's memory into `buf`. op->layout, if set,
 * describes `buf` (weft/layout.h).
 */
WEFT_API weft_status_t weft_put(weft_ep_t *ep, const void *buf, size_t len, uint64_t remote,
                                weft_rkey_t *rkey, const weft_op_t *op);
WEFT_API weft_status_t weft_get(weft_ep_t *ep, void *buf, size_t len, uint64_t remote,
                                weft_rkey_t *rkey, const weft_op_t *op);

/*
 * A piece of local memory: `count` blocks of `len` bytes, each `stride` bytes after the previous
 * one. count 0 means 1.
 */
typedef struct weft_local {
    void *base;
    size_t len, stride, count;
    weft_mem_t *mem; /* its registration; NULL: found in the cache if the transport needs one */
} weft_local_t;

/* A piece of the peer's memory, in the same form. Each piece has its own key. */
typedef struct weft_remote {
    uint64_t base;
    size_t len, stride, count;
    weft_rkey_t *rkey;
} weft_remote_t;

/*
 * Scatter and gather. `local` and `remote` must hold the same number of bytes, and one of the two
 * must be a single contiguous piece (INVALID_PARAM otherwise). There is one completion for all
 * pieces. The arrays are copied.
 *
 * Blocks that are read may overlap each other, as with a stride below `len`. Where blocks that are
 * written overlap, the content of the overlap is undefined.
 *
 * A local piece of 0 bytes is legal at any address, NULL included. A remote piece of 0 bytes needs
 * a key and a `base` in the key's region, as a put of 0 bytes does. If there are no bytes at all,
 * either array may be empty: WEFT_OK.
 *
 * Errors: also TOO_BIG for more than 16 Mi pieces on one side; BUSY if the registration of a local
 * piece is being released; UNSUPPORTED for op->completion if the pieces make more than 64
 * operations and a local one is device memory.
 */
WEFT_API weft_status_t weft_put_pieces(weft_ep_t *ep, const weft_local_t *local, size_t n_local,
                                       const weft_remote_t *remote, size_t n_remote,
                                       const weft_op_t *op);
WEFT_API weft_status_t weft_get_pieces(weft_ep_t *ep, const weft_local_t *local, size_t n_local,
                                       const weft_remote_t *remote, size_t n_remote,
                                       const weft_op_t *op);

typedef enum weft_atomic {
    WEFT_ATOMIC_ADD,
    WEFT_ATOMIC_AND,
    WEFT_ATOMIC_OR,
    WEFT_ATOMIC_XOR,
    WEFT_ATOMIC_SWAP,
    WEFT_ATOMIC_CSWAP /* stores `operand` if the old value equals `compare` */
} weft_atomic_t;

/*
 * Atomics. `size` is 4 or 8 bytes in this host's byte order, and `remote` must be a multiple of it.
 * They are atomic with each other and with the target's own atomic instructions. For a region with
 * WEFT_MEM_ATOMIC_DEVICE (weft/memory.h) they are atomic with each other only. They are UNSUPPORTED
 * if its device does not support the operation, or if this endpoint does not reach the device.
 *
 * Of `operand` and `compare` the low `size` bytes count. Sums wrap around.
 *
 * The posted form returns no value and has no CSWAP. The fetching form writes the old value to
 * `old_p`, a uint32_t or uint64_t by `size`.
 */
WEFT_API weft_status_t weft_atomic_post(weft_ep_t *ep, weft_atomic_t what, size_t size,
                                        uint64_t operand, uint64_t remote, weft_rkey_t *rkey,
                                        const weft_op_t *op);
WEFT_API weft_status_t weft_atomic_fetch(weft_ep_t *ep, weft_atomic_t what, size_t size,
                                         uint64_t operand, uint64_t compare, void *old_p,
                                         uint64_t remote, weft_rkey_t *rkey, const weft_op_t *op);

/*
 * Orders one-sided operations: those posted on `ep` after the fence are performed at the target
 * after those posted before it. It does not wait. Errors: NO_MEMORY, CLOSED, and the status that
 * the endpoint was lost with.
 */
WEFT_API weft_status_t weft_ep_fence(weft_ep_t *ep);

/*
 * A flush or a fence of all endpoints of the worker (weft_ep_flush, weft_ep_fence). A flush with
 * WEFT_FLUSH_REMOTE waits until all operations are performed. A lost endpoint makes the flush end
 * with that endpoint's status; the call returns it if nothing has to be waited for.
 */
WEFT_API weft_status_t weft_worker_flush(weft_worker_t *worker, const weft_op_t *op);
WEFT_API weft_status_t weft_worker_fence(weft_worker_t *worker);

/* Order without a fence: none, among puts and posted atomics, or among all operations. */
typedef enum weft_rma_order { WEFT_ORDER_NONE, WEFT_ORDER_PUTS, WEFT_ORDER_ALL } weft_rma_order_t;

typedef struct weft_rma_attributes {
    weft_rma_order_t order;
    /*
     * At a remote completion: 1 if the target's processor sees the new value, 0 if it is only on
     * its way.
     */
    int done_is_visible;
    /*
     * The rights whose operations need a target's worker that is driven: WEFT_MEM_WRITE for puts,
     * READ for gets, ATOMIC for (some) atomics. 0: none. Over process_vm, puts and gets need no
     * progress of the target, and atomics go by message.
     */
    int needs_target_progress;
    size_t max_short;            /* bytes of a put on the shortest path; at least WEFT_SHORT_MIN */
    size_t max_bcopy, max_zcopy; /* of one operation of the transport; larger ones are split */
    double message_rate;         /* operations/s, estimated */
    double latency_ns, bandwidth, overhead_ns;
} weft_rma_attributes_t;
/*
 * Returns what holds for one-sided operations posted on the endpoint from now on, with `rkey`
 * (NULL: by message). It may change when the key has been opened. Errors: CLOSED, or the status
 * that the endpoint was lost with, if it has no connection (yet).
 */
#define weft_ep_rma_attributes(...) \
    weft_ep_rma_attributes_sized(sizeof(weft_rma_attributes_t), __VA_ARGS__)
WEFT_API weft_status_t weft_ep_rma_attributes_sized(size_t attributes_size, weft_ep_t *ep,
                                                    const weft_rkey_t *rkey,
                                                    weft_rma_attributes_t *attributes_p);

/* As above, and drive the worker until the operation is complete (weft_ep_flush_wait). */
WEFT_API weft_status_t weft_put_wait(weft_ep_t *ep, const void *buf, size_t len, uint64_t remote,
                                     weft_rkey_t *rkey);
WEFT_API weft_status_t weft_get_wait(weft_ep_t *ep, void *buf, size_t len, uint64_t remote,
                                     weft_rkey_t *rkey);
WEFT_API weft_status_t weft_atomic_fetch_wait(weft_ep_t *ep, weft_atomic_t what, size_t size,
                                              uint64_t operand, uint64_t compare, void *old_p,
                                              uint64_t remote, weft_rkey_t *rkey);
WEFT_API weft_status_t weft_put_pieces_wait(weft_ep_t *ep, const weft_local_t *local,
                                            size_t n_local, const weft_remote_t *remote,
                                            size_t n_remote);
WEFT_API weft_status_t weft_get_pieces_wait(weft_ep_t *ep, const weft_local_t *local,
                                            size_t n_local, const weft_remote_t *remote,
                                            size_t n_remote);
WEFT_API weft_status_t weft_worker_flush_wait(weft_worker_t *worker);
WEFT_API weft_status_t weft_worker_flush_remote_wait(weft_worker_t *worker);

#ifdef __cplusplus
}
#endif
#endif
