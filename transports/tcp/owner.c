/* Asks the kernel by sock_diag which user owns the other end of a connection. */
#define _GNU_SOURCE
#include "owner.h"

#include <base/status.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <string.h>
#include <unistd.h>

/* A peer may have bound its socket to the loopback device, and would be found by that device
 * alone. */
enum { LOOPBACK_DEVICE = 1 };

struct question {
    struct nlmsghdr head;
    struct inet_diag_req_v2 req;
};
struct answer {
    struct nlmsghdr head;
    union {
        struct nlmsgerr error;
        struct inet_diag_msg socket;
    };
    char rest[512];
};

/* ---- addresses: an IPv4 address in IPv6 is IPv4 to the kernel's tables */

static bool is_v4(const union tcp_sockaddr *a) {
    return a->any.sa_family == AF_INET || IN6_IS_ADDR_V4MAPPED(&a->v6.sin6_addr);
}

static void put_owner(const union tcp_sockaddr *a, __be16 *port, __be32 to[4]) {
    memset(to, 0, 4 * sizeof *to);
    *port = a->any.sa_family == AF_INET ? a->v4.sin_port : a->v6.sin6_port;
    if (a->any.sa_family == AF_INET)
        memcpy(to, &a->v4.sin_addr, 4);
    else if (is_v4(a))
        memcpy(to, a->v6.sin6_addr.s6_addr + 12, 4);
    else
        memcpy(to, &a->v6.sin6_addr, 16);
}

bool weft__tcp_same_address(const union tcp_sockaddr *a, const union tcp_sockaddr *b) {
    __be16 port[2];
    __be32 host[2][4];
    put_owner(a, &port[0], host[0]);
    put_owner(b, &port[1], host[1]);
    return is_v4(a) == is_v4(b) && port[0] == port[1] &&
           memcmp(host[0], host[1], sizeof host[0]) == 0;
}

/* ---- the question */

static int ask_owner(int diag, const union tcp_sockaddr *from, const union tcp_sockaddr *to) {
    struct question q = {
        .head = {.nlmsg_len = sizeof q,
                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST},
        .req = {.sdiag_family = is_v4(from) ? AF_INET : AF_INET6, .sdiag_protocol = IPPROTO_TCP}};
    struct inet_diag_sockid *id = &q.req.id;
    put_owner(from, &id->idiag_sport, id->idiag_src);
    put_owner(to, &id->idiag_dport, id->idiag_dst);
    id->idiag_if = LOOPBACK_DEVICE;
    id->idiag_cookie[0] = id->idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    ssize_t n;
    do n = send(diag, &q, sizeof q, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : 0;
}

/* 0 and the owner of the socket that is bound to `from` and connected with `to`, or a negative
 * errno. */
static int owner_of(int diag, const union tcp_sockaddr *from, const union tcp_sockaddr *to,
                    uid_t *uid_p) {
    struct answer a;
    int error = ask_owner(diag, from, to);
    if (error < 0) return error;
    ssize_t n;
    /* the kernel has answered within the call that asked */
    do n = recv(diag, &a, sizeof a, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0) return -errno;
    if ((size_t)n < sizeof a.head) return -EBADMSG;
    if (a.head.nlmsg_type == NLMSG_ERROR) return a.error.error < 0 ? a.error.error : -EBADMSG;
    if (a.head.nlmsg_type != SOCK_DIAG_BY_FAMILY || (size_t)n < sizeof a.head + sizeof a.socket)
        return -EBADMSG;
    *uid_p = a.socket.idiag_uid;
    return 0;
}

static enum tcp_owner judge_owner(int diag, const union tcp_sockaddr *own,
                                  const union tcp_sockaddr *peer) {
    uid_t uid = (uid_t)-1;
    int error = owner_of(diag, peer, own, &uid);
    if (error == 0) return uid == geteuid() || uid == 0 ? TCP_OWNER_SELF : TCP_OWNER_OTHER;
    if (weft__lacks_room(weft__errno_status(-error))) return TCP_OWNER_FAILED;
    return error == -ENOENT && owner_of(diag, own, peer, &uid) == 0 ? TCP_OWNER_OTHER
                                                                    : TCP_OWNER_UNKNOWN;
}

enum tcp_owner weft__tcp_owner_of_peer(int fd, const union tcp_sockaddr *peer) {
    union tcp_sockaddr own = {0};
    socklen_t len = sizeof own;
    if (getsockname(fd, &own.any, &len) < 0) return TCP_OWNER_FAILED;
    int diag = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG);
    if (diag < 0)
        return weft__lacks_room(weft__errno_status(errno)) ? TCP_OWNER_FAILED : TCP_OWNER_UNKNOWN;
    enum tcp_owner owner = judge_owner(diag, &own, peer);
    close(diag);
    return owner;
}
