/*
 * Messages that wait at their sender. The sender offers (RTS); the receiver reads the memory itself
 * where the lane can (bulk get, then FIN), or asks for it (CTS) and gets it in pieces (DATA); or,
 * where the sender can write there, has it written (split_copy.h). The sender's memory is in use
 * while a bulk get of the peer may read it: a cancel then waits for the FIN.
 */
#include "rendezvous.h"

#include <base/compiler.h>
#include <base/counters.h>

#include "device_fetch.h"
#include "device_staging.h"
#include "expose.h"
#include "layout.h"
#include "placement.h"
#include "rail_ranges.h"
#include "rails.h"
#include "split_copy.h"
#include <endpoints/core/worker.h>

/* ---- the sender */

static size_t pack_rts(void *to, void *arg) {
    return weft__wire_rts(to, arg);
}

/* One piece of memory can be read by the peer. */
static uint64_t address_of(const struct weft_request *req, const struct lane *lane) {
    if (req->n_iov != 1) return 0;
    bool reads = lane->iface->attr.caps & CAP_BULK_GET && HAS_OP(lane->ops, bulk, bulk_get);
    return reads || weft__try_expose(req->ep, req->iov->base, req->len, WEFT_MEM_READ)
               ? (uint64_t)(uintptr_t)req->iov->base
               : 0;
}

weft_status_t weft__send_offer(struct weft_request *req, struct lane *lane) {
    struct wire_rts rts = {
        .ep = req->ep->core.peer,
        .request = req->id,
        .kind = req->kind->offers,
        .header_len = req->send.header_len,
        .am_id = req->send.am_id,
        .tag = req->match.tag,
        .len = req->len,
        .address = address_of(req, lane),
        .header = req->header,
    };
    struct cuda_export exported;
    if (UNLIKELY(weft__cuda_active)) weft__device_offer(req, lane, &rts, &exported);
    weft_status_t st = lane->ops->am_bcopy(lane, WIRE_RTS, pack_rts, &rts);
    if (st != WEFT_OK) return st;
    req->send.offered = rts.address != 0 || rts.device;
    req->in_flight.count += req->send.offered;
    req->worker->count->rendezvous++;
    return WEFT_OK;
}

/* Sends one piece; WEFT_OK when it was copied, IN_PROGRESS while the memory is in use. */
static weft_status_t send_data(struct weft_request *req, size_t most) {
    char head[WIRE_DATA_HEAD];
    size_t own = req->len - req->rails.bytes - req->offset,
           piece = weft__link_limits(req->ep->link)->piece;
    if (piece > most) piece = most;
    weft__wire_data(head, (struct wire_data){.to = req->peer_id, .offset = req->offset});
    return weft__send_piece(req, WIRE_DATA, head, sizeof head, own < piece ? own : piece);
}

void weft__pieces_resume(struct weft_request *req) {
    struct list one;
    if (!req->ep->link) return;
    list_init(&one);
    list_append(&one, &req->queued);
    weft__link_submit_all(req->ep->link, &one);
}

/* A piece each turn of the queue: a large message does not keep small ones waiting. */
weft_status_t weft__advance_pieces(struct weft_request *req) {
    size_t ready = SIZE_MAX;
    weft_status_t st =
        weft__request_stages(req) ? weft__device_stage(req, weft__pieces_resume, &ready) : WEFT_OK;
    if (st == WEFT_IN_PROGRESS) list_remove(&req->queued);
    if (st != WEFT_OK) return st;
    st = send_data(req, ready);
    if (st == WEFT_NO_RESOURCE || st < 0) return st;
    if (req->offset + req->rails.bytes < req->len) {
        list_remove(&req->queued);
        list_append(req->queue, &req->queued);
        return WEFT_IN_PROGRESS;
    }
    if (req->in_flight.count == 0) return WEFT_OK;
    weft__request_hand_over(req);
    return WEFT_IN_PROGRESS;
}

/* Pieces came back while others still queue, or all of it did. */
void weft__pieces_returned(struct weft_request *req, weft_status_t status) {
    if (status < 0 && req->ep && weft__link_has_left(req->ep->link, status)) status = WEFT_OK;
    if (request_is_in_flight(&req->core.fsm) || status < 0) weft__request_finish(req, status);
}

