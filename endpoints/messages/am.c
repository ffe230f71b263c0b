/* Active messages: sending, dispatch to handlers, and receiving offered payloads. */
#include <base/counters.h>
#include <inttypes.h>

#include "am.h"
#include "am_recv.h"
#include "stream.h"
#include "tag.h"
#include <endpoints/core/cause.h>
#include <endpoints/core/lease.h>
#include <endpoints/core/submit.h>
#include <endpoints/transfer/device_fetch.h>
#include <endpoints/transfer/layout.h>

enum {
    MUST_BE_WHOLE = WEFT_AM_EAGER | WEFT_AM_NO_REPLY,
    AM_FLAGS = MUST_BE_WHOLE | WEFT_AM_RENDEZVOUS
};

/* ---- out */

static inline weft_status_t am_sent_here(struct weft_ep *ep) {
    ep->worker->count->am_sent++;
    ep->link->sent++;
    return WEFT_OK;
}

/* It names no endpoint. A message within a lease does: it is for one holder of the range. */
static bool is_alone(const struct weft_ep *ep, uint32_t flags) {
    return flags & WEFT_AM_NO_REPLY && !ep->lease;
}

static struct message am_message(const struct weft_ep *ep, uint32_t flags,
                                 const struct am_send_args *args, size_t len) {
    bool alone = is_alone(ep, flags);
    return (struct message){
        .id = WIRE_AM,
        .word = wire_am_word(alone ? 0 : ep->core.peer, args->header_len, args->id) |
                (alone ? WIRE_AM_NO_REPLY : 0),
        .header = args->header,
        .header_len = args->header_len,
        .iov = args->iov,
        .n_iov = args->n_iov,
        .len = len};
}

static struct message message_of(const struct weft_request *req) {
    struct am_send_args args = {.id = req->send.am_id,
                                .header_len = req->send.header_len,
                                .header = req->header,
                                .iov = req->iov,
                                .n_iov = req->n_iov};
    return am_message(req->ep, req->send.flags, &args, req->len);
}

static weft_status_t too_big(size_t len) {
    return weft__fail(WEFT_ERR_TOO_BIG, "%zu bytes do not fit into one message of this transport",
                      len);
}

/* Sends a queued request. The peer's endpoint id is known. */
static weft_status_t advance_am(struct weft_request *req) {
    struct weft_ep *ep = req->ep;
    struct lane *lane = ep->link->lane;
    if (req->peer_id) return weft__advance_pieces(req);
    struct message m = message_of(req);
    weft_status_t st;
    enum protocol protocol = weft__protocol(ep, &m, req->send.flags);
    switch (weft__request_protocol(req, protocol)) {
    case PROTOCOL_PACK: st = weft__send_packed(lane, &m, req); break;
    case PROTOCOL_COPY: st = weft__send_copy(ep->link, lane, &m); break;
    case PROTOCOL_ZCOPY:
        st = weft__send_zcopy(ep->link, lane, &m, req);
        if (st == WEFT_IN_PROGRESS) weft__request_hand_over(req);
        break;
    default:
        if (req->send.flags & MUST_BE_WHOLE) return too_big(req->len);
        st = weft__request_name(req);
        if (st == WEFT_OK) st = weft__send_offer(req, lane);
        if (st == WEFT_OK) {
            weft__request_park(req);
            st = WEFT_IN_PROGRESS;
        }
    }
    if (st == WEFT_OK || st == WEFT_IN_PROGRESS) am_sent_here(ep);
    return st;
}

static const struct request_kind am_offer_kind = {
    .name = "am_send",
    .flags = AM_FLAGS,
    .message = true,
    .offers = WIRE_OFFER_AM,
    .advance = advance_am,
    .returned = weft__pieces_returned,
    .withdraw = weft__withdraw_offer,
    .release = weft__release_send,
};

static weft_status_t copy_header(struct weft_request *req, const struct am_send_args *args) {
    if (args->header_len == 0) return WEFT_OK;
    req->header = weft__alloc(req, args->header_len, "header");
    if (!req->header) return WEFT_ERR_NO_MEMORY;
    memcpy(req->header, args->header, args->header_len);
    return WEFT_OK;
}

