/* One-sided operations as messages, and the requests behind those that do not end within their
 * call. */
#include <base/compiler.h>
#include <base/counters.h>
#include <transports/pieces.h>

#include "rma.h"
#include <endpoints/core/request_fast.h>
#include <endpoints/core/worker.h>
#include <endpoints/transfer/layout.h>
#include <endpoints/transfer/placement.h>
#include <endpoints/transfer/rendezvous.h>

/* ---- messages */

static struct wire_key key_of(const struct weft_rkey *rkey) {
    struct wire_key key = {.region = rkey->region.id, .epoch = rkey->region.epoch};
    memcpy(key.token, rkey->region.token, sizeof key.token);
    return key;
}

static uint64_t rma_message_sent(struct weft_ep *ep) {
    ep->worker->count->rma_messages++;
    ep->link->sent++;
    return ++ep->rma->sent;
}

struct put_message {
    struct wire_put head;
    const struct rma_piece *piece;
};

static size_t pack_put(void *to, void *arg) {
    const struct put_message *m = arg;
    weft__wire_put(to, &m->head);
    pieces_gather((char *)to + WIRE_PUT_HEAD, m->piece, 1);
    return WIRE_PUT_HEAD + rma_piece_len(m->piece);
}

/* A small one is put together here. */
static weft_status_t send_put(const struct link *link, struct lane *lane, struct put_message *put) {
    struct wire_message m;
    size_t len = WIRE_PUT_HEAD + rma_piece_len(put->piece);
    if (len > sizeof m.bytes) return lane->ops->am_bcopy(lane, WIRE_PUT, pack_put, put);
    m.id = WIRE_PUT;
    m.len = (uint16_t)pack_put(m.bytes, put);
    return weft__link_send_ctrl(link, lane, &m);
}

static void write_atomic(struct wire_message *m, const struct weft_ep *ep, const struct rma_op *op,
                         uint32_t request) {
    weft__wire_atomic(m, &(struct wire_atomic){.ep = ep->core.peer,
                                               .request = request,
                                               .key = key_of(op->rkey),
                                               .address = op->remote,
                                               .what = op->atomic,
                                               .size = op->size,
                                               .fetch = op->what == RMA_FETCH,
                                               .operand = op->operand,
                                               .compare = op->compare});
}

weft_status_t weft__rma_send_now(struct weft_ep *ep, const struct rma_op *op) {
    struct link *link = ep->link;
    weft_status_t st;
    if (op->what == RMA_POST) {
        struct wire_message m;
        write_atomic(&m, ep, op, 0);
        st = weft__link_send_ctrl(link, link->tx, &m);
    } else {
        struct put_message m = {
            {.ep = ep->core.peer, .key = key_of(op->rkey), .address = op->remote}, &op->piece};
        if (op->what != RMA_PUT ||
            WIRE_PUT_HEAD + rma_piece_len(&op->piece) > weft__link_iface(link)->attr.max_bcopy)
            return WEFT_NO_RESOURCE;
        st = send_put(link, link->tx, &m);
    }
    if (st == WEFT_OK) rma_message_sent(ep);
    return st;
}

/* ---- a request, part by part */

static bool wants_answer(const struct weft_request *req) {
    return req->rma.what == RMA_GET || req->rma.what == RMA_FETCH ||
           req->send.flags & WEFT_RMA_REMOTE;
}

/* A get that still goes to its device is parked, and finishes there. */
static weft_status_t reach_device(struct weft_request *req) {
    weft_status_t st = weft__rma_land(req);
    if (st == WEFT_IN_PROGRESS) weft__request_park(req);
    return st;
}

/* All is sent. Buffers in flight complete first; then an operation with an answer waits for it. */
static weft_status_t all_sent(struct weft_request *req) {
    req->rma.asked = req->rma.by_message && wants_answer(req);
    if (req->in_flight.count)
        weft__request_hand_over(req);
    else if (req->rma.by_message && wants_answer(req))
        weft__request_park(req);
    else
        return reach_device(req);
    return WEFT_IN_PROGRESS;
}

/* A piece each turn of the queue: a large operation does not keep small messages waiting. */
weft_status_t weft__rma_next_turn(struct weft_request *req) {
    list_remove(&req->queued);
    list_append(req->queue, &req->queued);
    return WEFT_IN_PROGRESS;
}

