/* Listening: who may bind where, and what is let in before it has proved itself. */
#define _GNU_SOURCE
#include "tcp.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ACCEPTS_PER_TURN = 64 };

/* ---- accepting ------------------------------------------------------------------------------------------ */

/* The oldest one that has not proved itself goes, so that a flood of silent connections keeps nobody out for long. */
static void make_place(struct tcp_iface *iface) {
    if (iface->n_greeting < TCP_MAX_GREETING) return;
    struct tcp_lane *oldest = TAILQ_FIRST(&iface->greeting);
    while (oldest && !oldest->hands)
        oldest = TAILQ_NEXT(oldest, of_iface); /* proved, and about to be handed over */
    if (!oldest) return;
    weft__log_limited(weft__reactor_context(iface->iface.reactor), WEFT_LOG_WARN, "tcp",
                      "%u connections have not proved themselves; the oldest is dropped", iface->n_greeting);
    tcp_lane_abandon(oldest);
}

static void let_in(struct tl_listener *l, int fd, const union tcp_sockaddr *peer) {
    struct tcp_iface *iface = l->iface;
    struct tcp_lane *lane;
    make_place(iface);
    if (tcp_lane_new(iface, true, &lane) < 0) {
        tcp_say_refusal(fd, WEFT_ERR_NO_MEMORY);
        close(fd);
        return;
    }
    lane->watch.fd = fd;
    lane->listener = l;
    lane->peer = *peer;
    lane->watch.ready = tcp_greet_ready;
    tcp_socket_tune(fd, tcp_context(lane));
    if (tcp_is_loopback(peer) && !tcp_is_loopback(&l->at)) tcp_socket_tune_local(fd, tcp_context(lane));
    if (tcp_lane_watch(lane, WATCH_READ) < 0) {
        tcp_say_refusal(fd, WEFT_ERR_NO_MEMORY);
        tcp_lane_abandon(lane);
    }
}

static void go_on(struct timer *timer) {
    struct tl_listener *l = (struct tl_listener *)((char *)timer - offsetof(struct tl_listener, pause));
    struct reactor *r = l->iface->iface.reactor;
    if (l->iface->reserve_fd < 0) l->iface->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (weft__watch_start(r, &l->watch, l->fd, WATCH_READ) == WEFT_OK) return;
    (void)weft__timer_start(r, timer, weft__now(r) + TCP_ACCEPT_PAUSE_MS * NS_PER_MS);
}

/* Those that have not proved themselves have half of the pause for it, so that silent ones hold no descriptor for longer. */
static void hurry(struct tcp_iface *iface) {
    struct reactor *r = iface->iface.reactor;
    uint64_t until = weft__now(r) + TCP_ACCEPT_PAUSE_MS * NS_PER_MS / 2;
    struct tcp_lane *lane;
    TAILQ_FOREACH(lane, &iface->greeting, of_iface)
    if (weft__timer_running(&lane->deadline) && weft__timer_at(r, &lane->deadline) > until)
        (void)weft__timer_start(r, &lane->deadline, until);
}

/* Out of descriptors: one caller is told so, by the descriptor in reserve, and the others wait in the backlog. */
static void pause_accepting(struct tl_listener *l) {
    struct tcp_iface *iface = l->iface;
    struct reactor *r = iface->iface.reactor;
    weft__log_limited(weft__reactor_context(r), WEFT_LOG_ERROR, "tcp", "%s: out of file descriptors", l->uri);
    hurry(iface);
    if (iface->reserve_fd >= 0) {
        close(iface->reserve_fd);
        int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            tcp_say_refusal(fd, WEFT_ERR_NO_FDS);
            close(fd);
        }
        iface->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    if (weft__timer_start(r, &l->pause, weft__now(r) + TCP_ACCEPT_PAUSE_MS * NS_PER_MS) == WEFT_OK)
        weft__watch_stop(r, &l->watch);
}

static void listener_ready(struct watch *watch, int events) {
    struct tl_listener *l = (struct tl_listener *)((char *)watch - offsetof(struct tl_listener, watch));
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        union tcp_sockaddr peer = {0};
        socklen_t len = sizeof peer;
        int fd = accept4(l->fd, &peer.any, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            let_in(l, fd, &peer);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            pause_accepting(l);
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return; /* EAGAIN; others are about a connection that is gone already (accept(2)) */
        }
    }
}

