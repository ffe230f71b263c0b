/*
 * One-sided operations. The initiator uses the transport if the key is open and supports the
 * operation, and a message otherwise. This is decided again for each part that is about to be sent.
 * The target performs messages when they arrive.
 *
 * Order. Messages of a link are performed in the order sent. Without a fence, operations may
 * overtake each other: the pieces of a large put interleave with other messages, a native operation
 * may overtake a message, and a get reads its bytes when the lane takes them. A fence therefore
 *   - asks the lane to order native operations,
 *   - holds later operations until every earlier operation with a request has ended, and
 *   - if messages were sent that may not be performed yet, sends later operations as messages,
 *     until the peer answers a FLUSH that was sent behind those messages.
 */
#ifndef WEFT_ENDPOINTS_RMA_RMA_H
#define WEFT_ENDPOINTS_RMA_RMA_H

#include <base/compiler.h>
#include <base/counters.h>
#include <transports/region.h>
#include <weft/rma.h>

#include <endpoints/core/worker.h>
#include <endpoints/memory/rkey.h>

struct wire_fin;
struct wire_rma_done;

enum rma_what { RMA_PUT, RMA_GET, RMA_POST, RMA_FETCH };

/* An operation as the program gave it: a contiguous range of the peer, and local blocks. */
struct rma_op {
    enum rma_what what;
    struct rma_piece piece; /* put and get; count is at least 1 */
    struct weft_rkey *rkey;
    uint64_t remote, operand, compare; /* operand, compare, and the fields below: atomics */
    void *old_p;
    uint8_t atomic, size;
    /* The piece is device memory: always a request, which no copy of the processor serves. */
    bool on_device;
    /* The buffer of a layout that the program packs itself. The request owns it once there is
     * one. */
    struct rma_packed *packed;
};
static inline size_t rma_piece_len(const struct rma_piece *piece) {
    return piece->len * piece->count;
}

/* Made with the endpoint's first key. */
struct ep_rma {
    struct list keys;
    /* waiting operations and fences: for READY, for a fence, or for `ordered` */
    struct list queue;
    struct list again;        /* operations that began and wait for their device (rma_device.c) */
    uint32_t active;          /* operations with a request, not in `queue` */
    uint32_t ordered;         /* of those: puts in parts, by a key that keeps puts in order */
    uint64_t sent, performed; /* messages sent, and those known to be performed */
    weft_status_t notified;   /* a refusal that a fence received, for the next flush */
    uint64_t fenced;          /* no native operation until messages up to this one are performed */
    bool asked;               /* a FLUSH for `fenced` is under way */
};
_Static_assert(offsetof(struct ep_rma, keys) == 0, "ep->keys points to the keys of *ep->rma");
/* The endpoint's first key is unpacked: makes ep->rma. False: no memory. */
bool weft__rma_first_key(struct weft_ep *ep);
/* Recomputes ep->rma_slow: 0 if operations need to check nothing but the key. */
void weft__rma_update(struct weft_ep *ep);

/* True if the operation may start and the region is mapped: it then completes within the call. */
static inline bool weft__rma_is_mapped(const weft_ep_t *ep, const weft_rkey_t *rkey,
                                       uint64_t remote, size_t len, uint32_t cap) {
    /* Another thread may not read the key. */
    if (UNLIKELY(!ep || !rkey || rkey->ep != ep || !weft__reactor_mine(ep->worker->reactor)))
        return false;
    const struct lane_key *key = rkey->key;
    return LIKELY(!ep->rma_slow && key->status == WEFT_OK && key->caps & cap && key->local &&
                  region_covers(rkey->region.base, rkey->region.len, remote, len));
}

/* What a call with a key of another endpoint returns. An endpoint in associated mode has no keys
 * while it has no resource: then that is the reason. */
weft_status_t weft__rma_foreign_key(const weft_ep_t *ep);

/* ---- rma_native.c: operations by the transport */

/* True if the transport can perform it now. `atomic` and `size` are read for atomics. */
bool weft__rma_is_native(const struct weft_ep *ep, const struct weft_rkey *rkey, enum rma_what what,
                         unsigned atomic, size_t size);
