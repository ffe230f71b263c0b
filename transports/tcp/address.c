/*
 * The worker's address lists the socket addresses where it listens ("tcp.bind", then "tcp.rails").
 * Rail n dials the peer's nth address from this side's nth address.
 */
#define _GNU_SOURCE
#include "tcp.h"

#include <string.h>

static struct tcp_iface *tcp_iface(struct iface *iface) {
    return (struct tcp_iface *)iface;
}

/* ---- ours ------------------------------------------------------------------------------------ */

/* A host, with a port of the kernel's choice, or host:port. */
static weft_status_t read_where(const char *setting, const char *text, size_t len,
                                struct tcp_where *where) {
    union tcp_sockaddr ignored;
    struct tcp_where host = {0};
    if (len > 0 && len < sizeof host.host) memcpy(host.host, text, len);
    if (!memchr(text, ':', len) || weft__tcp_host_numeric(host.host, 0, &ignored)) {
        if (!host.host[0])
            return weft__fail(WEFT_ERR_ADDRESS,
                              "%s: \"%s\" is neither an address nor an interface of this host",
                              setting, text);
        *where = host;
        return WEFT_OK;
    }
    return weft__tcp_where_parse(text, len, where);
}

/* The `nth` word of "tcp.rails", counted from 1: as above, or an interface's name. UNSUPPORTED:
 * there is none. */
static weft_status_t read_rail(weft_context_t *context, unsigned nth, struct tcp_where *where) {
    const char *text = weft__setting_str(context, SETTING_TCP_RAILS);
    size_t len;
    for (;; text += len) {
        text += strspn(text, ", ");
        len = strcspn(text, ", ");
        if (len == 0) return WEFT_ERR_UNSUPPORTED;
        if (--nth == 0) break;
    }
    weft_status_t st = read_where("tcp.rails", text, len, where);
    union tcp_sockaddr at;
    if (st < 0 || where->port || !weft__tcp_interface_address(where->host, &at)) return st;
    char name[TCP_NAME_ROOM];
    weft__tcp_sockaddr_text(&at, name, sizeof name); /* its port is 0 */
    return weft__tcp_where_parse(name, strlen(name), where);
}

static weft_status_t open_first(struct tcp_iface *iface, int backlog) {
    struct tcp_where where;
    const char *text =
        weft__setting_str(weft__reactor_context(iface->iface.reactor), SETTING_TCP_BIND);
    weft_status_t st = read_where("tcp.bind", text, strlen(text), &where);
    if (st == WEFT_OK)
        st = weft__tcp_listen(iface, &where, &(struct listen_how){.backlog = backlog}, NULL,
                              &iface->own[0]);
    if (st == WEFT_OK) iface->n_own = 1;
    return st;
}

/* Without one of these the others still serve. */
static void open_further(struct tcp_iface *iface, int backlog) {
    weft_context_t *context = weft__reactor_context(iface->iface.reactor);
    struct tcp_where where;
    for (unsigned nth = 1; iface->n_own < TCP_MAX_PLACES; nth++) {
        weft_status_t st = read_rail(context, nth, &where);
        if (st == WEFT_ERR_UNSUPPORTED) return;
        if (st == WEFT_OK)
            st = weft__tcp_listen(iface, &where, &(struct listen_how){.backlog = backlog}, NULL,
                                  &iface->own[iface->n_own]);
        if (st == WEFT_OK) {
            iface->n_own++;
            continue;
        }
        char why[STATUS_LINE];
        weft__status_line(st, why);
        weft__log(context, WEFT_LOG_WARN, "tcp", "tcp.rails: place %u is ignored: %s", nth, why);
    }
}

static weft_status_t open_own(struct tcp_iface *iface) {
    if (iface->n_own) return WEFT_OK;
    int backlog = (int)weft__setting_u32(weft__reactor_context(iface->iface.reactor),
                                         SETTING_LISTEN_BACKLOG, INT32_MAX);
    weft_status_t st = open_first(iface, backlog);
    if (st == WEFT_OK) open_further(iface, backlog);
    return st;
}

/* One that listens everywhere is reached by an address of this host. */
static void place_of(const struct tl_listener *l, struct tcp_place *place) {
    union tcp_sockaddr at = l->at, outward;
    if (weft__tcp_is_any(&at) && weft__tcp_outward_address(&outward)) at = outward;
    weft__tcp_sockaddr_to_place(&at, place);
    place->port = weft__tcp_sockaddr_port(&l->at);
}

