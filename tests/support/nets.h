/* Network namespaces of a test's own, joined by pairs of virtual interfaces. Needs root. */
#ifndef WEFT_TESTS_SUPPORT_NETS_H
#define WEFT_TESTS_SUPPORT_NETS_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <net/route.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <tests/harness.h>
#include <unistd.h>

struct net_request {
    struct nlmsghdr head;
    struct ifinfomsg link;
    char room[512];
};

static inline struct rtattr *net_put(struct net_request *q, unsigned short type, const void *data,
                                     size_t len) {
    struct rtattr *a = (struct rtattr *)(void *)((char *)q + NLMSG_ALIGN(q->head.nlmsg_len));
    a->rta_type = type;
    a->rta_len = (unsigned short)RTA_LENGTH(len);
    if (len) memcpy(RTA_DATA(a), data, len);
    q->head.nlmsg_len = (uint32_t)(NLMSG_ALIGN(q->head.nlmsg_len) + RTA_ALIGN(a->rta_len));
    return a;
}
static inline void net_ends(struct net_request *q, struct rtattr *a) {
    a->rta_len = (unsigned short)((char *)q + q->head.nlmsg_len - (char *)a);
}

/* A pair of interfaces, one of them in the namespace `peer_ns`: `ip link add A type veth peer
 * name B netns FD`. */
static inline void net_add_pair(const char *name, const char *peer, int peer_ns) {
    const struct ifinfomsg none = {0};
    struct net_request q = {
        .head = {.nlmsg_len = NLMSG_LENGTH(sizeof none),
                 .nlmsg_type = RTM_NEWLINK,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK}};
    net_put(&q, IFLA_IFNAME, name, strlen(name) + 1);
    struct rtattr *info = net_put(&q, IFLA_LINKINFO, NULL, 0);
    net_put(&q, IFLA_INFO_KIND, "veth", 5);
    struct rtattr *data = net_put(&q, IFLA_INFO_DATA, NULL, 0);
    struct rtattr *other = net_put(&q, VETH_INFO_PEER, &none, sizeof none);
    net_put(&q, IFLA_IFNAME, peer, strlen(peer) + 1);
    net_put(&q, IFLA_NET_NS_FD, &peer_ns, sizeof peer_ns);
    net_ends(&q, other);
    net_ends(&q, data);
    net_ends(&q, info);
    char answer[1024] = {0};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    CHECK(fd >= 0 && send(fd, &q, q.head.nlmsg_len, 0) > 0 &&
          recv(fd, answer, sizeof answer, 0) > 0);
    const struct nlmsghdr *h = (const struct nlmsghdr *)(void *)answer;
    CHECK_EQ(h->nlmsg_type, NLMSG_ERROR);
    CHECK_EQ(((const struct nlmsgerr *)NLMSG_DATA(h))->error, 0);
    close(fd);
}

/* Its address, in a net of 256, and up. */
static inline void net_set_up(const char *name, const char *ip) {
    struct ifreq q = {0};
    struct sockaddr_in at = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    memcpy(q.ifr_name, name, strlen(name) + 1);
    inet_pton(AF_INET, ip, &at.sin_addr);
    memcpy(&q.ifr_addr, &at, sizeof at);
    CHECK_EQ(ioctl(fd, SIOCSIFADDR, &q), 0);
    inet_pton(AF_INET, "255.255.255.0", &at.sin_addr);
    memcpy(&q.ifr_netmask, &at, sizeof at);
    CHECK_EQ(ioctl(fd, SIOCSIFNETMASK, &q), 0);
    q.ifr_flags = IFF_UP | IFF_RUNNING;
    CHECK_EQ(ioctl(fd, SIOCSIFFLAGS, &q), 0);
    close(fd);
}

/* Runs `body` in a process of its own, whose network has nothing in it; it cannot come back from
 * there. Its failure is the test's. False: there are no such networks here, as its exit with
 * NET_NONE says, too. `as_user`: one that is not root has a namespace of users, too. */
enum { NET_NONE = 2 };
static inline bool net_apart(bool as_user, void (*body)(void *arg), void *arg) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (unshare(CLONE_NEWNET) < 0 && !(as_user && unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0))
            _exit(NET_NONE);
        test_result = 0;
        if (setjmp(test_out) == 0) body(arg);
        fflush(stdout);
        _exit(test_result);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    if (WEXITSTATUS(status) == NET_NONE) return false;
    CHECK_EQ(WEXITSTATUS(status), 0);
    return true;
}

static inline int net_here(void) {
    return open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
}

/* All else goes by that address. */
static inline void net_default_route(const char *gateway) {
    struct rtentry route = {.rt_flags = RTF_UP | RTF_GATEWAY};
    struct sockaddr_in at = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    memcpy(&route.rt_dst, &at, sizeof at);
    memcpy(&route.rt_genmask, &at, sizeof at);
    inet_pton(AF_INET, gateway, &at.sin_addr);
    memcpy(&route.rt_gateway, &at, sizeof at);
    CHECK_EQ(ioctl(fd, SIOCADDRT, &route), 0);
    close(fd);
}

/* This namespace passes on what is for others. */
static inline void net_forward(void) {
    int fd = open("/proc/sys/net/ipv4/ip_forward", O_WRONLY | O_CLOEXEC);
    CHECK(fd >= 0 && write(fd, "1", 1) == 1);
    close(fd);
}

#endif
