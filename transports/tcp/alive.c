/*
 * Detects a dead host while the kernel holds bytes that the peer has not acknowledged. The kernel's
 * user timeout also runs while the peer's window is closed, so it cannot distinguish a dead host
 * from a busy program. A live host acknowledges each window probe; a dead one acknowledges nothing.
 * Keep-alive covers connections without outstanding bytes.
 */
#define _GNU_SOURCE
#include "tcp.h"

#include <linux/tcp.h>
#include <sys/socket.h>

/* LOOKS: in the time after which a silent host is dead. FIRST: the same, of the first, which
 * usually finds that all was acknowledged, and is the only one. */
enum { LOOKS = 8, FIRST = 32, LEAST_MS = 10, RTO_MAX_LEAST_MS = 1000 };

#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44 /* since Linux 6.15 */
#endif

static void set_alive(int fd, int level, int option, int value) {
    (void)setsockopt(fd, level, option, &value, sizeof value);
}

static int at_least_1(int n) {
    return n > 0 ? n : 1;
}

/* Idle connections: half of the time until the first probe, the rest for probes without an
 * answer. */
void weft__tcp_alive_tune(int fd, weft_context_t *context) {
    int ms = (int)weft__setting_u32(context, SETTING_TCP_DEAD_AFTER, INT32_MAX),
        s = at_least_1(ms / 1000);
    if (ms == 0) return;
    int idle = at_least_1(s / 2), interval = at_least_1(s / 10);
    set_alive(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_alive(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle);
    set_alive(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval);
    set_alive(fd, IPPROTO_TCP, TCP_KEEPCNT, at_least_1((s - idle) / interval));
}

/* Else window probes back off to two minutes, and a host is found dead that much later. Not
 * while it connects, when this would also bring the last SYN forward. */
void weft__tcp_alive_open(struct tcp_lane *lane) {
    int ms = (int)(tcp_iface_of(lane)->dead_after / NS_PER_MS / LOOKS);
    if (ms)
        set_alive(lane->watch.fd, IPPROTO_TCP, TCP_RTO_MAX_MS,
                  ms > RTO_MAX_LEAST_MS ? ms : RTO_MAX_LEAST_MS);
}

static uint64_t interval(const struct tcp_iface *iface, unsigned looks) {
    uint64_t ns = iface->dead_after / looks, least = LEAST_MS * NS_PER_MS;
    return ns > least ? ns : least;
}

/* What the kernel says of a connection. */
struct answers {
    bool outstanding; /* bytes that the peer's host has not acknowledged */
    bool asked;       /* a retransmission or a probe that is not answered yet */
    uint32_t segments;
};

static bool poll_alive(int fd, struct answers *answers_p) {
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0) return false;
    *answers_p = (struct answers){.outstanding = info.tcpi_unacked || info.tcpi_notsent_bytes,
                                  .asked = info.tcpi_retransmits || info.tcpi_probes,
                                  .segments = info.tcpi_segs_in};
    return true;
}

static void host_is_dead(struct tcp_lane *lane) {
    char name[TCP_NAME_ROOM];
    weft__tcp_sockaddr_text(&lane->peer, name, sizeof name);
    weft__log_limited(weft__tcp_context(lane), WEFT_LOG_INFO, "tcp",
                      "%s: its host acknowledged nothing for %llu ms", name,
                      (unsigned long long)(tcp_iface_of(lane)->dead_after / NS_PER_MS));
    weft__tcp_lane_note(lane, "its host acknowledged nothing for tcp.dead_after", 0);
    weft__tcp_lane_why(lane, WEFT_ERR_PEER_FAILED);
    weft__tcp_lane_todo(lane, TODO_READ | TODO_BREAK);
}

/* Time counts from the first look that finds a question unanswered: the worker may not have been
 * driven for long before it. Any segment shows that the host lives, also a keep-alive probe of
 * its own that acknowledges nothing. */
static void check_alive(struct timer *timer) {
    struct tcp_lane *lane = container_of(timer, struct tcp_lane, deadline);
    const struct tcp_iface *iface = tcp_iface_of(lane);
    struct tcp_alive *alive = &lane->alive;
    uint64_t now = weft__now(tcp_reactor(lane));
    uint32_t now_ms = (uint32_t)(now / NS_PER_MS);
    struct answers a;
    if (!poll_alive(lane->watch.fd, &a) || !a.outstanding) return;
    if (a.segments != alive->segments || !alive->since) alive->since = now_ms | 1;
    if (!a.asked) alive->since = 0;
    alive->segments = a.segments;
    if (a.asked && (int32_t)(now_ms - alive->since) >= (int32_t)(iface->dead_after / NS_PER_MS))
        host_is_dead(lane);
    else if (weft__timer_start(tcp_reactor(lane), timer, now + interval(iface, LOOKS)) < 0)
        weft__tcp_lane_todo(lane, TODO_BREAK);
}

void weft__tcp_alive_watch(struct tcp_lane *lane) {
    const struct tcp_iface *iface = tcp_iface_of(lane);
    struct reactor *r = tcp_reactor(lane);
    if (!iface->dead_after || lane->lane.ops != &weft__tcp_ops_open) return;
    lane->deadline.fire = check_alive;
    lane->alive.since = 0;
    /* Without memory for it the kernel's own retransmissions end the connection, later. */
    (void)weft__timer_start(r, &lane->deadline, weft__now(r) + interval(iface, FIRST));
}
