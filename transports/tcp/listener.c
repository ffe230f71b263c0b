/* Listening: the addresses that may be bound, and limits for connections before their proof. */
#define _GNU_SOURCE
#include "tcp.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ACCEPTS_PER_TURN = 64 };

/* ---- accepting ------------------------------------------------------------------------------- */

/* One of `n`, at random, of those that have not proved themselves; first those that have not
 * said a whole HELLO. */
static struct tcp_lane *choose_victim(struct tcp_iface *iface) {
    struct tcp_lane *lane, *chosen = NULL;
    uint64_t n = 0;
    bool only_silent = false;
    TAILQ_FOREACH(lane, &iface->handshake, of_iface) {
        /* proved, or preferred */
        if (!lane->hands || (only_silent && lane->hands->sent_hello)) continue;
        if (!only_silent && !lane->hands->sent_hello) {
            only_silent = true;
            n = 0;
        }
        if (weft__random(iface->iface.reactor) % ++n == 0) chosen = lane;
    }
    return chosen;
}

/*
 * One that has not proved itself goes. Which one is drawn: if it were the oldest, a flood that
 * fills all places within an honest peer's round trip would keep that peer out for ever.
 */
static void make_place(struct tcp_iface *iface) {
    if (iface->n_handshake < TCP_MAX_HANDSHAKE) return;
    struct tcp_lane *victim = choose_victim(iface);
    if (!victim) return;
    char name[TCP_NAME_ROOM];
    weft__tcp_sockaddr_text(&victim->peer, name, sizeof name);
    weft__log_limited(
        weft__reactor_context(iface->iface.reactor), WEFT_LOG_WARN, "tcp",
        "%u accepted connections have not completed the handshake; the one from %s is closed",
        iface->n_handshake, name);
    weft__tcp_lane_abandon(victim);
}

static void let_in(struct tl_listener *l, int fd, const union tcp_sockaddr *peer) {
    struct tcp_iface *iface = l->iface;
    struct tcp_lane *lane;
    make_place(iface);
    weft__fork_closes(fd, true);
    if (weft__tcp_lane_new(iface, true, &lane) < 0) {
        weft__tcp_send_refusal(fd, WEFT_ERR_NO_MEMORY);
        weft__tcp_socket_close(fd);
        return;
    }
    lane->watch.fd = fd;
    lane->listener = l;
    lane->peer = *peer;
    lane->watch.ready = weft__tcp_handshake_ready;
    weft__tcp_socket_tune(fd, weft__tcp_context(lane));
    if (weft__tcp_is_loopback(peer) && !weft__tcp_is_loopback(&l->at))
        weft__tcp_socket_tune_local(fd, weft__tcp_context(lane));
    if (weft__tcp_lane_watch(lane, WATCH_READ) < 0) {
        weft__tcp_send_refusal(fd, WEFT_ERR_NO_MEMORY);
        weft__tcp_lane_abandon(lane);
    }
}

weft_status_t weft__tcp_let_in(struct tl_listener *l, int given) {
    union tcp_sockaddr peer;
    int fd;
    weft_status_t st = weft__tcp_socket_given(given, &fd, &peer);
    if (st == WEFT_OK) let_in(l, fd, &peer);
    return st;
}

static void go_on(struct timer *timer) {
    struct tl_listener *l = container_of(timer, struct tl_listener, pause);
    struct reactor *r = l->iface->iface.reactor;
    if (l->iface->reserve_fd < 0) l->iface->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (weft__watch_start(r, &l->watch, l->fd, WATCH_READ) == WEFT_OK) return;
    (void)weft__timer_start(r, timer, weft__now(r) + TCP_ACCEPT_PAUSE_MS * NS_PER_MS);
}

/* Those that have not proved themselves have half of the pause for it, so that silent ones hold
 * no descriptor for longer. */
