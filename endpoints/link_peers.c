/* A worker's links by their peers: which one an endpoint may join, and which are each other's rivals and spares. */
#include "beat.h"
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
    return link->core.fsm.state == LINK_DIALING || link->core.fsm.state == LINK_GREETING ||
           link->core.fsm.state == LINK_UP;
}

/* One dialed by URI is a link beside: it claims to be nobody's only one, and is no rival. */
static bool is_beside(const struct link *link) {
    return link->flags & WIRE_HELLO_EXTRA;
}

/* Endpoints that survive a lane share no link with others, nor do those with other heartbeats. */
static bool suits(const struct link *link, struct link_wish wish) {
    return joinable(link) && wish.survives == !!(link->flags & WIRE_HELLO_SURVIVES) &&
           wish.heartbeat_ms == weft__beat_ms(link);
}

/* What came by a listener is dialed again by that, and is lost once it has closed; who names the worker relies on the worker alone. */
static bool lasts(const struct link *link, struct link_wish wish) {
    return !wish.survives || link->listener == 0;
}

struct link *weft__link_to_peer(struct weft_worker *worker, const struct iface *iface, uint64_t peer,
                                struct link_wish wish) {
    struct list *all = peers(worker, peer);
    for (struct list *n = all->next; n != all; n = n->next) {
        struct link *link = list_of(n, struct link, of_peer);
        bool rail = link->flags & (WIRE_HELLO_RAIL | WIRE_HELLO_LANE);
        bool by_it = weft__link_home(link) == iface || weft__link_iface(link) == iface;
        if (link->peer == peer && by_it && !rail && suits(link, wish) && lasts(link, wish)) return link;
    }
    return NULL;
}

struct link *weft__link_to_uri(struct weft_worker *worker, const char *uri, struct link_wish wish) {
    for (struct list *n = worker->links.next; n != &worker->links; n = n->next) {
        struct link *link = list_of(n, struct link, of_worker);
        if (link->uri && strcmp(link->uri, uri) == 0 && suits(link, wish)) return link;
    }
    return NULL;
}

struct link *weft__link_spare(const struct link *lost) {
    if (!joinable(lost) || is_beside(lost)) return NULL;
    struct list *all = peers(lost->worker, lost->peer);
    for (struct list *n = all->next; n != all; n = n->next) {
        struct link *link = list_of(n, struct link, of_peer);
        if (link != lost && link->peer == lost->peer && link->home == lost->home &&
            link->core.fsm.state == LINK_SPARE)
            return link;
    }
    return NULL;
}

struct link *weft__link_rival(const struct link *guest) {
    struct list *all = peers(guest->worker, guest->peer);
    for (struct list *n = all->next; n != all; n = n->next) {
        struct link *link = list_of(n, struct link, of_peer);
        if (link->peer == guest->peer && link->home == guest->home && joinable(link) && !is_beside(link))
            return link;
    }
    return NULL;
}

bool weft__link_is_too_many(const struct link *guest) {
    uint32_t n = 0;
    struct list *all = peers(guest->worker, guest->peer);
    for (struct list *at = all->next; at != all; at = at->next) {
        const struct link *link = list_of(at, struct link, of_peer);
        n += link->peer == guest->peer && !link->why && link->core.fsm.state < LINK_CLOSING;
    }
    return n > guest->worker->max_links;
}