/* A request with copies of the header and the iov. */
static weft_status_t am_request(struct weft_ep *ep, const struct am_send_args *args,
                                struct weft_request **req_p) {
    struct weft_request *req = weft__request_new(ep->worker, &am_offer_kind);
    if (!req) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = weft__request_message(req, args->iov, args->n_iov, args->op);
    if (st == WEFT_OK) st = copy_header(req, args);
    if (st < 0) {
        weft__request_discard(req);
        return st;
    }
    req->send.header_len = (uint16_t)args->header_len;
    req->send.am_id = (uint16_t)args->id;
    st = weft__request_accept(req, ep, args->op);
    if (st < 0) return st;
    *req_p = req;
    return WEFT_OK;
}

static NOINLINE weft_status_t submit_args(struct weft_ep *ep, const struct am_send_args *args) {
    struct weft_request *req;
    weft_status_t st = am_request(ep, args, &req);
    if (st < 0) return st;
    weft__link_submit(ep->link, req);
    return WEFT_IN_PROGRESS;
}

static NOINLINE weft_status_t am_send_elsewhere(struct weft_ep *ep,
                                                const struct am_send_args *args);

/* With a layout, a stream, or other options, or of device memory. */
static NOINLINE weft_status_t am_send_extended(struct weft_ep *ep,
                                               const struct am_send_args *args) {
    return args->op && args->op->stream ? am_send_elsewhere(ep, args) : submit_args(ep, args);
}

/* A READY endpoint, any message. */
static NOINLINE weft_status_t am_send_general(struct weft_ep *ep, const struct am_send_args *args) {
    const weft_op_t *op = args->op;
    if ((op && weft__op_is_extended(op, AM_FLAGS)) ||
        weft__iov_is_of_device(args->iov, args->n_iov))
        return am_send_extended(ep, args);
    uint32_t flags = op ? op->flags : 0;
    size_t len = 0;
    weft_status_t st = weft__iov_measure(args->iov, args->n_iov, &len);
    if (st < 0) return st;
    struct message m = am_message(ep, flags, args, len);
    enum protocol protocol = weft__protocol(ep, &m, flags);
    if (protocol == PROTOCOL_OFFER && flags & MUST_BE_WHOLE) return too_big(m.len);
    if (protocol == PROTOCOL_COPY) {
        st = weft__send_copy(ep->link, ep->link->tx, &m);
        if (LIKELY(st == WEFT_OK)) return am_sent_here(ep);
        if (st < 0) return st;
    }
    return submit_args(ep, args);
}

/* The endpoint waits for its peer. A message without reply waits for the connection only. */
weft_status_t weft__am_send_wait(struct weft_ep *ep, const struct am_send_args *args) {
    const weft_op_t *op = args->op;
    if (op && op->stream) return am_send_elsewhere(ep, args);
    bool up = ep->link && link_is_up(&ep->link->core.fsm) && list_empty(&ep->queue);
    if (op && is_alone(ep, op->flags) && up) {
        if (ep->start) ep->start->has_sent = true;
        return am_send_general(ep, args);
    }
    struct weft_request *req;
    weft_status_t st = am_request(ep, args, &req);
    if (st < 0) return st;
    weft__request_queue(req, &ep->queue);
    return WEFT_IN_PROGRESS;
}

/* A piece that the lane takes within the call. */
static inline weft_status_t am_send_short(struct weft_ep *ep, unsigned id, const weft_iov_t *iov) {
    struct lane *lane = ep->link->tx;
    uint64_t word = wire_am_word(ep->core.peer, 0, id);
    weft_status_t st = lane->ops->am_short(lane, WIRE_AM, word, iov->base, iov->len);
    return LIKELY(st == WEFT_OK) ? am_sent_here(ep) : st;
}

