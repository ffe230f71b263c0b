/* OPEN, ACCEPT, REJECT and CLOSE: what the peer says about its halves of endpoints. */
#include <inttypes.h>

#include "connect.h"
#include <endpoints/core/cause.h>
#include <endpoints/core/lease.h>
#include <endpoints/core/worker.h>
#include <endpoints/messages/stream.h>

static void reject(struct link *link, uint32_t peer, weft_status_t status) {
    struct wire_message m;
    weft__wire_reject(&m, (struct wire_reject){peer, status});
    weft__link_answer(link, &m);
}

/*
 * The library for which the peer's library opens an endpoint. What the peer sends over it is tied
 * to this holder of the range: it ends with it, and reaches no later one. A peer that dialed before
 * any library came holds no lease here yet (weft__ep_follow_lease).
 */
static weft_status_t find_lease(const struct weft_worker *worker, const struct wire_open *open,
                                const struct lease **lease_p) {
    const struct lease *lease =
        open->am_first ? weft__lease_find(worker, open->lease, open->am_first) : NULL;
    if (lease ? lease->ends : open->lease != 0) return WEFT_ERR_DISASSOCIATED;
    *lease_p = lease;
    return WEFT_OK;
}

static weft_status_t accept_ep(struct link *link, const struct wire_open *open) {
    const struct lease *lease = NULL;
    struct weft_ep *ep;
    struct weft_worker *worker = link->worker;
    if (link->n_accepted >= worker->limit.endpoints ||
        worker->limit.n_opened >= worker->limit.max_opened)
        return WEFT_ERR_QUOTA;
    weft_status_t st = weft__ep_admit(link, open->listener);
    if (st == WEFT_OK) st = find_lease(worker, open, &lease);
    if (st == WEFT_OK) st = weft__ep_new(link->worker, &ep);
    if (st < 0) return st;
    st = weft__ep_adopt(ep, open->listener, lease);
    if (st == WEFT_OK) st = weft__ep_heartbeats(link, open->listener);
    if (st < 0) {
        weft__ep_forget(ep);
        return st;
    }
    ep->core.peer = open->from;
    ep->credit = open->credit > INT64_MAX ? INT64_MAX : (int64_t)open->credit;
    weft__stream_opened(ep, open->stream);
    weft__link_join(link, ep);
    ep->accepted = true;
    link->n_accepted++;
    worker->limit.n_opened++;
    weft__fsm_step(&ep->core.fsm, EP_EV_PASSIVE);
    return WEFT_OK;
}

/*
 * The listener closed before the first endpoint of this connection came. The connection ends, and
 * the peer dials again: another process may listen at that address by now.
 */
static bool is_left_behind(const struct link *link, const struct wire_open *open) {
    struct weft_worker *worker = link->worker;
    return open->listener && worker_is_open(&worker->core.fsm) &&
           !weft__idmap_find(&worker->listeners, open->listener) && list_empty(&link->endpoints);
}

void weft__ep_on_open(struct link *link, struct lane *lane, const struct wire_open *open) {
    if (is_left_behind(link, open)) {
        weft__link_close(link);
        return;
    }
    weft_status_t st = accept_ep(link, open);
    if (st < 0) reject(link, open->from, st);
}

/* An endpoint that has gone answers ACCEPT by CLOSE, so that the peer's half ends, too. */
void weft__ep_on_accept(struct link *link, struct lane *lane, const struct wire_accept *accept) {
    struct weft_ep *ep = weft__ep_of_lane(lane, accept->ep);
    if (!ep) {
        struct wire_message m;
        weft__wire_one(&m, WIRE_CLOSE, accept->from);
        weft__link_answer(link, &m);
        return;
    }
    if (!ep->core.peer) ep->core.peer = accept->from;
    ep->credit = accept->credit > INT64_MAX ? INT64_MAX : (int64_t)accept->credit;
    if (ep_is_opening(&ep->core.fsm)) weft__stream_opened(ep, accept->stream);
    weft__fsm_step(&ep->core.fsm, EP_EV_ACCEPT);
}

static const char *why_rejected(weft_status_t status) {
    switch (status) {
    case WEFT_ERR_REJECTED: return "the listener's on_request refused the connection";
    case WEFT_ERR_REFUSED: return "the listener there is closed";
    case WEFT_ERR_QUOTA: return "the peer accepts no more endpoints from this worker";
    case WEFT_ERR_DISASSOCIATED: return "the library there has returned its lease";
    default: return weft_status_sentence(status);
    }
}

void weft__ep_on_reject(struct link *link, struct lane *lane, const struct wire_reject *reject) {
    struct weft_ep *ep = weft__ep_of_lane(lane, reject->ep);
    if (!ep || weft__ep_asks_successor(ep, reject->status)) return;
    if (ep_is_opening(&ep->core.fsm)) {
        weft__ep_cause(ep, reject->status, why_rejected(reject->status));
        weft__ep_log_failure(ep, reject->status);
        if (ep->status == WEFT_OK) ep->status = reject->status;
    }
    weft__fsm_step(&ep->core.fsm, EP_EV_REJECT);
}

/* CLOSE comes behind all other messages of the peer's half. */
void weft__ep_on_close(struct link *link, struct lane *lane, const struct wire_one *one) {
    struct weft_ep *ep = weft__ep_of_lane(lane, one->request);
    if (!ep) return;
    if (ep_is_connected(&ep->core.fsm)) {
        weft__ep_cause(ep, WEFT_ERR_PEER_CLOSED, "the peer closed its endpoint");
        if (ep->status == WEFT_OK) ep->status = WEFT_ERR_PEER_CLOSED;
        ep->core.peer = 0;
        weft__ep_lookup_forget(ep);
    }
    weft__fsm_step(&ep->core.fsm, EP_EV_FIN);
}