static void hurry(struct tcp_iface *iface) {
    struct reactor *r = iface->iface.reactor;
    uint64_t until = weft__now(r) + TCP_ACCEPT_PAUSE_MS * NS_PER_MS / 2;
    struct tcp_lane *lane;
    TAILQ_FOREACH(lane, &iface->handshake, of_iface)
    if (weft__timer_running(&lane->deadline) && weft__timer_at(r, &lane->deadline) > until)
        (void)weft__timer_start(r, &lane->deadline, until);
}

/* Out of descriptors: the reserved descriptor is used to refuse one connection. The others wait
 * in the backlog. */
static void pause_accepting(struct tl_listener *l) {
    struct tcp_iface *iface = l->iface;
    struct reactor *r = iface->iface.reactor;
    weft__log_limited(weft__reactor_context(r), WEFT_LOG_ERROR, "tcp",
                      "%s: accept: no free file descriptors; accepting pauses", l->uri);
    hurry(iface);
    if (iface->reserve_fd >= 0) {
        close(iface->reserve_fd);
        int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            weft__tcp_send_refusal(fd, WEFT_ERR_NO_FDS);
            close(fd);
        }
        iface->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    if (weft__timer_start(r, &l->pause, weft__now(r) + TCP_ACCEPT_PAUSE_MS * NS_PER_MS) == WEFT_OK)
        weft__watch_stop(r, &l->watch);
}

static void listener_ready(struct watch *watch, int events) {
    struct tl_listener *l = container_of(watch, struct tl_listener, watch);
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        union tcp_sockaddr peer = {0};
        socklen_t len = sizeof peer;
        int fd = accept4(l->fd, &peer.any, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            let_in(l, fd, &peer);
        } else if (weft__lacks_room(weft__errno_status(errno))) {
            pause_accepting(l);
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return; /* EAGAIN; others are about a connection that is gone already (accept(2)) */
        }
    }
}

/* ---- binding --------------------------------------------------------------------------------- */

static weft_status_t check_bind(struct tcp_iface *iface, const union tcp_sockaddr *at) {
    weft_status_t st = weft__tcp_iface_key(iface);
    if (st < 0) return st;
    if (weft__tcp_is_loopback(at) || iface->key.trust != TRUST_USER) return WEFT_OK;
    return weft__fail(
        WEFT_ERR_INSECURE,
        "beyond loopback tcp needs a cluster key: set tcp.key_file (or tcp.insecure = "
        "yes, which lets any host that reaches the port connect)");
}

static weft_status_t bind_at(int fd, const union tcp_sockaddr *at, const struct listen_how *how) {
    char name[TCP_NAME_ROOM];
    int on = 1, off = 0;
    weft__tcp_sockaddr_text(at, name, sizeof name);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (how->shared) setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    if (at->any.sa_family == AF_INET6) {
        const int *only = weft__tcp_is_any(at) ? &off : &on;
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, only, sizeof *only);
    }
    if (bind(fd, &at->any, weft__tcp_sockaddr_len(at)) < 0 || listen(fd, how->backlog) < 0)
        return weft__fail(weft__errno_status(errno), "%s: %s", name, strerror(errno));
    return WEFT_OK;
}

/* "*" is IPv6's any address, which serves IPv4 too; where there is no IPv6, that of IPv4. */
static weft_status_t open_socket(weft_context_t *context, const struct tcp_where *where,
                                 union tcp_sockaddr *at, const struct listen_how *how, int *fd_p) {
    int fd = -1;
    weft_status_t st = weft__tcp_socket(at->any.sa_family, &fd);
    if (st == WEFT_ERR_UNREACHABLE && strcmp(where->host, "*") == 0) {
        *at = (union tcp_sockaddr){.v4.sin_family = AF_INET, .v4.sin_port = htons(where->port)};
        st = weft__tcp_socket(AF_INET, &fd);
    }
    if (st == WEFT_OK && weft__tcp_is_loopback(at))
        weft__tcp_socket_tune_local(fd, context); /* who is let in inherits it */
    if (st == WEFT_OK) st = bind_at(fd, at, how);
    if (st < 0) weft__tcp_socket_close(fd);
    if (st == WEFT_OK) *fd_p = fd;
    return st;
}

