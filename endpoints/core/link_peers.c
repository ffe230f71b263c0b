/* Lookup of links by peer: for endpoints to join, and for duplicates and spares of a pair. */
#include "link_local.h"
#include "worker.h"

static struct list *peers(struct weft_worker *worker, uint64_t peer) {
    return &worker->peers[(peer * UINT64_C(0x9e3779b97f4a7c15) >> 32) % WORKER_PEERS];
}

void weft__link_know_peer(struct link *link, uint64_t peer) {
    link->peer = peer;
    list_remove(&link->of_peer);
    if (peer) list_append(peers(link->worker, peer), &link->of_peer);
}

static bool joinable(const struct link *link) {
    return link_is_dialed_or_up(&link->core.fsm) && !link->given;
}

/* A link dialed by URI is an extra one of its pair: it is no duplicate of others. */
static bool is_beside(const struct link *link) {
    return link->flags & WIRE_HELLO_EXTRA;
}

/* Endpoints share a link only if their failover mode and heartbeat interval agree. */
static bool suits(const struct link *link, struct link_opts opts) {
    return joinable(link) && opts.survives == !!(link->flags & WIRE_HELLO_SURVIVES) &&
           opts.heartbeat_ms == link->more->heartbeat_ms;
}

/* A link made to a listener can only resume while that listener is open, so endpoints by address
 * must not join it. */
static bool lasts(const struct link *link, struct link_opts opts) {
    return !opts.survives || link->listener == 0;
}

struct link *weft__link_to_peer(struct weft_worker *worker, const struct iface *iface,
                                uint64_t peer, struct link_opts opts) {
    struct list *all = peers(worker, peer);
    struct link *link;
    list_for_each_entry(link, all, of_peer) {
        bool rail = link->role != LINK_MAIN;
        bool by_it = weft__link_home(link) == iface || weft__link_iface(link) == iface;
        if (link->peer == peer && by_it && !rail && suits(link, opts) && lasts(link, opts))
            return link;
    }
    return NULL;
}

void weft__link_forget_uri(struct link *link) {
    talloc_free(link->uri);
    link->uri = NULL;
}

struct link *weft__link_to_uri(struct weft_worker *worker, const char *uri, struct link_opts opts) {
    struct link *link;
    list_for_each_entry(link, &worker->links, of_worker) {
        if (link->uri && strcmp(link->uri, uri) == 0 && suits(link, opts)) return link;
    }
    return NULL;
}

struct link *weft__link_standby(const struct link *lost) {
    if (!joinable(lost) || is_beside(lost)) return NULL;
    struct list *all = peers(lost->worker, lost->peer);
    struct link *link;
    list_for_each_entry(link, all, of_peer) {
        if (link != lost && link->peer == lost->peer && link->home == lost->home &&
            link_is_spare(&link->core.fsm))
            return link;
    }
    return NULL;
}

struct link *weft__link_duplicate(const struct link *accepted) {
    struct list *all = peers(accepted->worker, accepted->peer);
    struct link *link;
    list_for_each_entry(link, all, of_peer) {
        if (link->peer == accepted->peer && link->home == accepted->home && joinable(link) &&
            !is_beside(link))
            return link;
    }
    return NULL;
}

bool weft__link_is_too_many(const struct link *accepted) {
    uint32_t n = 0;
    struct list *all = peers(accepted->worker, accepted->peer);
    const struct link *link;
    list_for_each_entry(link, all, of_peer) {
        n += link->peer == accepted->peer && !link->dialed && !link_is_over(&link->core.fsm);
    }
    return n > accepted->worker->limit.links;
}