void weft__withdraw_offer(struct weft_request *req) {
    struct wire_message m;
    if (!req->ep->link) return;
    weft__wire_one(&m, WIRE_CANCEL, req->id);
    weft__link_control(req->ep->link, &m);
}

weft_status_t weft__reason_for_peer(const struct link *link, weft_status_t status) {
    bool taken_back = status >= 0 || status == WEFT_ERR_TIMED_OUT || status == WEFT_ERR_CLOSED;
    return taken_back || !(link->peer_flags & WIRE_HELLO_CAUSES) ? WEFT_ERR_CANCELLED : status;
}

/* If it ends half way, the requester stops waiting. */
void weft__release_send(struct weft_request *req) {
    struct wire_message m;
    weft__put_req_end(req);
    if (!req->peer_id || weft__rails_all_sent(req) || !req->ep->link) return;
    weft_status_t why = weft__reason_for_peer(req->ep->link, req->status);
    weft__wire_gone(&m, (struct wire_gone){req->peer_id, why});
    weft__link_control(req->ep->link, &m);
}

/* A request of ours that this peer may name. */
static struct weft_request *request_of_link(struct link *link, uint32_t id, bool sends) {
    struct weft_request *req = weft__idmap_find(&link->worker->requests, id);
    if (!req || !req->ep || req->ep->link != link) return NULL;
    return (sends ? req->kind->offers != 0 : req->kind->places) ? req : NULL;
}
static struct weft_request *request_of_lane(struct lane *lane, uint32_t id, bool sends) {
    return request_of_link(weft__lane_link(lane), id, sends);
}

struct weft_request *weft__offer_of(struct link *link, uint32_t id) {
    struct weft_request *req = request_of_link(link, id, true);
    return req && req->send.offered && !req->layout ? req : NULL;
}

struct weft_request *weft__waiting_of(struct link *link, uint32_t id) {
    struct weft_request *req = request_of_link(link, id, true);
    return req && request_is_waiting(&req->core.fsm) ? req : NULL;
}

void weft__send_gone(struct link *link, uint32_t to, weft_status_t why) {
    struct wire_message m;
    weft__wire_gone(&m, (struct wire_gone){to, weft__reason_for_peer(link, why)});
    weft__link_answer(link, &m);
}

/* The peer will not read our memory any more. */
static void take_back(struct weft_request *req) {
    req->in_flight.count -= req->send.offered;
    req->send.offered = 0;
}

void weft__on_cts(struct link *link, struct lane *lane, const struct wire_cts *cts) {
    if (cts->to == 0) {
        weft__link_violation(link, "cts");
        return;
    }
    struct weft_request *req = request_of_lane(lane, cts->request, true);
    if (!req || request_is_done(&req->core.fsm)) {
        weft__send_gone(link, cts->to, req ? req->status : WEFT_ERR_CANCELLED);
        return;
    }
    if (request_is_ending(&req->core.fsm)) {
        weft__send_gone(link, cts->to, req->status);
        weft__request_offer_over(req);
        return;
    }
    if (!request_is_waiting(&req->core.fsm) || cts->len > req->len || cts->len == 0) {
        weft__ep_violation(req->ep, WEFT_ERR_PROTOCOL, "cts");
        return;
    }
    take_back(req);
    req->peer_id = cts->to;
    req->len = cts->len;
    req->offset = 0;
    weft__rails_want(link, cts->len);
    if (!cts->in_order) weft__rails_split(link, req);
    weft__link_submit(link, req);
}

void weft__on_fin(struct link *link, struct lane *lane, const struct wire_fin *fin) {
    struct weft_request *req = request_of_lane(lane, fin->request, true);
    if (!req) return; /* it was cancelled before the peer could read it */
    if (request_is_ending(&req->core.fsm)) {
        weft__request_offer_over(req);
        return;
    }
    if (!request_is_waiting(&req->core.fsm)) {
        if (!request_is_done(&req->core.fsm)) weft__ep_violation(req->ep, WEFT_ERR_PROTOCOL, "fin");
        return;
    }
    take_back(req);
    weft__request_finish(req, (weft_status_t)fin->status);
}

/* ---- the receiver */

void weft__offer_fin(struct link *link, uint32_t offer, weft_status_t status) {
    struct wire_message m;
    weft__wire_fin(&m, (struct wire_fin){offer, status});
    weft__link_answer(link, &m);
}

