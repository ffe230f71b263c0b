/*
 * Watches that seldom have anything to tell: they are in an epoll of their own, of which the loop knows one descriptor, made early.
 * libev's table is as long as the highest descriptor that it was told of, and a worker with few peers in a process with
 * thousands of descriptors would pay for all of them; nor is each told to the loop and to the outer epoll, and so each needs
 * nothing beside what its owner has.
 */
#include "local.h"
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { AT_ONCE = 64 };

/* Within a job. What is called may stop any of them, which is told no more then, and may be gone. */
static void cold_ready(struct watch *watch, int events) {
    struct reactor *r = (struct reactor *)(void *)((char *)watch - offsetof(struct reactor, cold));
    struct epoll_event told[AT_ONCE];
    r->cold_told = told;
    r->n_cold_told = epoll_wait(watch->fd, told, AT_ONCE, 0);
    while (r->n_cold_told-- > 0) {
        const struct epoll_event *event = r->cold_told++;
        struct cold_watch *cold = event->data.ptr;
        int got = cold ? watch_of_epoll(event->events) & cold->events : 0;
        if (got) cold->ready(cold, got);
    }
    r->n_cold_told = 0;
}

weft_status_t weft__cold_open(struct reactor *r) {
    if (r->cold.state) return WEFT_OK;
    if (r->clock) return weft__fail(WEFT_ERR_UNSUPPORTED, "nothing is told in virtual time");
    int fd = epoll_create1(EPOLL_CLOEXEC);
    if (fd < 0) return weft__fail(weft__errno_status(errno), "epoll_create: %s", strerror(errno));
    r->cold.ready = cold_ready;
    weft_status_t st = weft__watch_start(r, &r->cold, fd, WATCH_READ);
    if (st < 0) close(fd);
    return st;
}

/* The reactor ends: a host's loop, which goes on, forgets the descriptor first. The epoll set behind it is a fork's parent's too. */
void cold_close(struct reactor *r) {
    if (!r->cold.state) return;
    if (!forked(r)) weft__watch_stop(r, &r->cold);
    close(r->cold.fd);
}

weft_status_t weft__cold_watch(struct reactor *r, struct cold_watch *watch, int events) {
    if (events == watch->events) return WEFT_OK;
    struct epoll_event event = {epoll_of_watch(events), {.ptr = watch}};
    int op = !events ? EPOLL_CTL_DEL : watch->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (epoll_ctl(r->cold.fd, op, watch->fd, &event) < 0 && op != EPOLL_CTL_DEL)
        return weft__fail(weft__errno_status(errno), "epoll_ctl: %s", strerror(errno));
    watch->events = (uint8_t)events;
    return WEFT_OK;
}

void weft__cold_stop(struct reactor *r, struct cold_watch *watch) {
    weft__cold_watch(r, watch, 0);
    for (int i = 0; i < r->n_cold_told; i++)
        if (r->cold_told[i].data.ptr == watch) r->cold_told[i].data.ptr = NULL;
}
