/*
 * Tagged messages, out. Every one costs credit: its bytes and a little more when it crosses whole,
 * a little when it is only offered. Credit is what the receiver's endpoint is ready to keep
 * unexpectedly; it comes back when the message is matched.
 *
 * Sends without credit wait in `credit_queue`. When credit comes, the oldest of them has the turn:
 * it alone goes to the link's backlog, and the credit is withheld for it. It hands over the turn
 * when it has been sent, or is released. So a credit costs the sends that it is for, however full
 * the lane is, and no later send finds credit before all that wait have gone.
 */
#include <base/compiler.h>
#include <base/counters.h>

#include "tag.h"
#include "tag_fragments.h"
#include <endpoints/core/request_fast.h>
#include <endpoints/core/submit.h>
#include <endpoints/transfer/layout.h>

enum {
    MESSAGE_COST = TAG_MESSAGE_COST,
    QUICK_MAX = 256,
    TAG_FLAGS = WEFT_AM_EAGER | WEFT_AM_RENDEZVOUS
};

static weft_status_t tag_sent_here(struct weft_ep *ep, int64_t cost) {
    ep->credit -= cost;
    ep->worker->count->tag_sent++;
    ep->link->sent++;
    return WEFT_OK;
}

static weft_status_t send_whole(struct weft_ep *ep, struct lane *lane, const struct message *m) {
    weft_status_t st = weft__send_copy(ep->link, lane, m);
    return st == WEFT_OK ? tag_sent_here(ep, (int64_t)m->len + MESSAGE_COST) : st;
}

static struct message tag_message(const struct weft_ep *ep, uint64_t tag, const weft_iov_t *iov,
                                  size_t n_iov, size_t len) {
    return (struct message){.id = WIRE_TAG,
                            .word = tag,
                            .header = &ep->core.peer,
                            .header_len = sizeof ep->core.peer,
                            .iov = iov,
                            .n_iov = n_iov,
                            .len = len};
}

/* Beyond the credit, a message is offered; beyond even that it waits, and all after it. */
static enum protocol tag_protocol(struct weft_ep *ep, const struct message *m, uint32_t flags) {
    if ((int64_t)m->len + MESSAGE_COST > ep->credit && m->len > 0) return PROTOCOL_OFFER;
    return weft__protocol(ep, m, flags);
}

/* What there is, is for those that wait: later sends find none. */
static void withhold_credit(struct weft_ep *ep) {
    ep->credit_held += ep->credit;
    ep->credit = 0;
}

static void return_credit(struct weft_ep *ep) {
    ep->credit += ep->credit_held;
    ep->credit_held = 0;
}

static weft_status_t wait_for_credit(struct weft_request *req) {
    struct weft_ep *ep = req->ep;
    list_remove(&req->queued);
    req->queue = &ep->credit_queue;
    list_append(req->queue, &req->queued);
    withhold_credit(ep);
    ep->worker->count->tag_waits++;
    return WEFT_IN_PROGRESS;
}

static weft_status_t offer(struct weft_request *req, struct lane *lane) {
    weft_status_t st = weft__request_name(req);
    if (st == WEFT_OK) st = weft__send_offer(req, lane);
    if (st != WEFT_OK) return st;
    tag_sent_here(req->ep, MESSAGE_COST);
    weft__request_park(req);
    return WEFT_IN_PROGRESS;
}

static weft_status_t zcopy_tag(struct weft_request *req, struct lane *lane,
                               const struct message *m) {
    weft_status_t st = weft__send_zcopy(req->ep->link, lane, m, req);
    if (st == WEFT_OK || st == WEFT_IN_PROGRESS)
        tag_sent_here(req->ep, (int64_t)m->len + MESSAGE_COST);
    if (st == WEFT_IN_PROGRESS) weft__request_hand_over(req);
    return st;
}

static weft_status_t send_packed(struct weft_request *req, struct lane *lane,
                                 const struct message *m) {
    weft_status_t st = weft__send_packed(lane, m, req);
    return st == WEFT_OK ? tag_sent_here(req->ep, (int64_t)m->len + MESSAGE_COST) : st;
}

static weft_status_t send_more(struct weft_request *req) {
    struct weft_ep *ep = req->ep;
    struct lane *lane = ep->link->lane;
    if (req->peer_id) return weft__advance_pieces(req);
    if (req->offset) return weft__tag_send_parts(req, lane);
    if (ep->credit < MESSAGE_COST) return wait_for_credit(req);
    struct message m = tag_message(ep, req->match.tag, req->iov, req->n_iov, req->len);
    enum protocol protocol = tag_protocol(ep, &m, req->send.flags);
    switch (weft__request_protocol(req, protocol)) {
    case PROTOCOL_PACK: return send_packed(req, lane, &m);
    case PROTOCOL_COPY: return send_whole(ep, lane, &m);
    case PROTOCOL_ZCOPY:
        if (weft__tag_has_parts(ep->link, m.len)) return weft__tag_send_parts(req, lane);
        return zcopy_tag(req, lane, &m);
    default: return offer(req, lane);
    }
}

