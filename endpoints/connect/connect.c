/* Dialing: chooses a transport by cost, joins or dials a link, and the calls weft_connect and
 * weft_connect_address. */
#include "connect.h"

#include <stdio.h>

#include <endpoints/core/cause.h>
#include <endpoints/core/lease.h>
#include <endpoints/core/worker.h>
#include <endpoints/failover/heartbeat.h>
#include <endpoints/failover/retain.h>
#include <endpoints/transfer/rails.h>

/* ---- which transport */

/* True if all its lanes are scarce and links get them by negotiation: they start on another
 * interface if possible. */
static bool is_earned(const struct weft_worker *worker, const struct iface *iface) {
    return worker->lanes && iface->attr.scarce && !iface->ops->connect_scarce;
}

static double first_cost(const struct weft_worker *worker, const struct iface *iface) {
    enum { LAST = 1000000 };
    return weft__protocol_iface_ns(&iface->attr) * (is_earned(worker, iface) ? LAST : 1);
}

struct choice {
    struct iface *iface;
    const struct address_entry *entry;
    char why[256];
};

static void note_choice(struct choice *c, const char *format, const char *name, double ns,
                        const char *why) {
    size_t used = strlen(c->why);
    snprintf(c->why + used, sizeof c->why - used, format, used ? "; " : "", name, ns, why);
}

static struct iface *iface_of(struct weft_worker *worker, const struct address_entry *entry) {
    return weft__worker_iface(worker, entry->name, entry->name_len);
}

/* Has this transport not failed the endpoint yet? */
static bool is_left(const struct weft_worker *worker, const struct iface *iface,
                    const struct tries *tries) {
    return weft__tries_has(tries, weft__worker_number(worker, iface));
}

static weft_status_t look(const struct weft_worker *worker, struct iface *iface,
                          const struct address_entry *entry, const struct tries *tries,
                          const char **why_p) {
    *why_p = "it failed to connect";
    if (!is_left(worker, iface, tries)) return WEFT_ERR_UNREACHABLE;
    *why_p = "it does not reach the peer";
    return iface->ops->reachable(iface, entry->bytes, entry->len, why_p);
}

/* Chooses the cheapest interface that reaches the peer and has not failed; `why` lists all. */
static void choose_iface(struct weft_worker *worker, const struct address *address,
                         const struct tries *tries, struct choice *choice) {
    double best = 0;
    *choice = (struct choice){0};
    for (uint32_t i = 0; i < address->n; i++) {
        const struct address_entry *entry = &address->entry[i];
        struct iface *iface = iface_of(worker, entry);
        const char *why;
        if (!iface) continue;
        double ns = weft__protocol_iface_ns(&iface->attr);
        weft_status_t st = look(worker, iface, entry, tries, &why);
        note_choice(choice, "%s%s costs %.0f ns a KiB: %s", iface->transport->name, ns,
                    st == WEFT_OK ? "reaches it" : why);
        double first = first_cost(worker, iface);
        if (st < 0 || (choice->iface && first >= best)) continue;
        choice->iface = iface;
        choice->entry = entry;
        best = first;
    }
}

/* ---- links: joined, or dialed */

/* A lane that fails only together with its peer needs no failover. */
static struct link_opts opts_of(const struct ep_start *start, const struct iface *iface) {
    return (struct link_opts){.survives =
                                  start->mode == WEFT_ERRORS_FAILOVER && weft__retain_is_for(iface),
                              .heartbeat_ms = start->heartbeat_ms};
}

/* A link with options is an extra one of its pair, as both sides may have dialed one. */
static weft_status_t make_opts(struct link *link, struct link_opts opts, const void *address,
                               size_t len) {
    weft_status_t st = WEFT_OK;
    if (opts.survives || opts.heartbeat_ms) link->flags |= WIRE_HELLO_EXTRA;
    if (opts.heartbeat_ms) st = weft__heartbeat_new(link, opts.heartbeat_ms);
    if (st == WEFT_OK && opts.survives) {
        link->flags |= WIRE_HELLO_SURVIVES;
        st = weft__retain_begin(link, address, len);
    }
    if (st < 0) weft__link_close(link);
    return st;
}

