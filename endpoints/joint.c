#include "joint.h"

#include "loan.h"
#include "rendezvous.h"
#include "switch.h"
#include "worker.h"

/* ---- the receiver */

weft_status_t weft__joint_get(struct weft_request *req, struct lane *lane, const weft_iov_t *to) {
    struct link *link = req->ep->link;
    struct wire_message m;
    uint64_t token;
    if (!lane->ops->bulk_joint || to->len < lane->iface->attr.joint_from ||
        !weft__loan_stands(req->ep, to->base, to->len, WEFT_MEM_WRITE))
        return WEFT_ERR_UNSUPPORTED;
    weft_status_t st = lane->ops->bulk_joint(lane, req->remote, to, &req->lent, &token);
    if (st != WEFT_IN_PROGRESS) return WEFT_ERR_UNSUPPORTED;
    weft__wire_help(
        &m, (struct wire_help){
                .request = req->peer_id, .token = token, .address = (uint64_t)(uintptr_t)to->base, .len = to->len});
    (void)weft__link_say(link, link->tx, &m); /* without it, this side copies all */
    return st;
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
};

/* If the link ends, it ends the copy first; so does the message. */
static void over(struct completion *completion, weft_status_t status) {
    struct help *help = list_of(completion, struct help, over);
    struct wire_message m;
    weft__wire_helped(&m);
    if (status == WEFT_OK) weft__link_control(help->link, &m);
    help->req->help = NULL;
    talloc_free(help);
}

void weft__help_end(const struct weft_request *req) {
    if (req->help) req->help->lane->ops->help_stop(req->help->lane, &req->help->over);
}

static void help_with(struct link *link, struct weft_request *req, const struct wire_help *asked) {
    struct lane *lane = weft__switch_key_lane(link);
    struct help *help = lane && lane->ops->bulk_help ? weft__new(link->worker, struct help) : NULL;
    if (!help) return;
    *help = (struct help){.over = {.done = over, .count = 1}, .link = link, .lane = lane, .req = req};
    weft_status_t st =
        lane->ops->bulk_help(lane, asked->token, req->iov->base, asked->address, asked->len, &help->over);
    if (st == WEFT_IN_PROGRESS)
        req->help = help;
    else
        talloc_free(help);
    if (st == WEFT_ERR_PROTOCOL) weft__link_violation(link, "help");
}

/* Of a message that is read, and asked for once: until its FIN its memory is lent, and no longer, whatever the peer does then. */
void weft__on_help(struct lane *lane, const void *data, size_t len) {
    struct link *link = weft__link_of(lane, "help before hello");
    struct wire_help asked;
    if (!link) return;
    if (!weft__wire_read_help(data, len, &asked)) {
        weft__link_violation(link, "help");
        return;
    }
    struct weft_request *req = weft__offer_of(link, asked.request);
    if (req && (asked.len > req->len || req->help))
        weft__ep_violation(req->ep, WEFT_ERR_PROTOCOL, "help");
    else if (req)
        help_with(link, req, &asked);
}
