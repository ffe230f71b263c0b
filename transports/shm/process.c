/* Peers' processes: one descriptor says when one has died, however many lanes lead to it. */
#include "shm.h"
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A lane's socket may live on in a child that the peer forked. What it said before is still read, and then that it is gone. */
static void died(struct cold_watch *watch, int events) {
    struct shm_process *process = (struct shm_process *)((char *)watch - offsetof(struct shm_process, death));
    struct shm_iface *iface = process->iface;
    weft__cold_stop(iface->iface.reactor, watch);
    for (unsigned i = 0; i <= iface->last_index; i++)
        if (iface->lanes[i] && iface->lanes[i]->process == process) shutdown(iface->lanes[i]->watch.fd, SHUT_RDWR);
}

/* A dead one's number may be somebody else's by now. */
static bool lives(const struct shm_process *process) {
    struct pollfd look = {process->death.fd, POLLIN, 0};
    return poll(&look, 1, 0) == 0;
}

static struct shm_process **bucket_of(struct shm_iface *iface, pid_t pid) {
    return &iface->processes[(unsigned)pid % SHM_PROCESS_BUCKETS];
}

static weft_status_t watch(struct shm_iface *iface, pid_t pid, int fd, struct shm_process **process_p) {
    struct shm_process *process = weft__new(iface, struct shm_process), **bucket = bucket_of(iface, pid);
    if (!process) return WEFT_ERR_NO_MEMORY;
    *process =
        (struct shm_process){.iface = iface, .next = *bucket, .death = {died, fd, 0}, .pid = pid, .n_lanes = 1};
    weft_status_t st = weft__cold_watch(iface->iface.reactor, &process->death, WATCH_READ);
    if (st < 0) {
        talloc_free(process);
        return st;
    }
    *bucket = *process_p = process;
    return WEFT_OK;
}

weft_status_t weft__shm_process_get(struct shm_iface *iface, pid_t pid, struct shm_process **process_p) {
    struct shm_process *process = *bucket_of(iface, pid);
    *process_p = NULL;
    if (pid == 0 || pid == getpid()) return WEFT_OK;
    while (process && (process->pid != pid || !lives(process))) process = process->next;
    if (process) {
        process->n_lanes++;
        *process_p = process;
        return WEFT_OK;
    }
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0)
        return errno == EMFILE || errno == ENFILE ? weft__fail(WEFT_ERR_NO_FDS, "shm: pidfd_open") : WEFT_OK;
    weft_status_t st = watch(iface, pid, fd, process_p);
    if (st < 0) close(fd);
    return st;
}

void weft__shm_process_put(struct shm_process *process) {
    if (--process->n_lanes > 0) return;
    struct shm_process **at = bucket_of(process->iface, process->pid);
    while (*at != process) at = &(*at)->next;
    *at = process->next;
    weft__cold_stop(process->iface->iface.reactor, &process->death);
    close(process->death.fd);
    talloc_free(process);
}