/* The order that the transport keeps for this key. */
enum rma_order weft__rma_key_order(const struct lane_key *key);
/*
 * All of it, within the call: WEFT_OK; WEFT_NO_RESOURCE when that does not go (or not now), and it
 * needs a request (a part may have been performed, which is allowed: the operation promises no
 * time); or an error.
 */
weft_status_t weft__rma_native_now(const struct rma_op *op, bool remote);
/* Bytes that a worker copies natively in one turn. A longer operation becomes a request. */
enum { RMA_TURN = 8 << 20 };
static inline bool weft__rma_turn_is_over(const struct weft_worker *worker) {
    return worker->memory.moved >= RMA_TURN;
}
void weft__rma_copy_job_init(struct memory *memory);
/* The next part of a request, which then stands where the one after it is to be: OK (all is
 * posted, or performed), IN_PROGRESS (more is to come), NO_RESOURCE, an error. UNSUPPORTED: by
 * message. */
weft_status_t weft__rma_native_part(struct weft_request *req);

/* ---- rma_device.c: atomics that only a device performs */

static inline bool weft__rma_is_of_device(const struct weft_rkey *rkey, enum rma_what what) {
    return (what == RMA_POST || what == RMA_FETCH) && rkey->region.rights & WEFT_MEM_ATOMIC_DEVICE;
}
/* True if the atomic must wait for weft__rma_keyed, weft__rma_performed or weft__rma_unquiesce. */
bool weft__rma_awaits_device(const struct weft_ep *ep, const struct weft_rkey *rkey);
/* Returns UNSUPPORTED or NO_MEMORY, with the reason. */
weft_status_t weft__rma_without_device(const struct weft_rkey *rkey);
weft_status_t weft__rma_device_check(const struct rma_op *op);

/* ---- rma_message.c: operations by message */

/* A small put or a posted atomic without remote completion. NO_RESOURCE: it needs a request. */
weft_status_t weft__rma_send_now(struct weft_ep *ep, const struct rma_op *op);
/* A plain fetching atomic: IN_PROGRESS, or an error. NO_RESOURCE: it needs the general path. */
weft_status_t weft__rma_fetch_now(struct weft_ep *ep, const struct rma_op *op,
                                  const weft_op_t *how);
/* Makes an accepted request that is not started. `group` may be NULL. */
weft_status_t weft__rma_request(struct weft_ep *ep, const struct rma_op *op, const weft_op_t *how,
                                void *group, struct weft_request **req_p);
extern const struct request_kind weft__rma_put_kind, weft__rma_get_kind, weft__rma_atomic_kind;

/* Moves the request to the end of its queue, so that small messages pass a large operation. */
weft_status_t weft__rma_next_turn(struct weft_request *req);

/* ---- rma_bounce.c: device memory by transports that copy memory of the host only */

/* From now on the request's piece is a buffer of the host. IN_PROGRESS: it is not filled yet; the
 * request has left its queue, and is submitted again. */
weft_status_t weft__rma_bounce(struct weft_request *req);
/* The transport has all of it. IN_PROGRESS: a get that still goes to its device, and finishes
 * then. */
weft_status_t weft__rma_land(struct weft_request *req);

/* ---- rma_order.c: operations that wait */

/* Starts a request now, or when fences, order and the window allow it. */
void weft__rma_launch(struct weft_request *req, bool behind_fences);
/* The request began and has to wait again. Returns IN_PROGRESS. */
weft_status_t weft__rma_wait_again(struct weft_request *req);
/* A key of the lane is no longer awaited (iface_up.keyed). */
void weft__rma_keyed(struct lane *lane);
/* The request has ended. */
void weft__rma_left(struct weft_request *req);
/* The peer has performed all messages up to `order`. */
void weft__rma_performed(struct weft_ep *ep, uint64_t order);
/* Stores a refusal for the program's next flush. With WEFT_OK: returns and clears the stored
 * one. */
weft_status_t weft__rma_swap_refusal(struct weft_ep *ep, weft_status_t status);
/* Starts queued operations whose predecessors have ended. */
void weft__rma_go_on(struct weft_ep *ep);
/* The endpoint is READY: starts its queued operations. */
void weft__rma_go(struct weft_ep *ep);
extern const struct request_kind weft__rma_fence_kind;
/* The link is leaving `lane`: no operation starts with its keys. Returns the number under way;
 * each calls weft__link_quiesce_step when it ends. */