static weft_status_t ask_rendezvous(struct weft_request *req) {
    struct wire_message m;
    weft_status_t st = weft__request_name(req);
    if (st < 0) return st;
    req->offset = 0;
    req->rails.begun = weft__now(req->worker->reactor);
    req->worker->count->protocol_pieces++;
    weft__request_park(req);
    weft__rails_want(req->ep->link, req->len);
    weft__wire_cts(&m, (struct wire_cts){req->peer_id, req->id, req->len, req->layout != NULL});
    weft__link_control(req->ep->link, &m);
    return WEFT_IN_PROGRESS;
}

static void count_bulk(const struct weft_request *req) {
    if (req->kind == &weft__receive_kind)
        req->worker->count->protocol_get++;
    else
        req->worker->count->protocol_put++;
}

/* The bytes wanted, into the program's memory, which may be longer: read here, or written there. */
static weft_status_t bulk(struct weft_request *req) {
    struct lane *lane = weft__link_key_lane(req->ep->link);
    weft_iov_t slice[16];
    size_t len = req->len;
    if (!lane) return WEFT_ERR_UNSUPPORTED;
    size_t n = weft__iov_slice(slice, 16, req->iov, req->n_iov, 0, &len);
    if (len < req->len) return WEFT_ERR_UNSUPPORTED;
    req->in_flight.count++;
    weft_status_t st =
        n == 1 && req->recv.remote ? weft__split_get(req, lane, slice) : WEFT_ERR_UNSUPPORTED;
    if (st != WEFT_IN_PROGRESS && req->recv.remote && HAS_OP(lane->ops, bulk, bulk_get))
        st = lane->ops->bulk->bulk_get(lane, req->recv.remote, slice, n, &req->in_flight);
    if (st != WEFT_OK && st != WEFT_IN_PROGRESS && n == 1) st = weft__split_put(req, lane, slice);
    if (st != WEFT_IN_PROGRESS) req->in_flight.count--;
    if (st == WEFT_OK || st == WEFT_IN_PROGRESS) count_bulk(req);
    return st;
}

/* A sender that takes its message back finds it by the offer's number, however much else is
 * queued here. */
static weft_status_t await(struct weft_request *req) {
    weft__offers_await(&req->worker->offers, req->ep->link, req);
    return WEFT_IN_PROGRESS;
}

/* OK, IN_PROGRESS, or an error, and then the sender has been released. */
weft_status_t weft__fetch(struct weft_request *req) {
    struct link *link = req->ep->link;
    if (req->len == 0) {
        weft__offer_fin(link, req->peer_id, WEFT_OK);
        return WEFT_OK;
    }
    weft_status_t st = req->exported ? weft__device_fetch(req) : bulk(req);
    if (st == WEFT_OK) weft__offer_fin(link, req->peer_id, WEFT_OK);
    if (st == WEFT_IN_PROGRESS) {
        req->recv.fin_due = 1;
        if (req->kind == &weft__receive_kind) weft__request_hand_over(req);
        return await(req);
    }
    if (st == WEFT_OK) return st;
    st = ask_rendezvous(req);
    if (st == WEFT_IN_PROGRESS) return await(req);
    weft__offer_fin(link, req->peer_id, st);
    return st;
}

/* A bulk get ended. Where it failed, the bytes come as messages. */
static void fetch_returned(struct weft_request *req, weft_status_t status) {
    if (!req->ep->link) {
        weft__request_finish(req, req->ep->status);
        return;
    }
    req->recv.fin_due = 0;
    if (status < 0) status = ask_rendezvous(req);
    if (status == WEFT_IN_PROGRESS) return;
    weft__offer_fin(req->ep->link, req->peer_id, status);
    weft__request_finish(req, status);
}

/* It ends before the bytes came: a sender that got a CTS sends bytes that are discarded, and
 * completes by that; a sender whose memory is being read is released when the read ends. */
static void release_receive(struct weft_request *req) {
    if (req->recv.fin_due && req->ep->link)
        weft__offer_fin(req->ep->link, req->peer_id, WEFT_ERR_CANCELLED);
    req->recv.fin_due = 0;
    weft__offers_await_no_more(&req->worker->offers, req);
}

static void withdraw_receive(struct weft_request *req) {
    list_remove(&req->queued);
    weft__place_stop(req);
}

/* The sender has written all of it; or it has not, and is asked for the bytes as where a read
 * fails. They are asked for by another name: GONE may be under way, and it means the write. */