/* ---- turns */

/* True if a send has the turn, or had it and is not released yet. */
static bool has_turn(const struct weft_ep *ep) {
    return ep->credit_held >= MESSAGE_COST;
}

/* Gives the turn to the oldest that waits. NULL: none waits, or there is no credit for it. */
static struct weft_request *next_turn(struct weft_ep *ep) {
    if (list_empty(&ep->credit_queue)) return_credit(ep);
    if (!has_turn(ep) || !ep->link) return NULL;
    struct weft_request *next = list_of(list_pop(&ep->credit_queue), struct weft_request, queued);
    next->turn = true;
    next->queue = &ep->link->backlog;
    return next;
}

static void begin_turn(struct weft_ep *ep) {
    struct weft_request *next = next_turn(ep);
    struct list one;
    list_init(&one);
    if (!next) return;
    list_append(&one, &next->queued);
    weft__link_submit_all(ep->link, &one);
}

/* It has paid, also if only a part of it is sent. The backlog is being pumped, and it is or was the
 * first there: the next one is behind it. */
static void hand_over_turn(struct weft_request *req) {
    req->turn = false;
    struct weft_request *next = next_turn(req->ep);
    if (!next) return;
    bool is_there = request_is_queued(&req->core.fsm);
    list_prepend(is_there ? &req->queued : next->queue, &next->queued);
}

static weft_status_t advance_turn(struct weft_request *req) {
    struct weft_ep *ep = req->ep;
    return_credit(ep);
    weft_status_t st = send_more(req);
    withhold_credit(ep);
    if (st == WEFT_OK || st == WEFT_IN_PROGRESS || req->offset > 0) hand_over_turn(req);
    return st;
}

static weft_status_t advance_tag(struct weft_request *req) {
    return UNLIKELY(req->turn) ? advance_turn(req) : send_more(req);
}

/* One that ended early still has the turn. */
static void release_tag(struct weft_request *req) {
    weft__tag_end_parts(req);
    weft__release_send(req);
    if (req->turn) begin_turn(req->ep);
}

static const struct request_kind tag_offer_kind = {
    .name = "tag_send",
    .flags = TAG_FLAGS,
    .message = true,
    .offers = WIRE_OFFER_TAG,
    .advance = advance_tag,
    .returned = weft__pieces_returned,
    .withdraw = weft__withdraw_offer,
    .release = release_tag,
};

static weft_status_t tag_request(struct weft_ep *ep, uint64_t tag, const weft_iov_t *iov,
                                 size_t n_iov, const weft_op_t *op, struct weft_request **req_p) {
    struct weft_request *req = weft__request_new(ep->worker, &tag_offer_kind);
    if (!req) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = weft__request_message(req, iov, n_iov, op);
    if (st < 0) {
        weft__request_discard(req);
        return st;
    }
    req->match.tag = tag;
    st = weft__request_accept(req, ep, op);
    if (st < 0) return st;
    *req_p = req;
    return WEFT_OK;
}

static NOINLINE weft_status_t tag_send_elsewhere(weft_ep_t *ep, uint64_t tag, const weft_iov_t *iov,
                                                 size_t n_iov, const weft_op_t *op);

weft_status_t weft__tag_send_wait(struct weft_ep *ep, uint64_t tag, const weft_iov_t *iov,
                                  size_t n_iov, const weft_op_t *op) {
    struct weft_request *req;
    if (op && op->stream) return tag_send_elsewhere(ep, tag, iov, n_iov, op);
    weft_status_t st = tag_request(ep, tag, iov, n_iov, op, &req);
    if (st < 0) return st;
    weft__request_queue(req, &ep->queue);
    return WEFT_IN_PROGRESS;
}

static NOINLINE weft_status_t tag_submit(struct weft_ep *ep, uint64_t tag, const weft_iov_t *iov,
                                         size_t n_iov, const weft_op_t *op) {
    struct weft_request *req;
    weft_status_t st = tag_request(ep, tag, iov, n_iov, op, &req);
    if (st < 0) return st;
    weft__link_submit(ep->link, req);
    return WEFT_IN_PROGRESS;
}

static NOINLINE weft_status_t tag_send_general(struct weft_ep *ep, uint64_t tag,
                                               const weft_iov_t *iov, size_t n_iov,
                                               const weft_op_t *op) {
    if (op && op->stream) return tag_send_elsewhere(ep, tag, iov, n_iov, op);
    if ((op && weft__op_is_extended(op, TAG_FLAGS)) || weft__iov_is_of_device(iov, n_iov))
        return tag_submit(ep, tag, iov, n_iov, op);
    size_t len = 0;
    weft_status_t st = weft__iov_measure(iov, n_iov, &len);
    if (st < 0) return st;
    struct message m = tag_message(ep, tag, iov, n_iov, len);
    if (ep->credit >= MESSAGE_COST && tag_protocol(ep, &m, op ? op->flags : 0) == PROTOCOL_COPY) {
        st = send_whole(ep, ep->link->tx, &m);
        if (LIKELY(st == WEFT_OK) || st < 0) return st;
    }
    return tag_submit(ep, tag, iov, n_iov, op);
}

