#include "connect.h"

#include <stdio.h>

#include "beat.h"
#include "rails.h"
#include "retain.h"
#include "worker.h"

/* ---- which transport */

double weft__connect_cost(const struct iface_attr *attr) {
    return attr->latency_ns + attr->overhead_ns + (attr->bandwidth > 0 ? 1024e9 / attr->bandwidth : 0);
}

/* All of its lanes are scarce, and where links earn those they begin on another, if one is there. */
static bool is_earned(const struct weft_worker *worker, const struct iface *iface) {
    return worker->lanes && iface->attr.scarce && !iface->ops->connect_scarce;
}

static double first_cost(const struct weft_worker *worker, const struct iface *iface) {
    enum { LAST = 1000000 };
    return weft__connect_cost(&iface->attr) * (is_earned(worker, iface) ? LAST : 1);
}

struct choice {
    struct iface *iface;
    const struct address_entry *entry;
    char why[256];
};

static void note(struct choice *c, const char *format, const char *name, double ns, const char *why) {
    size_t used = strlen(c->why);
    snprintf(c->why + used, sizeof c->why - used, format, used ? "; " : "", name, ns, why);
}

/* The cheapest of those that reach it; `why` tells of all. */
static void choose(struct weft_worker *worker, const struct address *address, struct choice *choice) {
    double best = 0;
    *choice = (struct choice){0};
    for (uint32_t i = 0; i < address->n; i++) {
        const struct address_entry *entry = &address->entry[i];
        struct iface *iface = weft__worker_iface(worker, entry->name, entry->name_len);
        const char *why = "it reaches the peer";
        if (!iface) continue;
        double ns = weft__connect_cost(&iface->attr);
        weft_status_t st = iface->ops->reachable(iface, entry->bytes, entry->len, &why);
        note(choice, "%s%s costs %.0f ns a KiB: %s", iface->transport->name, ns,
             st == WEFT_OK ? "reaches it" : why);
        double first = first_cost(worker, iface);
        if (st < 0 || (choice->iface && first >= best)) continue;
        choice->iface = iface;
        choice->entry = entry;
        best = first;
    }
}

/* ---- links: joined, or dialed */

/* Where lanes die with their peer only, there is nothing to survive. */
static struct link_wish wish_of(const struct ep_start *start, const struct iface *iface) {
    return (struct link_wish){.survives = start->mode == WEFT_ERRORS_FAILOVER && weft__retain_is_for(iface),
                              .heartbeat_ms = start->heartbeat_ms};
}

/* A link with a wish claims to be nobody's only one, and is no rival: both sides may have dialed one. */
static weft_status_t make_wish(struct link *link, struct link_wish wish, const void *address, size_t len) {
    weft_status_t st = WEFT_OK;
    if (wish.survives || wish.heartbeat_ms) link->flags |= WIRE_HELLO_EXTRA;
    if (wish.heartbeat_ms) st = weft__beat_wish(link, wish.heartbeat_ms);
    if (st == WEFT_OK && wish.survives) {
        link->flags |= WIRE_HELLO_SURVIVES;
        st = weft__retain_begin(link, address, len);
    }
    if (st < 0) weft__link_close(link);
    return st;
}

/* The link over the cheapest transport in common, if it is there: then nobody need be asked who reaches the peer. */
static struct link *cheapest_link(struct weft_worker *worker, const struct address *address,
                                  const struct ep_start *start) {
    struct iface *best = NULL;
    for (uint32_t i = 0; i < address->n; i++) {
        const struct address_entry *entry = &address->entry[i];
        struct iface *iface = weft__worker_iface(worker, entry->name, entry->name_len);
        if (iface && (!best || first_cost(worker, iface) < first_cost(worker, best))) best = iface;
    }
    return best ? weft__link_to_peer(worker, best, address->worker, wish_of(start, best)) : NULL;
}

