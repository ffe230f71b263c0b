/*
 * The tcp transport beside a bare spinning socket, in one run: two processes pinned to two cores,
 * rounds of both kinds in turn. Prints the median and the best of the rounds: half round trip of 8
 * bytes, messages of 8 bytes, a stream of 1 MiB messages.
 *
 *     tcp_raw [ROUNDS]
 */
#define _GNU_SOURCE
#include "cores.h"
#include <arpa/inet.h>
#include <base/counters.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <transports/registry.h>
#include <unistd.h>

enum {
    PINGS = 3000,
    BURST = 512,
    MESSAGES = 400000,
    STREAM = 400,
    MIB = 1 << 20,
    PIECE = 256 * 1024
};
enum { AM_PING, AM_COUNT, AM_PIECE };

/* What both processes see: which round is on, and how far the far end has come. */
struct shared {
    atomic_int ready, port;
    atomic_ulong counted;
};
static struct shared *shared;

/* ---- the bare socket ------------------------------------------------------------------------- */

static void spin_read(int fd, void *to, size_t len) {
    for (size_t have = 0; have < len;) {
        ssize_t n = recv(fd, (char *)to + have, len - have, MSG_DONTWAIT);
        if (n > 0) have += (size_t)n;
        if (n == 0) exit(1);
    }
}
static void spin_write(int fd, const void *from, size_t len) {
    for (size_t gone = 0; gone < len;) {
        ssize_t n = send(fd, (const char *)from + gone, len - gone, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) gone += (size_t)n;
        if (n < 0 && errno != EAGAIN) exit(1);
    }
}

static int raw_pair_far(int listener) {
    int fd = accept(listener, NULL, NULL), on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}
static int raw_pair_near(int port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) < 0) exit(1);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static void raw_far_pings(int fd) {
    uint64_t v;
    for (int i = 0; i < PINGS; i++) {
        spin_read(fd, &v, 8);
        spin_write(fd, &v, 8);
    }
}
static double raw_pings(int fd) {
    uint64_t v = 0;
    double begin = now_ns();
    for (int i = 0; i < PINGS; i++) {
        spin_write(fd, &v, 8);
        spin_read(fd, &v, 8);
    }
    return (now_ns() - begin) / PINGS / 2;
}

static char *buffer;
static void raw_far_stream(int fd) {
    for (int i = 0; i < STREAM; i++) spin_read(fd, buffer, MIB);
    spin_write(fd, "k", 1);
}
static double raw_stream(int fd) {
    char k;
    double begin = now_ns();
    for (int i = 0; i < STREAM; i++) spin_write(fd, buffer, MIB);
    spin_read(fd, &k, 1);
    return (double)STREAM * MIB / (now_ns() - begin);
}

/* ---- weft ------------------------------------------------------------------------------------ */

static struct lane *lane;
static uint64_t answers, wanted;
static int up;

static void on_ping_far(struct lane *l, unsigned id, const void *data, size_t len) {
    l->ops->am_short(l, AM_PING, 1, NULL, 0);
}
static void on_ping_near(struct lane *l, unsigned id, const void *data, size_t len) {
    answers++;
}
static uint64_t counted;
static void on_count(struct lane *l, unsigned id, const void *data, size_t len) {
    counted++;
}
static void on_piece(struct lane *l, unsigned id, const void *data, size_t len) {
    memcpy(buffer + counted % 4 * PIECE, data, len); /* where the user wants it */
    counted++;
}
static void none(struct lane *l, unsigned id, const void *data, size_t len) {}
static void on_accepted(struct lane *l, void *arg) {
    lane = l, up = 1;
}
static void on_up(struct lane *l) {
    up = 1;
}
static void on_down(struct lane *l, weft_status_t status) {
    exit(1);
}
static void on_closed(struct lane *l) {}

static struct iface_up notified = {
    .accepted = on_accepted, .up = on_up, .down = on_down, .closed = on_closed};

static struct reactor *r;
static struct iface *weft_open(lane_am_fn on_ping) {
    weft_context_t *context;
    struct iface *iface;
    for (int i = 0; i < LANE_AM_IDS; i++) notified.am[i] = none;
    notified.am[AM_PING] = on_ping;
    notified.am[AM_COUNT] = on_count;
    notified.am[AM_PIECE] = on_piece;
    if (weft_context_create(NULL, &context) < 0) exit(1);
    if (weft__reactor_create(context, &(struct reactor_params){0}, &r) < 0) exit(1);
    if (weft__transport_tcp.open(r, &(struct iface_params){.up = &notified, .worker_id = 1},
                                 &iface) < 0)
        exit(1);
    return iface;
}

static void turn(void) {
    weft__reactor_progress(r, 0);
}

static double weft_pings(void) {
    double begin = now_ns();
    answers = 0;
    for (wanted = 1; wanted <= PINGS; wanted++) {
        lane->ops->am_short(lane, AM_PING, wanted, NULL, 0);
        while (answers < wanted) turn();
    }
    return (now_ns() - begin) / PINGS / 2;
}

