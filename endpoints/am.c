/* Active messages, out and in. */
#include <reactor/counters.h>

#include "arrival.h"
#include "layout.h"
#include "posted.h"
#include "rma.h"
#include "stream.h"
#include "thread.h"

enum { MUST_BE_WHOLE = WEFT_AM_EAGER | WEFT_AM_NO_REPLY, AM_FLAGS = MUST_BE_WHOLE | WEFT_AM_RENDEZVOUS };

/* ---- out */

static inline weft_status_t sent(struct weft_ep *ep) {
    ep->worker->count->am_sent++;
    ep->link->sent++;
    return WEFT_OK;
}

static struct message am_message(const struct weft_ep *ep, uint32_t flags, unsigned id, const void *header,
                                 size_t header_len, const weft_iov_t *iov, size_t n_iov, size_t len) {
    bool alone = flags & WEFT_AM_NO_REPLY;
    return (struct message){.id = WIRE_AM,
                            .word = wire_am_word(alone ? 0 : ep->core.peer, header_len, id) |
                                    (alone ? WIRE_AM_NO_REPLY : 0),
                            .header = header,
                            .header_len = header_len,
                            .iov = iov,
                            .n_iov = n_iov,
                            .len = len};
}

static weft_status_t too_big(size_t len) {
    return weft__fail(WEFT_ERR_TOO_BIG, "%zu bytes are more than one message of this transport", len);
}

/* The queued form: the peer's half is known by now. */
static weft_status_t advance_am(struct weft_request *req) {
    struct weft_ep *ep = req->ep;
    struct lane *lane = ep->link->lane;
    if (req->peer_id) return weft__advance_pieces(req);
    struct message m =
        am_message(ep, req->flags, req->am_id, req->header, req->header_len, req->iov, req->n_iov, req->len);
    weft_status_t st;
    enum protocol protocol = weft__protocol(ep, &m, req->flags);
    switch (req->layout ? weft__layout_protocol(protocol) : protocol) {
    case PROTOCOL_PACK: st = weft__send_packed(lane, &m, req); break;
    case PROTOCOL_COPY: st = weft__send_copy(ep->link, lane, &m); break;
    case PROTOCOL_BORROW:
        st = weft__send_borrow(ep->link, lane, &m, req);
        if (st == WEFT_IN_PROGRESS) weft__request_lend(req);
        break;
    default:
        if (req->flags & MUST_BE_WHOLE) return too_big(req->len);
        st = weft__request_name(req);
        if (st == WEFT_OK) st = weft__send_offer(req, lane);
        if (st == WEFT_OK) {
            weft__request_park(req);
            st = WEFT_IN_PROGRESS;
        }
    }
    if (st == WEFT_OK || st == WEFT_IN_PROGRESS) sent(ep);
    return st;
}

const struct request_kind weft__am_offer_kind = {
    .name = "am_send",
    .flags = AM_FLAGS,
    .message = true,
    .advance = advance_am,
    .returned = weft__pieces_returned,
    .withdraw = weft__withdraw_offer,
    .release = weft__release_send,
};

/* Everything that the call was given, copied. */
static weft_status_t am_request(struct weft_ep *ep, unsigned id, const void *header, size_t header_len,
                                const weft_iov_t *iov, size_t n_iov, const weft_op_t *op,
                                struct weft_request **req_p) {
    struct weft_request *req = weft__request_new(ep->worker, &weft__am_offer_kind);
    if (!req) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = weft__request_memory(req, iov, n_iov, op, false);
    if (st == WEFT_OK && header_len) {
        req->header = weft__alloc(req, header_len, "header");
        if (!req->header) st = WEFT_ERR_NO_MEMORY;
    }
    if (st < 0) {
        weft__request_discard(req);
        return st;
    }
    if (header_len) memcpy(req->header, header, header_len);
    req->header_len = (uint16_t)header_len;
    req->am_id = (uint16_t)id;
    st = weft__request_accept(req, ep, op);
    if (st < 0) return st;
    *req_p = req;
    return WEFT_OK;
}

static weft_status_t am_send_general(struct weft_ep *ep, unsigned id, const void *header, size_t header_len,
                                     const weft_iov_t *iov, size_t n_iov, const weft_op_t *op);