weft_status_t weft__am_send_ready(struct weft_ep *ep, const struct am_send_args *args) {
    bool special = args->header_len || !weft__iov_is_plain(args->iov, args->n_iov) ||
                   args->iov->len > ep->link->max_quick ||
                   (args->op && weft__op_is_extended(args->op, 0)) ||
                   weft__is_device_memory(args->iov->base);
    if (special) return am_send_general(ep, args);
    weft_status_t st = am_send_short(ep, args->id, args->iov);
    return LIKELY(st == WEFT_OK) || st < 0 ? st : submit_args(ep, args);
}

static weft_status_t am_send_posted(void *ep, const struct submit_args *args, const weft_op_t *op) {
    return weft__am_send(ep, &(struct am_send_args){.id = (unsigned)args->word[0],
                                                    .header = args->bytes,
                                                    .header_len = args->n_bytes,
                                                    .iov = args->iov,
                                                    .n_iov = args->n_iov,
                                                    .op = op});
}

/* The calling thread does not own the worker, or the process was forked, or a stream comes
 * first. */
static NOINLINE weft_status_t am_send_elsewhere(struct weft_ep *ep,
                                                const struct am_send_args *args) {
    weft_status_t st = weft__call_enter(ep->worker, args->op);
    if (st == WEFT_OK) return ep->ops->am_send(ep, args);
    if (st < 0) return st;
    struct submit_args posted = {.word = {args->id},
                                 .iov = args->iov,
                                 .n_iov = args->n_iov,
                                 .bytes = args->header,
                                 .n_bytes = args->header_len};
    return weft__post(ep->worker, ep, am_send_posted, &posted, args->op);
}

weft_status_t weft__am_send(weft_ep_t *ep, const struct am_send_args *args) {
    if (UNLIKELY(!weft__reactor_mine(ep->worker->reactor))) return am_send_elsewhere(ep, args);
    return ep->ops->am_send(ep, args);
}

/* One piece alone, in a case that weft_am_send leaves, or without room in the lane. */
static NOINLINE weft_status_t am_send_one(struct weft_ep *ep, unsigned id, const weft_iov_t *iov) {
    return weft__am_send(ep, &(struct am_send_args){.id = id, .iov = iov, .n_iov = 1});
}

static NOINLINE weft_status_t am_send_wrong(const weft_ep_t *ep, unsigned id, const void *header,
                                            size_t header_len) {
    if (!ep) return weft__fail(WEFT_ERR_INVALID_PARAM, "ep is NULL");
    if (id > WEFT_AM_ID_MAX)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "id is %u, beyond %d", id, WEFT_AM_ID_MAX);
    if (header_len > WEFT_AM_HEADER_MAX)
        return weft__fail(WEFT_ERR_TOO_BIG, "header_len is %zu, beyond %d", header_len,
                          WEFT_AM_HEADER_MAX);
    return weft__check_memory("header", header, header_len);
}

/* The thread and the endpoint may send now. */
static inline bool may_send(const struct weft_ep *ep) {
    return LIKELY(weft__reactor_mine(ep->worker->reactor) && ep->ready);
}
/* A piece of host memory that the lane takes within the call. */
static inline bool is_short(const struct weft_ep *ep, const weft_iov_t *iov) {
    return LIKELY(iov->base && iov->len <= ep->link->max_quick && !weft__cuda_active);
}

/* In all its cases. Of the same parameters as weft_am_send, which gets here by a jump. */
static NOINLINE weft_status_t am_send_any(weft_ep_t *ep, unsigned id, const void *header,
                                          size_t header_len, const weft_iov_t *iov, size_t n_iov,
                                          const weft_op_t *op) {
    bool wrong =
        !ep || id > WEFT_AM_ID_MAX || (header_len && (header_len > WEFT_AM_HEADER_MAX || !header));
    if (UNLIKELY(wrong)) return am_send_wrong(ep, id, header, header_len);
    struct am_send_args args = {id, header, header_len, iov, n_iov, op};
    return may_send(ep) ? am_send_general(ep, &args) : weft__am_send(ep, &args);
}

