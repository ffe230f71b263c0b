#include "joint.h"

#include "loan.h"
#include "rendezvous.h"
#include "switch.h"
#include "worker.h"

/* ---- the receiver */

static struct wire_message help_message(const struct weft_request *req, uint32_t id, const weft_iov_t *to,
                                        uint64_t token) {
    struct wire_message m;
    weft__wire_help(&m, (struct wire_help){.request = req->peer_id,
                                           .to = id,
                                           .token = token,
                                           .address = (uint64_t)(uintptr_t)to->base,
                                           .len = to->len});
    return m;
}

weft_status_t weft__joint_get(struct weft_request *req, struct lane *lane, const weft_iov_t *to) {
    struct link *link = req->ep->link;
    uint64_t token;
    if (!lane->ops->bulk_joint || to->len < lane->iface->attr.joint_from ||
        !weft__loan_stands(req->ep, to->base, to->len, WEFT_MEM_WRITE))
        return WEFT_ERR_UNSUPPORTED;
    weft_status_t st = lane->ops->bulk_joint(lane, req->remote, to, &req->lent, &token);
    if (st != WEFT_IN_PROGRESS) return WEFT_ERR_UNSUPPORTED;
    struct wire_message m = help_message(req, 0, to, token);
    (void)weft__link_say(link, link->tx, &m); /* without it, this side copies all */
    return st;
}

weft_status_t weft__joint_put(struct weft_request *req, struct lane *lane, const weft_iov_t *to) {
    uint64_t token;
    if (!lane->ops->bulk_put || lane->iface->attr.joint_from == SIZE_MAX ||
        to->len <= weft__link_limits(req->ep->link)->put ||
        !weft__loan_stands(req->ep, to->base, to->len, WEFT_MEM_WRITE))
        return WEFT_ERR_UNSUPPORTED;
    weft_status_t st = weft__request_name(req);
    if (st == WEFT_OK) st = lane->ops->bulk_put(lane, to, &req->lent, &token);
    if (st != WEFT_IN_PROGRESS) return st;
    struct wire_message m = help_message(req, req->id, to, token);
    req->kind = &weft__written_kind;
    weft__request_park(req);
    weft__link_control(req->ep->link, &m);
    return st;
}

void weft__put_stop(struct weft_request *req) {
    const struct weft_worker *worker = req->worker;
    for (uint32_t i = 0; i < worker->n_ifaces; i++)
        if (worker->iface[i]->ops->put_stop) worker->iface[i]->ops->put_stop(worker->iface[i], &req->lent);
}

bool weft__put_gone(struct link *link, uint32_t id) {
    struct weft_request *req = weft__idmap_find(&link->worker->requests, id);
    if (!req || !req->ep || req->ep->link != link || req->kind != &weft__written_kind) return false;
    if (req->core.fsm.state == REQ_WAITING) weft__put_stop(req);
    return true;
}

/* Whatever lane the link has by now, the copy may be another's. */
void weft__on_helped(struct lane *lane, const void *data, size_t len) {
    struct link *link = weft__link_of(lane, "helped before hello");
    if (!link) return;
    if (len) {
        weft__link_violation(link, "helped");
        return;
    }
    const struct weft_worker *worker = link->worker;
    for (uint32_t i = 0; i < worker->n_ifaces; i++)
        if (worker->iface[i]->ops->helped) worker->iface[i]->ops->helped(worker->iface[i]);
}

/* ---- the sender */

struct help {
    struct completion over;
    struct link *link;
    struct lane *lane;
    struct weft_request *req;
    uint32_t to; /* who waits for all of it, or 0 */
};

/* If the link ends, it ends the copy first; so does the message. */
static void over(struct completion *completion, weft_status_t status) {
    struct help *help = list_of(completion, struct help, over);
    struct wire_message m;
    weft__wire_helped(&m);
    if (status == WEFT_OK) weft__link_control(help->link, &m);
    if (status == WEFT_ERR_CANCELLED && help->to && help->req->ep->link) weft__say_gone(help->link, help->to);
    help->req->help = NULL;
    talloc_free(help);
}

void weft__help_end(const struct weft_request *req) {
    if (req->help) req->help->lane->ops->help_stop(req->help->lane, &req->help->over);
}

static weft_status_t help_with(struct link *link, struct weft_request *req, const struct wire_help *asked) {
    struct lane *lane = weft__switch_key_lane(link);
    struct help *help = lane && lane->ops->bulk_help ? weft__new(link->worker, struct help) : NULL;
    if (!help) return WEFT_ERR_UNSUPPORTED;
    *help =
        (struct help){.over = {.done = over, .count = 1}, .link = link, .lane = lane, .req = req, .to = asked->to};
    weft_status_t st =
        lane->ops->bulk_help(lane, asked->token, req->iov, req->n_iov, asked->address, asked->len, &help->over);
    if (st == WEFT_IN_PROGRESS)
        req->help = help;
    else
        talloc_free(help);
    return st;
}

/* Of a message that is read, its memory is lent until its FIN; one that is to be written waits, and lies in memory. */
static struct weft_request *asked_of(struct link *link, const struct wire_help *asked) {
    if (!asked->to) return weft__offer_of(link, asked->request);
    struct weft_request *req = weft__waiting_of(link, asked->request);
    return req && !req->layout ? req : NULL;
}

/* Of a message that is there, and asked for once: until its end, and no longer, whatever the peer does then. */
void weft__on_help(struct lane *lane, const void *data, size_t len) {
    struct link *link = weft__link_of(lane, "help before hello");
    struct wire_help asked;
    if (!link) return;
    if (!weft__wire_read_help(data, len, &asked)) {
        weft__link_violation(link, "help");
        return;
    }
    struct weft_request *req = asked_of(link, &asked);
    if (req && (asked.len > req->len || req->help)) {
        weft__ep_violation(req->ep, WEFT_ERR_PROTOCOL, "help");
        return;
    }
    weft_status_t st = req ? help_with(link, req, &asked) : WEFT_ERR_NOT_FOUND;
    if (st == WEFT_ERR_PROTOCOL)
        weft__link_violation(link, "help");
    else if (st < 0 && asked.to)
        weft__say_gone(link, asked.to);
}