static weft_status_t listen_at(struct tcp_iface *iface, const union tcp_sockaddr *at, int fd,
                               void *arg, struct tl_listener **listener_p) {
    struct tl_listener *l = weft__new(iface, struct tl_listener);
    if (!l) {
        weft__tcp_socket_close(fd);
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a listener");
    }
    socklen_t len = sizeof l->at;
    l->iface = iface;
    l->arg = arg;
    l->fd = fd;
    l->watch.ready = listener_ready;
    l->pause.fire = go_on;
    l->at = *at;
    weft_status_t st = WEFT_OK;
    if (getsockname(fd, &l->at.any, &len) < 0)
        st = weft__fail(weft__errno_status(errno), "getsockname: %s", strerror(errno));
    memcpy(l->uri, "tcp://", 6);
    weft__tcp_sockaddr_text(&l->at, l->uri + 6, sizeof l->uri - 6);
    if (st == WEFT_OK) st = weft__watch_start(iface->iface.reactor, &l->watch, fd, WATCH_READ);
    if (st < 0) {
        weft__tcp_socket_close(fd);
        talloc_free(l);
        return st;
    }
    LIST_INSERT_HEAD(&iface->listeners, l, of_iface);
    *listener_p = l;
    return WEFT_OK;
}

/* A socket that the program listens on already. The listener has a duplicate. */
static weft_status_t adopt_socket(int given, union tcp_sockaddr *at, int *fd_p) {
    socklen_t len = sizeof *at;
    int listening = 0;
    *at = (union tcp_sockaddr){0};
    socklen_t size = sizeof listening;
    if (getsockopt(given, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) < 0 || !listening ||
        getsockname(given, &at->any, &len) < 0 ||
        (at->any.sa_family != AF_INET && at->any.sa_family != AF_INET6))
        return weft__fail(WEFT_ERR_INVALID_PARAM, "descriptor %d is no listening TCP socket",
                          given);
    return weft__tcp_socket_dup(given, fd_p);
}

weft_status_t weft__tcp_adopt(struct tcp_iface *iface, int given, void *arg,
                              struct tl_listener **listener_p) {
    union tcp_sockaddr at;
    int fd = -1;
    weft_status_t st = adopt_socket(given, &at, &fd);
    if (st == WEFT_OK) st = check_bind(iface, &at);
    if (st < 0) {
        weft__tcp_socket_close(fd);
        return st;
    }
    st = listen_at(iface, &at, fd, arg, listener_p);
    if (st == WEFT_OK) (*listener_p)->adopted = true;
    return st;
}

weft_status_t weft__tcp_listen(struct tcp_iface *iface, const struct tcp_where *where,
                               const struct listen_how *how, void *arg,
                               struct tl_listener **listener_p) {
    union tcp_sockaddr found[TCP_MAX_SOCKADDRS];
    size_t n = TCP_MAX_SOCKADDRS;
    weft_context_t *context = weft__reactor_context(iface->iface.reactor);
    int fd = -1;
    weft_status_t st = weft__tcp_resolve(where, found, &n);
    if (st == WEFT_OK) st = check_bind(iface, &found[0]);
    if (st == WEFT_OK) st = open_socket(context, where, &found[0], how, &fd);
    return st < 0 ? st : listen_at(iface, &found[0], fd, arg, listener_p);
}
/* Also closes accepted connections that the owner was not notified of yet. */
void weft__tcp_listener_close(struct tl_listener *l) {
    struct reactor *r = l->iface->iface.reactor;
    struct tcp_lane *lane, *next;
    for (lane = TAILQ_FIRST(&l->iface->handshake); lane; lane = next) {
        next = TAILQ_NEXT(lane, of_iface);
        if (lane->listener == l) weft__tcp_lane_abandon(lane);
    }
    weft__watch_stop(r, &l->watch);
    weft__timer_stop(r, &l->pause);
    if (!l->adopted) shutdown(l->fd, SHUT_RDWR); /* a child that no fork handler saw has it, too */
    weft__tcp_socket_close(l->fd);
    LIST_REMOVE(l, of_iface);
    weft__free_later(r, l);
}
