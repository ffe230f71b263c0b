/*
 * The process of a peer, where it runs on this host: its end is an event, by pidfd. Watched only
 * while something depends on it; a process that ended before is known at once. In another pid
 * namespace, or on a kernel without pidfds, nothing is watched.
 */
#ifndef WEFT_REACTOR_PROCESS_H
#define WEFT_REACTOR_PROCESS_H

#include <reactor/reactor.h>

struct process {
    struct watch watch;
    void (*ended)(struct process *process);
    uint64_t host; /* where pids mean the same, as weft__host_id says; 0: not known */
    uint32_t pid;
    bool watched;
    bool known; /* its end will be reported, or is ours as well */
};

/* What a worker reports about its own process. In a simulation it has none: a run is the same in
 * every process, on every host. */
void weft__process_own(const struct reactor *reactor, uint64_t *host_p, uint32_t *pid_p);
/* False: it has ended. `ended` is called once, from the reactor. */
bool weft__process_watch(struct reactor *reactor, struct process *process);
void weft__process_unwatch(struct reactor *reactor, struct process *process);

#endif
