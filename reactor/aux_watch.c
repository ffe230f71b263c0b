/*
 * Watches of file descriptors that are rarely ready. They are in an epoll of their own, and the
 * loop watches that epoll only. libev's table is as long as the highest descriptor that it knows,
 * so that a worker with few peers would pay for thousands of descriptors of its process. A watch
 * here needs no memory beside its owner's, since neither the loop nor the outer epoll knows it.
 */
#include "local.h"
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { AT_ONCE = 64 };

/* Runs within a job. A callback may stop and free any watch; a stopped watch is not called. */
static void aux_ready(struct watch *watch, int events) {
    struct reactor *r = container_of(watch, struct reactor, aux.watch);
    struct epoll_event notified[AT_ONCE];
    r->aux.notified = notified;
    r->aux.n_notified = epoll_wait(watch->fd, notified, AT_ONCE, 0);
    while (r->aux.n_notified-- > 0) {
        const struct epoll_event *event = r->aux.notified++;
        struct aux_watch *aux = event->data.ptr;
        int got = aux ? weft__watch_of_epoll(event->events) & aux->events : 0;
        if (got) aux->ready(aux, got);
    }
    r->aux.n_notified = 0;
}

weft_status_t weft__aux_watch_open(struct reactor *r) {
    if (r->aux.watch.state) return WEFT_OK;
    if (r->virtual.clock)
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "a worker in virtual time watches no file descriptors");
    int fd = epoll_create1(EPOLL_CLOEXEC);
    if (fd < 0) return weft__fail(weft__errno_status(errno), "epoll_create: %s", strerror(errno));
    r->aux.watch.ready = aux_ready;
    weft_status_t st = weft__watch_start(r, &r->aux.watch, fd, WATCH_READ);
    if (st < 0) close(fd);
    return st;
}

/* The reactor ends: a host's loop, which goes on, forgets the descriptor first. The epoll set
 * behind it is a fork's parent's too. */
void weft__aux_watch_close(struct reactor *r) {
    if (!r->aux.watch.state) return;
    if (!forked(r)) weft__watch_stop(r, &r->aux.watch);
    close(r->aux.watch.fd);
}

weft_status_t weft__aux_watch_start(struct reactor *r, struct aux_watch *watch, int events) {
    if (events == watch->events) return WEFT_OK;
    uint32_t once = watch->notified_once ? EPOLLET : 0;
    struct epoll_event event = {weft__epoll_of_watch(events) | once, {.ptr = watch}};
    int op = !events ? EPOLL_CTL_DEL : watch->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (epoll_ctl(r->aux.watch.fd, op, watch->fd, &event) < 0 && op != EPOLL_CTL_DEL)
        return weft__fail(weft__errno_status(errno), "epoll_ctl: %s", strerror(errno));
    watch->events = (uint8_t)events;
    return WEFT_OK;
}

void weft__aux_watch_stop(struct reactor *r, struct aux_watch *watch) {
    weft__aux_watch_start(r, watch, 0);
    for (int i = 0; i < r->aux.n_notified; i++)
        if (r->aux.notified[i].data.ptr == watch) r->aux.notified[i].data.ptr = NULL;
}
