/*
 * A server written by hand on libev, the way it is usually done: a watcher for each connection,
 * which reads what there is and writes it back. It has one core; the clients, on the other one,
 * have one request of 64 bytes under way each. Prints name TAB requests a second TAB unit.
 *
 *     libev_echo tcp|unix [CLIENTS [SECONDS]]
 */
#define _GNU_SOURCE
#include "cores.h"
#include <errno.h>
#include <ev.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REQUEST = 64, MOST_CLIENTS = 1024, READY_AT_ONCE = 256 };
static const double warm_s = 0.1;

struct place {
    bool unix_socket;
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_un un;
    } address;
    socklen_t len;
};

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void at_once(const struct place *place, int fd) {
    int one = 1;
    if (!place->unix_socket) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static int listen_at(struct place *place) {
    if (place->unix_socket) {
        place->address.un.sun_family = AF_UNIX; /* and an abstract name that the kernel chooses */
        place->len = sizeof(sa_family_t);
    } else {
        place->address.in =
            (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        place->len = sizeof place->address.in;
    }
    int fd = socket(place->address.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, &place->address.any, place->len) < 0 || listen(fd, MOST_CLIENTS) < 0)
        die("listen");
    place->len = sizeof place->address;
    getsockname(fd, &place->address.any, &place->len);
    return fd;
}

/* ---- the server ------------------------------------------------------------------------------ */

static void on_readable(struct ev_loop *loop, ev_io *watcher, int events) {
    static char bytes[1 << 16];
    (void)events;
    ssize_t n = recv(watcher->fd, bytes, sizeof bytes, 0);
    if (n > 0) {
        if (send(watcher->fd, bytes, (size_t)n, MSG_NOSIGNAL) != n) die("send");
        return;
    }
    if (n < 0 && errno == EAGAIN) return;
    ev_io_stop(loop, watcher);
    close(watcher->fd);
    free(watcher);
}

static void on_client(struct ev_loop *loop, ev_io *listener, int events) {
    const struct place *place = listener->data;
    int fd;
    (void)events;
    while ((fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        ev_io *watcher = malloc(sizeof *watcher);
        if (!watcher) die("malloc");
        at_once(place, fd);
        ev_io_init(watcher, on_readable, fd, EV_READ);
        ev_io_start(loop, watcher);
    }
}

static _Noreturn void serve(struct place *place, int fd) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pin(0);
    struct ev_loop *loop = ev_default_loop(EVBACKEND_EPOLL);
    ev_io listener;
    ev_io_init(&listener, on_client, fd, EV_READ);
    listener.data = place;
    ev_io_start(loop, &listener);
    ev_run(loop, 0);
    _exit(1);
}

/* ---- the clients ----------------------------------------------------------------------------- */

struct client {
    int fd;
    size_t got;
};

static void connect_client(const struct place *place, struct client *client, int epoll) {
    char request[REQUEST] = {0};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};
    client->fd = socket(place->address.any.sa_family, SOCK_STREAM, 0);
    if (client->fd < 0 || connect(client->fd, &place->address.any, place->len) < 0) die("connect");
    at_once(place, client->fd);
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, client->fd, &event) < 0) die("epoll");
    if (send(client->fd, request, sizeof request, MSG_NOSIGNAL) != sizeof request) die("send");
}

/* Returns whether an answer was complete; then the next request is on its way. */
static bool take_answer(struct client *client) {
    char bytes[REQUEST];
    ssize_t n = recv(client->fd, bytes, sizeof bytes - client->got, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN)) die("recv");
    if (n > 0) client->got += (size_t)n;
    if (client->got < REQUEST) return false;
    client->got = 0;
    if (send(client->fd, bytes, sizeof bytes, MSG_NOSIGNAL) != sizeof bytes) die("send");
    return true;
}

static unsigned long answers_until(int epoll, double end_ns) {
    struct epoll_event ready[READY_AT_ONCE];
    unsigned long answers = 0;
    while (now_ns() < end_ns) {
        int n = epoll_wait(epoll, ready, READY_AT_ONCE, 100);
        for (int i = 0; i < n; i++) answers += take_answer(ready[i].data.ptr);
    }
    return answers;
}

int main(int argc, char **argv) {
    static struct client clients[MOST_CLIENTS];
    const char *kind = argc > 1 ? argv[1] : "";
    int n = argc > 2 ? atoi(argv[2]) : 64, epoll = epoll_create1(0);
    double seconds = argc > 3 ? atof(argv[3]) : 0.3;
    struct place place = {.unix_socket = strcmp(kind, "unix") == 0};
    if ((!place.unix_socket && strcmp(kind, "tcp") != 0) || n < 1 || n > MOST_CLIENTS) {
        fprintf(stderr, "libev_echo tcp|unix [CLIENTS [SECONDS]]\n");
        return 2;
    }
    int fd = listen_at(&place);
    fail_with_children();
    pid_t server = fork();
    if (server == 0) serve(&place, fd);
    pin(1);
    for (int i = 0; i < n; i++) connect_client(&place, &clients[i], epoll);
    answers_until(epoll, now_ns() + warm_s * 1e9);
    double begin = now_ns();
    unsigned long answers = answers_until(epoll, begin + seconds * 1e9);
    printf("libev %s\t%.6g\t1/s\n", kind, (double)answers / (now_ns() - begin) * 1e9);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    return 0;
}