/* Does an interface that costs less than this, and has not failed, reach the peer? */
static bool is_beaten(struct weft_worker *worker, const struct address *address,
                      const struct tries *tries, double cost) {
    for (uint32_t i = 0; i < address->n; i++) {
        const struct address_entry *entry = &address->entry[i];
        struct iface *iface = iface_of(worker, entry);
        const char *why;
        if (iface && first_cost(worker, iface) < cost &&
            look(worker, iface, entry, tries, &why) == WEFT_OK)
            return true;
    }
    return false;
}

/* The existing link over the cheapest interface that reaches the peer: a link has shown that its
 * own does, which may take system calls to ask. NULL: none. */
static struct link *cheapest_link(struct weft_worker *worker, const struct address *address,
                                  const struct ep_start *start) {
    struct link *found = NULL;
    double best = 0;
    for (uint32_t i = 0; i < address->n; i++) {
        struct iface *iface = iface_of(worker, &address->entry[i]);
        if (!iface || !is_left(worker, iface, &start->tries)) continue;
        double cost = first_cost(worker, iface);
        if (found && cost >= best) continue;
        struct link *link =
            weft__link_to_peer(worker, iface, address->worker, opts_of(start, iface));
        if (!link) continue;
        found = link;
        best = cost;
    }
    return found && !is_beaten(worker, address, &start->tries, best) ? found : NULL;
}

static weft_status_t dial_choice(struct weft_worker *worker, uint64_t peer,
                                 const struct choice *choice, const struct ep_start *start,
                                 struct link **link_p) {
    const struct address_entry *to = choice->entry;
    struct link_opts opts = opts_of(start, choice->iface);
    struct lane *lane;
    *link_p = weft__link_to_peer(worker, choice->iface, peer, opts);
    if (*link_p) return WEFT_OK;
    weft_status_t st = choice->iface->ops->connect(choice->iface, to->bytes, to->len, &lane);
    if (st < 0) return st;
    st = weft__link_dial(worker, lane, peer, NULL, choice->why, link_p);
    if (st == WEFT_OK) st = make_opts(*link_p, opts, to->bytes, to->len);
    if (st < 0 || opts.survives) return st;
    weft__rails_dialed(*link_p, to->bytes, to->len);
    return WEFT_OK;
}

/* Notes that a call to connect by this transport failed with the status. */
static void note_failure(struct weft_worker *worker, struct tries *tries, const struct iface *iface,
                         weft_status_t status) {
    char why[CAUSE_ROOM], text[CAUSE_ROOM + 64];
    if (!weft__causes_line(status, why, sizeof why))
        snprintf(why, sizeof why, "%s", weft_status_sentence(status));
    snprintf(text, sizeof text, "connection by %s: %s", iface->transport->name, why);
    struct cause *cause = weft__cause_new(worker, status, text);
    weft__tries_add(worker, tries, status, cause);
    weft__cause_drop(cause);
    weft__tries_leave(tries, weft__worker_number(worker, iface));
}

/* No transport is left: the error is that of the last one tried, and names all of them. */
static weft_status_t none_left(const struct tries *tries, const char *why) {
    weft_status_t status = (int)tries->status;
    if (status == WEFT_OK)
        return weft__fail(WEFT_ERR_UNREACHABLE, "%s",
                          *why ? why : "the two workers have no transport in common");
    weft__cause_note(status, tries->why);
    return status;
}

/* Bits of the worker's transports that the address names. */
static uint16_t in_common(struct weft_worker *worker, const struct address *address) {
    uint16_t bits = 0;
    for (uint32_t i = 0; i < address->n; i++) {
        const struct iface *iface = iface_of(worker, &address->entry[i]);
        if (iface) bits |= (uint16_t)(1u << weft__worker_number(worker, iface));
    }
    return bits;
}