uint32_t weft__rma_quiesce(struct weft_ep *ep, const struct lane *lane);
/* The link has left the lane, or stays, or the lane is `gone`. Native operations start again
 * when messages are performed; at once if the keys stayed. */
void weft__rma_unquiesce(struct weft_ep *ep, const struct lane *gone, bool keys_stayed);
/* The endpoint leaves the link. Returns the number of operations that a switch no longer waits
 * for. */
uint32_t weft__rma_unwait(struct weft_ep *ep);
/* The endpoint leaves the link, with operations that end after it: others get their places. */
void weft__rma_leave_window(struct weft_ep *ep);

/* ---- rma_outstanding.c: answers to operations that ended early */

/* The request ends early. True: it keeps its place in the window until the answer comes. */
bool weft__rma_add_outstanding(const struct weft_request *req);
/* `bytes` of a late answer came. SIZE_MAX: the answer is complete. */
void weft__rma_came_late(struct link *link, uint32_t id, size_t bytes);
/* The endpoint leaves its link: frees the places of those answers. */
void weft__rma_drop_outstanding(struct weft_ep *ep);
/* Frees a place in the window and starts a waiting request (rma_order.c). */
void weft__rma_place_free(struct link *link);

/* ---- rma_layout.c */

/* Sets the operation's piece, and its buffer if the program packs it. */
weft_status_t weft__rma_lay_out(struct weft_worker *worker, struct rma_op *op,
                                const weft_layout_t *layout, void *base, size_t len);
/* The operation ends with `status`. Unpacks and frees the buffer; returns the program's status
 * after OK. */
weft_status_t weft__rma_unpack(struct rma_packed *packed, weft_status_t status);

/* ---- rma_pieces.c */

extern const struct request_kind weft__rma_pieces_kind;
/* Starts the parts of a request of several pieces. */
void weft__rma_pieces_start(struct weft_request *req);
/* True for a put that uses, in part, a transport that keeps puts in order. */
bool weft__rma_pieces_are_ordered(const struct weft_request *req);
void weft__rma_piece_ended(struct weft_request *pieces, weft_status_t status);

/* ---- rma.c */

/* The worker opens: registers what memory/ calls. */
void weft__rma_open(struct weft_worker *worker);

/* Starts an operation of a READY endpoint that no fence holds: OK, IN_PROGRESS or an error. */
weft_status_t weft__rma_start(struct weft_ep *ep, const struct rma_op *op, const weft_op_t *how,
                              void *group);
/* Starts an operation as a request, whatever its size. */
weft_status_t weft__rma_later(struct weft_ep *ep, const struct rma_op *op, const weft_op_t *how,
                              void *group);
/* Members of ep_ops. */
weft_status_t weft__rma_wait(struct weft_ep *ep, const struct rma_op *op, const weft_op_t *how);
weft_status_t weft__rma_ready(struct weft_ep *ep, const struct rma_op *op, const weft_op_t *how);

/* ---- flush.c */

/* A member of ep_ops. */
weft_status_t weft__flush_post(struct weft_ep *ep, const weft_op_t *op);

/* ---- rma_target.c: operations of the peer */

void weft__on_put(struct lane *lane, unsigned id, const void *data, size_t len);
void weft__on_get(struct lane *lane, unsigned id, const void *data, size_t len);
void weft__on_atomic(struct lane *lane, unsigned id, const void *data, size_t len);
void weft__on_flush(struct lane *lane, unsigned id, const void *data, size_t len);
void weft__on_rma_done(struct link *link, struct lane *lane,
                       const struct wire_rma_done *answer); /* the initiator's: rma_message.c */
void weft__on_flushed(struct link *link, struct lane *lane,
                      const struct wire_fin *flushed); /* flush.c */
/* A place_fn. A put by message is written straight into the region. */
bool weft__place_put(struct lane *lane, const void *head, size_t head_len, size_t len,
                     struct placement_record *of, struct placement *to);
/* The endpoint is lost: its peer awaits no answer, and takes the places for other endpoints. */
void weft__rma_lost(struct weft_ep *ep);
/* The region is withdrawn: stops placements, and turns waiting answers into refusals. */
void weft__rma_evict(weft_mem_t *mem);

#endif
