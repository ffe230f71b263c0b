/* Split copies and rendezvous puts: what the receiver asks for, and what the sender writes. */
#include "split_copy.h"

#include "expose.h"
#include "rendezvous.h"
#include <endpoints/core/worker.h>

/* ---- the receiver */

static struct wire_message put_req_message(const struct weft_request *req, uint32_t id,
                                           const weft_iov_t *to, uint64_t token) {
    struct wire_message m;
    weft__wire_put_req(&m, (struct wire_put_req){.request = req->peer_id,
                                                 .to = id,
                                                 .token = token,
                                                 .address = (uint64_t)(uintptr_t)to->base,
                                                 .len = to->len});
    return m;
}

weft_status_t weft__split_get(struct weft_request *req, struct lane *lane, const weft_iov_t *to) {
    struct link *link = req->ep->link;
    uint64_t token;
    if (!HAS_OP(lane->ops, bulk, bulk_split) || to->len < lane->iface->attr.split_from ||
        !weft__try_expose(req->ep, to->base, to->len, WEFT_MEM_WRITE))
        return WEFT_ERR_UNSUPPORTED;
    weft_status_t st =
        lane->ops->bulk->bulk_split(lane, req->recv.remote, to, &req->in_flight, &token);
    if (st != WEFT_IN_PROGRESS) return WEFT_ERR_UNSUPPORTED;
    struct wire_message m = put_req_message(req, 0, to, token);
    (void)weft__link_send_ctrl(link, link->tx, &m); /* without it, this side copies all */
    return st;
}

weft_status_t weft__split_put(struct weft_request *req, struct lane *lane, const weft_iov_t *to) {
    uint64_t token;
    if (!HAS_OP(lane->ops, bulk, bulk_put) || lane->iface->attr.split_from == SIZE_MAX ||
        to->len <= weft__link_limits(req->ep->link)->put ||
        !weft__try_expose(req->ep, to->base, to->len, WEFT_MEM_WRITE))
        return WEFT_ERR_UNSUPPORTED;
    weft_status_t st = weft__request_name(req);
    if (st == WEFT_OK) st = lane->ops->bulk->bulk_put(lane, to, &req->in_flight, &token);
    if (st != WEFT_IN_PROGRESS) return st;
    struct wire_message m = put_req_message(req, req->id, to, token);
    req->kind = &weft__written_kind;
    weft__request_park(req);
    weft__link_control(req->ep->link, &m);
    return st;
}

void weft__put_stop(struct weft_request *req) {
    const struct weft_worker *worker = req->worker;
    for (uint32_t i = 0; i < worker->n_ifaces; i++)
        if (HAS_OP(worker->iface[i]->ops, bulk, put_stop))
            worker->iface[i]->ops->bulk->put_stop(worker->iface[i], &req->in_flight);
}

bool weft__put_gone(struct link *link, uint32_t id) {
    struct weft_request *req = weft__idmap_find(&link->worker->requests, id);
    if (!req || !req->ep || req->ep->link != link || req->kind != &weft__written_kind) return false;
    if (request_is_waiting(&req->core.fsm)) weft__put_stop(req);
    return true;
}

/* Whatever lane the link has by now, the copy may be another's. */
void weft__on_put_done(struct link *link, struct lane *lane, const struct wire_empty *done) {
    const struct weft_worker *worker = link->worker;
    for (uint32_t i = 0; i < worker->n_ifaces; i++)
        if (HAS_OP(worker->iface[i]->ops, bulk, put_done))
            worker->iface[i]->ops->bulk->put_done(worker->iface[i]);
}

/* ---- the sender */

struct put_req {
    struct completion over;
    struct link *link;
    struct lane *lane;
    struct weft_request *req;
    uint32_t to; /* who waits for all of it, or 0 */
};

/* If the link ends, it ends the copy first; so does the message. */
static void over(struct completion *completion, weft_status_t status) {
    struct put_req *put_req = list_of(completion, struct put_req, over);
    struct wire_message m;
    weft__wire_put_done(&m);
    if (status == WEFT_OK) weft__link_answer(put_req->link, &m);
    if (status == WEFT_ERR_CANCELLED && put_req->to && put_req->req->ep->link)
        weft__send_gone(put_req->link, put_req->to, WEFT_ERR_CANCELLED);
    put_req->req->put_req = NULL;
    talloc_free(put_req);
}

void weft__put_req_end(const struct weft_request *req) {
    if (req->put_req)
        req->put_req->lane->ops->bulk->put_req_stop(req->put_req->lane, &req->put_req->over);
}

static weft_status_t put_req_with(struct link *link, struct weft_request *req,
                                  const struct wire_put_req *asked) {
    struct lane *lane = weft__link_key_lane(link);
    struct put_req *put_req = lane && HAS_OP(lane->ops, bulk, bulk_put_req)
                                  ? weft__new(link->worker, struct put_req)
                                  : NULL;
    if (!put_req) return WEFT_ERR_UNSUPPORTED;
    *put_req = (struct put_req){.over = {.done = over, .count = 1},
                                .link = link,
                                .lane = lane,
                                .req = req,
                                .to = asked->to};
    struct lane_put_req from = {asked->token, req->iov, req->n_iov, asked->address, asked->len};
    weft_status_t st = lane->ops->bulk->bulk_put_req(lane, &from, &put_req->over);
    if (st == WEFT_IN_PROGRESS)
        req->put_req = put_req;
    else
        talloc_free(put_req);
    return st;
}

/* The memory of a message that is read is in use until its FIN. A message that is to be written
 * waits, and is in memory. */
static struct weft_request *asked_of(struct link *link, const struct wire_put_req *asked) {
    if (!asked->to) return weft__offer_of(link, asked->request);
    struct weft_request *req = weft__waiting_of(link, asked->request);
    return req && !req->layout ? req : NULL;
}

/* Of a message that is there, and asked for once: until its end, and no longer, whatever the
 * peer does then. */
void weft__on_put_req(struct link *link, struct lane *lane, const struct wire_put_req *asked) {
    struct weft_request *req = asked_of(link, asked);
    if (req && (asked->len > req->len || req->put_req)) {
        weft__ep_violation(req->ep, WEFT_ERR_PROTOCOL, "put request");
        return;
    }
    weft_status_t st = req ? put_req_with(link, req, asked) : WEFT_ERR_NOT_FOUND;
    if (st == WEFT_ERR_PROTOCOL)
        weft__link_violation(link, "put request");
    else if (st < 0 && asked->to)
        weft__send_gone(link, asked->to, WEFT_ERR_CANCELLED);
}