static void written_returned(struct weft_request *req, weft_status_t status) {
    req->kind = &weft__receive_kind;
    weft__request_hand_over(req);
    if (status < 0) weft__request_forget_name(req);
    fetch_returned(req, status);
}

const struct request_kind weft__receive_kind = {
    .name = "receive",
    .message = true,
    .places = true,
    .returned = fetch_returned,
    .withdraw = withdraw_receive,
    .release = release_receive,
};

/* The same while the sender writes it (split_copy.h). */
const struct request_kind weft__written_kind = {
    .name = "receive",
    .message = true,
    .returned = written_returned,
    .withdraw = weft__put_stop,
    .release = release_receive,
};

void weft__on_data(struct lane *lane, unsigned id, const void *data, size_t len) {
    struct link *link = weft__link_or_rail_of(lane, "data before hello");
    struct wire_data piece;
    if (!link) return;
    if (!weft__wire_read_data(data, len, &piece)) {
        weft__link_violation(link, "data");
        return;
    }
    struct weft_request *req =
        request_of_link(link->more->main ? link->more->main : link, piece.to, false);
    size_t n = len - WIRE_DATA_HEAD;
    /* cancelled here; the sender need not know */
    if (!req || !request_is_waiting(&req->core.fsm)) {
        if (!req) link->worker->transfer_users->late_data(link, piece.to, n);
        if (req && request_is_over(&req->core.fsm) && req->kind->late_data)
            req->kind->late_data(req, n);
        return;
    }
    if (!weft__rail_ranges_may_come(req, lane, piece.offset, n)) {
        weft__ep_violation(req->ep, WEFT_ERR_PROTOCOL, "data");
        return;
    }
    const char *bytes = (const char *)data + WIRE_DATA_HEAD;
    bool lands = weft__request_stages(req);
    weft_status_t st = lands ? weft__device_land(req, piece.offset, bytes, n)
                             : weft__request_scatter(req, piece.offset, bytes, n);
    if (st == WEFT_OK) st = weft__rail_ranges_came(req, lane, piece.offset, n);
    if (st < 0) {
        weft__request_stop(req, st); /* another lane may be writing there */
    } else if (weft__rail_ranges_all_came(req)) {
        weft__rail_ranges_report(req);
        if (!(lands && weft__device_still_lands(req))) weft__request_finish(req, WEFT_OK);
    }
}

void weft__on_gone(struct link *link, struct lane *lane, const struct wire_gone *gone) {
    if (weft__put_gone(link, gone->to)) return;
    struct weft_request *req = request_of_lane(lane, gone->to, false);
    if (!req) link->worker->transfer_users->late_data(link, gone->to, SIZE_MAX);
    if (req && !req->kind->message) req->rma.answered = true;
    if (req && request_is_waiting(&req->core.fsm))
        weft__request_failed_there(req, (weft_status_t)gone->status);
}

/* The classes of messages are asked in turn; each offer belongs to one. */
static bool withdraw_offer(struct link *link, uint32_t offer) {
    const struct offer_class *classes = link->worker->transfer_users->offer;
    return classes[WIRE_OFFER_TAG].withdrawn(link, offer) ||
           classes[WIRE_OFFER_AM].withdrawn(link, offer);
}

/* A receiver that accepted it answers in time: a reader by FIN, one that sent CTS after the GONE
 * it gets. Otherwise this side answers, since the sender's memory is in use until then. */
void weft__on_cancel(struct link *link, struct lane *lane, const struct wire_one *one) {
    bool untaken = withdraw_offer(link, one->request);
    if (untaken || !weft__offer_is_taken(&link->worker->offers, link, one->request))
        weft__offer_fin(link, one->request, WEFT_ERR_CANCELLED);
}

void weft__on_rts(struct link *link, struct lane *lane, const struct wire_rts *rts) {
    struct weft_ep *ep = weft__ep_lookup(lane, rts->ep, "offer");
    if (!ep) {
        weft__offer_fin(link, rts->request, WEFT_ERR_PEER_CLOSED);
        return;
    }
    /* the decoder checked the kind */
    ep->worker->transfer_users->offer[rts->kind].offered(ep, rts);
}

void weft__on_unknown(struct lane *lane, unsigned id, const void *data, size_t len) {
    struct link *link = weft__link_of(lane, "unknown message before hello");
    if (link) weft__link_violation(link, "unknown message");
}
