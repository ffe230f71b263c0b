/* The file descriptors that a reactor watches: by its libev loop, or by the slow epoll. */
#ifndef WEFT_REACTOR_WATCHES_H
#define WEFT_REACTOR_WATCHES_H

#include <ev.h>
#include <reactor/reactor.h>

/* There may be thousands. */
struct watch_state {
    struct job job;
    ev_io io; /* its `data`: the reactor; NULL: it is spare */
    union {
        struct watch *watch;
        struct watch_state *next; /* spare */
    };
};
enum { WATCH_BLOCK = 16 };
struct watch_block {
    struct watch_block *next;
    struct watch_state state[WATCH_BLOCK];
};

/* loop.c: the reactor's watchers in a libev loop. */
struct reactor_ev {
    struct ev_loop *loop;
    bool is_ours;
    ev_io wake_io;
    ev_timer nearest;
    uint64_t nearest_at; /* while it runs */
    ev_prepare before_sleep;
    ev_check after_sleep, after_callbacks;
    ev_idle busy;
    bool io_stopped; /* watchers of a host's loop that ran within a callback */
};

/* watch.c */
struct reactor_watches {
    struct watch_block *blocks;
    struct watch_state *spare;
};

/* aux_watch.c: the epoll of file descriptors that are rarely ready. */
struct reactor_aux {
    struct watch watch;           /* of the epoll itself */
    struct epoll_event *notified; /* what epoll_wait returned and was not called yet */
    int n_notified;
};

/* watch.c */
void weft__watch_got(struct watch_state *state, int events);

/* aux_watch.c */
void weft__aux_watch_close(struct reactor *r);

/* loop.c */
weft_status_t weft__loop_open(struct reactor *r, struct ev_loop *host, unsigned max_fds);
void weft__loop_close(struct reactor *r);
void weft__loop_poll(struct reactor *r);                     /* does not sleep */
void weft__loop_sleep(struct reactor *r, uint64_t until_ns); /* at most till then */
void weft__loop_set_timer(struct reactor *r, uint64_t at);   /* UINT64_MAX: none */
void weft__loop_watch(struct reactor *r, struct watch_state *state, int events);

#endif
