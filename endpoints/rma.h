/*
 * One-sided operations. The initiator asks the transport where the key is open and has the operation, and else sends a
 * message; which of the two is decided afresh whenever a part of it is about to go. The target performs messages when they come.
 *
 * Order. Messages of a link are performed in the order sent. Without a fence an operation may still overtake another: a large
 * put goes in pieces that others may come between, one by the transport overtakes one by message, and a get's bytes are read
 * when the lane takes them. A fence therefore
 *   - asks the lane to order what the transport performs,
 *   - lets what comes after it wait until every operation before it that has a request has ended (all its pieces are with the
 *     lane, its bytes have come), and
 *   - if messages were sent that are not known to be performed, lets what comes after it go by message as well until a FLUSH
 *     that was sent behind them is answered.
 */
#ifndef WEFT_ENDPOINTS_RMA_H
#define WEFT_ENDPOINTS_RMA_H

#include <reactor/counters.h>
#include <transports/region.h>
#include <weft/rma.h>

#include "rkey.h"
#include "worker.h"

enum rma_what { RMA_PUT, RMA_GET, RMA_POST, RMA_FETCH };

/* An operation as the program gave it: a contiguous range of the peer's, and blocks of ours. */
struct rma_op {
    enum rma_what what;
    struct rma_piece piece; /* put, get; its count is 1 or more */
    struct weft_rkey *rkey;
    uint64_t remote, operand, compare; /* the last two, and what follows: atomics */
    void *old_p;
    uint8_t atomic, size;
    /* Where the piece lies, if the program packs it itself: the request's once there is one. */
    struct rma_packed *packed;
};
static inline size_t rma_piece_len(const struct rma_piece *piece) {
    return piece->len * piece->count;
}

/* Of an endpoint that has, or had, keys. */
struct ep_rma {
    struct list keys;
    struct list queue; /* operations that wait: for READY, behind a fence, or for `ordered`; fences among them */
    struct list again; /* those that had begun, and wait for their device (rma_device.c) */
    uint32_t active;   /* operations that have a request and do not wait */
    uint32_t ordered;  /* of those: puts in parts, where puts are promised to keep their order */
    uint64_t sent, performed; /* messages; those up to `performed` are known to be */
    weft_status_t told;       /* a refusal that only a fence heard of */
    uint64_t fenced;          /* natively only when those up to here are performed */
    bool asked;               /* a FLUSH is under way whose answer says that they are */
};
/* Made when first asked for; NULL: no memory. */
struct ep_rma *weft__ep_rma(struct weft_ep *ep);
/* Whether operations may go without a look at anything but the key: ep->rma_slow. */
void weft__rma_update(struct weft_ep *ep);

/* Nothing stands in the way, and the region is mapped here: then it is done when the call returns, remotely too. */
static inline bool weft__rma_is_mapped(const weft_ep_t *ep, const weft_rkey_t *rkey, uint64_t remote, size_t len,
                                       uint32_t cap) {
    /* Another thread must look no further: the key is the owner's. */
    if (__builtin_expect(!ep || !rkey || rkey->ep != ep || !weft__reactor_mine(ep->worker->reactor), 0))
        return false;
    const struct lane_key *key = rkey->key;
    return __builtin_expect(!ep->rma_slow && key->status == WEFT_OK && key->caps & cap && key->local &&
                                region_covers(rkey->region.base, rkey->region.len, remote, len),
                            1);
}

/* ---- rma_native.c: by the transport */

/* May this part of it be? `atomic` and `size` are an atomic's. */
bool weft__rma_is_native(const struct weft_ep *ep, const struct weft_rkey *rkey, enum rma_what what,
                         unsigned atomic, size_t size);
/* The order that operations by this key keep. */
enum rma_order weft__rma_key_order(const struct lane_key *key);
/*
 * All of it, within the call: WEFT_OK; WEFT_NO_RESOURCE when that does not go (or not now), and it needs a request (a part
 * may have been performed, which is no harm: nobody has promised when); or an error.
 */
weft_status_t weft__rma_native_now(const struct rma_op *op, bool remote);
/* Bytes that one worker copies natively for requests before it looks at something else; an operation of more is a request. */
enum { RMA_TURN = 8 << 20 };
static inline bool weft__rma_turn_is_over(const struct weft_worker *worker) {
    return worker->memory.moved >= RMA_TURN;
}
void weft__rma_mover_init(struct memory *memory);
/* The next part of a request, which then stands where the one after it is to be: OK (all is posted, or performed), IN_PROGRESS
 * (more is to come), NO_RESOURCE, an error. UNSUPPORTED: by message. */
weft_status_t weft__rma_native_part(struct weft_request *req);

/* ---- rma_device.c: atomics that a device performs, and nobody else may */

static inline bool weft__rma_is_of_device(const struct weft_rkey *rkey, enum rma_what what) {
    return (what == RMA_POST || what == RMA_FETCH) && rkey->region.rights & WEFT_MEM_ATOMIC_DEVICE;
}
/* It cannot be now: does it have to wait? weft__rma_keyed, weft__rma_performed or weft__rma_unhush comes then. */
bool weft__rma_awaits_device(const struct weft_ep *ep, const struct weft_rkey *rkey);
/* UNSUPPORTED (or NO_MEMORY), and why. */
weft_status_t weft__rma_without_device(const struct weft_rkey *rkey);
weft_status_t weft__rma_device_lacks(const struct rma_op *op);