/* The peer's half is not there yet. Who wants no reply waits for the connection only. */
static weft_status_t am_send_wait(struct weft_ep *ep, unsigned id, const void *header, size_t header_len,
                                  const weft_iov_t *iov, size_t n_iov, const weft_op_t *op) {
    bool up = ep->link && ep->link->core.fsm.state == LINK_UP && list_empty(&ep->queue);
    if (op && op->flags & WEFT_AM_NO_REPLY && up)
        return am_send_general(ep, id, header, header_len, iov, n_iov, op);
    struct weft_request *req;
    weft_status_t st = am_request(ep, id, header, header_len, iov, n_iov, op, &req);
    if (st < 0) return st;
    weft__request_queue(req, &ep->queue);
    return WEFT_IN_PROGRESS;
}

static __attribute__((noinline)) weft_status_t am_submit(struct weft_ep *ep, unsigned id, const void *header,
                                                         size_t header_len, const weft_iov_t *iov, size_t n_iov,
                                                         const weft_op_t *op) {
    struct weft_request *req;
    weft_status_t st = am_request(ep, id, header, header_len, iov, n_iov, op, &req);
    if (st < 0) return st;
    weft__link_submit(ep->link, req);
    return WEFT_IN_PROGRESS;
}

static __attribute__((noinline)) weft_status_t am_send_general(struct weft_ep *ep, unsigned id, const void *header,
                                                               size_t header_len, const weft_iov_t *iov,
                                                               size_t n_iov, const weft_op_t *op) {
    if (op && weft__op_asks_more(op, AM_FLAGS)) return am_submit(ep, id, header, header_len, iov, n_iov, op);
    struct link *link = ep->link;
    uint32_t flags = op ? op->flags : 0;
    size_t len = 0;
    weft_status_t st = weft__iov_measure(iov, n_iov, &len);
    if (st < 0) return st;
    struct message m = am_message(ep, flags, id, header, header_len, iov, n_iov, len);
    enum protocol protocol = weft__protocol(ep, &m, flags);
    if (protocol == PROTOCOL_OFFER && flags & MUST_BE_WHOLE) return too_big(m.len);
    if (protocol == PROTOCOL_COPY) {
        st = weft__send_copy(link, link->tx, &m);
        if (__builtin_expect(st == WEFT_OK, 1)) return sent(ep);
        if (st < 0) return st;
    }
    return am_submit(ep, id, header, header_len, iov, n_iov, op);
}

/* Most messages are one short piece without more ado. */
static inline __attribute__((always_inline)) weft_status_t am_send_ready(struct weft_ep *ep, unsigned id,
                                                                         const void *header, size_t header_len,
                                                                         const weft_iov_t *iov, size_t n_iov,
                                                                         const weft_op_t *op) {
    struct lane *lane = ep->link->tx;
    if (header_len || !weft__iov_is_plain(iov, n_iov) || iov->len > ep->link->max_quick ||
        (op && weft__op_asks_more(op, 0)))
        return am_send_general(ep, id, header, header_len, iov, n_iov, op);
    uint64_t word = wire_am_word(ep->core.peer, 0, id);
    weft_status_t st = lane->ops->am_short(lane, WIRE_AM, word, iov->base, iov->len);
    if (__builtin_expect(st == WEFT_OK, 1)) return sent(ep);
    return st < 0 ? st : am_submit(ep, id, NULL, 0, iov, 1, op);
}

static weft_status_t am_send_posted(void *ep, const struct posted_args *args, const weft_op_t *op) {
    return weft__am_send(ep, (unsigned)args->word[0], args->bytes, args->n_bytes, args->iov, args->n_iov, op);
}

/* The caller is not the owner's thread, or not its process. */
static __attribute__((noinline)) weft_status_t am_send_elsewhere(weft_ep_t *ep, unsigned id, const void *header,
                                                                 size_t header_len, const weft_iov_t *iov,
                                                                 size_t n_iov, const weft_op_t *op) {
    struct posted_args args = {.word = {id}, .iov = iov, .n_iov = n_iov, .bytes = header, .n_bytes = header_len};
    weft_status_t st = weft__worker_enter(ep->worker);
    if (st == WEFT_OK) return ep->ops->am_send(ep, id, header, header_len, iov, n_iov, op);
    return st == WEFT_IN_PROGRESS ? weft__post(ep->worker, ep, am_send_posted, &args, op) : st;
}

