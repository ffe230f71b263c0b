/*
 * Measures the cost of a message between two sockets of one thread, on loopback. The kernel
 * delivers it within the sending call, so one thread sees all of the cost except the transfer
 * between processors. The cost of a network is unknown before its first use.
 */
#define _GNU_SOURCE
#include "tcp.h"

#include <netinet/tcp.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

enum {
    SMALL = 64,
    PIECE = 64 << 10, /* goes into a socket's buffers as the system makes them */
    WHOLE = 1 << 20,
    TIMES = 16,
    ROUNDS = 3,
    /* nanoseconds until another processor that looks for it sees it: measured with two */
    BETWEEN = 2000,
    TIMEOUT_US = 10000
};

struct pair {
    int from, to;
};

static void close_pair(struct pair *pair) {
    if (pair->from >= 0) close(pair->from);
    if (pair->to >= 0) close(pair->to);
}

/* Neither waits long, whatever becomes of what is sent. */
static int bounded_socket(void) {
    struct timeval timeout = {.tv_usec = TIMEOUT_US};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

/* True if the two sockets are the ends of one connection: another process may have connected. */
static bool are_one(int from, int to) {
    struct sockaddr_in own = {0}, peer = {0};
    socklen_t own_len = sizeof own, peer_len = sizeof peer;
    return getsockname(from, (struct sockaddr *)&own, &own_len) == 0 &&
           getpeername(to, (struct sockaddr *)&peer, &peer_len) == 0 &&
           own.sin_port == peer.sin_port && own.sin_addr.s_addr == peer.sin_addr.s_addr;
}

static bool open_pair(struct pair *pair) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int listener = bounded_socket();
    pair->from = bounded_socket();
    pair->to = -1;
    if (listener >= 0 && pair->from >= 0 &&
        bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 1) == 0 &&
        getsockname(listener, (struct sockaddr *)&at, &len) == 0 &&
        connect(pair->from, (struct sockaddr *)&at, sizeof at) == 0)
        pair->to = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (listener >= 0) close(listener);
    return pair->to >= 0 && are_one(pair->from, pair->to);
}

/* Sent and taken, in as many goes as the kernel has room for; how long the sending took, or 0:
 * it failed. */
static uint64_t carry(const struct pair *pair, const char *from, char *to, size_t len) {
    uint64_t sending = 0;
    for (size_t done = 0; done < len;) {
        uint64_t begin = weft__real_now();
        ssize_t sent = send(pair->from, from + done, len - done, MSG_DONTWAIT | MSG_NOSIGNAL);
        sending += weft__real_now() - begin;
        if (sent <= 0 || recv(pair->to, to + done, (size_t)sent, MSG_WAITALL) != sent) return 0;
        done += (size_t)sent;
    }
    return sending ? sending : 1;
}

static bool keep_least(uint64_t value, double *least_p) {
    if (value && (*least_p == 0 || (double)value < *least_p)) *least_p = (double)value;
    return value != 0;
}

static bool measure_small(const struct pair *pair, char *memory, struct iface_cost *cost) {
    for (int i = 0; i < ROUNDS * TIMES; i++) {
        uint64_t begin = weft__real_now(), sending = carry(pair, memory, memory + SMALL, SMALL);
        uint64_t both = weft__real_now() - begin;
        if (!keep_least(sending, &cost->latency_ns)) return false;
        (void)keep_least(both > sending ? both - sending : 1, &cost->overhead_ns);
    }
    cost->latency_ns += BETWEEN;
    return true;
}

static bool measure_large(const struct pair *pair, char *memory, struct iface_cost *cost) {
    double least = 0;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t begin = weft__real_now();
        for (size_t at = 0; at < WHOLE; at += PIECE)
            if (!carry(pair, memory + at, memory + WHOLE + at, PIECE)) return false;
        (void)keep_least(weft__real_now() - begin, &least);
    }
    cost->bandwidth = least > 0 ? WHOLE * 1e9 / least : 0;
    return least > 0;
}

bool weft__tcp_measure(struct iface_cost *cost_p) {
    struct iface_cost cost = {0};
    struct pair pair;
    char *memory = mmap(NULL, 2 * WHOLE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) return false;
    bool found = open_pair(&pair) && measure_small(&pair, memory, &cost) &&
                 measure_large(&pair, memory, &cost);
    close_pair(&pair);
    munmap(memory, 2 * WHOLE);
    if (found) *cost_p = cost;
    return found;
}