/* ---- rma_message.c: by message */

/* A small put or a posted atomic that nobody waits for: OK, NO_RESOURCE (it needs a request), or an error. */
weft_status_t weft__rma_send_now(struct weft_ep *ep, const struct rma_op *op);
/* A plain fetching atomic, as most are: IN_PROGRESS; NO_RESOURCE: it needs what others need; or an error. */
weft_status_t weft__rma_fetch_now(struct weft_ep *ep, const struct rma_op *op, const weft_op_t *how);
/* An operation as a request: accepted, of a group or not, not started. */
weft_status_t weft__rma_request(struct weft_ep *ep, const struct rma_op *op, const weft_op_t *how, void *group,
                                struct weft_request **req_p);
extern const struct request_kind weft__rma_put_kind, weft__rma_get_kind, weft__rma_atomic_kind;

/* To the end of its queue: a large operation does not keep small messages waiting. */
weft_status_t weft__rma_next_turn(struct weft_request *req);

/* ---- rma_order.c: what waits, and for what */

/* Starts a request that was made: at once, or when it may. */
void weft__rma_launch(struct weft_request *req, bool behind_fences);
/* It has begun, and has to wait again: IN_PROGRESS. */
weft_status_t weft__rma_wait_again(struct weft_request *req);
/* A key of the lane's was awaited, and is not any more (iface_up.keyed). */
void weft__rma_keyed(struct lane *lane);
/* It has ended. */
void weft__rma_left(struct weft_request *req);
/* All messages up to that one are performed. */
void weft__rma_performed(struct weft_ep *ep, uint64_t order);
/* Keeps a refusal for the program's next flush; WEFT_OK: gives back what was kept. */
weft_status_t weft__rma_told(struct weft_ep *ep, weft_status_t status);
/* What waits for others to end may go on. */
void weft__rma_go_on(struct weft_ep *ep);
/* Its endpoint is READY. */
void weft__rma_go(struct weft_ep *ep);
extern const struct request_kind weft__rma_fence_kind;
/* The link is about to leave that lane: no operation begins by its keys. How many are under way; each is told of when it ends. */
uint32_t weft__rma_hush(struct weft_ep *ep, const struct lane *lane);
/* It has left it, or stays, or the lane is `gone`. Operations by the transport begin when those by message are performed, unless
 * the keys stayed: then they have never ended. */
void weft__rma_unhush(struct weft_ep *ep, const struct lane *gone, bool keys_stayed);
/* The endpoint leaves the link: so many are waited for no more. */
uint32_t weft__rma_unwait(struct weft_ep *ep);

/* ---- rma_owed.c: answers to operations that ended early */

/* It ends: does it keep its place among those that wait for an answer? */
bool weft__rma_owe(const struct weft_request *req);
/* An answer to none that is under way, or so many bytes of one; SIZE_MAX: all there will be. */
void weft__rma_came_late(struct link *link, uint32_t id, size_t bytes);
/* The endpoint leaves its link. */
void weft__rma_forgive(struct weft_ep *ep);
/* rma_order.c */
void weft__rma_place_free(struct link *link);

/* ---- rma_layout.c */

/* The operation's piece, and what it is packed in. */
weft_status_t weft__rma_lay_out(struct weft_worker *worker, struct rma_op *op, const weft_layout_t *layout,
                                void *base, size_t len);
/* The operation ends so; what the program answers takes the place of WEFT_OK. Frees it. */
weft_status_t weft__rma_unpack(struct rma_packed *packed, weft_status_t status);

/* ---- rma_pieces.c */

extern const struct request_kind weft__rma_pieces_kind;
/* Starts the parts of one. */
void weft__rma_pieces_start(struct weft_request *req);
/* Is it a put, some of it by a transport that keeps puts in order? */
bool weft__rma_pieces_are_ordered(const struct weft_request *req);
void weft__rma_piece_ended(struct weft_request *pieces, weft_status_t status);

/* ---- rma.c */

/* One operation of a READY endpoint, no fence in sight: OK; IN_PROGRESS with a request; or an error. */
weft_status_t weft__rma_start(struct weft_ep *ep, const struct rma_op *op, const weft_op_t *how, void *group);
/* Of ep_ops. */
/* As a request, whatever its size: of a group when the turn is over. */
weft_status_t weft__rma_later(struct weft_ep *ep, const struct rma_op *op, const weft_op_t *how, void *group);
weft_status_t weft__rma_wait(struct weft_ep *ep, const struct rma_op *op, const weft_op_t *how);
weft_status_t weft__rma_ready(struct weft_ep *ep, const struct rma_op *op, const weft_op_t *how);

/* ---- rma_target.c: a peer's operations */

void weft__on_put(struct lane *lane, const void *data, size_t len);
void weft__on_get(struct lane *lane, const void *data, size_t len);
void weft__on_atomic(struct lane *lane, const void *data, size_t len);
void weft__on_flush(struct lane *lane, const void *data, size_t len);
void weft__on_rma_done(struct lane *lane, const void *data, size_t len); /* the initiator's: rma_message.c */
void weft__on_flushed(struct lane *lane, const void *data, size_t len);  /* flush.c */
/* The payload of a large put goes straight into the region (CAP_LAND). */
bool weft__land_put(struct lane *lane, const void *head, size_t head_len, size_t len, struct landing *to);
/* The region is withdrawn: landings are stopped, and answers that still wait are refusals. */
void weft__rma_evict(weft_mem_t *mem);

#endif
