/* Streams: their life, and what goes out. */
#include "stream.h"

#include <base/counters.h>

#include <endpoints/core/submit.h>
#include <endpoints/core/worker.h>
#include <endpoints/transfer/device_staging.h>
#include <endpoints/transfer/layout.h>

struct stream *weft__stream_of(struct weft_ep *ep) {
    struct stream *s = ep->stream;
    if (s) return s;
    s = weft__new(ep->worker, struct stream);
    if (!s) return NULL;
    s->ep = ep;
    s->room = ep->stream_window;
    list_init(&s->sends);
    list_init(&s->chunks);
    list_init(&s->receives);
    ep->stream = s;
    return s;
}

/* ---- turns */

/* Only the turn is in the link's backlog with a right to send. Others that come up there are put
 * behind it. */
static weft_status_t stand_behind(struct stream *s, struct weft_request *req) {
    list_remove(&req->queued);
    req->queue = &s->sends;
    list_append(&s->sends, &req->queued);
    return WEFT_IN_PROGRESS;
}

static weft_status_t wait_for_room(struct stream *s, struct weft_request *req) {
    list_remove(&req->queued);
    req->queue = &s->sends;
    list_prepend(&s->sends, &req->queued);
    return WEFT_IN_PROGRESS;
}

static struct weft_request *next_turn(struct stream *s) {
    struct list *node = s->ep->link ? list_pop(&s->sends) : NULL;
    s->turn = node ? list_of(node, struct weft_request, queued) : NULL;
    return s->turn;
}

/* To the lane, with all that this means. */
static void submit(struct stream *s, struct weft_request *req) {
    struct list one;
    list_init(&one);
    list_append(&one, &req->queued);
    weft__link_submit_all(s->ep->link, &one);
}

/* ---- sending */

static weft_status_t count_sent(struct weft_ep *ep, size_t n) {
    ep->stream->room -= n;
    ep->link->sent++;
    ep->worker->count->stream_out += n;
    return WEFT_OK;
}

/* What fits into one message is copied, so that it is done at once; longer data is sent in
 * pieces, without a copy. */
static weft_status_t send_piece(struct stream *s, struct weft_request *req, size_t most) {
    uint64_t word = wire_stream_word(s->ep->core.peer);
    size_t before = req->offset;
    const struct iface_attr *attr = &weft__link_iface(s->ep->link)->attr;
    weft_status_t st = req->len <= attr->max_bcopy - sizeof word
                           ? weft__send_piece_copied(req, WIRE_STREAM, &word, sizeof word, most)
                           : weft__send_piece(req, WIRE_STREAM, &word, sizeof word, most);
    if (st == WEFT_OK || st == WEFT_IN_PROGRESS) count_sent(s->ep, req->offset - before);
    return st;
}

/* The next bytes of device memory are in the host's memory now. */
static void read_some(struct weft_request *req) {
    struct stream *s = req->ep->stream;
    if (!s->ep->link || s->turn != req || s->sends.next != &req->queued) return;
    list_remove(&req->queued);
    submit(s, req);
}

/* A piece each turn of the lane's queue. When all is sent the next of the stream goes to its
 * end; it is being pumped now. */
static weft_status_t advance_send(struct weft_request *req) {
    struct stream *s = req->ep->stream;
    if (!s->turn) s->turn = req;
    if (s->turn != req) return stand_behind(s, req);
    if (req->offset < req->len) {
        if (s->room == 0) return wait_for_room(s, req);
        size_t ready = s->room;
        weft_status_t st =
            weft__request_stages(req) ? weft__device_stage(req, read_some, &ready) : WEFT_OK;
        if (st == WEFT_IN_PROGRESS) return wait_for_room(s, req);
        if (st == WEFT_OK) st = send_piece(s, req, ready < s->room ? ready : s->room);
        if (st == WEFT_NO_RESOURCE || st < 0) return st;
    }
    struct list *backlog = &s->ep->link->backlog;
    struct weft_request *next = req;
    if (req->offset == req->len)
        next = next_turn(s);
    else
        list_remove(&req->queued);
    if (next) {
        next->queue = backlog;
        list_append(backlog, &next->queued);
    }
    if (next == req) return WEFT_IN_PROGRESS;
    if (req->in_flight.count == 0) return WEFT_OK;
    weft__request_hand_over(req);
    return WEFT_IN_PROGRESS;
}

/* One that ended early still has the turn. */
static void release_send(struct weft_request *req) {
    struct stream *s = req->ep ? req->ep->stream : NULL;
    if (req->match.len_p) *req->match.len_p = req->offset;
    if (s && s->turn == req && next_turn(s)) submit(s, s->turn);
}

static const struct request_kind send_kind = {
    .name = "stream_send",
    .advance = advance_send,
    .returned = weft__pieces_returned,
    .release = release_send,
};