/* Most go to an endpoint that is ready: no call then. */
static inline __attribute__((always_inline)) weft_status_t am_send(weft_ep_t *ep, unsigned id, const void *header,
                                                                   size_t header_len, const weft_iov_t *iov,
                                                                   size_t n_iov, const weft_op_t *op) {
    if (__builtin_expect(!weft__reactor_mine(ep->worker->reactor), 0))
        return am_send_elsewhere(ep, id, header, header_len, iov, n_iov, op);
    if (__builtin_expect(ep->ops == &weft__ep_ops_ready, 1))
        return am_send_ready(ep, id, header, header_len, iov, n_iov, op);
    return ep->ops->am_send(ep, id, header, header_len, iov, n_iov, op);
}

weft_status_t weft__am_send(weft_ep_t *ep, unsigned id, const void *header, size_t header_len,
                            const weft_iov_t *iov, size_t n_iov, const weft_op_t *op) {
    return am_send(ep, id, header, header_len, iov, n_iov, op);
}

static __attribute__((noinline)) weft_status_t am_send_wrong(const weft_ep_t *ep, unsigned id, const void *header,
                                                             size_t header_len) {
    if (!ep) return weft__fail(WEFT_ERR_INVALID_PARAM, "ep is NULL");
    if (id > WEFT_AM_ID_MAX) return weft__fail(WEFT_ERR_INVALID_PARAM, "id is %u, beyond %d", id, WEFT_AM_ID_MAX);
    if (header_len > WEFT_AM_HEADER_MAX)
        return weft__fail(WEFT_ERR_TOO_BIG, "header_len is %zu, beyond %d", header_len, WEFT_AM_HEADER_MAX);
    return weft__check_memory("header", header, header_len);
}

/* One piece and nothing else, as most messages are. */
static inline bool is_plain(const weft_ep_t *ep, unsigned id, size_t header_len, const weft_iov_t *iov,
                            size_t n_iov, const weft_op_t *op) {
    size_t more = (n_iov - 1) | header_len | (uintptr_t)op;
    return ep && iov && !more && id <= WEFT_AM_ID_MAX;
}

weft_status_t weft_am_send(weft_ep_t *ep, unsigned id, const void *header, size_t header_len, const weft_iov_t *iov,
                           size_t n_iov, const weft_op_t *op) {
    if (__builtin_expect(is_plain(ep, id, header_len, iov, n_iov, op), 1))
        return am_send(ep, id, NULL, 0, iov, 1, NULL);
    bool wrong = !ep || id > WEFT_AM_ID_MAX || (header_len && (header_len > WEFT_AM_HEADER_MAX || !header));
    if (__builtin_expect(wrong, 0)) return am_send_wrong(ep, id, header, header_len);
    return weft__am_send(ep, id, header, header_len, iov, n_iov, op);
}

/* ---- in */

static inline void handle(const struct am_handler *handler, const struct am_arrival *arrival, weft_am_t *am) {
    struct counters *count = arrival->worker->count;
    if (__builtin_expect(!handler->fn, 0)) {
        count->am_dropped++;
        return;
    }
    count->am_received++;
    handler->fn(arrival->ep, am, handler->arg);
    weft__program_returned(arrival->worker->reactor);
}

static inline const struct am_handler *handler_of(const struct weft_worker *worker, unsigned id) {
    static const struct am_handler nobody;
    return __builtin_expect(id < AM_ID_END, 1) ? &worker->am[id] : &nobody;
}

void weft__am_handle(struct am_arrival *arrival, const struct am_handler *handler, weft_am_t *am) {
    struct weft_ep *ep = arrival->ep;
    struct link *link = ep ? ep->link : NULL;
    am->internal = arrival;
    handle(handler, arrival, am);
    if (arrival->offer && !arrival->taken && link && ep->link == link)
        weft__refuse_offer(link, arrival->offer->request, WEFT_OK);
}

