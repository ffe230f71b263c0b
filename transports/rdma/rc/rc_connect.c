/*
 * Connecting by rdmacm. The request carries the dialer's HELLO and the reply the acceptor's; the
 * PROOF is the first message on the queue pair. Each side proves by a fresh nonce of the other that
 * it holds the key. The owner learns of an accepted lane after the proof.
 */
#include "rc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>

enum { RESOLVE_MS = 2000 };

/* ---- addresses ------------------------------------------------------------------------------- */

static weft_status_t resolve(const struct rc_iface *iface, const char *text,
                             union rd_sockaddr *to) {
    struct rc_where where;
    *to = (union rd_sockaddr){0};
    weft_status_t st = weft__rc_where_parse(text, strlen(text), &where);
    if (st < 0) return weft__fail(st, "\"%s\" is not host:port", text);
    char *zone = strchr(where.host, '%');
    if (zone) *zone++ = 0;
    if (strcmp(where.host, "*") == 0 && iface->device->ip.any.sa_family)
        *to = iface->device->ip;
    else if (inet_pton(AF_INET, where.host, &to->v4.sin_addr) == 1)
        to->any.sa_family = AF_INET;
    else if (inet_pton(AF_INET6, where.host, &to->v6.sin6_addr) == 1)
        to->any.sa_family = AF_INET6;
    else
        return weft__fail(WEFT_ERR_ADDRESS, "\"%s\": rdma takes numeric addresses", where.host);
    if (to->any.sa_family == AF_INET6 && zone) to->v6.sin6_scope_id = if_nametoindex(zone);
    if (to->any.sa_family == AF_INET)
        to->v4.sin_port = htons(where.port);
    else
        to->v6.sin6_port = htons(where.port);
    return WEFT_OK;
}

static uint16_t port_of(const union rd_sockaddr *a) {
    return ntohs(a->any.sa_family == AF_INET ? a->v4.sin_port : a->v6.sin6_port);
}

static void text_of(const union rd_sockaddr *a, char *buf, size_t size) {
    char ip[INET6_ADDRSTRLEN] = "?", zone[IF_NAMESIZE + 1] = "";
    if (a->any.sa_family == AF_INET) {
        inet_ntop(AF_INET, &a->v4.sin_addr, ip, sizeof ip);
        snprintf(buf, size, "%s:%u", ip, port_of(a));
        return;
    }
    inet_ntop(AF_INET6, &a->v6.sin6_addr, ip, sizeof ip);
    if (a->v6.sin6_scope_id && if_indextoname(a->v6.sin6_scope_id, zone + 1)) zone[0] = '%';
    snprintf(buf, size, "[%s%s]:%u", ip, zone, port_of(a));
}

/* rdmacm found a way; is it by our device? */
static bool is_ours(const struct rc_iface *iface, const struct rdma_cm_id *id) {
    return id->verbs && id->port_num == iface->device->port &&
           strcmp(ibv_get_device_name(id->verbs->device),
                  ibv_get_device_name(iface->device->context->device)) == 0;
}

static weft_status_t ensure_device(struct rc_iface *iface) {
    return iface->device ? WEFT_OK : weft__rc_iface_revive(iface);
}

/* ---- sending --------------------------------------------------------------------------------- */

static struct rdma_conn_param parameters(const struct rc_lane *lane, void *data, uint8_t len) {
    return (struct rdma_conn_param){.private_data = data,
                                    .private_data_len = len,
                                    .responder_resources = lane->reads_in,
                                    .initiator_depth = lane->reads_out,
                                    .retry_count = 7,
                                    .rnr_retry_count = 7,
                                    .srq = 1,
                                    .qp_num = lane->qp->qp_num};
}

weft_status_t weft__rc_send_request(struct rc_lane *lane) {
    uint8_t bytes[RC_HELLO_SIZE];
    weft__rc_hello_encode(&lane->hello, bytes);
    struct rdma_conn_param param = parameters(lane, bytes, sizeof bytes);
    return rdma_connect(lane->cm.id, &param) ? weft__rd_fail("rdma_connect", errno) : WEFT_OK;
}

weft_status_t weft__rc_send_answer(struct rc_lane *lane) {
    uint8_t bytes[RC_ANSWER_SIZE];
    weft__rc_answer_encode(&lane->answer, bytes);
    struct rdma_conn_param param = parameters(lane, bytes, sizeof bytes);
    return rdma_accept(lane->cm.id, &param) ? weft__rd_fail("rdma_accept", errno) : WEFT_OK;
}

