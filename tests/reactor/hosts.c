#include "hosts.h"
#include <ev.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <unistd.h>

void host_progress(struct host *host) {
    host->reports++;
    weft__reactor_progress(host->r, host->budget);
}

static void open_plain(struct host *host) {}
static void close_plain(struct host *host) {}

/* ---- poll, select ---------------------------------------------------------------------------- */

static void step_poll(struct host *host, int timeout_ms) {
    struct pollfd fd = {weft__reactor_fd(host->r), POLLIN, 0};
    if (poll(&fd, 1, timeout_ms) > 0) host_progress(host);
}
const struct host host_poll = {
    .name = "poll", .open = open_plain, .step = step_poll, .close = close_plain};

static void step_select(struct host *host, int timeout_ms) {
    int fd = weft__reactor_fd(host->r);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    struct timeval timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000};
    if (select(fd + 1, &set, NULL, NULL, &timeout) > 0) host_progress(host);
}
const struct host host_select = {
    .name = "select", .open = open_plain, .step = step_select, .close = close_plain};

/* ---- epoll: level, edge, nested -------------------------------------------------------------- */

static int epoll_over(int fd, uint32_t events) {
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {events, {.fd = fd}};
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)) abort();
    return epoll;
}

static void open_epoll(struct host *host) {
    host->fd = epoll_over(weft__reactor_fd(host->r), EPOLLIN);
}
static void open_level(struct host *host) {
    host->fd = epoll_over(weft__reactor_fd_level(host->r), EPOLLIN);
}
static void open_edge(struct host *host) {
    host->fd = epoll_over(weft__reactor_fd(host->r), EPOLLIN | EPOLLET);
}
static void open_nested(struct host *host) {
    host->inner_fd = epoll_over(weft__reactor_fd(host->r), EPOLLIN);
    host->fd = epoll_over(host->inner_fd, EPOLLIN);
}

static void step_epoll(struct host *host, int timeout_ms) {
    struct epoll_event event;
    if (epoll_wait(host->fd, &event, 1, timeout_ms) > 0) host_progress(host);
}

static void close_epoll(struct host *host) {
    close(host->fd);
    if (host->inner_fd) close(host->inner_fd);
}
const struct host host_epoll = {
    .name = "epoll", .open = open_epoll, .step = step_epoll, .close = close_epoll};
const struct host host_epoll_level = {.name = "epoll, level-triggered only",
                                      .open = open_level,
                                      .step = step_epoll,
                                      .close = close_epoll};
const struct host host_epoll_edge = {
    .name = "epoll, edge-triggered", .open = open_edge, .step = step_epoll, .close = close_epoll};
const struct host host_epoll_nested = {
    .name = "epoll, nested", .open = open_nested, .step = step_epoll, .close = close_epoll};

/* ---- epoll, and a look for more before it sleeps -------------------------------------------- */

static void step_spin(struct host *host, int timeout_ms) {
    struct epoll_event event;
    if (epoll_wait(host->fd, &event, 1, timeout_ms) <= 0) return;
    host_progress(host);
    while (weft__reactor_spin(host->r) > 0)
        ;
}
const struct host host_spin_level = {.name = "epoll, level-triggered only, that spins",
                                     .open = open_level,
                                     .step = step_spin,
                                     .close = close_epoll};
const struct host host_spin_edge = {.name = "epoll, edge-triggered, that spins",
                                    .open = open_edge,
                                    .step = step_spin,
                                    .close = close_epoll};

/* ---- libev: a watcher on the fd, and the worker in the loop itself --------------------------- */

static void on_fd(struct ev_loop *loop, ev_io *w, int revents) {
    host_progress(w->data);
}
static void on_timeout(struct ev_loop *loop, ev_timer *w, int revents) {}

static void open_ev_io(struct host *host) {
    ev_io *io = host->watcher = calloc(1, sizeof *io);
    host->loop = ev_loop_new(0);
    ev_io_init(io, on_fd, weft__reactor_fd(host->r), EV_READ);
    io->data = host;
    ev_io_start(host->loop, io);
}

static void step_ev(struct host *host, int timeout_ms) {
    ev_timer timer;
    ev_now_update(host->loop);
    ev_timer_init(&timer, on_timeout, timeout_ms / 1e3, 0.);
    ev_timer_start(host->loop, &timer);
    ev_run(host->loop, EVRUN_ONCE);
    ev_timer_stop(host->loop, &timer);
}

static void close_ev(struct host *host) {
    ev_loop_destroy(host->loop);
    free(host->watcher);
}
const struct host host_ev_io = {
    .name = "libev, ev_io", .open = open_ev_io, .step = step_ev, .close = close_ev};

static struct ev_loop *native_loop(struct host *host) {
    return host->loop = ev_loop_new(0);
}

/* A loop that wakes up for the worker alone, or for the timeout of the step. */
static void step_native(struct host *host, int timeout_ms) {
    step_ev(host, timeout_ms);
    host->reports++;
}
const struct host host_ev_native = {.name = "libev, native",
                                    .open = open_plain,
                                    .step = step_native,
                                    .close = close_ev,
                                    .native = native_loop};