/* Places that do not fit, which only IPv6 can cause, are left out. */
weft_status_t weft__tcp_own_address(struct iface *i, void *buf, size_t *len_p) {
    struct tcp_iface *iface = tcp_iface(i);
    if (*len_p < TCP_ADDRESS_SIZE)
        return weft__fail(WEFT_ERR_TRUNCATED, "a tcp address takes %d bytes", TCP_ADDRESS_SIZE);
    weft_status_t st = open_own(iface);
    if (st < 0) return st;
    struct tcp_address a = {
        .n = iface->n_own, .worker = iface->iface.worker_id, .host = iface->host_id};
    for (unsigned k = 0; k < a.n; k++) place_of(iface->own[k], &a.place[k]);
    while (weft__tcp_address_size(&a) > *len_p || weft__tcp_address_size(&a) > TCP_ADDRESS_MAX)
        a.n--;
    weft__tcp_address_encode(&a, buf);
    *len_p = weft__tcp_address_size(&a);
    return WEFT_OK;
}

/* ---- a peer's -------------------------------------------------------------------------------- */

struct peer {
    struct tcp_address address;
    union tcp_sockaddr at[TCP_MAX_PLACES]; /* those that may be reached */
    unsigned n;
};

static weft_status_t read_peer(struct iface *i, const void *bytes, size_t len, struct peer *peer,
                               const char **why_p) {
    weft_status_t st = weft__tcp_address_decode(bytes, len, &peer->address);
    *why_p = "not a tcp address that this version reads";
    if (st < 0) return st;
    bool here = peer->address.host == tcp_iface(i)->host_id;
    peer->n = 0;
    for (unsigned k = 0; k < peer->address.n; k++) {
        union tcp_sockaddr *at = &peer->at[peer->n];
        weft__tcp_place_to_sockaddr(&peer->address.place[k], at);
        if (here || !(weft__tcp_is_loopback(at) || weft__tcp_is_any(at))) peer->n++;
    }
    *why_p = peer->n ? "" : "the peer listens on the loopback of another host";
    return peer->n ? WEFT_OK : WEFT_ERR_UNREACHABLE;
}

weft_status_t weft__tcp_reachable(struct iface *i, const void *bytes, size_t len,
                                  const char **why_p) {
    struct peer peer;
    const char *why;
    weft_status_t st = read_peer(i, bytes, len, &peer, &why);
    if (why_p) *why_p = why;
    return st;
}

/* Our own place of that number, where one may get from there to here: both on loopback, or
 * neither. */
static bool leaves_by(struct tcp_iface *iface, unsigned nth, const union tcp_sockaddr *to,
                      union tcp_sockaddr *from) {
    struct tcp_where where;
    union tcp_sockaddr found[TCP_MAX_SOCKADDRS];
    size_t n = TCP_MAX_SOCKADDRS;
    if (read_rail(weft__reactor_context(iface->iface.reactor), nth, &where) < 0) return false;
    where.port = 0;
    if (weft__tcp_resolve(&where, found, &n) < 0 || found[0].any.sa_family != to->any.sa_family)
        return false;
    *from = found[0];
    return !weft__tcp_is_any(from) && weft__tcp_is_loopback(from) == weft__tcp_is_loopback(to);
}

/* Where that place does not answer, the ones after it are tried, in a circle. */
weft_status_t weft__tcp_connect_nth(struct iface *i, const void *bytes, size_t len, unsigned nth,
                                    struct lane **lane_p) {
    struct peer peer;
    union tcp_sockaddr to[TCP_MAX_PLACES], from;
    const char *why;
    weft_status_t st = read_peer(i, bytes, len, &peer, &why);
    if (st < 0) return weft__fail(st, "%s", why);
    for (unsigned k = 0; k < peer.n; k++) to[k] = peer.at[(nth + k) % peer.n];
    bool by = nth > 0 && leaves_by(tcp_iface(i), nth, &to[0], &from);
    return weft__tcp_connect(tcp_iface(i), to, peer.n, by ? &from : NULL, peer.address.worker,
                             lane_p);
}

weft_status_t weft__tcp_connect_address(struct iface *i, const void *bytes, size_t len,
                                        struct lane **lane_p) {
    return weft__tcp_connect_nth(i, bytes, len, 0, lane_p);
}