static void refuse_connection(struct rdma_cm_id *id, weft_status_t why) {
    uint8_t bytes[RC_REFUSAL_SIZE];
    weft__rc_refusal_encode(why, bytes);
    rdma_reject(id, bytes, sizeof bytes);
}

/* ---- receiving ------------------------------------------------------------------------------- */

static void judge_answer(struct rc_lane *lane, const struct rdma_conn_param *sent) {
    weft_status_t st =
        weft__rc_answer_decode(sent->private_data, sent->private_data_len, &lane->answer);
    const char *what = "that is no answer";
    if (st == WEFT_OK) {
        st = weft__rc_trust_answer(lane);
        what = "it does not hold our key";
    }
    if (st < 0)
        weft__rc_lane_bad(lane, st, what);
    else
        weft__fsm_step(&lane->machine.fsm, RC_QP_EV_ANSWER);
}

void weft__rc_take_proof(struct rc_lane *lane, uint8_t kind, const uint8_t *data, size_t len) {
    if (kind == RC_PROVE && len == sizeof lane->proof && weft__trust_proof_equal(data, lane->proof))
        weft__fsm_step(&lane->machine.fsm, RC_QP_EV_PROOF);
    else
        weft__rc_lane_bad(lane, WEFT_ERR_AUTH, "it does not hold our key");
}

/* The address has no listener, or the listener gave this reason. */
static weft_status_t refusal_reason(const struct rdma_cm_event *event) {
    enum { CONSUMER = 28 };
    if (event->status != CONSUMER) return WEFT_ERR_REFUSED;
    return weft__rc_refusal_decode(event->param.conn.private_data,
                                   event->param.conn.private_data_len);
}

/* A step of rdmacm towards the peer failed. */
static weft_status_t no_route(weft_status_t why, const char *step, int error) {
    const char *hint =
        weft__lacks_room(why) ? "" : "; is the peer in a network of rdma.device (rdma.bind)?";
    return weft__fail(why, "%s: %s%s", step, strerror(error), hint);
}

static void step_noted(struct rc_lane *lane, weft_status_t why, enum rc_qp_event event) {
    weft__rc_lane_noted(lane, why);
    weft__fsm_step(&lane->machine.fsm, event);
}

static void step_why(struct rc_lane *lane, weft_status_t why, enum rc_qp_event event) {
    weft__rc_lane_why(lane, why);
    weft__fsm_step(&lane->machine.fsm, event);
}

static void resolved(struct rc_lane *lane) {
    if (!is_ours(rc_iface_of(lane), lane->cm.id)) {
        weft__log_limited(rc_context(lane), WEFT_LOG_INFO, "rdma",
                          "the route to the peer uses another device");
        step_noted(lane,
                   weft__fail(WEFT_ERR_UNREACHABLE,
                              "the route to the peer uses another device than %s (rdma.device)",
                              rc_iface_of(lane)->device->name),
                   RC_QP_EV_BROKEN);
    } else if (rdma_resolve_route(lane->cm.id, RESOLVE_MS)) {
        int error = errno;
        step_noted(lane, no_route(weft__rd_status_of_errno(error), "rdma_resolve_route", error),
                   RC_QP_EV_BROKEN);
    }
}

/* What it sent before it left is in our queue: that comes first. */
static void left(struct rc_lane *lane) {
    weft__rd_cq_drain(&rc_iface_of(lane)->cq);
    step_why(lane, WEFT_ERR_PEER_FAILED, RC_QP_EV_LEFT);
}

/* Of a connection that stood, kernels from 6.0 on say it when the peer's place on the wire is
 * not known any more. */
static void no_way(struct rc_lane *lane, const struct rdma_cm_event *event) {
    bool stood = lane->machine.notified & RC_NOTIFIED_UP;
    weft_status_t why = stood ? WEFT_ERR_PEER_FAILED : WEFT_ERR_UNREACHABLE;
    const char *step = event->event == RDMA_CM_EVENT_ADDR_ERROR    ? "rdma_resolve_addr"
                       : event->event == RDMA_CM_EVENT_ROUTE_ERROR ? "rdma_resolve_route"
                                                                   : "rdma_connect";
    int error = event->status < 0 ? -event->status : EHOSTUNREACH;
    step_noted(lane, no_route(why, step, error), RC_QP_EV_BROKEN);
}