/* As the fast path, with a callback. */
static NOINLINE weft_status_t am_send_described(weft_ep_t *ep, unsigned id, const weft_iov_t *iov,
                                                const weft_op_t *op) {
    if (may_send(ep) && is_short(ep, iov) && !weft__op_is_extended(op, 0)) {
        weft_status_t st = am_send_short(ep, id, iov);
        if (LIKELY(st <= WEFT_OK)) return st;
    }
    return weft__am_send(ep, &(struct am_send_args){.id = id, .iov = iov, .n_iov = 1, .op = op});
}

/* The fast path: one short piece to a READY endpoint, without an indirect call but the lane's. */
weft_status_t weft_am_send(weft_ep_t *ep, unsigned id, const void *header, size_t header_len,
                           const weft_iov_t *iov, size_t n_iov, const weft_op_t *op) {
    size_t more = (n_iov - 1) | header_len;
    if (UNLIKELY(more || !ep || !iov || id > WEFT_AM_ID_MAX))
        return am_send_any(ep, id, header, header_len, iov, n_iov, op);
    if (op) return am_send_described(ep, id, iov, op);
    if (!may_send(ep) || !is_short(ep, iov)) return am_send_one(ep, id, iov);
    weft_status_t st = am_send_short(ep, id, iov);
    return LIKELY(st <= WEFT_OK) ? st : am_send_one(ep, id, iov);
}

/* ---- in */

static inline void handle(const struct am_handler *handler, const struct am_recv_desc *arrival,
                          weft_am_t *am) {
    struct counters *count = arrival->worker->count;
    if (UNLIKELY(!handler->fn)) {
        count->am_dropped++;
        return;
    }
    count->am_received++;
    handler->fn(arrival->ep, am, handler->arg);
    weft__program_returned(arrival->worker->reactor);
}

static inline const struct am_handler *handler_of(const struct weft_worker *worker, unsigned id) {
    static const struct am_handler no_handler;
    return LIKELY(id < AM_ID_END) ? &worker->am[id] : &no_handler;
}

/* The handler left the payload, or the id has no handler: the sender's operation ends with
 * REJECTED. */
static void refuse_payload(struct link *link, const struct am_recv_desc *arrival,
                           bool had_handler) {
    const struct wire_rts *offer = arrival->offer;
    struct weft_worker *worker = link->worker;
    bool of_program = offer->am_id <= WEFT_AM_ID_MAX;
    char peer[PEER_ROOM];
    weft__offer_fin(link, offer->request, of_program ? WEFT_ERR_REJECTED : WEFT_OK);
    if (!of_program) return;
    worker->count->am_refused++;
    if (!weft__log_wants(worker->context, WEFT_LOG_WARN)) return;
    weft__peer_text(link, peer);
    weft__log_limited(
        worker->context, WEFT_LOG_WARN, "endpoints",
        WORKER_TEXT ": refused an active message of id %u and %" PRIu64 " bytes from %s: %s",
        WORKER_ARGS(worker), offer->am_id, (uint64_t)offer->len, peer,
        had_handler ? "its handler did not call weft_am_recv" : "the id has no handler");
}

void weft__am_handle(struct am_recv_desc *arrival, const struct am_handler *handler,
                     weft_am_t *am) {
    struct weft_ep *ep = arrival->ep;
    struct link *link = ep ? ep->link : NULL;
    am->internal = arrival;
    handle(handler, arrival, am);
    if (arrival->offer && !arrival->taken && link && ep->link == link)
        refuse_payload(link, arrival, handler->fn != NULL);
}

/* A message without reply endpoint. Reserved ids need an endpoint, so there it is a violation. */
static struct link *received_alone(struct lane *lane, uint64_t *word) {
    struct weft_worker *worker = lane->iface->owner;
    worker->kept.alone = lane; /* first of all, so that no register has to be saved for it */
    struct link *link = weft__link_of(lane, "active message before hello");
    if (!link || !(*word & WIRE_AM_NO_REPLY)) return NULL; /* a word of zeros has no receiver */
    *word &= ~WIRE_AM_NO_REPLY;
    if (wire_am_id(*word) <= WEFT_AM_ID_MAX) return link;
    weft__link_violation(link, "active message without reply endpoint");
    return NULL;
}

