/*
 * A worker in a loop that is built on epoll, level- or edge-triggered (nginx, HAProxy, Redis).
 *
 *     weft_epoll_attach(epoll_fd, worker, &my_mark, EPOLLET);
 *     …
 *     if (event.data.ptr == &my_mark) weft_adapter_readable(&worker, 0, WEFT_ADAPTER_LOOKS);
 *
 * One call for each report is enough, with EPOLLET too: what it leaves is reported again. `done` of
 * weft_worker_close is called within such a call, and the worker is gone when that call returns.
 * Set `worker` to NULL there. weft_worker_progress does without the looks.
 */
#ifndef WEFT_ADAPTERS_EPOLL_H
#define WEFT_ADAPTERS_EPOLL_H

#include <errno.h>
#include <sys/epoll.h>
#include <weft/adapters/readable.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Adds the descriptor of `worker`, which this thread owns, to `epoll_fd`. `mark` is what
 * event.data.ptr will be. `how`: 0 or EPOLLET. Returns 0, or -1 with errno set.
 */
static inline int weft_epoll_attach(int epoll_fd, weft_worker_t *worker, void *mark, uint32_t how) {
    struct epoll_event event;
    int fd = how & EPOLLET ? weft_worker_fd(worker) : weft_worker_fd_level(worker);
    if (fd < 0) {
        errno = fd == WEFT_ERR_NO_FDS ? EMFILE : fd == WEFT_ERR_NO_MEMORY ? ENOMEM : EINVAL;
        return -1;
    }
    event.events = EPOLLIN | how;
    event.data.ptr = mark;
    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

/*
 * Removes the descriptor, within `done` of weft_worker_close, or before weft_worker_destroy. `fd`
 * is what weft_worker_fd returned with EPOLLET, and weft_worker_fd_level otherwise; call it after
 * the attach and keep the result. A report that the loop took from the kernel before may still
 * name `mark`: drop it, since the worker may be gone. Not in a forked child: `epoll_fd` is the
 * parent's set there. Returns 0, or -1 with errno set.
 */
static inline int weft_epoll_detach(int epoll_fd, int fd) {
    return epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

#ifdef __cplusplus
}
#endif
#endif