static weft_status_t send_request(struct weft_ep *ep, const weft_iov_t *iov, size_t n_iov,
                                  size_t *sent_p, const weft_op_t *op,
                                  struct weft_request **req_p) {
    struct weft_request *req =
        weft__stream_of(ep) ? weft__request_new(ep->worker, &send_kind) : NULL;
    if (!req) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = weft__request_message(req, iov, n_iov, op);
    if (st < 0) {
        weft__request_discard(req);
        return st;
    }
    st = weft__request_accept(req, ep, op);
    if (st < 0) return st;
    req->match.len_p = sent_p;
    *req_p = req;
    return WEFT_OK;
}

weft_status_t weft__stream_send_wait(struct weft_ep *ep, const weft_iov_t *iov, size_t n_iov,
                                     size_t *sent_p, const weft_op_t *op) {
    struct weft_request *req;
    weft_status_t st = send_request(ep, iov, n_iov, sent_p, op, &req);
    if (st < 0) return st;
    weft__request_queue(req, &ep->queue);
    return WEFT_IN_PROGRESS;
}

/* Nothing is before it, and it goes out whole. */
static weft_status_t send_at_once(struct weft_ep *ep, const weft_iov_t *iov, size_t n_iov,
                                  size_t *sent_p) {
    struct stream *s = weft__stream_of(ep);
    if (!s) return WEFT_ERR_NO_MEMORY;
    struct message m = {
        .id = WIRE_STREAM, .word = wire_stream_word(ep->core.peer), .iov = iov, .n_iov = n_iov};
    weft_status_t st = weft__iov_measure(iov, n_iov, &m.len);
    if (st < 0 || m.len == 0) return st;
    if (s->turn || m.len > s->room ||
        m.len > weft__link_iface(ep->link)->attr.max_bcopy - sizeof m.word)
        return WEFT_NO_RESOURCE;
    st = weft__send_copy(ep->link, ep->link->tx, &m);
    if (st != WEFT_OK) return st;
    if (sent_p) *sent_p = m.len;
    return count_sent(ep, m.len);
}

weft_status_t weft__stream_send_ready(struct weft_ep *ep, const weft_iov_t *iov, size_t n_iov,
                                      size_t *sent_p, const weft_op_t *op) {
    struct weft_request *req;
    bool later = (op && weft__op_is_extended(op, 0)) || weft__iov_is_of_device(iov, n_iov);
    weft_status_t st = later ? WEFT_NO_RESOURCE : send_at_once(ep, iov, n_iov, sent_p);
    if (st != WEFT_NO_RESOURCE) return st;
    st = send_request(ep, iov, n_iov, sent_p, op, &req);
    if (st < 0) return st;
    weft__link_submit(ep->link, req);
    return WEFT_IN_PROGRESS;
}

static weft_status_t send_stream(weft_ep_t *ep, const weft_iov_t *iov, size_t n_iov, size_t *sent_p,
                                 const weft_op_t *op);
static weft_status_t send_posted(void *ep, const struct submit_args *args, const weft_op_t *op) {
    return send_stream(ep, args->iov, args->n_iov, (size_t *)(uintptr_t)args->word[0], op);
}

static weft_status_t send_stream(weft_ep_t *ep, const weft_iov_t *iov, size_t n_iov, size_t *sent_p,
                                 const weft_op_t *op) {
    weft_status_t st = weft__call_enter(ep->worker, op);
    if (st == WEFT_IN_PROGRESS) {
        struct submit_args args = {
            .word = {(uint64_t)(uintptr_t)sent_p}, .iov = iov, .n_iov = n_iov};
        return weft__post(ep->worker, ep, send_posted, &args, op);
    }
    return st < 0 ? st : ep->ops->stream_send(ep, iov, n_iov, sent_p, op);
}

weft_status_t weft_stream_send(weft_ep_t *ep, const weft_iov_t *iov, size_t n_iov,
                               const weft_op_t *op) {
    if (!ep) return weft__fail(WEFT_ERR_INVALID_PARAM, "ep is NULL");
    return send_stream(ep, iov, n_iov, NULL, op);
}

weft_status_t weft_stream_send_counted(weft_ep_t *ep, const weft_iov_t *iov, size_t n_iov,
                                       size_t *sent_p, const weft_op_t *op) {
    if (!ep || !sent_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "ep or sent_p is NULL");
    *sent_p = 0;
    return send_stream(ep, iov, n_iov, sent_p, op);
}

/* ---- room */

static void add_room(struct stream *s, uint64_t bytes) {
    s->room += bytes;
    if (!s->turn || s->sends.next != &s->turn->queued) return;
    list_remove(&s->turn->queued);
    submit(s, s->turn);
}

void weft__stream_opened(struct weft_ep *ep, uint32_t window) {
    ep->stream_window = window;
    if (ep->stream) ep->stream->room = window;
}

void weft__on_stream_credit(struct link *link, struct lane *lane,
                            const struct wire_credit *credit) {
    struct weft_ep *ep = weft__ep_lookup(lane, credit->ep, "stream credit");
    if (!ep) return;
    /* Only for what was sent: a stream that was never used has nothing to get back. */
    if (!ep->stream || credit->bytes > ep->stream_window - ep->stream->room) {
        weft__ep_violation(ep, WEFT_ERR_PROTOCOL, "stream credit");
        return;
    }
    add_room(ep->stream, credit->bytes);
}