/* A peer that leaves before its own rdmacm knows of us refuses, in rdmacm's terms, a
 * connection that stands. */
static void rc_refused(struct rc_lane *lane, const struct rdma_cm_event *event) {
    if (lane->machine.notified & RC_NOTIFIED_UP)
        left(lane);
    else
        step_why(lane, refusal_reason(event), RC_QP_EV_REFUSED);
}

static void on_event(struct rd_cm *cm, const struct rdma_cm_event *event) {
    struct rc_lane *lane = container_of(cm, struct rc_lane, cm);
    switch (event->event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED: resolved(lane); break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED: weft__fsm_step(&lane->machine.fsm, RC_QP_EV_ROUTED); break;
    case RDMA_CM_EVENT_CONNECT_RESPONSE: judge_answer(lane, &event->param.conn); break;
    case RDMA_CM_EVENT_REJECTED: rc_refused(lane, event); break;
    case RDMA_CM_EVENT_DISCONNECTED: left(lane); break;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_CONNECT_ERROR: no_way(lane, event); break;
    /* ESTABLISHED: the PROOF shows it; TIMEWAIT_EXIT; the device gets removals */
    default: break;
    }
}

/* ---- dialing --------------------------------------------------------------------------------- */

static weft_status_t dial_connection(struct rc_iface *iface, const union rd_sockaddr *to,
                                     const uint8_t *token, struct lane **lane_p) {
    struct rc_lane *lane;
    weft_status_t st = weft__rc_trust_ready(iface);
    if (st == WEFT_OK) st = weft__rc_lane_new(iface, false, &lane);
    if (st < 0) return st;
    lane->cm.event = on_event;
    lane->peer_ip = *to;
    if (token) memcpy(lane->hello.token, token, RC_TOKEN);
    st = weft__rc_trust_hello(lane);
    if (st == WEFT_OK) st = weft__rd_cm_open(iface->device, &lane->cm, RDMA_PS_TCP);
    union rd_sockaddr from = iface->device->ip, there = *to;
    bool same = from.any.sa_family == there.any.sa_family;
    if (st == WEFT_OK &&
        rdma_resolve_addr(lane->cm.id, same ? &from.any : NULL, &there.any, RESOLVE_MS))
        st = no_route(weft__rd_status_of_errno(errno), "rdma_resolve_addr", errno);
    if (st < 0) {
        weft__rc_lane_free(lane);
        return st;
    }
    *lane_p = &lane->lane;
    return WEFT_OK;
}

weft_status_t weft__rc_connect_uri(struct iface *i, const char *text, struct lane **lane_p) {
    struct rc_iface *iface = (struct rc_iface *)i;
    union rd_sockaddr to;
    weft_status_t st = ensure_device(iface);
    if (st == WEFT_OK) st = resolve(iface, text, &to);
    if (st == WEFT_OK && (port_of(&to) == 0 || text[0] == '*'))
        st = weft__fail(WEFT_ERR_ADDRESS,
                        "\"%s\" is an address to listen at, not one to connect to", text);
    return st < 0 ? st : dial_connection(iface, &to, NULL, lane_p);
}

static weft_status_t read_peer(const struct rc_iface *iface, const void *bytes, size_t len,
                               struct rc_address *peer, const char **why_p) {
    weft_status_t st = weft__rc_address_decode(bytes, len, peer);
    *why_p = "not an rdma_rc address that this version reads";
    if (st < 0) return st;
    *why_p = "the RDMA device is gone";
    if (!iface->device) return WEFT_ERR_UNREACHABLE;
    *why_p = "the peer is on another kind of link";
    if (peer->place.link != iface->device->place.link) return WEFT_ERR_UNREACHABLE;
    *why_p = "";
    return WEFT_OK;
}

weft_status_t weft__rc_reachable(struct iface *i, const void *bytes, size_t len,
                                 const char **why_p) {
    struct rc_address peer;
    const char *why;
    (void)ensure_device((struct rc_iface *)i); /* so that it is used again */
    weft_status_t st = read_peer((struct rc_iface *)i, bytes, len, &peer, &why);
    if (why_p) *why_p = why;
    return st;
}

