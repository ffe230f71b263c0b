/* weft_ep_describe: the state of an endpoint, of its link and of its lanes. weft_worker_describe,
 * and the names of capabilities. */
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

weft_status_t weft_worker_describe_sized(size_t info_size, weft_worker_t *worker,
                                         weft_worker_info_t *info_p) {
    if (!worker || !info_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker or info_p is NULL");
    const weft_worker_t *itself = weft__worker_itself(worker);
    weft_status_t st = weft__worker_check_own(itself);
    if (st < 0) return st;
    const struct worker_driver *driver = &itself->driver;
    bool has_thread = atomic_load(&driver->has_thread);
    bool polled = has_thread && atomic_load(&driver->polled);
    const weft_worker_info_t info = {.name = worker->name ? worker->name : "",
                                     .id = itself->id,
                                     .thread_mode = driver->thread_mode,
                                     .on_loop = driver->hosted,
                                     .has_thread = has_thread,
                                     .callbacks =
                                         polled ? WEFT_CALLBACKS_POLLED : WEFT_CALLBACKS_ON_THREAD,
                                     .is_associated = itself != worker};
    weft__info_write(info_p, info_size, &info, sizeof info);
    return WEFT_OK;
}

weft_status_t weft_worker_unopened(weft_worker_t *worker, size_t index, const char **name_p,
                                   const char **why_p) {
    if (!worker || !name_p || !why_p)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "worker, name_p or why_p is NULL");
    worker = weft__worker_itself(worker);
    weft_status_t st = weft__worker_check_own(worker);
    if (st < 0) return st;
    if (index >= worker->n_unopened) return WEFT_ERR_NOT_FOUND;
    *name_p = worker->unopened[index].transport;
    *why_p = worker->unopened[index].why;
    return WEFT_OK;
}

const char *weft_capability_name(unsigned bit) {
    static const char *const names[] = {
#define CAP_NAME(id, name) name,
        TRANSPORT_CAPS(CAP_NAME)
#undef CAP_NAME
    };
    return bit < N_TRANSPORT_CAPS ? names[bit] : NULL;
}

uint64_t weft_capability(const char *name) {
    for (unsigned bit = 0; name && bit < N_TRANSPORT_CAPS; bit++)
        if (strcmp(weft_capability_name(bit), name) == 0) return UINT64_C(1) << bit;
    return 0;
}
