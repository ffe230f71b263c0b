#include "serve.h"
#include <errno.h>
#include <runtime/server.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <talloc.h>
#include <unistd.h>

struct line {
    ev_io in, out;
    struct serving *serving;
    uint32_t rank;
    int fd;      /* -1: hung up */
    char *bytes; /* not yet taken by the socket */
    size_t at, len, room;
};

struct serving {
    struct ev_loop *loop;
    const char *tool;
    struct run_server *server;
    uint32_t n;
    struct line lines[];
};

static void hang_up(struct line *l) {
    if (l->fd < 0) return;
    ev_io_stop(l->serving->loop, &l->in);
    ev_io_stop(l->serving->loop, &l->out);
    close(l->fd);
    l->fd = -1;
    l->at = l->len = 0;
    weft__run_server_gone(l->serving->server, l->rank);
}

/* A broken socket is noticed by the reader. */
static void flush_child(struct line *l) {
    while (l->at < l->len) {
        ssize_t n = send(l->fd, l->bytes + l->at, l->len - l->at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) break;
        l->at += (size_t)n;
    }
    if (l->at == l->len) {
        l->at = l->len = 0;
        ev_io_stop(l->serving->loop, &l->out);
    }
}

static void on_writable(struct ev_loop *loop, ev_io *watcher, int events) {
    (void)loop;
    (void)events;
    flush_child(watcher->data);
}

static void send_bytes(void *arg, uint32_t rank, const void *data, size_t len) {
    struct serving *s = arg;
    struct line *l = &s->lines[rank];
    if (l->fd < 0) return;
    if (l->len + len > l->room) {
        size_t room = 2 * (l->len + len);
        char *more = realloc(l->bytes, room);
        if (!more) {
            fprintf(stderr, "%s: out of memory for the exchange of rank %u\n", s->tool, rank);
            shutdown(l->fd, SHUT_RDWR); /* the reader hangs up, in a turn of its own */
            return;
        }
        l->bytes = more;
        l->room = room;
    }
    memcpy(l->bytes + l->len, data, len);
    l->len += len;
    ev_io_start(s->loop, &l->out);
}

static void on_readable(struct ev_loop *loop, ev_io *watcher, int events) {
    struct line *l = watcher->data;
    char bytes[65536];
    (void)loop;
    (void)events;
    ssize_t n = recv(l->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) return hang_up(l);
    weft_status_t st = weft__run_server_bytes(l->serving->server, l->rank, bytes, (size_t)n);
    if (st == WEFT_OK) return;
    fprintf(stderr, "%s: the exchange of rank %u: %s\n", l->serving->tool, l->rank,
            weft_status_sentence(st));
    hang_up(l);
}

struct serving *serving_open(struct ev_loop *loop, const char *tool, uint32_t n_ranks) {
    struct serving *s = calloc(1, sizeof *s + n_ranks * sizeof s->lines[0]);
    if (!s) return NULL;
    s->loop = loop;
    s->tool = tool;
    s->n = n_ranks;
    s->server = weft__run_server_create(NULL, n_ranks, send_bytes, s);
    for (uint32_t i = 0; i < n_ranks; i++) s->lines[i].fd = -1;
    if (s->server) return s;
    free(s);
    return NULL;
}

void serving_add(struct serving *s, uint32_t rank, int fd) {
    struct line *l = &s->lines[rank];
    l->serving = s;
    l->rank = rank;
    l->fd = fd;
    ev_io_init(&l->in, on_readable, fd, EV_READ);
    ev_io_init(&l->out, on_writable, fd, EV_WRITE);
    l->in.data = l->out.data = l;
    ev_io_start(s->loop, &l->in);
}

void serving_close(struct serving *s) {
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->lines[i].fd >= 0) hang_up(&s->lines[i]);
        free(s->lines[i].bytes);
    }
    talloc_free(s->server);
    free(s);
}