static NOINLINE void bad_length(struct link *link, struct weft_ep *ep) {
    if (ep)
        weft__ep_violation(ep, WEFT_ERR_PROTOCOL, "active message");
    else
        weft__link_violation(link, "active message");
}

/* `data` is what follows the word. */
static inline void arrive_am(struct link *link, struct weft_ep *ep, uint64_t word, const char *data,
                             size_t len, size_t header_len) {
    struct am_recv_desc arrival = {.worker = link->worker, .ep = ep};
    weft_am_t am = {.header = data,
                    .header_len = header_len,
                    .data = data + header_len,
                    .len = len - header_len,
                    .internal = &arrival};
    handle(handler_of(link->worker, wire_am_id(word)), &arrival, &am);
}

static inline void arrive_with_header(struct link *link, struct weft_ep *ep, uint64_t word,
                                      const char *data, size_t len) {
    size_t header_len = wire_am_header_len(word);
    if (UNLIKELY(header_len > len || header_len > WEFT_AM_HEADER_MAX))
        bad_length(link, ep);
    else
        arrive_am(link, ep, word, data, len, header_len);
}

/* Every case that weft__on_am leaves: malformed, without reply endpoint, or the endpoint is not
 * READY. */
static NOINLINE void on_am_slow(struct lane *lane, unsigned id, const void *data, size_t len) {
    uint64_t word;
    if (len < sizeof word) {
        weft__on_unknown(lane, id, data, len);
        return;
    }
    memcpy(&word, data, sizeof word);
    struct weft_ep *ep = NULL;
    struct link *link = NULL;
    if (wire_am_ep(word)) {
        ep = weft__ep_lookup(lane, wire_am_ep(word), "active message");
        if (ep) link = ep->link;
    } else {
        link = received_alone(lane, &word);
    }
    if (!link) return; /* closed on this side; CLOSE is on its way to the peer */
    link->received++;
    arrive_with_header(link, ep, word, (const char *)data + sizeof word, len - sizeof word);
}

void weft__on_am(struct lane *lane, unsigned id, const void *data, size_t len) {
    uint64_t word = 0; /* 0 names no endpoint */
    if (LIKELY(len >= sizeof word)) memcpy(&word, data, sizeof word);
    struct weft_ep *ep = weft__ep_lookup_cached(lane, wire_am_ep(word));
    if (UNLIKELY(!ep)) {
        on_am_slow(lane, id, data, len);
        return;
    }
    const char *bytes = (const char *)data + sizeof word;
    ep->link->received++;
    if (wire_am_header_len(word))
        arrive_with_header(ep->link, ep, word, bytes, len - sizeof word);
    else
        arrive_am(ep->link, ep, word, bytes, len - sizeof word, 0);
}

void weft__am_offered(struct weft_ep *ep, const struct wire_rts *rts) {
    struct am_recv_desc arrival = {.worker = ep->worker, .ep = ep, .offer = rts};
    weft_am_t am = {.header = rts->header,
                    .header_len = rts->header_len,
                    .len = rts->len,
                    .memory = rts->memory};
    ep->link->received++;
    weft__am_handle(&arrival, handler_of(ep->worker, rts->am_id), &am);
}

static weft_status_t too_short(size_t room, size_t len) {
    return weft__fail(WEFT_ERR_TRUNCATED, "iov has %zu bytes, the payload %zu", room, len);
}

/* The payload is here, for a layout or a device. */
static weft_status_t receive_here(struct weft_request *req, struct weft_ep *ep, const weft_am_t *am,
                                  const weft_op_t *op) {
    weft_status_t st = weft__request_accept(req, ep, op);
    if (st < 0) return st;
    st = weft__device_take(req, ep, am->data, am->len);
    if (st != WEFT_IN_PROGRESS) weft__request_discard(req);
    return st;
}

