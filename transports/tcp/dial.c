/* Dials one address after the other by calls that do not block. */
#define _GNU_SOURCE
#include "tcp.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

weft_status_t weft__tcp_socket(int family, int *fd_p) {
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return weft__fail(weft__errno_status(errno), "socket: %s", strerror(errno));
    weft__fork_closes(fd, true);
    *fd_p = fd;
    return WEFT_OK;
}

weft_status_t weft__tcp_socket_dup(int given, int *fd_p) {
    int fd = fcntl(given, F_DUPFD_CLOEXEC, 1);
    if (fd < 0) return weft__fail(weft__errno_status(errno), "dup: %s", strerror(errno));
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    weft__fork_closes(fd, true);
    *fd_p = fd;
    return WEFT_OK;
}

weft_status_t weft__tcp_socket_given(int given, int *fd_p, union tcp_sockaddr *peer) {
    socklen_t len = sizeof *peer, size = sizeof(int);
    int type = 0;
    *peer = (union tcp_sockaddr){0};
    if (getsockopt(given, SOL_SOCKET, SO_TYPE, &type, &size) < 0 || type != SOCK_STREAM ||
        getpeername(given, &peer->any, &len) < 0 ||
        (peer->any.sa_family != AF_INET && peer->any.sa_family != AF_INET6))
        return weft__fail(WEFT_ERR_INVALID_PARAM, "descriptor %d is no connected TCP socket",
                          given);
    return weft__tcp_socket_dup(given, fd_p);
}

void weft__tcp_socket_close(int fd) {
    if (fd < 0) return;
    weft__fork_closes(fd, false);
    close(fd);
}

static void set_dial(int fd, int level, int option, int value) {
    (void)setsockopt(fd, level, option, &value, sizeof value);
}

void weft__tcp_socket_tune(int fd, weft_context_t *context) {
    set_dial(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    weft__tcp_alive_tune(fd, context);
}

/* Within one host nothing is lost and no queue shared: the simplest control does. Others model
 * the path, or pace. A queue that is no longer than a cache is copied out of it. */
void weft__tcp_socket_tune_local(int fd, weft_context_t *context) {
    const char *name = weft__setting_str(context, SETTING_TCP_LOCAL_CONGESTION);
    int queue = (int)weft__setting_u32(context, SETTING_TCP_LOCAL_QUEUE, INT32_MAX);
    if (*name) (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name));
    if (queue) set_dial(fd, SOL_SOCKET, SO_SNDBUF, queue);
}

/* Loopback can connect a socket to itself: both ends are the port that was free until now. */
static bool connected_to_itself(int fd, const union tcp_sockaddr *peer) {
    union tcp_sockaddr self = {0};
    socklen_t len = sizeof self;
    return getsockname(fd, &self.any, &len) == 0 && weft__tcp_sockaddr_equal(&self, peer);
}

