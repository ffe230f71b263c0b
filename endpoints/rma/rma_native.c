/* One-sided operations that the transport performs. */
#include <base/counters.h>
#include <transports/atomics.h>
#include <transports/pieces.h>

#include "rma.h"
#include <endpoints/core/worker.h>

/* Any of these will do. */
static uint32_t caps_for(enum rma_what what, unsigned atomic, size_t size) {
    if (what == RMA_PUT) return CAP_PUT;
    if (what == RMA_GET) return CAP_GET;
    return CAP_ATOMIC | (atomic_is_of_devices(atomic, size) ? (uint32_t)CAP_ATOMIC_DEVICE : 0);
}

bool weft__rma_is_native(const struct weft_ep *ep, const struct weft_rkey *rkey, enum rma_what what,
                         unsigned atomic, size_t size) {
    if (rkey->key->status != WEFT_OK || !(rkey->key->caps & caps_for(what, atomic, size)))
        return false;
    return ep->rma->performed >= ep->rma->fenced;
}

/* None where puts go by the transport and atomics by message. */
enum rma_order weft__rma_key_order(const struct lane_key *key) {
    bool of_device = key->region.rights & WEFT_MEM_ATOMIC_DEVICE;
    if (key->is_of_device) return RMA_ORDER_NONE;
    bool apart = key->region.rights & WEFT_MEM_ATOMIC && !of_device && !(key->caps & CAP_ATOMIC);
    return key->status != WEFT_OK || apart ? RMA_ORDER_NONE : key->lane->iface->attr.order;
}

/* At most `most` bytes of it from `offset` on: whole blocks, or a part of one. */
static struct rma_piece part_of(const struct rma_piece *all, size_t offset, size_t most) {
    size_t block = offset / all->len, within = offset % all->len;
    struct rma_piece part = {.base = (char *)all->base + block * all->stride + within,
                             .mem = all->mem};
    if (within || all->len > most || all->count == 1) {
        part.len = all->len - within < most ? all->len - within : most;
        part.count = 1;
        return part;
    }
    size_t left = all->count - block, fit = most / all->len;
    part.len = all->len;
    part.stride = all->stride;
    part.count = left < fit ? left : fit;
    return part;
}

static size_t pack_native(void *to, void *arg) {
    const struct rma_piece *piece = arg;
    pieces_gather(to, piece, 1);
    return rma_piece_len(piece);
}

static weft_status_t put_whole(const struct rma_piece *part, uint64_t remote, struct lane_key *key,
                               struct completion *in_flight) {
    in_flight->count++;
    weft_status_t st = key->lane->ops->rma->put_zcopy(key->lane, part, 1, remote, key, in_flight);
    if (st != WEFT_IN_PROGRESS) in_flight->count--;
    return st;
}

/* One part, in the form that fits its size. */
static weft_status_t put_part(struct rma_piece *part, uint64_t remote, struct lane_key *key,
                              struct completion *in_flight) {
    struct lane *lane = key->lane;
    const struct iface_attr *attr = &lane->iface->attr;
    size_t len = rma_piece_len(part);
    if (key->is_of_device || weft__is_device_memory(part->base))
        return put_whole(part, remote, key, in_flight);
    if (part->count == 1 && len <= attr->max_put_short)
        return lane->ops->rma->put_short(lane, part->base, len, remote, key);
    if (len <= attr->max_put_bcopy)
        return lane->ops->rma->put_bcopy(lane, len, pack_native, part, remote, key);
    return put_whole(part, remote, key, in_flight);
}

static weft_status_t get_part(const struct rma_piece *part, uint64_t remote, struct lane_key *key,
                              struct completion *in_flight) {
    in_flight->count++;
    weft_status_t st = key->lane->ops->rma->get_zcopy(key->lane, part, 1, remote, key, in_flight);
    if (st != WEFT_IN_PROGRESS) in_flight->count--;
    return st;
}

static size_t most_of(const struct lane_key *key, enum rma_what what, const struct rma_piece *all) {
    const struct iface_attr *attr = &key->lane->iface->attr;
    if (key->is_of_device || weft__is_device_memory(all->base)) return SIZE_MAX;
    size_t most = what == RMA_GET ? attr->max_get_zcopy : attr->max_put_zcopy;
    return most > attr->max_put_bcopy || what == RMA_GET ? most : attr->max_put_bcopy;
}

/* The next part; *done_p grows by its bytes when it was posted. */
static weft_status_t move_part(enum rma_what what, const struct rma_piece *all, uint64_t remote,
                               struct lane_key *key, size_t *done_p, struct completion *in_flight) {
    struct rma_piece part = part_of(all, *done_p, most_of(key, what, all));
    uint64_t at = remote + *done_p;
    weft_status_t st =
        what == RMA_PUT ? put_part(&part, at, key, in_flight) : get_part(&part, at, key, in_flight);
    if (st == WEFT_OK || st == WEFT_IN_PROGRESS) *done_p += rma_piece_len(&part);
    return st;
}

