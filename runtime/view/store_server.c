/* The store: accepts the connections of ranks, checks their hello, and carries the exchange's
 * frames. */
#include "store_server.h"

#include <base/alloc.h>
#include <base/compiler.h>
#include <base/status.h>
#include <errno.h>
#include <runtime/answer.h>
#include <runtime/server.h>
#include <string.h>
#include <sys/socket.h>
#include <talloc.h>
#include <unistd.h>

/* One connection. Until its hello is whole it is of no rank. */
struct store_line {
    struct store_server *server;
    struct watch watch;
    uint64_t since; /* when it was accepted */
    uint32_t rank;  /* NO_RANK: not known yet */
    uint8_t hello[STORE_HELLO];
    size_t n_hello;
    struct run_outbox out;
};

enum { NO_RANK = UINT32_MAX, UNVERIFIED_MOST = 64, PAUSE_MS = 100, SILENT_MS = 5000 };

struct store_server {
    struct reactor *reactor;
    struct run_server *rounds;
    struct watch listener;
    struct timer again; /* while accepting pauses; reserved */
    bool lacks_room;    /* descriptors, or memory, when the last one came */
    uint32_t size, n_unverified;
    struct store_line **line; /* of each rank; NULL: not here, or gone */
    struct store_line *unverified[UNVERIFIED_MOST];
};

/* ---- the hello ----------------------------------------------------------------------------- */

static const uint8_t magic[4] = {'W', 'S', 'T', '2'};

static void store_put32(uint8_t *to, uint32_t value) {
    for (int i = 0; i < 4; i++) to[i] = (uint8_t)(value >> 8 * i);
}