static void dial_ready(struct watch *watch, int events) {
    struct tcp_lane *lane = tcp_lane_of_watch(watch);
    int error = 0;
    socklen_t len = sizeof error;
    if (getsockopt(lane->watch.fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0) error = errno;
    if (!error && connected_to_itself(lane->watch.fd, &lane->peer)) error = ECONNREFUSED;
    if (error == 0) {
        weft__fsm_step(&lane->conn.fsm, TCP_CONN_EV_CONNECTED);
        return;
    }
    lane->why = (int8_t)weft__errno_status(error);
    lane->what = NULL;
    weft__tcp_lane_note(lane, "connecting", error);
    weft__tcp_dial_failed(lane);
}

/* `why` is that of this address; the last one's is reported to the owner. */
void weft__tcp_dial_failed(struct tcp_lane *lane) {
    char name[TCP_NAME_ROOM];
    weft__tcp_sockaddr_text(&lane->peer, name, sizeof name);
    weft__log_limited(weft__tcp_context(lane), WEFT_LOG_INFO, "tcp", "%s: no connection: %s", name,
                      lane->error ? strerror(lane->error) : weft_status_name(lane->why));
    if (lane->hands->from.any.sa_family)
        lane->hands->from.any.sa_family = 0; /* the same again, from wherever the kernel says */
    else
        lane->hands->at++;
    weft__fsm_step(&lane->conn.fsm, lane->hands->at < lane->hands->n_candidates
                                        ? TCP_CONN_EV_NEXT
                                        : TCP_CONN_EV_BROKEN);
}

/* A socket of the program's is connected once; there is no second try. */
static weft_status_t begin_given(struct tcp_lane *lane) {
    errno = ENOTCONN;
    if (lane->hands->given < 0) return WEFT_ERR_PEER_FAILED;
    lane->watch.fd = lane->hands->given;
    lane->hands->given = -1;
    weft__tcp_socket_tune(lane->watch.fd, weft__tcp_context(lane));
    return weft__tcp_lane_watch(lane, WATCH_WRITE);
}

static weft_status_t begin_dial(struct tcp_lane *lane) {
    const union tcp_sockaddr *from = &lane->hands->from;
    if (lane->hands->given) return begin_given(lane);
    weft_status_t st = weft__tcp_socket(lane->peer.any.sa_family, &lane->watch.fd);
    if (st < 0) return st;
    weft__tcp_socket_tune(lane->watch.fd, weft__tcp_context(lane));
    if (weft__tcp_is_loopback(&lane->peer))
        weft__tcp_socket_tune_local(lane->watch.fd, weft__tcp_context(lane));
    int rc;
    if (from->any.sa_family) {
        set_dial(lane->watch.fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
        if (bind(lane->watch.fd, &from->any, weft__tcp_sockaddr_len(from)) < 0)
            return weft__errno_status(errno);
    }
    do rc = connect(lane->watch.fd, &lane->peer.any, weft__tcp_sockaddr_len(&lane->peer));
    while (rc < 0 && errno == EINTR);
    if (rc < 0 && errno != EINPROGRESS) return weft__errno_status(errno);
    return weft__tcp_lane_watch(lane, WATCH_WRITE);
}

void weft__tcp_dial(struct tcp_lane *lane) {
    weft__watch_stop(tcp_reactor(lane), &lane->watch);
    weft__tcp_socket_close(lane->watch.fd);
    lane->watch.fd = -1;
    lane->peer = lane->hands->candidate[lane->hands->at];
    lane->hands->begun = weft__now(tcp_reactor(lane));
    lane->hands->late = false;
    lane->hands->in_len = 0;
    lane->todo &= (uint16_t) ~(TODO_READ | TODO_BREAK); /* of the socket before */
    lane->watch.ready = dial_ready;
    weft_status_t st = begin_dial(lane);
    lane->why = (int8_t)(st < 0 ? st : WEFT_OK);
    lane->what = NULL;
    if (st < 0) weft__tcp_lane_note(lane, "connecting", errno);
    if (st < 0) weft__tcp_lane_todo(lane, TODO_REDIAL);
}

weft_status_t weft__tcp_connect(struct tcp_iface *iface, const union tcp_sockaddr *to, size_t n,
                                const union tcp_sockaddr *from, uint64_t target,
                                struct lane **lane_p) {
    struct tcp_lane *lane;
    weft_status_t st = weft__tcp_iface_key(iface);
    if (st == WEFT_OK) st = weft__tcp_lane_new(iface, false, &lane);
    if (st < 0) return st;
    memcpy(lane->hands->candidate, to, n * sizeof *to);
    lane->hands->n_candidates = n;
    lane->hands->target = target;
    if (from) lane->hands->from = *from;
    weft__tcp_dial(lane);
    *lane_p = &lane->lane;
    return WEFT_OK;
}

weft_status_t weft__tcp_connect_by(struct tcp_iface *iface, int given, struct lane **lane_p) {
    struct tcp_lane *lane;
    union tcp_sockaddr peer;
    int fd;
    weft_status_t st = weft__tcp_socket_given(given, &fd, &peer);
    if (st < 0) return st;
    st = weft__tcp_iface_key(iface);
    if (st == WEFT_OK) st = weft__tcp_lane_new(iface, false, &lane);
    if (st < 0) {
        weft__tcp_socket_close(fd);
        return st;
    }
    lane->hands->candidate[0] = peer;
    lane->hands->n_candidates = 1;
    lane->hands->given = fd;
    weft__tcp_dial(lane);
    *lane_p = &lane->lane;
    return WEFT_OK;
}