static weft_status_t perform_atomic(enum rma_what what, const struct lane_atomic *atomic,
                                    void *old_p, struct lane_key *key,
                                    struct completion *in_flight) {
    struct lane *lane = key->lane;
    if (what == RMA_POST) return lane->ops->rma->atomic_post(lane, atomic, key);
    in_flight->count++;
    weft_status_t st = lane->ops->rma->atomic_fetch(lane, atomic, old_p, key, in_flight);
    if (st != WEFT_IN_PROGRESS) in_flight->count--;
    return st;
}

/* ---- so much a turn: the loop has others to look after, and a large copy has a deadline and
 * can be cancelled */

static void move_on(struct job *job) {
    struct memory *memory = list_of(job, struct memory, copy_job);
    struct list *node;
    memory->moved = 0;
    while (memory->moved < RMA_TURN && (node = list_pop(&memory->moving)) != NULL) {
        struct weft_request *req = list_of(node, struct weft_request, queued);
        struct list one;
        list_init(&one);
        list_append(&one, node);
        weft__link_submit_all(req->ep->link, &one);
    }
    if (!list_empty(&memory->moving))
        weft__job_post(list_of(memory, struct weft_worker, memory)->reactor, job);
}

void weft__rma_copy_job_init(struct memory *memory) {
    list_init(&memory->moving);
    memory->copy_job.run = move_on;
}

static weft_status_t go_on_later(struct weft_request *req) {
    struct memory *memory = &req->worker->memory;
    list_remove(&req->queued);
    req->queue = &memory->moving;
    list_append(req->queue, &req->queued);
    weft__job_post(req->worker->reactor, &memory->copy_job);
    weft__reactor_poll_soon(req->worker->reactor);
    return WEFT_IN_PROGRESS;
}

weft_status_t weft__rma_native_now(const struct rma_op *op, bool remote) {
    struct lane_key *key = op->rkey->key;
    struct completion none = {.count = 0};
    size_t len = rma_piece_len(&op->piece), done = 0;
    weft_status_t st = WEFT_OK;
    if (len > RMA_TURN) return WEFT_NO_RESOURCE;
    /* Only mapped memory is done with when the call returns, whatever the operation. */
    if (!key->local && (remote || op->what != RMA_POST)) return WEFT_NO_RESOURCE;
    if (op->what == RMA_POST || op->what == RMA_FETCH)
        st = perform_atomic(op->what,
                            &(struct lane_atomic){(enum rma_atomic)op->atomic, op->size,
                                                  op->operand, op->compare, op->remote},
                            op->old_p, key, &none);
    else
        while (st == WEFT_OK && done < len)
            st = move_part(op->what, &op->piece, op->remote, key, &done, &none);
    return st == WEFT_ERR_UNSUPPORTED ? WEFT_NO_RESOURCE : st;
}

/* It is not left before all that was posted by it has ended (weft__rma_quiesce), though no key
 * may lead there any more. */
static struct lane *posted_by(const struct weft_request *req) {
    const struct weft_rkey *rkey = req->rma.rkey;
    const struct lane_key *key = rkey->left ? rkey->left : rkey->key;
    return key->lane ? key->lane : req->ep->link->lane;
}

/* NO_RESOURCE: to be asked again. */
static weft_status_t flush_posted(struct weft_request *req) {
    struct lane *lane = posted_by(req);
    req->in_flight.count++;
    weft_status_t st = lane->ops->flush(lane, &req->in_flight);
    if (st != WEFT_IN_PROGRESS) req->in_flight.count--;
    return st == WEFT_IN_PROGRESS ? WEFT_OK : st;
}

/* All of it is, once. A remote completion of what is not mapped is the lane's flush. */
static weft_status_t posted(struct weft_request *req) {
    bool remote = req->send.flags & WEFT_RMA_REMOTE && !req->rma.rkey->key->local;
    req->worker->count->rma_native++;
    req->rma.posted = true;
    return remote && req->rma.what != RMA_GET && req->rma.what != RMA_FETCH ? flush_posted(req)
                                                                            : WEFT_OK;
}

weft_status_t weft__rma_native_part(struct weft_request *req) {
    struct request_rma *r = &req->rma;
    struct lane_key *key = r->rkey->key;
    weft_status_t st;
    if (r->posted) return flush_posted(req);
    if (r->what == RMA_POST || r->what == RMA_FETCH) {
        st = perform_atomic((enum rma_what)r->what,
                            &(struct lane_atomic){(enum rma_atomic)r->atomic, r->size, r->operand,
                                                  r->compare, r->remote},
                            r->old_p, key, &req->in_flight);
        return st == WEFT_OK || st == WEFT_IN_PROGRESS ? posted(req) : st;
    }
    if (req->offset == req->len) return posted(req);
    if (weft__rma_turn_is_over(req->worker)) return go_on_later(req);
    size_t before = req->offset;
    st =
        move_part((enum rma_what)r->what, &r->piece, r->remote, key, &req->offset, &req->in_flight);
    if (st != WEFT_OK && st != WEFT_IN_PROGRESS) return st;
    req->worker->memory.moved += req->offset - before;
    return req->offset < req->len ? weft__rma_next_turn(req) : posted(req);
}