static uint32_t store_get32(const uint8_t *from) {
    return from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

void weft__store_hello(uint8_t hello[STORE_HELLO], uint32_t rank, uint32_t size) {
    memcpy(hello, magic, sizeof magic);
    store_put32(hello + 4, rank);
    store_put32(hello + 8, size);
}

weft_status_t weft__store_answer(const uint8_t answer[STORE_ANSWER]) {
    if (store_get32(answer) == WEFT_OK) return WEFT_OK;
    return weft__run_decode_status(answer, STORE_ANSWER);
}

/* ---- one connection ------------------------------------------------------------------------ */

/*
 * Accepting pauses while there are as many connections without a hello as there may be, or no
 * descriptors or memory. Further ones wait in the kernel: among them are ranks, and a rank connects
 * again a few times only.
 */
static void watch_listener(struct store_server *server) {
    struct reactor *r = server->reactor;
    bool pauses = server->n_unverified == UNVERIFIED_MOST || server->lacks_room;
    int events = pauses ? 0 : WATCH_READ;
    if (events != server->listener.events) weft__watch_change(r, &server->listener, events);
    if (pauses && !weft__timer_running(&server->again))
        weft__timer_start(r, &server->again, weft__now(r) + PAUSE_MS * NS_PER_MS);
}

static void forget_unverified(struct store_server *server, const struct store_line *line) {
    for (uint32_t i = 0; i < server->n_unverified; i++)
        if (server->unverified[i] == line)
            server->unverified[i] = server->unverified[--server->n_unverified];
    watch_listener(server);
}

static void close_line(struct store_line *line) {
    struct store_server *server = line->server;
    weft__watch_stop(server->reactor, &line->watch);
    close(line->watch.fd);
    weft__run_outbox_clear(&line->out);
    if (line->rank == NO_RANK)
        forget_unverified(server, line);
    else
        server->line[line->rank] = NULL;
    weft__free_later(server->reactor, line);
}

/* A rank says its hello as soon as it has connected. */
static void close_silent(struct store_server *server) {
    uint64_t now = weft__now(server->reactor);
    for (uint32_t i = server->n_unverified; i-- > 0;)
        if (now - server->unverified[i]->since >= SILENT_MS * NS_PER_MS)
            close_line(server->unverified[i]);
}

static void accept_again(struct timer *timer) {
    struct store_server *server = container_of(timer, struct store_server, again);
    server->lacks_room = false;
    if (server->n_unverified == UNVERIFIED_MOST) close_silent(server);
    watch_listener(server);
}

static void lose_line(struct store_line *line) {
    uint32_t rank = line->rank;
    struct store_server *server = line->server;
    close_line(line);
    if (rank != NO_RANK) weft__run_server_gone(server->rounds, rank);
}

static bool write_out(struct store_line *line) {
    weft_status_t st = weft__run_outbox_write(&line->out, line->watch.fd);
    int events = WATCH_READ | (st == WEFT_IN_PROGRESS ? WATCH_WRITE : 0);
    return st >= 0 && weft__watch_change(line->server->reactor, &line->watch, events) >= 0;
}

/* From the rounds: written from the run queue's next look at the socket. */
static void to_rank(void *arg, uint32_t rank, struct run_answer *answer) {
    struct store_server *server = arg;
    struct store_line *line = server->line[rank];
    if (!line) return;
    if (weft__run_outbox_add(&line->out, line, answer) < 0)
        shutdown(line->watch.fd, SHUT_RDWR); /* read as its end, in a turn of its own */
    else
        weft__watch_change(server->reactor, &line->watch, WATCH_READ | WATCH_WRITE);
}

static weft_status_t verify_handshake(const struct store_line *line) {
    const struct store_server *server = line->server;
    uint32_t rank = store_get32(line->hello + 4), size = store_get32(line->hello + 8);
    if (memcmp(line->hello, magic, sizeof magic) != 0) return WEFT_ERR_PROTOCOL;
    if (size != server->size || rank >= size) return WEFT_ERR_INVALID_PARAM;
    if (weft__run_server_is_gone(server->rounds, rank)) return WEFT_ERR_PEER_FAILED;
    return server->line[rank] ? WEFT_ERR_EXISTS : WEFT_OK;
}

/* The socket is new: it takes so little at once, or is broken. */
static bool send_answer(const struct store_line *line, weft_status_t status) {
    uint8_t answer[STORE_ANSWER];
    store_put32(answer, (uint32_t)status);
    return send(line->watch.fd, answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT) ==
           (ssize_t)sizeof answer;
}

/* False: the line is none of a rank. */
static bool take_hello(struct store_line *line) {
    struct store_server *server = line->server;
    weft_status_t st = verify_handshake(line);
    if (st == WEFT_ERR_PROTOCOL || !send_answer(line, st) || st < 0) return false;
    forget_unverified(server, line);
    line->rank = store_get32(line->hello + 4);
    server->line[line->rank] = line;
    return true;
}

/* The hello first, then what the rounds read. False: the connection is over. */
static bool take_bytes(struct store_line *line, const uint8_t *bytes, size_t n) {
    while (line->rank == NO_RANK && n > 0) {
        line->hello[line->n_hello++] = *bytes++;
        n--;
        if (line->n_hello == STORE_HELLO && !take_hello(line)) return false;
    }
    return n == 0 || weft__run_server_bytes(line->server->rounds, line->rank, bytes, n) >= 0;
}

static void line_ready(struct watch *watch, int events) {
    struct store_line *line = container_of(watch, struct store_line, watch);
    uint8_t bytes[16384];
    if (events & WATCH_WRITE && !write_out(line)) {
        lose_line(line);
        return;
    }
    ssize_t n = recv(watch->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    bool later = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    if (later) return;
    if (n <= 0 || !take_bytes(line, bytes, (size_t)n)) lose_line(line);
}

static weft_status_t add_line(struct store_server *server, int fd) {
    struct store_line *line = weft__new(server, struct store_line);
    if (!line) return WEFT_ERR_NO_MEMORY;
    line->server = server;
    line->rank = NO_RANK;
    line->since = weft__now(server->reactor);
    line->watch.ready = line_ready;
    weft__run_outbox_init(&line->out);
    weft_status_t st = weft__watch_start(server->reactor, &line->watch, fd, WATCH_READ);
    if (st < 0) {
        talloc_free(line);
        return st;
    }
    server->unverified[server->n_unverified++] = line;
    watch_listener(server);
    return WEFT_OK;
}

/* ---- the listener -------------------------------------------------------------------------- */

static void accept_some(struct watch *watch, int events) {
    struct store_server *server = container_of(watch, struct store_server, listener);
    (void)events;
    int fd = accept4(watch->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    weft_status_t st = fd < 0 ? weft__errno_status(errno) : add_line(server, fd);
    if (fd >= 0 && st < 0) close(fd); /* the rank connects again */
    server->lacks_room = weft__lacks_room(st);
    if (server->lacks_room) watch_listener(server);
}

static weft_status_t listen_at(const struct addrinfo *at, int *fd_p) {
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;
    if (fd < 0) return weft__fail(WEFT_ERR_NO_FDS, "store: %s", strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) {
        *fd_p = fd;
        return WEFT_OK;
    }
    weft_status_t st = errno == EADDRINUSE      ? WEFT_ERR_EXISTS
                       : errno == EADDRNOTAVAIL ? WEFT_ERR_INVALID_PARAM
                                                : WEFT_ERR_IO;
    st = weft__fail(st, "store: rank 0 cannot listen there: %s", strerror(errno));
    close(fd);
    return st;
}

static weft_status_t own_line(struct store_server *server, int *own_fd_p) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return weft__fail(WEFT_ERR_NO_FDS, "store: %s", strerror(errno));
    weft_status_t st = add_line(server, pair[0]);
    if (st < 0) {
        close(pair[0]);
        close(pair[1]);
        return st;
    }
    *own_fd_p = pair[1];
    return WEFT_OK;
}

weft_status_t weft__store_server_start(const void *parent, struct reactor *reactor,
                                       const struct addrinfo *at, uint32_t size, int *own_fd_p,
                                       struct store_server **server_p) {
    int fd = -1;
    struct store_server *server = weft__new(parent, struct store_server);
    if (!server) return WEFT_ERR_NO_MEMORY;
    server->reactor = reactor;
    server->size = size;
    server->listener.ready = accept_some;
    server->again.fire = accept_again;
    server->line = weft__alloc(server, size * sizeof *server->line, "lines");
    server->rounds = weft__run_server_create(server, size, to_rank, server);
    weft_status_t st = server->line && server->rounds ? listen_at(at, &fd) : WEFT_ERR_NO_MEMORY;
    if (st == WEFT_OK) st = weft__timer_reserve(reactor, &server->again);
    if (st == WEFT_OK) st = weft__watch_start(reactor, &server->listener, fd, WATCH_READ);
    if (st == WEFT_OK) st = own_line(server, own_fd_p);
    if (st == WEFT_OK) {
        *server_p = server;
        return WEFT_OK;
    }
    if (server->listener.events) weft__watch_stop(reactor, &server->listener);
    weft__timer_release(reactor, &server->again);
    if (fd >= 0) close(fd);
    talloc_free(server);
    return st;
}

void weft__store_server_stop(struct store_server *server) {
    while (server->n_unverified) close_line(server->unverified[0]);
    for (uint32_t r = 0; r < server->size; r++)
        if (server->line[r]) close_line(server->line[r]);
    weft__watch_stop(server->reactor, &server->listener);
    weft__timer_release(server->reactor, &server->again);
    close(server->listener.fd);
}
