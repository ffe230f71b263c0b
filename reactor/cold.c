/*
 * Watches that seldom have anything to tell: they are in an epoll of their own, of which the loop knows one descriptor, made early.
 * libev's table is as long as the highest descriptor that it was told of, and a worker with few peers in a process with
 * thousands of descriptors would pay for all of them; nor is each told to the loop and to the outer epoll.
 */
#include "local.h"
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { AT_ONCE = 64 };

static void cold_ready(struct watch *watch, int events) {
    struct epoll_event told[AT_ONCE];
    int n = epoll_wait(watch->fd, told, AT_ONCE, 0);
    for (int i = 0; i < n; i++) watch_got(told[i].data.ptr, watch_of_epoll(told[i].events));
}

weft_status_t weft__watch_cold_open(struct reactor *r) {
    if (r->cold.state || r->clock) return WEFT_OK;
    int fd = epoll_create1(EPOLL_CLOEXEC);
    if (fd < 0) return weft__fail(WEFT_ERR_NO_FDS, "epoll_create: %s", strerror(errno));
    r->cold.ready = cold_ready;
    weft_status_t st = weft__watch_start(r, &r->cold, fd, WATCH_READ);
    if (st < 0) close(fd);
    return st;
}

/* The reactor ends. */
void cold_close(struct reactor *r) {
    if (r->cold.state) close(r->cold.fd);
}

weft_status_t cold_set(struct reactor *r, struct watch_state *state, int events) {
    struct watch *watch = state->watch;
    if (events == watch->events) return WEFT_OK;
    struct epoll_event event = {epoll_of_watch(events), {.ptr = state}};
    int op = !events ? EPOLL_CTL_DEL : watch->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (epoll_ctl(r->cold.fd, op, watch->fd, &event) == 0 || op == EPOLL_CTL_DEL) return WEFT_OK;
    return weft__fail(errno == ENOMEM   ? WEFT_ERR_NO_MEMORY
                      : errno == ENOSPC ? WEFT_ERR_NO_FDS
                                        : WEFT_ERR_IO,
                      "epoll_ctl: %s", strerror(errno));
}