static bool is_contiguous(const struct weft_request *req) {
    return req->rma.piece.count == 1;
}

static weft_status_t send_small(struct weft_request *req, struct lane *lane,
                                const struct wire_put *head) {
    struct put_message m = {*head, &req->rma.piece};
    weft_status_t st = send_put(req->ep->link, lane, &m);
    if (st == WEFT_OK) req->offset = req->len;
    return st;
}

/* Ends a message whose last piece was not known to be the last when it was sent. */
static weft_status_t send_last(struct weft_request *req, struct lane *lane,
                               const struct wire_put *head) {
    struct rma_piece nothing = {.count = 1};
    struct put_message m = {*head, &nothing};
    weft_status_t st = send_put(req->ep->link, lane, &m);
    if (st != WEFT_OK) return st;
    req->rma.order = rma_message_sent(req->ep);
    return all_sent(req);
}

/* What the next message of a put takes, and which one it is. */
struct put_step {
    size_t most;
    bool whole, last;
};

static struct put_step step_of(const struct weft_request *req, const struct iface_attr *attr) {
    size_t left = req->len - req->offset;
    struct put_step step = {.most = weft__link_limits(req->ep->link)->piece};
    bool fits = WIRE_PUT_HEAD + left <= attr->max_bcopy;
    step.whole = req->offset == 0 && fits && !req->rma.on_device;
    bool in_place = is_contiguous(req) && !req->rma.on_device && left <= attr->max_zcopy;
    step.last = step.whole || left == 0 || in_place;
    return step;
}

/* Device memory passes buffers of the host. IN_PROGRESS: it is taken up when the next has come. */
static weft_status_t stage_put(struct weft_request *req, const struct iface_attr *attr,
                               struct put_step *step) {
    size_t ready = SIZE_MAX, left = req->len - req->offset;
    if (!req->rma.on_device || left == 0) return WEFT_OK;
    weft_status_t st =
        weft__request_stages(req) ? weft__device_stage(req, weft__pieces_resume, &ready) : WEFT_OK;
    if (st == WEFT_IN_PROGRESS) list_remove(&req->queued);
    if (ready < step->most) step->most = ready;
    step->last = left <= step->most && WIRE_PUT_HEAD + left <= attr->max_bcopy;
    return st;
}

static weft_status_t advance_put(struct weft_request *req, struct lane *lane) {
    struct weft_ep *ep = req->ep;
    size_t left = req->len - req->offset;
    struct put_step step = step_of(req, &lane->iface->attr);
    weft_status_t st = stage_put(req, &lane->iface->attr, &step);
    if (st != WEFT_OK) return st;
    struct wire_put put = {.ep = ep->core.peer,
                           .request = req->id,
                           .key = key_of(req->rma.rkey),
                           .address = req->rma.remote + req->offset,
                           .flags = step.last && req->id ? WIRE_PUT_LAST : 0};
    if (left == 0) return send_last(req, lane, &put);

    char head[WIRE_PUT_HEAD];
    weft__wire_put(head, &put);
    st = step.whole ? send_small(req, lane, &put)
                    : weft__send_piece(req, WIRE_PUT, head, sizeof head, step.most);
    if (st < 0 || st == WEFT_NO_RESOURCE) return st;
    req->rma.order = rma_message_sent(ep);
    if (req->offset == req->len && (step.last || !req->id)) return all_sent(req);
    return weft__rma_next_turn(req);
}

static weft_status_t advance_get(struct weft_request *req, struct lane *lane) {
    struct wire_message m;
    weft__wire_get(&m, &(struct wire_get){.ep = req->ep->core.peer,
                                          .to = req->id,
                                          .key = key_of(req->rma.rkey),
                                          .address = req->rma.remote,
                                          .len = req->len});
    weft_status_t st = weft__link_send_ctrl(req->ep->link, lane, &m);
    if (st != WEFT_OK) return st;
    req->rma.order = rma_message_sent(req->ep);
    return all_sent(req);
}

static weft_status_t advance_atomic(struct weft_request *req, struct lane *lane) {
    const struct request_rma *r = &req->rma;
    struct rma_op op = {.what = (enum rma_what)r->what,
                        .rkey = r->rkey,
                        .remote = r->remote,
                        .operand = r->operand,
                        .compare = r->compare,
                        .atomic = r->atomic,
                        .size = r->size};
    struct wire_message m;
    write_atomic(&m, req->ep, &op, req->id);
    weft_status_t st = weft__link_send_ctrl(req->ep->link, lane, &m);
    if (st != WEFT_OK) return st;
    req->rma.order = rma_message_sent(req->ep);
    return all_sent(req);
}

