/*
 * What the machine itself can do, with nothing in between: the figures that Weft is compared with.
 * Each prints name TAB value TAB unit, twice: half round trips between two pinned processes by
 * their average, and by the median of short batches, in which what other programs do to a shared
 * machine is not.
 *
 *     raw ring | tcp_spin | tcp_epoll | unix_spin | eventfd_epoll  [SECONDS [SIZE]]
 *
 * SIZE is that of a socket's messages, 8 bytes unless given.
 */
#define _GNU_SOURCE
#include "cores.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void die(const char *what) {
    perror(what);
    exit(1);
}

/* ---- a way to send 8 bytes and to await 8 bytes, for each side ------------------------------- */

enum { SLOTS = 64 };
struct slot {
    _Alignas(64) _Atomic uint64_t sequence;
    uint64_t payload;
};

struct side {
    struct slot *out, *in; /* rings */
    uint64_t sent, received;
    int to, from, epoll; /* descriptors */
    bool spin;
};

static void ring_send(struct side *s, uint64_t value) {
    struct slot *slot = &s->out[s->sent % SLOTS];
    slot->payload = value;
    atomic_store_explicit(&slot->sequence, ++s->sent, memory_order_release);
}

static uint64_t ring_receive(struct side *s) {
    struct slot *slot = &s->in[s->received % SLOTS];
    s->received++;
    while (atomic_load_explicit(&slot->sequence, memory_order_acquire) != s->received) {
    }
    return slot->payload;
}

static char bytes[1 << 20];
static size_t message = sizeof(uint64_t);

static void stream_send(struct side *s, uint64_t value) {
    memcpy(bytes, &value, sizeof value);
    for (size_t at = 0; at < message;) {
        ssize_t n = send(s->to, bytes + at, message - at, MSG_NOSIGNAL);
        if (n < 0) die("send");
        at += (size_t)n;
    }
}

static void sleep_until_readable(struct side *s) {
    struct epoll_event event;
    while (epoll_wait(s->epoll, &event, 1, -1) != 1) {
    }
}

static uint64_t stream_receive(struct side *s) {
    uint64_t value;
    size_t got = 0;
    while (got < message) {
        if (!s->spin) sleep_until_readable(s);
        ssize_t n = recv(s->from, bytes + got, message - got, MSG_DONTWAIT);
        if (n > 0) got += (size_t)n;
        if (n == 0 || (n < 0 && errno != EAGAIN)) die("recv");
    }
    memcpy(&value, bytes, sizeof value);
    return value;
}

static void eventfd_send(struct side *s, uint64_t value) {
    (void)value;
    if (write(s->to, &(uint64_t){1}, sizeof(uint64_t)) < 0) die("write");
}

static uint64_t eventfd_receive(struct side *s) {
    uint64_t value;
    sleep_until_readable(s);
    if (read(s->from, &value, sizeof value) < 0) die("read");
    return value;
}

/* ---- connecting the sides -------------------------------------------------------------------- */

static int epoll_on(int fd) {
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0) die("epoll");
    return epoll;
}

static void connect_rings(struct side sides[2]) {
    struct slot *a = shared_memory(SLOTS * sizeof *a), *b = shared_memory(SLOTS * sizeof *b);
    sides[0] = (struct side){.out = a, .in = b};
    sides[1] = (struct side){.out = b, .in = a};
}

static void connect_fds(struct side sides[2], const int fds[2], bool spin) {
    for (int i = 0; i < 2; i++)
        sides[i] =
            (struct side){.to = fds[i], .from = fds[i], .epoll = epoll_on(fds[i]), .spin = spin};
}

static void connect_tcp(struct side sides[2], bool spin) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int one = 1, fds[2], listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (void *)&address, len) < 0 || listen(listener, 1) < 0) die("listen");
    getsockname(listener, (void *)&address, &len);
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fds[0], (void *)&address, len) < 0) die("connect");
    fds[1] = accept(listener, NULL, NULL);
    close(listener);
    for (int i = 0; i < 2; i++) setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    connect_fds(sides, fds, spin);
}

static void connect_unix(struct side sides[2]) {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) < 0) die("socketpair");
    connect_fds(sides, fds, true);
}

static void connect_eventfds(struct side sides[2]) {
    int fds[2] = {eventfd(0, 0), eventfd(0, 0)};
    for (int i = 0; i < 2; i++)
        sides[i] = (struct side){.to = fds[1 - i], .from = fds[i], .epoll = epoll_on(fds[i])};
}

/* ---- the ping-pong --------------------------------------------------------------------------- */

typedef void (*send_fn)(struct side *, uint64_t);
typedef uint64_t (*receive_fn)(struct side *);

static double round_trips(struct side *s, send_fn send_one, receive_fn receive_one, uint64_t n) {
    double begin = now_ns();
    for (uint64_t i = 0; i < n; i++) {
        send_one(s, i);
        receive_one(s);
    }
    return now_ns() - begin;
}

enum { MOST_BATCHES = 1 << 20 };

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, size_t n) {
    qsort(values, n, sizeof values[0], by_size);
    return values[n / 2];
}

static void ping_pong(const char *name, struct side sides[2], send_fn send_one,
                      receive_fn receive_one, double seconds) {
    fail_with_children();
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin(1);
        for (;;) send_one(&sides[1], receive_one(&sides[1]));
    }
    pin(0);
    double each = round_trips(&sides[0], send_one, receive_one, 1000) / 1000;
    uint64_t batch = each < 5000 ? (uint64_t)(5000 / each) : 1;
    size_t n = 0;
    static double ns[MOST_BATCHES];
    double begin = now_ns();
    for (; n < MOST_BATCHES && now_ns() - begin < seconds * 1e9; n++)
        ns[n] = round_trips(&sides[0], send_one, receive_one, batch) / (double)batch;
    double average = (now_ns() - begin) / (double)(n * batch);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    printf("%s\t%.5g\tus\n", name, average / 2e3);
    printf("%s, median\t%.5g\tus\n", name, median(ns, n) / 2e3);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    double seconds = argc > 2 ? atof(argv[2]) : 0.3;
    if (argc > 3) message = (size_t)atol(argv[3]);
    struct side sides[2];
    if (message < sizeof(uint64_t) || message > sizeof bytes) {
        fprintf(stderr, "raw: SIZE is 8 to %zu\n", sizeof bytes);
        return 2;
    }
    if (strcmp(what, "ring") == 0) {
        connect_rings(sides);
        ping_pong("raw ring", sides, ring_send, ring_receive, seconds);
    } else if (strcmp(what, "tcp_spin") == 0 || strcmp(what, "tcp_epoll") == 0) {
        bool spin = strcmp(what, "tcp_spin") == 0;
        connect_tcp(sides, spin);
        ping_pong(spin ? "raw tcp" : "raw tcp + epoll", sides, stream_send, stream_receive,
                  seconds);
    } else if (strcmp(what, "unix_spin") == 0) {
        connect_unix(sides);
        ping_pong("raw unix", sides, stream_send, stream_receive, seconds);
    } else if (strcmp(what, "eventfd_epoll") == 0) {
        connect_eventfds(sides);
        ping_pong("raw eventfd + epoll", sides, eventfd_send, eventfd_receive, seconds);
    } else {
        fprintf(stderr,
                "raw ring | tcp_spin | tcp_epoll | unix_spin | eventfd_epoll  [SECONDS [SIZE]]\n");
        return 2;
    }
    return 0;
}