/* ---- binding -------------------------------------------------------------------------------------------- */

static weft_status_t may_bind(struct tcp_iface *iface, const union tcp_sockaddr *at) {
    weft_status_t st = tcp_iface_key(iface);
    if (st < 0) return st;
    if (tcp_is_loopback(at) || iface->key.trust != TRUST_USER) return WEFT_OK;
    return weft__fail(WEFT_ERR_INSECURE,
                      "beyond loopback tcp needs a cluster key: set tcp.key_file (or tcp.insecure = "
                      "yes, if everybody who reaches that port may connect)");
}

static weft_status_t bind_at(int fd, const union tcp_sockaddr *at, int backlog) {
    char name[TCP_NAME_ROOM];
    int on = 1, off = 0;
    tcp_sockaddr_text(at, name, sizeof name);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (at->any.sa_family == AF_INET6) {
        const int *only = tcp_is_any(at) ? &off : &on;
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, only, sizeof *only);
    }
    if (bind(fd, &at->any, tcp_sockaddr_len(at)) < 0 || listen(fd, backlog) < 0)
        return weft__fail(weft__errno_status(errno), "%s: %s", name, strerror(errno));
    return WEFT_OK;
}

/* "*" is IPv6's any address, which serves IPv4 too; where there is no IPv6, that of IPv4. */
static weft_status_t open_socket(weft_context_t *context, const struct tcp_where *where, union tcp_sockaddr *at,
                                 int backlog, int *fd_p) {
    int fd = -1;
    weft_status_t st = tcp_socket(at->any.sa_family, &fd);
    if (st == WEFT_ERR_UNREACHABLE && strcmp(where->host, "*") == 0) {
        *at = (union tcp_sockaddr){.v4.sin_family = AF_INET, .v4.sin_port = htons(where->port)};
        st = tcp_socket(AF_INET, &fd);
    }
    if (st == WEFT_OK && tcp_is_loopback(at)) tcp_socket_tune_local(fd, context); /* who is let in inherits it */
    if (st == WEFT_OK) st = bind_at(fd, at, backlog);
    if (st < 0 && fd >= 0) close(fd);
    if (st == WEFT_OK) *fd_p = fd;
    return st;
}

weft_status_t tcp_listen(struct tcp_iface *iface, const struct tcp_where *where, int backlog, void *arg,
                         struct tl_listener **listener_p) {
    union tcp_sockaddr found[TCP_MAX_SOCKADDRS];
    size_t n = TCP_MAX_SOCKADDRS;
    weft_context_t *context = weft__reactor_context(iface->iface.reactor);
    int fd = -1;
    weft_status_t st = tcp_resolve(where, found, &n);
    if (st == WEFT_OK) st = may_bind(iface, &found[0]);
    if (st == WEFT_OK) st = open_socket(context, where, &found[0], backlog, &fd);
    if (st < 0) return st;

    struct tl_listener *l = weft__new(iface, struct tl_listener);
    if (!l) {
        close(fd);
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a listener");
    }
    socklen_t len = sizeof l->at;
    l->iface = iface;
    l->arg = arg;
    l->fd = fd;
    l->watch.ready = listener_ready;
    l->pause.fire = go_on;
    l->at = found[0];
    getsockname(fd, &l->at.any, &len);
    memcpy(l->uri, "tcp://", 6);
    tcp_sockaddr_text(&l->at, l->uri + 6, sizeof l->uri - 6);
    st = weft__watch_start(iface->iface.reactor, &l->watch, fd, WATCH_READ);
    if (st < 0) {
        close(fd);
        talloc_free(l);
        return st;
    }
    LIST_INSERT_HEAD(&iface->listeners, l, of_iface);
    *listener_p = l;
    return WEFT_OK;
}

/* Connections that it let in and nobody was told of go with it. */
void tcp_listener_close(struct tl_listener *l) {
    struct reactor *r = l->iface->iface.reactor;
    struct tcp_lane *lane, *next;
    for (lane = TAILQ_FIRST(&l->iface->greeting); lane; lane = next) {
        next = TAILQ_NEXT(lane, of_iface);
        if (lane->listener == l) tcp_lane_abandon(lane);
    }
    weft__watch_stop(r, &l->watch);
    weft__timer_stop(r, &l->pause);
    close(l->fd);
    LIST_REMOVE(l, of_iface);
    weft__bury(r, l);
}