static weft_status_t by_message(struct weft_request *req) {
    struct lane *lane = req->ep->link->lane;
    weft_status_t st = wants_answer(req) ? weft__request_name(req) : WEFT_OK;
    if (st < 0) return st;
    switch ((enum rma_what)req->rma.what) {
    case RMA_PUT: return advance_put(req, lane);
    case RMA_GET: return advance_get(req, lane);
    default: return advance_atomic(req, lane);
    }
}

/* Whatever became of its key, it is not made again. */
static weft_status_t advance_posted(struct weft_request *req) {
    weft_status_t st = weft__rma_native_part(req);
    return st == WEFT_OK ? all_sent(req) : st;
}

/* A transport that copies no devices, or not these blocks, is given memory of the host. */
static weft_status_t advance_natively(struct weft_request *req) {
    struct request_rma *r = &req->rma;
    const struct lane_key *key = r->rkey->key;
    bool of_device = r->on_device && !r->bounced;
    weft_status_t st =
        of_device && !key->copies_devices ? WEFT_ERR_UNSUPPORTED : weft__rma_native_part(req);
    if (!of_device || st != WEFT_ERR_UNSUPPORTED || key->is_of_device) return st;
    st = weft__rma_bounce(req);
    return st == WEFT_OK ? weft__rma_native_part(req) : st;
}

static weft_status_t advance_rma_message(struct weft_request *req) {
    struct request_rma *r = &req->rma;
    if (r->by_message) return by_message(req);
    if (r->posted) return advance_posted(req);
    weft_status_t st = weft__rkey_status(r->rkey);
    if (st < 0) return st;
    bool of_device = weft__rma_is_of_device(r->rkey, (enum rma_what)r->what);
    if (weft__rma_is_native(req->ep, r->rkey, (enum rma_what)r->what, r->atomic, r->size)) {
        st = advance_natively(req);
        if (st == WEFT_OK) return all_sent(req);
        if (st != WEFT_ERR_UNSUPPORTED || of_device)
            return st; /* IN_PROGRESS: it has found its place for the next part */
    } else if (of_device) {
        bool waits = weft__rma_awaits_device(req->ep, r->rkey);
        return waits ? weft__rma_wait_again(req) : weft__rma_without_device(r->rkey);
    }
    /* From the begin: what is written, or read, twice is the same. */
    r->by_message = true;
    req->offset = 0;
    return by_message(req);
}

static void rma_message_returned(struct weft_request *req, weft_status_t status) {
    struct request_rma *r = &req->rma;
    if (status < 0 && weft__link_has_left(req->ep->link, status)) status = WEFT_OK;
    if (status < 0) {
        weft__request_finish(req, status);
        return;
    }
    /* more is to be sent, or an answer is to come */
    if (!request_is_in_flight(&req->core.fsm)) return;
    if (r->by_message && wants_answer(req) && !r->answered) {
        weft__request_park(req);
        return;
    }
    status = reach_device(req);
    if (status != WEFT_IN_PROGRESS) weft__request_finish(req, status);
}

static void release_rma_message(struct weft_request *req) {
    struct weft_rkey *rkey = req->rma.rkey;
    struct weft_request *pieces = req->group;
    req->rma.rkey = NULL;
    req->group = NULL;
    if (req->packed && !req->rma.on_device)
        req->status = weft__rma_unpack(req->packed, req->status);
    req->packed = NULL;
    weft__rma_left(req);
    if (pieces) weft__rma_piece_ended(pieces, req->status);
    if (rkey) weft__rkey_drop(rkey);
}

const struct request_kind weft__rma_put_kind = {.name = "put",
                                                .flags = WEFT_RMA_REMOTE,
                                                .advance = advance_rma_message,
                                                .returned = rma_message_returned,
                                                .release = release_rma_message};
/* These bytes are no longer outstanding when the get is gone. */
static void count_late(struct weft_request *req, size_t bytes) {
    req->offset += bytes;
}

const struct request_kind weft__rma_get_kind = {.name = "get",
                                                .flags = WEFT_RMA_REMOTE,
                                                .places = true,
                                                .advance = advance_rma_message,
                                                .returned = rma_message_returned,
                                                .withdraw = weft__place_stop,
                                                .late_data = count_late,
                                                .release = release_rma_message};
