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

/* ---- the sender */

/* Of a message that is read: until its FIN its memory is lent, whatever becomes of it. */
void weft__on_help(struct lane *lane, const void *data, size_t len) {
    struct link *link = weft__link_of(lane, "help before hello");
    struct wire_help asked;
    if (!link) return;
    if (!weft__wire_read_help(data, len, &asked)) {
        weft__link_violation(link, "help");
        return;
    }
    struct weft_request *req = weft__offer_of(link, asked.request);
    struct lane *own = weft__switch_key_lane(link);
    if (!req || !own || !own->ops->bulk_help) return;
    if (asked.len > req->len)
        weft__ep_violation(req->ep, WEFT_ERR_PROTOCOL, "help");
    else if (own->ops->bulk_help(own, asked.token, req->iov->base, asked.address, asked.len) == WEFT_ERR_PROTOCOL)
        weft__link_violation(link, "help");
}