/* From a peer that wants no reply. It has no endpoint that could fail, and rooms below ours cannot do without one. */
static struct link *heard_alone(struct lane *lane, uint64_t *word) {
    struct weft_worker *worker = lane->iface->owner;
    worker->kept.alone = lane; /* before anything is called: the way of others would have to save it */
    struct link *link = weft__link_of(lane, "active message before hello");
    if (!link || !(*word & WIRE_AM_NO_REPLY)) return NULL; /* for nobody */
    *word &= ~WIRE_AM_NO_REPLY;
    if (wire_am_id(*word) <= WEFT_AM_ID_MAX) return link;
    weft__link_violation(link, "active message without an endpoint");
    return NULL;
}

static __attribute__((noinline)) void bad_length(struct link *link, struct weft_ep *ep) {
    if (ep)
        weft__ep_violation(ep, WEFT_ERR_PROTOCOL, "active message");
    else
        weft__link_violation(link, "active message");
}

/* `data`, what follows the word. */
static inline void arrive(struct link *link, struct weft_ep *ep, uint64_t word, const char *data, size_t len) {
    size_t header_len = wire_am_header_len(word);
    if (__builtin_expect(header_len && (header_len > len || header_len > WEFT_AM_HEADER_MAX), 0)) {
        bad_length(link, ep);
        return;
    }
    struct am_arrival arrival = {.worker = link->worker, .ep = ep};
    weft_am_t am = {.header = data,
                    .header_len = header_len,
                    .data = data + header_len,
                    .len = len - header_len,
                    .internal = &arrival};
    handle(handler_of(link->worker, wire_am_id(word)), &arrival, &am);
}

/* It comes too early or too late, behind a notice, from nobody who could be answered, or is not one. */
static __attribute__((noinline)) void on_am_seldom(struct lane *lane, const void *data, size_t len) {
    uint64_t word;
    if (len < sizeof word) {
        weft__on_unknown(lane, data, len);
        return;
    }
    memcpy(&word, data, sizeof word);
    struct weft_ep *ep = NULL;
    struct link *link = NULL;
    if (wire_am_ep(word)) {
        ep = weft__ep_heard(lane, wire_am_ep(word), "active message");
        if (ep) link = ep->link;
    } else {
        link = heard_alone(lane, &word);
    }
    if (!link) return; /* closed on this side; the peer hears of it */
    link->received++;
    arrive(link, ep, word, (const char *)data + sizeof word, len - sizeof word);
}

void weft__on_am(struct lane *lane, const void *data, size_t len) {
    uint64_t word = 0; /* names no endpoint */
    if (__builtin_expect(len >= sizeof word, 1)) memcpy(&word, data, sizeof word);
    struct weft_ep *ep = weft__ep_heard_mostly(lane, wire_am_ep(word));
    if (__builtin_expect(!ep, 0)) {
        on_am_seldom(lane, data, len);
        return;
    }
    ep->link->received++;
    arrive(ep->link, ep, word, (const char *)data + sizeof word, len - sizeof word);
}

void weft__am_offered(struct weft_ep *ep, const struct wire_rts *rts) {
    struct am_arrival arrival = {.worker = ep->worker, .ep = ep, .offer = rts};
    weft_am_t am = {.header = rts->header, .header_len = rts->header_len, .len = rts->len};
    ep->link->received++;
    weft__am_handle(&arrival, handler_of(ep->worker, rts->am_id), &am);
}

static weft_status_t too_short(size_t room, size_t len) {
    return weft__fail(WEFT_ERR_TRUNCATED, "there is room for %zu bytes of %zu", room, len);
}