/* By the cheapest transport that reaches the peer; where a call to connect fails, by the next. */
static weft_status_t link_to_address(struct weft_worker *worker, const void *bytes, size_t len,
                                     struct ep_start *start, struct link **link_p) {
    struct address address;
    struct choice choice;
    weft_status_t st = weft__address_read(bytes, len, &address);
    if (st < 0) return st;
    start->lease = address.lease;
    start->tries.left &= in_common(worker, &address);
    *link_p = cheapest_link(worker, &address, start);
    if (*link_p) return WEFT_OK;

    for (;;) {
        choose_iface(worker, &address, &start->tries, &choice);
        if (!choice.iface) return none_left(&start->tries, choice.why);
        st = dial_choice(worker, address.worker, &choice, start, link_p);
        if (st == WEFT_OK) return WEFT_OK;
        note_failure(worker, &start->tries, choice.iface, st);
        if (!weft__tries_goes_on(st)) return none_left(&start->tries, choice.why);
    }
}

static weft_status_t unknown_scheme(const char *uri, int len) {
    char known[100];
    weft__schemes(known, sizeof known);
    return weft__fail(WEFT_ERR_UNSUPPORTED,
                      "'%.*s' of '%s' is no scheme of this build, whose schemes are %s", len, uri,
                      uri, known);
}

weft_status_t weft__uri_read(struct weft_worker *worker, const char *uri, struct iface **iface_p,
                             const char **where_p) {
    const char *colon = strstr(uri, "://");
    if (!colon || colon == uri)
        return weft__fail(WEFT_ERR_ADDRESS, "'%s' is not a URI (scheme://address)", uri);
    size_t len = (size_t)(colon - uri);
    *iface_p = weft__worker_scheme(worker, uri, len);
    if (!*iface_p && !weft__scheme_is_known(uri, len)) return unknown_scheme(uri, (int)len);
    if (!*iface_p)
        return weft__fail(WEFT_ERR_UNSUPPORTED, "this worker has not opened the transport of '%s'",
                          uri);
    *where_p = colon + 3;
    return WEFT_OK;
}

/* "tcp://@FD": its number names another socket later, so it is dialed once and not shared. */
static bool names_descriptor(const char *uri) {
    const char *colon = strstr(uri, "://");
    return colon && colon[3] == '@';
}

static bool may_be_dialed_again(const char *to, size_t len) {
    return len > 0 || (*to && !names_descriptor(to));
}

static weft_status_t dial_uri(struct weft_worker *worker, const char *uri, struct iface *iface,
                              const char *where, struct link_opts opts, struct link **link_p) {
    struct lane *lane;
    if (!iface->ops->connect_uri)
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "the transport of '%s' does not support connecting by URI", uri);
    weft_status_t st = iface->ops->connect_uri(iface, where, &lane);
    if (st < 0) return st;
    st = weft__link_dial(worker, lane, 0, uri, "the URI names it", link_p);
    if (st == WEFT_OK && names_descriptor(uri)) weft__link_forget_uri(*link_p);
    return st == WEFT_OK ? make_opts(*link_p, opts, NULL, 0) : st;
}

static weft_status_t link_to_uri(struct weft_worker *worker, const char *uri,
                                 struct ep_start *start, struct link **link_p) {
    struct iface *iface = NULL;
    const char *where = NULL;
    weft_status_t st = weft__uri_read(worker, uri, &iface, &where);
    if (st < 0) return st;
    struct link_opts opts = opts_of(start, iface);
    *link_p = names_descriptor(uri) ? NULL : weft__link_to_uri(worker, uri, opts);
    if (*link_p) return WEFT_OK;
    st = dial_uri(worker, uri, iface, where, opts, link_p);
    if (st < 0) note_failure(worker, &start->tries, iface, st);
    return st;
}

static weft_status_t dial_ep(struct weft_ep *ep) {
    struct link *link;
    struct ep_start *start = ep->start;
    weft_status_t st = start->dial_len
                           ? link_to_address(ep->worker, start->dial, start->dial_len, start, &link)
                           : link_to_uri(ep->worker, start->dial, start, &link);
    if (st == WEFT_OK) weft__link_join(link, ep);
    return st;
}