static weft_status_t link_to_address(struct weft_worker *worker, const void *bytes, size_t len,
                                     const struct ep_start *start, struct link **link_p) {
    struct address address;
    struct choice choice;
    struct lane *lane;
    weft_status_t st = weft__address_read(bytes, len, &address);
    if (st < 0) return st;
    *link_p = cheapest_link(worker, &address, start);
    if (*link_p) return WEFT_OK;

    choose(worker, &address, &choice);
    if (!choice.iface)
        return weft__fail(WEFT_ERR_UNREACHABLE, "%s", choice.why[0] ? choice.why : "no transport in common");

    struct link_wish wish = wish_of(start, choice.iface);
    *link_p = weft__link_to_peer(worker, choice.iface, address.worker, wish);
    if (*link_p) return WEFT_OK;
    st = choice.iface->ops->connect(choice.iface, choice.entry->bytes, choice.entry->len, &lane);
    if (st < 0) return st;
    st = weft__link_dial(worker, lane, address.worker, NULL, choice.why, link_p);
    if (st == WEFT_OK) st = make_wish(*link_p, wish, choice.entry->bytes, choice.entry->len);
    if (st < 0 || wish.survives) return st;
    weft__rails_dialed(*link_p, choice.entry->bytes, choice.entry->len);
    return WEFT_OK;
}

weft_status_t weft__uri_read(struct weft_worker *worker, const char *uri, struct iface **iface_p,
                             const char **where_p) {
    const char *colon = strstr(uri, "://");
    if (!colon || colon == uri) return weft__fail(WEFT_ERR_ADDRESS, "'%s' is no URI", uri);
    *iface_p = weft__worker_scheme(worker, uri, (size_t)(colon - uri));
    if (!*iface_p) return weft__fail(WEFT_ERR_UNSUPPORTED, "no transport here for '%s'", uri);
    *where_p = colon + 3;
    return WEFT_OK;
}

static weft_status_t link_to_uri(struct weft_worker *worker, const char *uri, const struct ep_start *start,
                                 struct link **link_p) {
    struct iface *iface = NULL;
    const char *where = NULL;
    struct lane *lane;
    weft_status_t st = weft__uri_read(worker, uri, &iface, &where);
    if (st < 0) return st;
    struct link_wish wish = wish_of(start, iface);
    *link_p = weft__link_to_uri(worker, uri, wish);
    if (*link_p) return WEFT_OK;
    if (!iface->ops->connect_uri) return weft__fail(WEFT_ERR_UNSUPPORTED, "'%s': no connections by URI", uri);
    st = iface->ops->connect_uri(iface, where, &lane);
    if (st < 0) return st;
    st = weft__link_dial(worker, lane, 0, uri, "the URI names it", link_p);
    return st == WEFT_OK ? make_wish(*link_p, wish, NULL, 0) : st;
}

static weft_status_t dial(struct weft_ep *ep) {
    struct link *link;
    const struct ep_start *start = ep->start;
    weft_status_t st = start->dial_len ? link_to_address(ep->worker, start->dial, start->dial_len, start, &link)
                                       : link_to_uri(ep->worker, start->dial, start, &link);
    if (st == WEFT_OK) weft__link_join(link, ep);
    return st;
}

weft_status_t weft__ep_redial(struct weft_ep *ep) {
    return ep->start ? dial(ep) : WEFT_ERR_CLOSED;
}

void weft__ep_dialed(struct weft_ep *ep) {
    if (ep->link->core.fsm.state == LINK_UP) weft__ep_link_up(ep);
}

/* ---- the public calls */

static weft_status_t check(const struct weft_worker *worker, const weft_ep_params_t *params) {
    weft_status_t st = weft__worker_check(worker);
    if (st < 0) return st;
    if ((unsigned)params->error_mode > WEFT_ERRORS_FAILOVER)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "error_mode is %d", (int)params->error_mode);
    if (params->heartbeat_ms && params->heartbeat_ms < BEAT_LEAST_MS)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "heartbeat_ms is less than %d", BEAT_LEAST_MS);
    return worker->core.fsm.state == WORKER_OPEN ? WEFT_OK : weft__fail(WEFT_ERR_CLOSED, "the worker is closing");
}

