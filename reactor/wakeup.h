/* How other threads, signal handlers and the program's own poll reach a reactor. */
#ifndef WEFT_REACTOR_WAKEUP_H
#define WEFT_REACTOR_WAKEUP_H

#include <reactor/reactor.h>
#include <stdatomic.h>

/* wakeup.c: the fd that the program polls for this worker. */
struct reactor_outer {
    int fd, timer_fd;  /* -1 until the program asks for the fd */
    uint64_t timer_at; /* 0: not set */
    /* the worker's fd, once it had to be silenced: it holds the outer epoll alone; else -1 */
    int front_fd;
    bool silent;  /* the program looked at the fd from within a callback */
    int apart_fd; /* the worker's fd while the outer epoll is another, or none yet; else -1 */
    atomic_bool apart_taken; /* a thread has asked for it */
};

/* xthread.c, wakeup.c: what other threads and signal handlers touch. */
struct reactor_remote {
    atomic_uint woken;               /* a turn is wanted: coalesces wakes */
    atomic_uint armed;               /* the owner sleeps, or may */
    _Atomic(struct remote *) posted; /* newest first */
    atomic_bool over;                /* calls are refused */
    int event_fd;
    atomic_uint n_wakers; /* threads within a wake or a submission, which the reactor outlives */
};

/* wakeup.c */
weft_status_t weft__wakeup_open(struct reactor *r);
void weft__wakeup_close(struct reactor *r);
/* Takes the descriptor that the program may have out of the reactor, for its last callback. -1:
 * there is none. */
int weft__wakeup_take_fd(struct reactor *r);
uint32_t weft__epoll_of_watch(int events);
int weft__watch_of_epoll(uint32_t events);
weft_status_t weft__wakeup_outer_open(struct reactor *r);
weft_status_t weft__wakeup_outer_set(struct reactor *r, struct watch_state *state, int events);
void weft__wakeup_outer_poll(struct reactor *r, int timeout_ms);
void weft__wakeup_timer_set(struct reactor *r, uint64_t at);
/* false: there is something to do after all, and nothing is armed */
bool weft__wakeup_arm(struct reactor *r);
void weft__wakeup_disarm(struct reactor *r);
void weft__wakeup_settle(struct reactor *r);  /* after a turn: armed, or the fd readable */
void weft__wakeup_silence(struct reactor *r); /* the fd is not readable until the turn is over */
/* A wake by a thread that is counted: what it publishes may be the end of the reactor. */
void weft__wake_within(struct reactor *r);
/* Returns when no thread is within a wake or a submission. */
void weft__wakers_await(struct reactor *r);
/* xthread.c */
void weft__remotes_take(struct reactor *r);
void weft__remotes_open(struct reactor *r);

#endif