weft_status_t weft_am_recv(weft_am_t *am, const weft_iov_t *iov, size_t n_iov, const weft_op_t *op) {
    if (!am || !am->internal) return weft__fail(WEFT_ERR_INVALID_PARAM, "am is NULL, or not of a handler");
    struct am_arrival *arrival = am->internal;
    bool laid_out = op && op->layout;
    size_t room = am->len;
    weft_status_t st = weft__worker_check(arrival->worker);
    if (st == WEFT_OK) st = weft__check_op(op, 0);
    if (st == WEFT_OK && !laid_out) st = weft__iov_measure(iov, n_iov, &room);
    if (st < 0) return st;
    if (room < am->len) return too_short(room, am->len);
    if (!laid_out && !arrival->offer) {
        weft__iov_scatter(iov, n_iov, 0, am->data, am->len);
        return WEFT_OK;
    }
    if (arrival->offer && arrival->taken) return weft__fail(WEFT_ERR_EXISTS, "the payload was asked for already");
    if (arrival->offer && !arrival->ep->link) return weft__fail(WEFT_ERR_CLOSED, "the endpoint is lost");

    struct weft_request *req = weft__request_new(arrival->worker, &weft__receive_kind);
    if (!req) return WEFT_ERR_NO_MEMORY;
    st = weft__request_memory(req, iov, n_iov, op, true);
    if (st == WEFT_OK && req->len < am->len) st = too_short(req->len, am->len);
    if (st == WEFT_OK && !arrival->offer) st = weft__request_scatter(req, 0, am->data, am->len);
    if (st < 0 || !arrival->offer) {
        weft__request_discard(req);
        return st;
    }
    req->len = am->len;
    req->peer_id = arrival->offer->request;
    req->remote = arrival->offer->address;
    st = weft__request_accept(req, arrival->ep, op);
    if (st < 0) return st;
    st = weft__fetch(req);
    if (st != WEFT_IN_PROGRESS) weft__request_discard(req);
    if (st >= 0) arrival->taken = true;
    return st;
}

weft_status_t weft__am_handler_set(weft_worker_t *worker, unsigned id, weft_am_fn fn, void *arg) {
    if (id >= AM_ID_END) return weft__fail(WEFT_ERR_INVALID_PARAM, "id is %u", id);
    weft__thread_handlers(worker)[id] = (struct am_handler){fn, arg};
    return WEFT_OK;
}

weft_status_t weft_am_handler_set(weft_worker_t *worker, unsigned id, weft_am_fn fn, void *arg) {
    if (!worker) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker is NULL");
    if (id > WEFT_AM_ID_MAX) return weft__fail(WEFT_ERR_INVALID_PARAM, "id is %u, beyond %d", id, WEFT_AM_ID_MAX);
    weft_status_t st = weft__worker_check(worker);
    return st < 0 ? st : weft__am_handler_set(worker, id, fn, arg);
}

/* ---- what the states install */

static weft_status_t refused(const struct weft_ep *ep) {
    weft_status_t st = ep->status == WEFT_OK ? WEFT_ERR_CLOSED : ep->status;
    return weft__fail(st, "the endpoint is %s", fsm_state_name(&ep->core.fsm));
}

static weft_status_t am_send_refuse(struct weft_ep *ep, unsigned id, const void *header, size_t header_len,
                                    const weft_iov_t *iov, size_t n_iov, const weft_op_t *op) {
    return refused(ep);
}

static weft_status_t tag_send_refuse(struct weft_ep *ep, uint64_t tag, const weft_iov_t *iov, size_t n_iov,
                                     const weft_op_t *op) {
    return refused(ep);
}

static weft_status_t flush_refuse(struct weft_ep *ep, const weft_op_t *op) {
    return refused(ep);
}

static weft_status_t rma_refuse(struct weft_ep *ep, const struct rma_op *op, const weft_op_t *how) {
    return refused(ep);
}

static weft_status_t stream_send_refuse(struct weft_ep *ep, const weft_iov_t *iov, size_t n_iov,
                                        const weft_op_t *op) {
    return refused(ep);
}

static weft_status_t stream_refuse(struct weft_ep *ep) {
    return refused(ep);
}

const struct ep_ops weft__ep_ops_wait = {
    .am_send = am_send_wait,
    .tag_send = weft__tag_send_wait,
    .flush = weft__flush_post,
    .stream_send = weft__stream_send_wait,
    .stream_may_wait = weft__stream_may_wait,
    .rma = weft__rma_wait,
};
const struct ep_ops weft__ep_ops_ready = {
    .am_send = am_send_ready,
    .tag_send = weft__tag_send_ready,
    .flush = weft__flush_post,
    .stream_send = weft__stream_send_ready,
    .stream_may_wait = weft__stream_may_wait,
    .rma = weft__rma_ready,
};
const struct ep_ops weft__ep_ops_refuse = {
    .am_send = am_send_refuse,
    .tag_send = tag_send_refuse,
    .flush = flush_refuse,
    .stream_send = stream_send_refuse,
    .stream_may_wait = stream_refuse,
    .rma = rma_refuse,
};
