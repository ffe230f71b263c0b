#include "output.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* A pipe that polls writable takes so much without blocking (PIPE_BUF), and so does a terminal. */
enum { PIECE = 4096, HIGH_WATER = 1 << 20 };

/* ---- sinks ----------------------------------------------------------------------------------- */

static void set_paused(struct sink *sink, bool paused) {
    struct outputs *o = sink->outputs;
    if (sink->paused == paused) return;
    sink->paused = paused;
    for (uint32_t i = 0; i < 2 * o->n; i++) {
        struct source *s = &o->sources[i];
        if (!s->open || s->sink != sink) continue;
        if (paused)
            ev_io_stop(o->loop, &s->watcher);
        else
            ev_io_start(o->loop, &s->watcher);
    }
}

static void give_up(struct sink *sink, int error) {
    sink->error = error;
    sink->len = 0;
    ev_io_stop(sink->outputs->loop, &sink->watcher);
    if (sink->outputs->broken) sink->outputs->broken(sink->outputs);
}

/* Writes a piece; false when it must be tried again later. */
static bool write_piece(struct sink *sink) {
    ssize_t n = write(sink->watcher.fd, sink->bytes, sink->len < PIECE ? sink->len : PIECE);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n < 0) {
        give_up(sink, errno);
        return false;
    }
    sink->len -= (size_t)n;
    memmove(sink->bytes, sink->bytes + n, sink->len);
    return true;
}

static void on_writable(struct ev_loop *loop, ev_io *watcher, int events) {
    struct sink *sink = watcher->data;
    (void)events;
    write_piece(sink);
    if (sink->len == 0) ev_io_stop(loop, watcher);
    if (sink->len < HIGH_WATER / 2) set_paused(sink, false);
}

static void put_output(struct sink *sink, const char *bytes, size_t len) {
    if (sink->error) return;
    if (sink->len + len > sink->room) {
        size_t room = 2 * (sink->len + len);
        char *more = realloc(sink->bytes, room);
        if (!more) return give_up(sink, ENOMEM);
        sink->bytes = more;
        sink->room = room;
    }
    memcpy(sink->bytes + sink->len, bytes, len);
    sink->len += len;
    ev_io_start(sink->outputs->loop, &sink->watcher);
    if (sink->len > HIGH_WATER) set_paused(sink, true);
}

/* ---- terminals ------------------------------------------------------------------------------- */

/* The bytes that follow the first one of a character in UTF-8. */
static unsigned n_following(unsigned char first) {
    return first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : first >= 0xc2 ? 1 : 0;
}

/* Terminals also obey 0x80 to 0x9f: alone, or as the two bytes that UTF-8 has for them. */
static void replace_controls(char *line, size_t len) {
    unsigned following = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)line[i],
                      next = i + 1 < len ? (unsigned char)line[i + 1] : 0;
        bool continues = following > 0 && (c & 0xc0) == 0x80;
        bool ends = c == '\n' || c == '\t' || (c == '\r' && next == '\n');
        following = continues ? following - 1 : n_following(c);
        if (c == 0xc2 && next >= 0x80 && next < 0xa0)
            following = 0; /* neither stays */
        else if (ends || (c >= 0x20 && c < 0x7f) || c >= 0xa0 || continues)
            continue;
        line[i] = '?';
    }
}

/* ---- sources --------------------------------------------------------------------------------- */

/* A line, or a piece of one that is longer than the buffer or lacks its end: it gets one. */
static void forward(struct source *s, size_t len) {
    char prefix[16];
    int n = snprintf(prefix, sizeof prefix, "[%u] ", s->rank);
    put_output(s->sink, prefix, (size_t)n);
    if (s->sink->terminal) replace_controls(s->line, len);
    put_output(s->sink, s->line, len);
    if (s->line[len - 1] != '\n') put_output(s->sink, "\n", 1);
    s->len -= len;
    memmove(s->line, s->line + len, s->len);
}