const struct request_kind weft__rma_atomic_kind = {.name = "atomic",
                                                   .flags = WEFT_RMA_REMOTE,
                                                   .advance = advance_rma_message,
                                                   .returned = rma_message_returned,
                                                   .release = release_rma_message};

static const struct request_kind *const kind_of[] = {[RMA_PUT] = &weft__rma_put_kind,
                                                     [RMA_GET] = &weft__rma_get_kind,
                                                     [RMA_POST] = &weft__rma_atomic_kind,
                                                     [RMA_FETCH] = &weft__rma_atomic_kind};

static weft_status_t set_memory(struct weft_request *req, const struct rma_op *op) {
    const struct rma_piece *piece = &op->piece;
    weft_iov_t iov = {piece->base, piece->len};
    weft_layout_t blocks = {.kind = WEFT_LAYOUT_STRIDED,
                            .block = piece->len,
                            .stride = piece->stride,
                            .count = piece->count};
    if (op->what != RMA_PUT && op->what != RMA_GET) return WEFT_OK;
    if (op->on_device)
        return weft__request_device_memory(req, &iov, 1, piece->count == 1 ? NULL : &blocks,
                                           op->what == RMA_GET);
    return piece->count == 1 ? weft__request_iov(req, &iov, 1)
                             : weft__layout_set(req, &blocks, &iov, 1, op->what == RMA_GET);
}

weft_status_t weft__rma_request(struct weft_ep *ep, const struct rma_op *op, const weft_op_t *how,
                                void *group, struct weft_request **req_p) {
    struct weft_request *req = weft__request_new(ep->worker, kind_of[op->what]);
    if (!req) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = set_memory(req, op);
    if (st < 0) {
        weft__request_discard(req);
        return st;
    }
    req->rma = (struct request_rma){.rkey = weft__rkey_use(op->rkey),
                                    .piece = op->piece,
                                    .remote = op->remote,
                                    .operand = op->operand,
                                    .compare = op->compare,
                                    .old_p = op->old_p,
                                    .on_device = op->on_device,
                                    .what = (uint8_t)op->what,
                                    .atomic = op->atomic,
                                    .size = op->size};
    st = weft__request_accept(req, ep, how);
    if (st < 0) return st;
    req->group = group;
    req->packed = op->packed;
    *req_p = req;
    return WEFT_OK;
}

static void store_old(const struct request_rma *r, uint64_t value) {
    uint32_t half = (uint32_t)value;
    if (r->size == 8)
        memcpy(r->old_p, &value, 8);
    else
        memcpy(r->old_p, &half, 4);
}

/* ---- a plain fetching atomic: no operation delays it, and only its end is reported. Its request
 * keeps its name, and what is the same for the next one; the answer finds it by that name */

static const struct request_kind fetch_kind = {.name = "atomic", .release = release_rma_message};

static struct weft_request *new_fetch(struct weft_worker *worker) {
    struct weft_request *req = weft__request_new(worker, &fetch_kind);
    if (!req) return NULL;
    if (weft__request_name(req) < 0) {
        weft__request_discard(req);
        return NULL;
    }
    req->plain = true;
    req->rma = (struct request_rma){
        .what = RMA_FETCH, .by_message = true, .asked = true, .windowed = true, .active = true};
    return req;
}

static struct weft_request *take_fetch(struct weft_worker *worker) {
    struct list *node = worker->pools.fetches;
    if (UNLIKELY(!node)) return new_fetch(worker);
    worker->pools.fetches = node->next;
    return list_of(node, struct weft_request, queued);
}

static void put_fetch(struct weft_worker *worker, struct weft_request *req) {
    req->ep = NULL; /* no answer finds it */
    req->queued.next = worker->pools.fetches;
    worker->pools.fetches = &req->queued;
}

static inline bool may_go_plainly(const struct weft_ep *ep, const struct weft_rkey *rkey,
                                  const weft_op_t *how) {
    const struct lane_key *key = rkey->key;
    const struct link *link = ep->link;
    return !ep->rma_slow && !(key->caps & (CAP_ATOMIC | CAP_ATOMIC_DEVICE)) &&
           !(rkey->region.rights & WEFT_MEM_ATOMIC_DEVICE) &&
           link->rma_unanswered < WIRE_RMA_WINDOW && weft__op_is_plain(how);
}

