/* The tcp interface: opening, its address, and its attributes. */
#define _GNU_SOURCE
#include "tcp.h"

#include <base/host.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <transports/common.h>
#include <unistd.h>

enum { BCOPY_MOST = 32 * 1024 };

static struct tcp_iface *tcp_iface(struct iface *iface) {
    return (struct tcp_iface *)iface;
}

weft_status_t weft__tcp_iface_key(struct tcp_iface *iface) {
    if (iface->have_key) return WEFT_OK;
    weft_context_t *context = weft__reactor_context(iface->iface.reactor);
    weft_status_t st = weft__trust_key_load(
        context, weft__setting_u64(context, SETTING_TCP_INSECURE), &iface->key);
    iface->have_key = st == WEFT_OK;
    snprintf(iface->wrong_key, sizeof iface->wrong_key,
             "the two sides do not hold the same key; this side's is %s",
             *iface->key.from ? iface->key.from : "none (tcp.insecure)");
    return st;
}

/* ---- connecting ------------------------------------------------------------------------------ */

/* "@FD": a socket of the program. */
static weft_status_t read_descriptor(const char *text, int *fd_p) {
    char *end;
    long given = strtol(text + 1, &end, 10);
    if (end == text + 1 || *end || given < 0 || given > INT_MAX)
        return weft__fail(WEFT_ERR_ADDRESS, "\"%s\" names no descriptor", text);
    *fd_p = (int)given;
    return WEFT_OK;
}

static weft_status_t connect_uri(struct iface *i, const char *text, struct lane **lane_p) {
    struct tcp_where where;
    int given;
    if (*text == '@') {
        weft_status_t found = read_descriptor(text, &given);
        return found < 0 ? found : weft__tcp_connect_by(tcp_iface(i), given, lane_p);
    }
    union tcp_sockaddr to[TCP_MAX_SOCKADDRS];
    size_t n = TCP_MAX_SOCKADDRS;
    weft_status_t st = weft__tcp_where_parse(text, strlen(text), &where);
    if (st == WEFT_OK && (where.port == 0 || strcmp(where.host, "*") == 0))
        st = weft__fail(WEFT_ERR_ADDRESS,
                        "\"%s\" is an address to listen at, not one to connect to", text);
    if (st == WEFT_OK) st = weft__tcp_resolve(&where, to, &n);
    return st < 0 ? st : weft__tcp_connect(tcp_iface(i), to, n, NULL, 0, lane_p);
}

static weft_status_t listen_uri(struct iface *i, const char *text, const struct listen_how *how,
                                void *arg, struct tl_listener **listener_p) {
    struct tcp_where where;
    int given;
    if (*text == '@') {
        weft_status_t found = read_descriptor(text, &given);
        return found < 0 ? found : weft__tcp_adopt(tcp_iface(i), given, arg, listener_p);
    }
    weft_status_t st = weft__tcp_where_parse(text, strlen(text), &where);
    return st < 0 ? st : weft__tcp_listen(tcp_iface(i), &where, how, arg, listener_p);
}

static const char *listener_uri(const struct tl_listener *l) {
    return l->uri;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void flush_job(struct job *job) {
    weft__tcp_flush_dirty(container_of(job, struct tcp_iface, flush_job));
}

static void iface_close(struct iface *i) {
    struct tcp_iface *iface = tcp_iface(i);
    for (unsigned n = 0; n < iface->n_own; n++) weft__tcp_listener_close(iface->own[n]);
    weft__job_drop(i->reactor, &iface->flush_job);
    weft__slab_end(&iface->lane_slab);
    weft__poller_remove(i->reactor, &iface->poller);
    if (iface->reserve_fd >= 0) close(iface->reserve_fd);
    weft__trust_key_end(&iface->key);
    weft__free_later(i->reactor, iface);
}

static const struct iface_ops ops = {.address = weft__tcp_own_address,
                                     .reachable = weft__tcp_reachable,
                                     .connect = weft__tcp_connect_address,
                                     .connect_nth = weft__tcp_connect_nth,
                                     .connect_uri = connect_uri,
                                     .listen = listen_uri,
                                     .listener_adopt = weft__tcp_let_in,
                                     .listener_uri = listener_uri,
                                     .listener_close = weft__tcp_listener_close,
                                     .close = iface_close};

/* Default costs, for cases without a measurement (cost.c). */
static struct iface_attr attributes_iface(size_t buffer) {
    uint32_t copied = buffer / 2 < BCOPY_MOST ? (uint32_t)buffer / 2 : BCOPY_MOST;
    return (struct iface_attr){
        .caps = CAP_AM_SHORT | CAP_AM_BCOPY | CAP_AM_ZCOPY | CAP_RELIABLE | CAP_CONNECT_TO_IFACE |
                CAP_LISTEN | CAP_PLACE | CAP_WAKEUP | CAP_PEER_DEATH | CAP_INTER_NODE,
        .max_short = copied,
        .max_bcopy = copied,
        .max_zcopy = TCP_MAX_PAYLOAD,
        .shares_listeners = true,
        .max_zcopy_header = TCP_MAX_HEADER,
        .max_iov = TCP_MAX_IOV,
        .latency_ns = 6000,
        .bandwidth = 4e9,
        .overhead_ns = 1500,
        .message_rate = 15e6, /* many share a write */
        .runs = true,
    };
}

static weft_status_t tcp_open(struct reactor *r, const struct iface_params *params,
                              struct iface **iface_p) {
    uint64_t buffer = weft__setting_u64(weft__reactor_context(r), SETTING_TCP_BUFFER);
    struct tcp_iface *iface = weft__new(r, struct tcp_iface);
    if (!iface) return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the tcp interface");
    buffer = (buffer + 63) & ~UINT64_C(63);
    iface_init(&iface->iface, &ops, &weft__transport_tcp, "kernel", r, params);
    iface->iface.attr = attributes_iface(buffer);
    iface->dead_after =
        weft__setting_u64(weft__reactor_context(r), SETTING_TCP_DEAD_AFTER) * NS_PER_MS;
    iface->host_id = weft__host_id("net"); /* those who share a loopback interface */
    weft__tcp_pool_init(&iface->pool, buffer);
    weft__slab_init(&iface->lane_slab, r, iface, sizeof(struct tcp_lane), "tcp lanes");
    TAILQ_INIT(&iface->lanes);
    TAILQ_INIT(&iface->handshake);
    STAILQ_INIT(&iface->dirty);
    LIST_INIT(&iface->listeners);
    iface->flush_job.run = flush_job;
    iface->poller.poll = weft__tcp_poll;
    iface->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    *iface_p = &iface->iface;
    return WEFT_OK;
}

const struct transport weft__transport_tcp = {
    .name = "tcp", .open = tcp_open, .measure = weft__tcp_measure};