/* ---- the public calls */

static weft_status_t check_params(const struct weft_worker *worker,
                                  const weft_ep_params_t *params) {
    weft_status_t st = weft__worker_check(worker);
    if (st < 0) return st;
    if ((unsigned)params->error_mode > WEFT_ERRORS_FAILOVER)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "error_mode is %d", (int)params->error_mode);
    if (params->heartbeat_ms && params->heartbeat_ms < HEARTBEAT_LEAST_MS)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "heartbeat_ms is below %d", HEARTBEAT_LEAST_MS);
    return worker_is_open(&worker->core.fsm) ? WEFT_OK : weft__worker_refuse(worker);
}

static weft_status_t keep_start(struct weft_ep *ep, const void *to, size_t len,
                                const weft_ep_params_t *params) {
    size_t room = len ? len : strlen(to) + 1;
    ep->start = weft__alloc(ep->worker, sizeof *ep->start + room, "endpoint's start");
    if (!ep->start) return WEFT_ERR_NO_MEMORY;
    ep->start->ep = ep;
    weft__tries_begin(&ep->start->tries);
    ep->start->notified = params->on_ready;
    ep->start->redial = may_be_dialed_again(to, len) ? dial_ep : NULL;
    ep->start->arg = params->arg;
    ep->start->dial_len = len;
    ep->start->mode = params->error_mode;
    ep->start->heartbeat_ms = params->heartbeat_ms;
    ep->start->lease = 0;
    memcpy(ep->start->dial, to, room);
    return WEFT_OK;
}

static weft_status_t bound_start(struct weft_ep *ep, uint64_t ms) {
    struct reactor *r = ep->worker->reactor;
    if (!ms) ms = weft__setting_u64(ep->worker->context, SETTING_CONNECT_TIMEOUT);
    return weft__timer_start(r, &ep->timer, weft__now(r) + ms * NS_PER_MS);
}

weft_status_t weft__ep_connect(struct weft_ep *ep, const void *to, size_t len,
                               const weft_ep_params_t *params) {
    ep->on_error = params->error_mode == WEFT_ERRORS_NONE ? NULL : params->on_error;
    ep->arg = params->arg;
    weft_status_t st = keep_start(ep, to, len, params);
    if (st == WEFT_OK) st = bound_start(ep, params->connect_timeout_ms);
    if (st == WEFT_OK) st = dial_ep(ep);
    if (st < 0) return st;
    weft__fsm_step(&ep->core.fsm, EP_EV_CONNECT);
    weft__ep_dialed(ep);
    return WEFT_OK;
}

/* As dial_ep, with a link that exists. */
static weft_status_t connect_by(struct weft_ep *ep, struct link *link,
                                const weft_ep_params_t *params) {
    ep->on_error = params->on_error;
    ep->arg = params->arg;
    weft_status_t st = keep_start(ep, "", 0, params);
    if (st == WEFT_OK) st = bound_start(ep, params->connect_timeout_ms);
    if (st < 0) return st;
    weft__link_join(link, ep);
    weft__fsm_step(&ep->core.fsm, EP_EV_CONNECT);
    weft__ep_dialed(ep);
    return WEFT_OK;
}

/* It did not connect: it is without a resource, as before. */
static void part_stub(struct stub *stub) {
    struct weft_ep *ep = stub->object;
    weft__ep_leave_worker(ep);
    weft__ep_stub_rest(stub, atomic_load(&stub->status));
}

weft_status_t weft__ep_stub_connect(struct stub *stub, const weft_ep_t *beside) {
    struct weft_ep *ep = stub->object;
    if (!beside->link)
        return weft__fail(WEFT_ERR_RESOURCE_LOST, "the endpoint has lost its connection");
    weft_status_t st = weft__ep_stub_join(stub);
    if (st < 0) return st;
    st = connect_by(ep, beside->link, stub->params);
    if (st < 0) part_stub(stub);
    return st;
}

