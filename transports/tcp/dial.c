/* Dialing: one address after the other, none of them by a call that waits. */
#define _GNU_SOURCE
#include "tcp.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

weft_status_t tcp_socket(int family, int *fd_p) {
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return weft__fail(weft__errno_status(errno), "socket: %s", strerror(errno));
    *fd_p = fd;
    return WEFT_OK;
}

static void set(int fd, int level, int option, int value) {
    (void)setsockopt(fd, level, option, &value, sizeof value);
}

/* A peer whose host is gone says nothing: unanswered probes, and data unacknowledged for as long, end the connection. */
void tcp_socket_tune(int fd, weft_context_t *context) {
    int ms = (int)weft__setting_u32(context, SETTING_TCP_DEAD_AFTER, INT32_MAX), s = ms / 1000;
    set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    if (ms == 0) return;
    set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(fd, IPPROTO_TCP, TCP_KEEPIDLE, s > 4 ? s / 2 : 2);
    set(fd, IPPROTO_TCP, TCP_KEEPINTVL, s > 10 ? s / 10 : 1);
    set(fd, IPPROTO_TCP, TCP_KEEPCNT, 5);
    set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, ms);
}

/* Within one host nothing is lost and no queue shared: the simplest control does. Others model the path, or pace. A queue that is no
 * longer than a cache is copied out of it. */
void tcp_socket_tune_local(int fd, weft_context_t *context) {
    const char *name = weft__setting_str(context, SETTING_TCP_LOCAL_CONGESTION);
    int queue = (int)weft__setting_u32(context, SETTING_TCP_LOCAL_QUEUE, INT32_MAX);
    if (*name) (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name));
    if (queue) set(fd, SOL_SOCKET, SO_SNDBUF, queue);
}

/* Loopback can connect a socket to itself: both ends are the port that was free until now. */
static bool connected_to_itself(int fd, const union tcp_sockaddr *peer) {
    union tcp_sockaddr self = {0};
    socklen_t len = sizeof self;
    return getsockname(fd, &self.any, &len) == 0 && tcp_sockaddr_equal(&self, peer);
}

static void dial_ready(struct watch *watch, int events) {
    struct tcp_lane *lane = tcp_lane_of_watch(watch);
    int error = 0;
    socklen_t len = sizeof error;
    if (getsockopt(lane->watch.fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0) error = errno;
    if (!error && connected_to_itself(lane->watch.fd, &lane->peer)) error = ECONNREFUSED;
    if (error == 0) {
        fsm_step(&lane->conn.fsm, TCP_CONN_EV_CONNECTED);
        return;
    }
    lane->why = (int8_t)weft__errno_status(error);
    tcp_dial_failed(lane);
}

/* `why` is that of this address; the last one's is what the owner hears. */
void tcp_dial_failed(struct tcp_lane *lane) {
    char name[TCP_NAME_ROOM];
    tcp_sockaddr_text(&lane->peer, name, sizeof name);
    weft__log_limited(tcp_context(lane), WEFT_LOG_INFO, "tcp", "%s: no connection: %s", name,
                      weft_status_name(lane->why));
    if (lane->hands->from.any.sa_family)
        lane->hands->from.any.sa_family = 0; /* the same again, from wherever the kernel says */
    else
        lane->hands->at++;
    fsm_step(&lane->conn.fsm, lane->hands->at < lane->hands->n_candidates ? TCP_CONN_EV_NEXT : TCP_CONN_EV_BROKEN);
}

static weft_status_t begin(struct tcp_lane *lane) {
    const union tcp_sockaddr *from = &lane->hands->from;
    weft_status_t st = tcp_socket(lane->peer.any.sa_family, &lane->watch.fd);
    if (st < 0) return st;
    tcp_socket_tune(lane->watch.fd, tcp_context(lane));
    if (tcp_is_loopback(&lane->peer)) tcp_socket_tune_local(lane->watch.fd, tcp_context(lane));
    int rc;
    if (from->any.sa_family) {
        set(lane->watch.fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
        if (bind(lane->watch.fd, &from->any, tcp_sockaddr_len(from)) < 0) return weft__errno_status(errno);
    }
    do rc = connect(lane->watch.fd, &lane->peer.any, tcp_sockaddr_len(&lane->peer));
    while (rc < 0 && errno == EINTR);
    if (rc < 0 && errno != EINPROGRESS) return weft__errno_status(errno);
    return tcp_lane_watch(lane, WATCH_WRITE);
}

void tcp_dial(struct tcp_lane *lane) {
    weft__watch_stop(tcp_reactor(lane), &lane->watch);
    if (lane->watch.fd >= 0) close(lane->watch.fd);
    lane->watch.fd = -1;
    lane->peer = lane->hands->candidate[lane->hands->at];
    lane->watch.ready = dial_ready;
    weft_status_t st = begin(lane);
    lane->why = (int8_t)(st < 0 ? st : WEFT_OK);
    if (st < 0) tcp_lane_todo(lane, TODO_REDIAL);
}

weft_status_t tcp_connect(struct tcp_iface *iface, const union tcp_sockaddr *to, size_t n,
                          const union tcp_sockaddr *from, uint64_t target, struct lane **lane_p) {
    struct tcp_lane *lane;
    weft_status_t st = tcp_iface_key(iface);
    if (st == WEFT_OK) st = tcp_lane_new(iface, false, &lane);
    if (st < 0) return st;
    memcpy(lane->hands->candidate, to, n * sizeof *to);
    lane->hands->n_candidates = n;
    lane->hands->target = target;
    if (from) lane->hands->from = *from;
    tcp_dial(lane);
    *lane_p = &lane->lane;
    return WEFT_OK;
}