static void forward_lines(struct source *s) {
    for (;;) {
        char *end = memchr(s->line, '\n', s->len);
        if (end)
            forward(s, (size_t)(end - s->line) + 1);
        else if (s->len == sizeof s->line)
            forward(s, s->len);
        else
            return;
    }
}

static void close_source(struct source *s) {
    if (s->len > 0) forward(s, s->len);
    ev_io_stop(s->outputs->loop, &s->watcher);
    close(s->watcher.fd);
    s->open = false;
}

/* How many bytes came; 0: none for now, or none any more. */
static size_t read_piece(struct source *s) {
    ssize_t n = read(s->watcher.fd, s->line + s->len, sizeof s->line - s->len);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (n <= 0) {
        close_source(s);
        return 0;
    }
    s->len += (size_t)n;
    forward_lines(s);
    return (size_t)n;
}

static void on_readable(struct ev_loop *loop, ev_io *watcher, int events) {
    (void)loop;
    (void)events;
    read_piece(watcher->data);
}

/* ---- all of them ----------------------------------------------------------------------------- */

bool outputs_open(struct outputs *o, struct ev_loop *loop, uint32_t n_ranks,
                  void (*broken)(struct outputs *)) {
    *o = (struct outputs){.loop = loop, .n = n_ranks, .broken = broken};
    o->sources = calloc(2 * n_ranks, sizeof o->sources[0]);
    for (int i = 0; i < 2; i++) {
        o->sinks[i].outputs = o;
        o->sinks[i].terminal = isatty(i + 1);
        ev_io_init(&o->sinks[i].watcher, on_writable, i + 1, EV_WRITE);
        o->sinks[i].watcher.data = &o->sinks[i];
    }
    return o->sources != NULL;
}

void outputs_forward(struct outputs *o, uint32_t rank, int to, int fd) {
    struct source *s = &o->sources[2 * rank + (uint32_t)to - 1];
    fcntl(fd, F_SETFL, O_NONBLOCK);
    s->outputs = o;
    s->sink = &o->sinks[to - 1];
    s->rank = rank;
    s->open = true;
    ev_io_init(&s->watcher, on_readable, fd, EV_READ);
    s->watcher.data = s;
    ev_io_start(o->loop, &s->watcher);
}

void outputs_report(struct outputs *o, const char *format, ...) {
    struct sink *sink = &o->sinks[1];
    struct pollfd now = {.fd = sink->watcher.fd, .events = POLLOUT};
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (sink->len == 0 && poll(&now, 1, 0) > 0)
        (void)!write(sink->watcher.fd, line, strlen(line));
    else
        put_output(sink, line, strlen(line));
}

int outputs_error(const struct outputs *o) {
    return o->sinks[0].error ? o->sinks[0].error : o->sinks[1].error;
}

/* All of it, however slow the reader is. */
static void write_rest(struct sink *sink) {
    struct pollfd writable = {.fd = sink->watcher.fd, .events = POLLOUT};
    while (sink->len > 0 && !sink->error)
        if (!write_piece(sink)) poll(&writable, 1, -1);
}

/* What is in the pipe now: what outlived its process may hold the other end, and go on writing. */
static void read_rest(struct source *s) {
    int in_pipe = 0;
    size_t n;
    (void)ioctl(s->watcher.fd, FIONREAD, &in_pipe);
    for (size_t got = 0; s->open && got < (size_t)in_pipe; got += n)
        if ((n = read_piece(s)) == 0) break;
    if (s->open) close_source(s);
}

void outputs_close(struct outputs *o) {
    o->broken = NULL;
    for (uint32_t i = 0; o->sources && i < 2 * o->n; i++)
        if (o->sources[i].open) read_rest(&o->sources[i]);
    for (int i = 0; i < 2; i++) {
        struct sink *sink = &o->sinks[i];
        write_rest(sink); /* the job is over: may block */
        ev_io_stop(o->loop, &sink->watcher);
        free(sink->bytes);
    }
    free(o->sources);
}