static weft_status_t keep_start(struct weft_ep *ep, const void *to, size_t len, const weft_ep_params_t *params) {
    size_t room = len ? len : strlen(to) + 1;
    ep->start = weft__alloc(ep->worker, sizeof *ep->start + room, "endpoint's start");
    if (!ep->start) return WEFT_ERR_NO_MEMORY;
    ep->start->told = params->on_ready;
    ep->start->arg = params->arg;
    ep->start->dial_len = len;
    ep->start->mode = params->error_mode;
    ep->start->heartbeat_ms = params->heartbeat_ms;
    memcpy(ep->start->dial, to, room);
    return WEFT_OK;
}

static weft_status_t bound_start(struct weft_ep *ep, uint64_t ms) {
    struct reactor *r = ep->worker->reactor;
    if (!ms) ms = weft__setting_u64(ep->worker->context, SETTING_CONNECT_TIMEOUT);
    return weft__timer_start(r, &ep->timer, weft__now(r) + ms * NS_PER_MS);
}

static weft_status_t connect_ep(struct weft_worker *worker, const void *to, size_t len,
                                const weft_ep_params_t *params, weft_ep_t **ep_p) {
    struct weft_ep *ep;
    weft_status_t st = check(worker, params);
    if (st == WEFT_OK) st = weft__ep_new(worker, &ep);
    if (st < 0) return st;

    ep->on_error = params->error_mode == WEFT_ERRORS_NONE ? NULL : params->on_error;
    ep->arg = params->arg;
    st = keep_start(ep, to, len, params);
    if (st == WEFT_OK) st = bound_start(ep, params->connect_timeout_ms);
    if (st == WEFT_OK) st = dial(ep);
    if (st < 0) {
        weft__ep_forget(ep);
        return st;
    }

    fsm_step(&ep->core.fsm, EP_EV_CONNECT);
    weft__ep_dialed(ep);
    *ep_p = ep;
    return WEFT_OK;
}

weft_status_t weft_connect_sized(size_t params_size, weft_worker_t *worker, const char *uri,
                                 const weft_ep_params_t *params, weft_ep_t **ep_p) {
    weft_ep_params_t p;
    if (!worker || !uri || !ep_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker, uri or ep_p is NULL");
    weft_status_t st = weft__params_read(&p, sizeof p, params, params_size);
    return st < 0 ? st : connect_ep(worker, uri, 0, &p, ep_p);
}

weft_status_t weft_connect_address_sized(size_t params_size, weft_worker_t *worker, const void *address, size_t len,
                                         const weft_ep_params_t *params, weft_ep_t **ep_p) {
    weft_ep_params_t p;
    if (!worker || !address || !ep_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker, address or ep_p is NULL");
    if (len == 0) return weft__fail(WEFT_ERR_ADDRESS, "len is 0");
    weft_status_t st = weft__params_read(&p, sizeof p, params, params_size);
    return st < 0 ? st : connect_ep(worker, address, len, &p, ep_p);
}

weft_status_t weft_ep_is_connected(const weft_ep_t *ep, const void *address, size_t len) {
    struct address to;
    if (!ep || !address) return weft__fail(WEFT_ERR_INVALID_PARAM, "ep or address is NULL");
    weft_status_t st = weft__worker_check(ep->worker);
    if (st == WEFT_OK) st = weft__address_read(address, len, &to);
    if (st != WEFT_OK) return st;
    const struct link *link = ep->link;
    if (!link || link->peer != to.worker || link->core.fsm.state >= LINK_CLOSING) return WEFT_ERR_NOT_FOUND;
    return ep->core.fsm.state == EP_READY ? WEFT_OK : WEFT_IN_PROGRESS;
}