weft_status_t weft__rc_connect_address(struct iface *i, const void *bytes, size_t len,
                                       struct lane **lane_p) {
    struct rc_iface *iface = (struct rc_iface *)i;
    struct rc_address peer;
    const char *why;
    weft_status_t st = ensure_device(iface);
    if (st < 0) return st;
    st = read_peer(iface, bytes, len, &peer, &why);
    if (st < 0) return weft__fail(st, "%s", why);
    union rd_sockaddr to = {0};
    if (peer.v6) {
        to.v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(peer.port)};
        memcpy(&to.v6.sin6_addr, peer.ip, 16);
        if (weft__rd_gid_is_link_local(peer.ip))
            to.v6.sin6_scope_id = iface->device->ip.v6.sin6_scope_id;
    } else {
        to.v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(peer.port)};
        memcpy(&to.v4.sin_addr, peer.ip, 4);
    }
    return dial_connection(iface, &to, peer.token, lane_p);
}

/* ---- listening ------------------------------------------------------------------------------- */

static weft_status_t judge_hello(const struct tl_listener *l, const struct rc_hello *hello) {
    const struct rc_iface *iface = l->iface;
    static const uint8_t none[RC_TOKEN];
    if (!weft__rc_trust_token_equal(hello->token, l->own ? iface->token : none))
        return WEFT_ERR_REFUSED;
    return hello->buffer == iface->buffer ? WEFT_OK : WEFT_ERR_REJECTED;
}

static weft_status_t let_in(struct tl_listener *l, const struct rdma_cm_event *event) {
    struct rc_iface *iface = l->iface;
    struct rc_lane *lane;
    struct rc_hello hello;
    const struct rdma_conn_param *sent = &event->param.conn;
    weft_status_t st = weft__rc_hello_decode(sent->private_data, sent->private_data_len, &hello);
    if (st == WEFT_OK) st = judge_hello(l, &hello);
    if (st == WEFT_OK && !is_ours(iface, event->id)) st = WEFT_ERR_UNREACHABLE;
    if (st == WEFT_OK) st = weft__rc_lane_new(iface, true, &lane);
    if (st < 0) return st;
    lane->listener = l;
    lane->hello = hello;
    weft__rc_lane_reads(lane, sent->responder_resources, sent->initiator_depth);
    memcpy(&lane->peer_ip, rdma_get_peer_addr(event->id),
           rdma_get_peer_addr(event->id)->sa_family == AF_INET ? sizeof lane->peer_ip.v4
                                                               : sizeof lane->peer_ip.v6);
    st = weft__rc_trust_challenge(lane);
    if (st < 0) {
        weft__rc_lane_free(lane);
        return st;
    }
    lane->cm.event = on_event;
    weft__rd_cm_adopt(&lane->cm, event->id);
    weft__fsm_step(&lane->machine.fsm, RC_QP_EV_REQUEST);
    return WEFT_OK;
}

static void listener_event(struct rd_cm *cm, const struct rdma_cm_event *event) {
    struct tl_listener *l = container_of(cm, struct tl_listener, cm);
    if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST) return;
    weft_status_t st = let_in(l, event);
    if (st == WEFT_OK) return;
    weft__log_limited(weft__reactor_context(l->iface->iface.reactor), WEFT_LOG_INFO, "rdma",
                      "%s: refused: %s", l->uri, weft_status_name(st));
    refuse_connection(event->id, st);
    rdma_destroy_id(event->id);
}

static weft_status_t bind_at(struct tl_listener *l, union rd_sockaddr *at) {
    struct rc_iface *iface = l->iface;
    weft_status_t st = weft__rd_cm_open(iface->device, &l->cm, RDMA_PS_TCP);
    if (st < 0) return st;
    if (rdma_bind_addr(l->cm.id, &at->any)) return weft__rd_fail("rdma_bind_addr", errno);
    if (!is_ours(iface, l->cm.id))
        return weft__fail(WEFT_ERR_ADDRESS, "device %s does not have that address",
                          iface->device->name);
    if (rdma_listen(l->cm.id, l->backlog)) return weft__rd_fail("rdma_listen", errno);
    if (at->any.sa_family == AF_INET)
        at->v4.sin_port = rdma_get_src_port(l->cm.id);
    else
        at->v6.sin6_port = rdma_get_src_port(l->cm.id);
    return WEFT_OK;
}