/* The payload takes a request: it has a layout, is of a device, or waits at its sender. */
static weft_status_t receive_by_request(weft_am_t *am, const weft_iov_t *iov, size_t n_iov,
                                        const weft_op_t *op) {
    struct am_recv_desc *arrival = am->internal;
    struct weft_request *req = weft__request_new(arrival->worker, &weft__receive_kind);
    if (!req) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = weft__request_memory(req, iov, n_iov, op, true);
    if (st == WEFT_OK && req->len < am->len) st = too_short(req->len, am->len);
    if (st < 0) {
        weft__request_discard(req);
        return st;
    }
    if (!arrival->offer) return receive_here(req, arrival->ep, am, op);
    st = weft__request_reserve_name(arrival->worker); /* the fetch needs no memory then */
    if (st < 0) {
        weft__request_discard(req);
        return st;
    }
    req->len = am->len;
    req->peer_id = arrival->offer->request;
    req->recv.remote = arrival->offer->address;
    if (arrival->offer->device)
        weft__device_offered(req, arrival->offer->device, arrival->offer->device_len);
    st = weft__request_accept(req, arrival->ep, op);
    if (st < 0) return st;
    st = weft__fetch(req);
    if (st != WEFT_IN_PROGRESS) weft__request_discard(req);
    if (st >= 0) arrival->taken = true;
    return st;
}

weft_status_t weft_am_recv(weft_am_t *am, const weft_iov_t *iov, size_t n_iov,
                           const weft_op_t *op) {
    if (!am || !am->internal)
        return weft__fail(WEFT_ERR_INVALID_PARAM,
                          "am is NULL, or not one that a handler was given");
    struct am_recv_desc *arrival = am->internal;
    bool laid_out = op && op->layout, on_device = weft__call_is_of_device(iov, n_iov, op);
    size_t room = am->len;
    weft_status_t st = weft__worker_check(arrival->worker);
    if (st == WEFT_OK) st = weft__check_streamed_op(op, 0);
    if (st == WEFT_OK && !laid_out) st = weft__iov_measure(iov, n_iov, &room);
    if (st < 0) return st;
    if (room < am->len) return too_short(room, am->len);
    if (arrival->offer && arrival->taken)
        return weft__fail(WEFT_ERR_EXISTS, "the payload was requested before");
    if (arrival->offer && !arrival->ep->link)
        return weft__fail(WEFT_ERR_CLOSED, "the endpoint was lost");
    if (op && op->stream) return weft__am_recv_late(am, iov, n_iov, op);
    if (!laid_out && !on_device && !arrival->offer) {
        weft__iov_scatter(iov, n_iov, 0, am->data, am->len);
        return WEFT_OK;
    }
    return receive_by_request(am, iov, n_iov, op);
}

weft_status_t weft__am_handler_set(weft_worker_t *worker, unsigned id, weft_am_fn fn, void *arg) {
    if (id >= AM_ID_END) return weft__fail(WEFT_ERR_INVALID_PARAM, "id is %u", id);
    worker->callbacks.handlers[id] = (struct am_handler){fn, arg};
    return WEFT_OK;
}

/* The worker has no resource yet, or works through a lease: the handler waits in its table. */
static weft_status_t set_for_later(weft_worker_t *worker, unsigned id, weft_am_fn fn, void *arg) {
    weft_status_t st = worker->shared ? weft__worker_check(worker->shared) : WEFT_OK;
    if (st < 0) return st;
    if (worker->lease && id >= worker->lease->am_count)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "id is %u, and the lease has %u ids", id,
                          worker->lease->am_count);
    worker->am[id] = (struct am_handler){fn, arg};
    return WEFT_OK;
}

weft_status_t weft_am_handler_set(weft_worker_t *worker, unsigned id, weft_am_fn fn, void *arg) {
    if (!worker) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker is NULL");
    if (id > WEFT_AM_ID_MAX)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "id is %u, beyond %d", id, WEFT_AM_ID_MAX);
    weft_status_t st;
    if (worker->stub && weft__reactor_is_dormant(worker->reactor)) {
        st = set_for_later(worker, id, fn, arg);
    } else {
        st = weft__worker_check(worker);
        if (st == WEFT_OK) st = weft__am_handler_set(worker, id, fn, arg);
    }
    if (st == WEFT_OK && fn) worker->has_handlers = true;
    return st;
}