weft_status_t weft__rma_fetch_now(struct weft_ep *ep, const struct rma_op *op,
                                  const weft_op_t *how) {
    static const weft_op_t no_op;
    struct wire_message m;
    struct link *link = ep->link;
    if (!how) how = &no_op;
    if (!may_go_plainly(ep, op->rkey, how)) return WEFT_NO_RESOURCE;
    struct weft_request *req = take_fetch(ep->worker);
    if (!req) return WEFT_ERR_NO_MEMORY;
    write_atomic(&m, ep, op, req->id);
    weft_status_t st = weft__link_send_ctrl(link, link->tx, &m);
    if (st != WEFT_OK) {
        put_fetch(ep->worker, req);
        return st;
    }
    fsm_again(&req->core.fsm, REQ_WAITING);
    weft__plain_accept(req, how);
    req->ep = ep;
    list_append(&ep->requests, &req->of_ep);
    req->rma.rkey = weft__rkey_use(op->rkey);
    req->rma.old_p = op->old_p;
    req->rma.size = op->size;
    req->rma.order = rma_message_sent(ep);
    ep->rma->active++;
    link->rma_unanswered++;
    return WEFT_IN_PROGRESS;
}

/* What waits for the end of others need not be looked at where nothing waits. */
static void fetched(struct weft_request *req, uint64_t value) {
    struct weft_ep *ep = req->ep;
    struct request_rma *r = &req->rma;
    store_old(r, value);
    fsm_pass(&req->core.fsm, &weft__request_machine, REQ_EV_TAKE, REQ_WAITING, REQ_DONE);
    if (r->order > ep->rma->performed) ep->rma->performed = r->order;
    ep->rma->active--;
    weft__rma_place_free(ep->link);
    if (ep->rma_slow) weft__rma_go_on(ep);
    weft__rkey_drop(r->rkey);
    if (req->done) req->done(WEFT_OK, req->arg);
    weft__program_returned(req->worker->reactor);
    weft__request_next_serial(req);
    list_remove(&req->of_ep);
    put_fetch(req->worker, req);
    weft__ep_request_left(ep);
}

/* ---- the answer */

static bool is_ours(const struct weft_request *req) {
    return req->kind == &weft__rma_put_kind || req->kind == &weft__rma_get_kind ||
           req->kind == &weft__rma_atomic_kind || req->kind == &fetch_kind;
}

/* Behind completions that are due already, or while the program is away, it ends as others do;
 * and so does what failed. */
static bool may_notify_plainly(const struct weft_request *req, int32_t status) {
    return req->plain && request_is_waiting(&req->core.fsm) && status == WEFT_OK &&
           !req->ep->notices && weft__plain_may_notify(req->worker);
}

static void rma_message_refused(struct weft_request *req, weft_status_t status) {
    if (status == WEFT_ERR_REVOKED && req->rma.rkey->status == WEFT_OK)
        req->rma.rkey->status = status;
    req->rma.answered = true;
    weft__request_stop(req, status);
}

/* It was performed: all of it must have been sent by then. False: it cannot have been. */
static bool done(struct weft_request *req, uint64_t value) {
    if (req->kind == &weft__rma_get_kind || !request_is_under_way(&req->core.fsm) ||
        req->rma.answered)
        return false;
    req->rma.answered = true;
    if (req->rma.what == RMA_FETCH) store_old(&req->rma, value);
    if (request_is_waiting(&req->core.fsm)) weft__request_finish(req, WEFT_OK);
    return true;
}

void weft__on_rma_done(struct link *link, struct lane *lane, const struct wire_rma_done *answer) {
    struct weft_request *req = weft__idmap_find(&link->worker->requests, answer->request);
    if (!req || !req->ep || req->ep->link != link || !is_ours(req)) {
        weft__rma_came_late(link, answer->request, SIZE_MAX); /* it ended early */
        return;
    }
    if (may_notify_plainly(req, answer->status)) {
        fetched(req, answer->value);
        return;
    }
    if (request_is_over(&req->core.fsm)) {
        req->rma.answered = true;
        return;
    }
    if (answer->status < 0)
        rma_message_refused(req, (weft_status_t)answer->status);
    else if (!done(req, answer->value))
        weft__ep_violation(req->ep, WEFT_ERR_PROTOCOL, "answer");
}