static weft_status_t listen_at(struct rc_iface *iface, union rd_sockaddr *at, int backlog,
                               void *arg, bool own, struct tl_listener **listener_p) {
    weft_status_t st = weft__rc_trust_check_listen(iface, own);
    if (st < 0) return st;
    struct tl_listener *l = weft__new(iface, struct tl_listener);
    if (!l) return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a listener");
    l->iface = iface;
    l->arg = arg;
    l->own = own;
    l->backlog = backlog;
    l->cm.event = listener_event;
    st = bind_at(l, at);
    if (st < 0) {
        weft__rd_cm_end(&l->cm);
        talloc_free(l);
        return st;
    }
    l->at = *at;
    memcpy(l->uri, "rdma://", 7);
    text_of(at, l->uri + 7, sizeof l->uri - 7);
    LIST_INSERT_HEAD(&iface->listeners, l, of_iface);
    *listener_p = l;
    return WEFT_OK;
}

weft_status_t weft__rc_listen(struct iface *i, const char *text, const struct listen_how *how,
                              void *arg, struct tl_listener **listener_p) {
    struct rc_iface *iface = (struct rc_iface *)i;
    union rd_sockaddr at;
    weft_status_t st = ensure_device(iface);
    if (st == WEFT_OK) st = resolve(iface, text, &at);
    return st < 0 ? st : listen_at(iface, &at, how->backlog, arg, false, listener_p);
}

const char *weft__rc_listener_uri(const struct tl_listener *l) {
    return l->uri;
}

/* Also closes accepted connections that the owner was not notified of yet. */
void weft__rc_listener_close(struct tl_listener *l) {
    struct rc_iface *iface = l->iface;
    struct rc_lane *lane, *next;
    for (lane = TAILQ_FIRST(&iface->lanes); lane; lane = next) {
        next = TAILQ_NEXT(lane, of_iface);
        if (lane->listener != l) continue;
        weft__rc_lane_end(lane);
    }
    weft__rd_cm_end(&l->cm);
    if (iface->own == l) iface->own = NULL;
    LIST_REMOVE(l, of_iface);
    weft__free_later(iface->iface.reactor, l);
}

/* At the same places, as far as those are the device's again: its addresses may come after it. */
bool weft__rc_listeners_again(struct rc_iface *iface) {
    struct tl_listener *l;
    bool all = true;
    LIST_FOREACH(l, &iface->listeners, of_iface) {
        if (l->cm.id || bind_at(l, &l->at) == WEFT_OK) continue;
        all = false;
        weft__rd_cm_end(&l->cm);
        weft__log_limited(weft__reactor_context(iface->iface.reactor), WEFT_LOG_WARN, "rdma",
                          "%s: the listener is not open yet", l->uri);
    }
    return all;
}

static weft_status_t open_own(struct rc_iface *iface) {
    weft_context_t *context = weft__reactor_context(iface->iface.reactor);
    const char *host = weft__setting_str(context, SETTING_RDMA_BIND);
    union rd_sockaddr at = iface->device->ip;
    char where[80];
    if (iface->own && iface->own->cm.id) return WEFT_OK;
    if (iface->own) weft__rc_listener_close(iface->own);
    if (*host) {
        snprintf(where, sizeof where, strchr(host, ':') && host[0] != '[' ? "[%s]:0" : "%s:0",
                 host);
        weft_status_t st = resolve(iface, where, &at);
        if (st < 0) return st;
    }
    if (!at.any.sa_family)
        return weft__fail(WEFT_ERR_UNREACHABLE,
                          "%s has no IP address: set rdma.bind to its IPoIB address",
                          iface->device->name);
    return listen_at(iface, &at, (int)weft__setting_u32(context, SETTING_LISTEN_BACKLOG, INT32_MAX),
                     NULL, true, &iface->own);
}

weft_status_t weft__rc_own_address(struct iface *i, void *buf, size_t *len_p) {
    struct rc_iface *iface = (struct rc_iface *)i;
    if (*len_p < RC_ADDRESS_SIZE)
        return weft__fail(WEFT_ERR_TRUNCATED, "an rdma_rc address has %d bytes", RC_ADDRESS_SIZE);
    weft_status_t st = ensure_device(iface);
    if (st == WEFT_OK) st = open_own(iface);
    if (st < 0) return st;
    const union rd_sockaddr *at = &iface->own->at;
    struct rc_address a = {
        .worker = iface->iface.worker_id, .place = iface->device->place, .port = port_of(at)};
    a.v6 = at->any.sa_family == AF_INET6;
    memcpy(a.ip, a.v6 ? (const void *)&at->v6.sin6_addr : &at->v4.sin_addr, a.v6 ? 16 : 4);
    memcpy(a.token, iface->token, RC_TOKEN);
    weft__rc_address_encode(&a, buf);
    *len_p = RC_ADDRESS_SIZE;
    return WEFT_OK;
}
