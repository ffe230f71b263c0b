/* weft_ep_describe: the state of an endpoint, of its link and of its lanes. */
#include <stdio.h>

#include "stats_page.h"
#include <base/check.h>
#include <endpoints/core/cause.h>
#include <endpoints/lanes/switch.h>
#include <endpoints/rma/rma.h>
#include <endpoints/transfer/rails.h>

static const char *before_any_key(const struct link *link) {
    struct lane *lane = weft__switch_key_lane(link);
    return lane && HAS_OP(lane->ops, rma, reach) ? lane->ops->rma->reach(lane)
                                                 : "by key, none is known yet";
}

/* How the first native key is accessed, as text. */
static const char *one_sided(const struct weft_ep *ep) {
    const struct list *keys = ep->keys;
    if (!(weft__link_iface(ep->link)->attr.caps & (CAP_PUT | CAP_GET))) return "message";
    for (struct list *n = keys ? keys->next : NULL; n && n != keys; n = n->next) {
        const struct weft_rkey *rkey = list_of(n, struct weft_rkey, of_ep);
        if (rkey->key->status == WEFT_OK && rkey->key->how) return rkey->key->how;
        if (rkey->key->lane)
            return rkey->key->how ? rkey->key->how : "message: its key is not open";
    }
    return keys && !list_empty(keys) ? "message: no key of the transport's"
                                     : before_any_key(ep->link);
}

weft_status_t weft_ep_describe_sized(size_t info_size, weft_ep_t *ep, weft_ep_info_t *info_p) {
    if (!ep || !info_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "ep or info_p is NULL");
    weft_status_t st = weft__worker_check(ep->worker);
    if (st < 0) return st;
    weft_ep_info_t info = {.state = fsm_state_name(&ep->core.fsm),
                           .transport = "none",
                           .connected_by = "none",
                           .why = "it has no lane",
                           .one_sided = "none",
                           .negotiation = "",
                           .switching = "",
                           .error = ep->cause ? ep->cause->text : ""};
    struct link *link = ep->link;
    if (link) {
        info.transport = weft__link_iface(link)->transport->name;
        info.connected_by = weft__link_home(link)->transport->name;
        info.why = link->why ? link->why : "the peer chose it";
        info.peer_worker = link->peer;
        info.n_lanes = link->n_lanes + weft__rails_count(link);
        info.n_endpoints = link->n_endpoints;
        info.sent = link->sent;
        info.received = link->received;
        info.one_sided = one_sided(ep);
        info.score = weft__link_score(link);
        info.fast = weft__link_is_fast(link);
        info.negotiation = weft__link_negotiation(link);
        info.switching = weft__link_switching(link);
        link->lane->ops->describe(link->lane, info.peer, sizeof info.peer);
    }
    weft__info_write(info_p, info_size, &info, sizeof info);
    return WEFT_OK;
}