/* By lanes that do not put the endpoint's id there themselves. */
static NOINLINE weft_status_t send_together(struct lane *lane, uint64_t tag, uint32_t to,
                                            const void *data, size_t len) {
    char bytes[sizeof to + QUICK_MAX];
    memcpy(bytes, &to, sizeof to);
    if (len) memcpy(bytes + sizeof to, data, len);
    return lane->ops->am_short(lane, WIRE_TAG, tag, bytes, sizeof to + len);
}

/* One short piece within the credit. Everything else takes the general path. */
static inline __attribute__((always_inline)) weft_status_t
tag_send_short(struct weft_ep *ep, uint64_t tag, const weft_iov_t *iov, size_t n_iov,
               const weft_op_t *op) {
    struct link *link = ep->link;
    struct lane *lane = link->tx;
    if (UNLIKELY(!weft__iov_is_plain(iov, n_iov))) return tag_send_general(ep, tag, iov, n_iov, op);
    size_t len = iov->len;
    const int64_t cost = (int64_t)(len + MESSAGE_COST);
    if (UNLIKELY(len > QUICK_MAX || sizeof ep->core.peer + len > link->max_quick ||
                 ep->credit < cost || (op && weft__op_is_extended(op, 0))))
        return tag_send_general(ep, tag, iov, 1, op);
    weft_status_t st =
        lane->ops->am_short_to
            ? lane->ops->am_short_to(lane, WIRE_TAG, tag, ep->core.peer, iov->base, len)
            : send_together(lane, tag, ep->core.peer, iov->base, len);
    if (LIKELY(st == WEFT_OK)) return tag_sent_here(ep, cost);
    return st < 0 ? st : tag_submit(ep, tag, iov, 1, op);
}

/* In a process with a CUDA driver the piece may lie on a device. */
static NOINLINE weft_status_t tag_send_beside_cuda(struct weft_ep *ep, uint64_t tag,
                                                   const weft_iov_t *iov, size_t n_iov,
                                                   const weft_op_t *op) {
    return weft__iov_is_of_device(iov, n_iov) ? tag_send_general(ep, tag, iov, n_iov, op)
                                              : tag_send_short(ep, tag, iov, n_iov, op);
}

weft_status_t weft__tag_send_ready(struct weft_ep *ep, uint64_t tag, const weft_iov_t *iov,
                                   size_t n_iov, const weft_op_t *op) {
    return UNLIKELY(weft__cuda_active) ? tag_send_beside_cuda(ep, tag, iov, n_iov, op)
                                       : tag_send_short(ep, tag, iov, n_iov, op);
}

static weft_status_t tag_send_posted(void *ep, const struct submit_args *args,
                                     const weft_op_t *op) {
    return weft_tag_send(ep, args->word[0], args->iov, args->n_iov, op);
}

/* The caller is not the owner's thread, or not its process, or a stream comes first. */
static NOINLINE weft_status_t tag_send_elsewhere(weft_ep_t *ep, uint64_t tag, const weft_iov_t *iov,
                                                 size_t n_iov, const weft_op_t *op) {
    struct submit_args args = {.word = {tag}, .iov = iov, .n_iov = n_iov};
    weft_status_t st = weft__call_enter(ep->worker, op);
    if (st == WEFT_OK) return ep->ops->tag_send(ep, tag, iov, n_iov, op);
    return st == WEFT_IN_PROGRESS ? weft__post(ep->worker, ep, tag_send_posted, &args, op) : st;
}

weft_status_t weft_tag_send(weft_ep_t *ep, uint64_t tag, const weft_iov_t *iov, size_t n_iov,
                            const weft_op_t *op) {
    if (!ep) return weft__fail(WEFT_ERR_INVALID_PARAM, "ep is NULL");
    if (UNLIKELY(!weft__reactor_mine(ep->worker->reactor)))
        return tag_send_elsewhere(ep, tag, iov, n_iov, op);
    return ep->ops->tag_send(ep, tag, iov, n_iov, op);
}

void weft__on_credit(struct link *link, struct lane *lane, const struct wire_credit *credit) {
    struct weft_ep *ep = weft__ep_lookup(lane, credit->ep, "credit");
    if (!ep) return;
    int64_t have = ep->credit + ep->credit_held;
    if (credit->bytes > (uint64_t)(INT64_MAX - have)) {
        weft__ep_violation(ep, WEFT_ERR_PROTOCOL, "credit");
        return;
    }
    bool turn = has_turn(ep);
    ep->credit_held = have + (int64_t)credit->bytes;
    ep->credit = 0;
    if (!turn) begin_turn(ep);
}
