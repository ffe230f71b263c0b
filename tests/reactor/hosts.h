/*
 * Hosts: loops of other kinds that a worker lives in. A test of waking up is written once, in
 * scenarios.c, and run in each of them. None has a safety timer: a step that ends by its timeout
 * has lost a wakeup.
 */
#ifndef WEFT_TESTS_REACTOR_HOSTS_H
#define WEFT_TESTS_REACTOR_HOSTS_H

#include <reactor/reactor.h>

struct host {
    const char *name;
    /* watches weft__reactor_fd(r), or is the loop itself */
    void (*open)(struct host *host);
    /* sleeps once, and calls progress if the fd was reported */
    void (*step)(struct host *host, int timeout_ms);
    void (*close)(struct host *host);
    /* the loop to create the reactor in; NULL: through the fd */
    struct ev_loop *(*native)(struct host *host);
    int report_ms; /* a report may be under way for so long */

    struct reactor *r;
    unsigned budget;
    unsigned reports; /* how often the loop said that there is something to do */
    int fd, inner_fd;
    struct ev_loop *loop;
    void *watcher;
};

extern const struct host host_poll, host_select, host_epoll, host_epoll_level, host_epoll_edge,
    host_epoll_nested, host_spin_level, host_spin_edge, host_ev_io, host_ev_native;

/* What a host calls when the fd was reported. */
void host_progress(struct host *host);

/* Each answers NULL, or what went wrong. */
struct scenario {
    const char *name;
    const char *(*run)(const struct host *kind);
};
extern const struct scenario scenarios[]; /* NULL name at the end */

/* All of them in one host: prints what failed, true when nothing did. */
bool scenarios_pass(const struct host *kind);

#endif
