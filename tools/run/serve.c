#include "serve.h"
#include <errno.h>
#include <runtime/answer.h>
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
    int fd; /* -1: hung up */
    struct run_outbox out_box;
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
    weft__run_outbox_clear(&l->out_box);
    weft__run_server_gone(l->serving->server, l->rank);
}

/* A broken socket is noticed by the reader. */
static void on_writable(struct ev_loop *loop, ev_io *watcher, int events) {
    struct line *l = watcher->data;
    (void)events;
    if (weft__run_outbox_write(&l->out_box, l->fd) != WEFT_IN_PROGRESS) ev_io_stop(loop, &l->out);
}

static void send_answer(void *arg, uint32_t rank, struct run_answer *answer) {
    struct serving *s = arg;
    struct line *l = &s->lines[rank];
    if (l->fd < 0) return;
    if (weft__run_outbox_add(&l->out_box, s->server, answer) == WEFT_OK) {
        ev_io_start(s->loop, &l->out);
        return;
    }
    fprintf(stderr, "%s: out of memory for the exchange of rank %u\n", s->tool, rank);
    shutdown(l->fd, SHUT_RDWR); /* the reader hangs up, in a turn of its own */
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
    s->server = weft__run_server_create(NULL, n_ranks, send_answer, s);
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
    weft__run_outbox_init(&l->out_box);
    ev_io_init(&l->in, on_readable, fd, EV_READ);
    ev_io_init(&l->out, on_writable, fd, EV_WRITE);
    l->in.data = l->out.data = l;
    ev_io_start(s->loop, &l->in);
}

void serving_close(struct serving *s) {
    for (uint32_t i = 0; i < s->n; i++) hang_up(&s->lines[i]);
    talloc_free(s->server);
    free(s);
}