static double weft_rate(double *per_write) {
    uint64_t writes = weft__count(r)->tcp_writes, before = atomic_load(&shared->counted);
    double begin = now_ns();
    for (int i = 0; i < MESSAGES;) {
        for (int k = 0; k < BURST && i < MESSAGES; k++, i++)
            while (lane->ops->am_short(lane, AM_COUNT, 0, NULL, 0) == WEFT_NO_RESOURCE) turn();
        turn();
    }
    while (atomic_load(&shared->counted) - before < MESSAGES) turn();
    double ns = now_ns() - begin;
    *per_write = (double)MESSAGES / (double)(weft__count(r)->tcp_writes - writes);
    return MESSAGES / ns * 1e3;
}

static void step(struct completion *c, weft_status_t status) {}
static double weft_stream(void) {
    static struct completion done[STREAM * 4];
    uint64_t before = atomic_load(&shared->counted);
    double begin = now_ns();
    for (int i = 0; i < STREAM * 4; i++) {
        weft_iov_t iov = {buffer + i % 4 * PIECE, PIECE};
        done[i] = (struct completion){.done = step, .count = 1};
        while (lane->ops->am_zcopy(lane, AM_PIECE, &(struct lane_zcopy){NULL, 0, &iov, 1},
                                   &done[i]) == WEFT_NO_RESOURCE)
            turn();
    }
    while (atomic_load(&shared->counted) - before < STREAM * 4) turn();
    return (double)STREAM * MIB / (now_ns() - begin);
}

/* ---- the two processes ----------------------------------------------------------------------- */

static void far_end(int listener, int rounds) {
    struct tl_listener *l;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pin(1);
    struct iface *iface = weft_open(on_ping_far);
    if (iface->ops->listen(iface, "127.0.0.1:0", &(struct listen_how){.backlog = 4}, NULL, &l) < 0)
        exit(1);
    atomic_store(&shared->port, atoi(strrchr(iface->ops->listener_uri(l), ':') + 1));
    int fd = raw_pair_far(listener);
    while (!up) turn();
    for (int i = 0; i < rounds; i++) {
        raw_far_pings(fd);
        raw_far_stream(fd);
        while (atomic_load(&shared->ready) == i) {
            turn();
            atomic_store(&shared->counted, counted);
        }
    }
    for (;;) turn();
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 9;
    if (rounds < 1 || rounds > 1000) return 2;
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t len = sizeof a;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&a, sizeof a) < 0 || listen(listener, 1) < 0) return 1;
    getsockname(listener, (struct sockaddr *)&a, &len);
    shared = shared_memory(sizeof *shared);
    buffer = shared_memory(MIB);
    fail_with_children();
    pid_t pid = fork();
    if (pid == 0) far_end(listener, rounds);
    buffer = shared_memory(MIB); /* each side its own */
    pin(0);
    struct iface *iface = weft_open(on_ping_near);
    int fd = raw_pair_near(ntohs(a.sin_port));
    while (!atomic_load(&shared->port))
        ;
    char where[32];
    snprintf(where, sizeof where, "127.0.0.1:%d", atomic_load(&shared->port));
    if (iface->ops->connect_uri(iface, where, &lane) < 0) return 1;
    while (!up) turn();

    double *v[5], per_write = 0;
    for (int i = 0; i < 5; i++) v[i] = calloc((size_t)rounds, sizeof(double));
    for (int i = 0; i < rounds; i++) {
        v[0][i] = raw_pings(fd);
        v[3][i] = raw_stream(fd);
        v[1][i] = weft_pings();
        v[2][i] = weft_rate(&per_write);
        v[4][i] = weft_stream();
        atomic_fetch_add(&shared->ready, 1);
    }
    for (int i = 0; i < 5; i++) sort_figures(v[i], (size_t)rounds);
    int mid = rounds / 2, last = rounds - 1;
    printf("                            median                      best\n");
    printf("half round trip, 8 B   raw  %6.0f ns                 %6.0f ns\n", v[0][mid], v[0][0]);
    printf("                       weft %6.0f ns  ratio %.3f    %6.0f ns  ratio %.3f\n", v[1][mid],
           v[1][mid] / v[0][mid], v[1][0], v[1][0] / v[0][0]);
    printf("messages, 8 B          weft %6.2f M/s                %6.2f M/s, %.0f in a write\n",
           v[2][mid], v[2][last], per_write);
    printf("stream, 1 MiB          raw  %6.2f GB/s               %6.2f GB/s\n", v[3][mid],
           v[3][last]);
    printf("                       weft %6.2f GB/s ratio %.3f   %6.2f GB/s ratio %.3f\n", v[4][mid],
           v[4][mid] / v[3][mid], v[4][last], v[4][last] / v[3][last]);
    kill(pid, SIGKILL);
    return 0;
}
