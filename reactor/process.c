/* Watches the end of a peer's process by a pidfd. */
#include "process.h"

#include <base/host.h>
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

void weft__process_own(const struct reactor *reactor, uint64_t *host_p, uint32_t *pid_p) {
    bool simulated = weft__reactor_virtual(reactor);
    *host_p = simulated ? 0 : weft__host_id("pid");
    *pid_p = simulated ? 1 : (uint32_t)getpid();
}

static void process_ended(struct watch *watch, int events) {
    struct process *process = (struct process *)watch;
    process->ended(process);
}

bool weft__process_watch(struct reactor *reactor, struct process *process) {
    bool here = process->host && process->host == weft__host_id("pid");
    bool own = process->pid == (uint32_t)getpid();
    process->known = here && (own || process->watched);
    if (!here || process->known) return true;
    int fd = (int)syscall(SYS_pidfd_open, process->pid, 0);
    if (fd < 0) return errno != ESRCH;
    process->watch = (struct watch){.ready = process_ended};
    process->watched = weft__watch_start(reactor, &process->watch, fd, WATCH_READ) == WEFT_OK;
    process->known = process->watched;
    if (!process->watched) close(fd);
    return true;
}

void weft__process_unwatch(struct reactor *reactor, struct process *process) {
    if (!process->watched) return;
    process->watched = false;
    weft__watch_stop(reactor, &process->watch);
    close(process->watch.fd);
}
