#include <stdio.h>

#include "ep.h"
#include "worker.h"

weft_status_t weft_ep_describe(weft_ep_t *ep, weft_ep_info_t *info_p) {
    if (!ep || !info_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "ep or info_p is NULL");
    weft_ep_info_t info = {.state = fsm_state_name(&ep->core.fsm), .transport = "none", .why = "it has no lane"};
    struct link *link = ep->link;
    if (link) {
        info.transport = link->iface->transport->name;
        info.why = link->why ? link->why : "the peer chose it";
        info.peer_worker = link->peer;
        info.n_lanes = link->n_lanes;
        info.n_endpoints = link->n_endpoints;
        info.sent = link->sent;
        info.received = link->received;
        link->lane->ops->describe(link->lane, info.peer, sizeof info.peer);
    }
    *info_p = info;
    return WEFT_OK;
}