weft_status_t weft__ep_stub_dial(struct stub *stub, const char *uri) {
    struct weft_ep *ep = stub->object;
    weft_status_t st = weft__ep_stub_join(stub);
    if (st < 0) return st;
    st = weft__ep_connect(ep, uri, 0, stub->params);
    if (st < 0)
        part_stub(stub);
    else
        ep->link->given = true;
    return st;
}

static weft_status_t connect_ep(struct weft_worker *worker, const void *to, size_t len,
                                const weft_ep_params_t *params, weft_ep_t **ep_p) {
    struct weft_ep *ep;
    const struct lease *lease = worker->lease;
    worker = weft__worker_itself(worker);
    weft_status_t st = check_params(worker, params);
    if (st == WEFT_OK) st = weft__ep_new(worker, &ep);
    if (st < 0) return st;
    if (lease) weft__ep_hold_lease(ep, lease);

    st = weft__ep_connect(ep, to, len, params);
    if (st < 0)
        weft__ep_forget(ep);
    else
        *ep_p = ep;
    return st;
}

static weft_status_t stub_of(weft_worker_t *worker, const void *to, const weft_ep_params_t *params,
                             weft_ep_t **ep_p) {
    if (to) return weft__fail(WEFT_ERR_INVALID_PARAM, "an address is set, in associated mode");
    return weft__ep_stub(worker, params, ep_p);
}

weft_status_t weft_connect_sized(size_t params_size, weft_worker_t *worker, const char *uri,
                                 const weft_ep_params_t *params, weft_ep_t **ep_p) {
    weft_ep_params_t p;
    weft_status_t st = weft__params_read(&p, sizeof p, params, params_size);
    if (st < 0) return st;
    if (!worker || (!uri && !p.associated) || !ep_p)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "worker, uri or ep_p is NULL");
    if (p.associated) return stub_of(worker, uri, &p, ep_p);
    return connect_ep(worker, uri, 0, &p, ep_p);
}

weft_status_t weft_connect_address_sized(size_t params_size, weft_worker_t *worker,
                                         const void *address, size_t len,
                                         const weft_ep_params_t *params, weft_ep_t **ep_p) {
    weft_ep_params_t p;
    weft_status_t st = weft__params_read(&p, sizeof p, params, params_size);
    if (st < 0) return st;
    if (!worker || (!address && !p.associated) || !ep_p)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "worker, address or ep_p is NULL");
    if (p.associated) return stub_of(worker, address, &p, ep_p);
    if (len == 0) return weft__fail(WEFT_ERR_ADDRESS, "len is 0");
    return connect_ep(worker, address, len, &p, ep_p);
}

weft_status_t weft_ep_is_connected(const weft_ep_t *ep, const void *address, size_t len) {
    struct address to;
    if (!ep || !address) return weft__fail(WEFT_ERR_INVALID_PARAM, "ep or address is NULL");
    weft_status_t st = weft__worker_check(ep->worker);
    if (st == WEFT_OK) st = weft__address_read(address, len, &to);
    if (st != WEFT_OK) return st;
    const struct link *link = ep->link;
    if (!link || link->peer != to.worker || link_is_over(&link->core.fsm))
        return WEFT_ERR_NOT_FOUND;
    if (ep_is_connecting(&ep->core.fsm)) return WEFT_IN_PROGRESS;
    return ep->core.peer ? WEFT_OK : WEFT_ERR_NOT_FOUND; /* its half has gone */
}

weft_status_t weft_ep_has_room(const weft_ep_t *ep) {
    if (!ep) return weft__fail(WEFT_ERR_INVALID_PARAM, "ep is NULL");
    weft_status_t st = weft__worker_check(ep->worker);
    if (st < 0) return st;
    if (ep->refuses) return ep->status < 0 ? ep->status : WEFT_ERR_CLOSED;
    bool waits = !ep->ready || ep->link->tx != ep->link->lane || !list_empty(&ep->link->backlog);
    return waits ? WEFT_IN_PROGRESS : WEFT_OK;
}
