/*
 * Peers' processes: one descriptor says when one has died, and what its workers show in common is mapped once, however many lanes lead
 * to it.
 */
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
        if (iface->lanes[i] && shm_process(iface->lanes[i]) == process)
            shutdown(iface->lanes[i]->watch.fd, SHUT_RDWR);
}

/* A dead one's number may be somebody else's by now. */
static bool lives(const struct shm_process *process) {
    struct pollfd look = {process->death.fd, POLLIN, 0};
    return poll(&look, 1, 0) == 0;
}

static struct shm_process **bucket_of(struct shm_iface *iface, pid_t pid) {
    return &iface->processes[(unsigned)pid % SHM_PROCESS_BUCKETS];
}

/* A kernel without pidfds, or a peer in another pid namespace, leaves us the socket's hang-up: -1, as for our own. */
static weft_status_t pidfd_of(pid_t pid, int *fd_p) {
    *fd_p = pid == 0 || pid == getpid() ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
    if (*fd_p < 0 && (errno == EMFILE || errno == ENFILE)) return weft__fail(WEFT_ERR_NO_FDS, "shm: pidfd_open");
    return WEFT_OK;
}

static void end(struct shm_process *process) {
    weft__cold_stop(process->iface->iface.reactor, &process->death);
    if (process->death.fd >= 0) close(process->death.fd);
    weft__mapped_put(process->bells);
    weft__mapped_put(process->shelves);
    talloc_free(process);
}

static weft_status_t make(struct shm_iface *iface, pid_t pid, struct shm_process **process_p) {
    int fd = -1;
    errno = 0;
    weft_status_t st = pidfd_of(pid, &fd);
    if (st < 0) return st;
    struct shm_process *process = weft__new(iface, struct shm_process), **bucket = bucket_of(iface, pid);
    if (!process) {
        if (fd >= 0) close(fd);
        return WEFT_ERR_NO_MEMORY;
    }
    *process = (struct shm_process){.iface = iface, .next = *bucket, .death = {died, fd, 0}, .pid = pid};
    if (fd >= 0) st = weft__cold_watch(iface->iface.reactor, &process->death, WATCH_READ);
    if (st < 0) {
        end(process);
        return st;
    }
    *bucket = *process_p = process;
    return WEFT_OK;
}

static void join(struct shm_lane *lane, struct shm_process *process) {
    process->n_lanes++;
    lane->mail.view.shape = &process->shape;
}

weft_status_t weft__shm_process_get(struct shm_lane *lane, pid_t pid) {
    struct shm_process *process = *bucket_of(shm_iface(lane), pid);
    weft_status_t st = WEFT_OK;
    while (process && (process->pid != pid || !lives(process))) process = process->next;
    if (!process) st = make(shm_iface(lane), pid, &process);
    if (st == WEFT_OK) join(lane, process);
    return st;
}

void weft__shm_process_put(struct shm_lane *lane) {
    struct shm_process *process = shm_process(lane);
    lane->mail.view.shape = NULL;
    if (!process || --process->n_lanes > 0) return;
    struct shm_process **at = bucket_of(process->iface, process->pid);
    while (*at != process) at = &(*at)->next;
    *at = process->next;
    end(process);
}

/* ---- what its workers show --------------------------------------------------------------------------------------------- */

static struct mail_shape shape_of(const struct shm_hello *hello) {
    return (struct mail_shape){.n_nodes = hello->n_nodes,
                               .n_near = HALL_NODES,
                               .blocks = pool_blocks_at(hello->n_nodes),
                               .staging = pool_staging_at(hello->n_nodes, hello->n_blocks),
                               .blocks_size = hello->n_blocks * MAIL_BLOCK,
                               .staging_size = hello->staging_size};
}

/* Workers of one process may have pools of several sizes, and more than one hall. */
static bool is_as(const struct shm_process *process, const struct shm_hello *hello, const int *fds) {
    struct mail_shape shape = shape_of(hello);
    return process->shape.n_nodes == shape.n_nodes && process->shape.blocks_size == shape.blocks_size &&
           process->shape.staging_size == shape.staging_size &&
           weft__mapped_is(process->bells, fds[SHM_FD_BELLS]) &&
           weft__mapped_is(process->shelves, fds[SHM_FD_SHELVES]);
}

static weft_status_t hear(struct shm_process *process, const struct shm_hello *hello, const int *fds) {
    weft_status_t st = weft__mapped_get(fds[SHM_FD_BELLS], HALL_BELLS_SIZE, true, &process->bells);
    if (st < 0) return st;
    st = weft__mapped_get(fds[SHM_FD_SHELVES], HALL_SHELVES_SIZE, false, &process->shelves);
    if (st < 0) {
        weft__mapped_put(process->bells);
        process->bells = NULL;
        return st;
    }
    process->shape = shape_of(hello);
    process->n_blocks = hello->n_blocks;
    process->probe_at = hello->probe_at;
    process->probe = hello->probe;
    return WEFT_OK;
}

/* The lane is of another process's that has the same number, or of the one that shows this. */
static weft_status_t change(struct shm_lane *lane, const struct shm_hello *hello, const int *fds) {
    struct shm_process *old = shm_process(lane), *process = *bucket_of(old->iface, old->pid);
    weft_status_t st = WEFT_OK;
    while (process &&
           !(process->pid == old->pid && process->shelves && is_as(process, hello, fds) && lives(process)))
        process = process->next;
    if (!process) st = make(old->iface, old->pid, &process);
    if (st < 0) return st;
    weft__shm_process_put(lane);
    join(lane, process);
    return process->shelves ? WEFT_OK : hear(process, hello, fds);
}

weft_status_t weft__shm_process_meet(struct shm_lane *lane, const struct shm_hello *hello, const int *fds) {
    struct shm_process *process = shm_process(lane);
    if (!process->shelves) return hear(process, hello, fds);
    return is_as(process, hello, fds) ? WEFT_OK : change(lane, hello, fds);
}
