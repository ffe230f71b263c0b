/*
 * Peers' processes. All lanes to one process share a pidfd, which reports its death, and the
 * mappings of what its workers have in common.
 */
#include "attach.h"
#include "handshake.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <transports/shm/rma/key.h>
#include <unistd.h>

/* A child of the dead peer may keep the sockets open, so they are shut down. Messages that came
 * before are still read. */
static void died(struct aux_watch *watch, int events) {
    struct shm_process *process = container_of(watch, struct shm_process, death);
    struct shm_iface *iface = process->iface;
    weft__aux_watch_stop(iface->iface.reactor, watch);
    for (unsigned i = 0; i <= iface->table.last_index; i++)
        if (iface->table.lanes[i] && shm_process(iface->table.lanes[i]) == process)
            shutdown(iface->table.lanes[i]->watch.fd, SHUT_RDWR);
}

/* False: the process has died, and its pid may belong to another one. */
static bool lives(const struct shm_process *process) {
    struct pollfd look = {process->death.fd, POLLIN, 0};
    return poll(&look, 1, 0) == 0;
}

static struct shm_process **bucket_of(struct shm_iface *iface, pid_t pid) {
    return &iface->processes[(unsigned)pid % SHM_PROCESS_BUCKETS];
}

/* -1 for this process itself, and where the kernel has no pidfd for the peer (old kernel, another
 * pid namespace): then only the socket reports the peer's end. */
static weft_status_t pidfd_of(pid_t pid, int *fd_p) {
    *fd_p = pid == 0 || pid == getpid() ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
    if (*fd_p < 0 && (errno == EMFILE || errno == ENFILE))
        return weft__fail(WEFT_ERR_NO_FDS, "shm: pidfd_open: no free file descriptors");
    if (*fd_p < 0 && errno == ENOMEM)
        return weft__fail(WEFT_ERR_NO_MEMORY, "shm: pidfd_open: no memory");
    return WEFT_OK;
}

static void end_process(struct shm_process *process) {
    weft__aux_watch_stop(process->iface->iface.reactor, &process->death);
    if (process->death.fd >= 0) close(process->death.fd);
    weft__mapped_put(process->doorbells);
    weft__mapped_put(process->tx_slots);
    talloc_free(process);
}

static weft_status_t make_process(struct shm_iface *iface, pid_t pid,
                                  struct shm_process **process_p) {
    int fd = -1;
    errno = 0;
    weft_status_t st = pidfd_of(pid, &fd);
    if (st < 0) return st;
    struct shm_process *process = weft__new(iface, struct shm_process),
                       **bucket = bucket_of(iface, pid);
    if (!process) {
        if (fd >= 0) close(fd);
        return WEFT_ERR_NO_MEMORY;
    }
    *process = (struct shm_process){
        .iface = iface, .next = *bucket, .death = {.ready = died, .fd = fd}, .pid = pid};
    if (fd >= 0) st = weft__aux_watch_start(iface->iface.reactor, &process->death, WATCH_READ);
    if (st < 0) {
        end_process(process);
        return st;
    }
    *bucket = *process_p = process;
    return WEFT_OK;
}

static void attach_join(struct shm_lane *lane, struct shm_process *process) {
    process->n_lanes++;
    lane->mail.view.shape = &process->shape;
}

weft_status_t weft__shm_process_get(struct shm_lane *lane, pid_t pid) {
    struct shm_process *process = *bucket_of(shm_iface(lane), pid);
    weft_status_t st = WEFT_OK;
    while (process && (process->pid != pid || !lives(process))) process = process->next;
    if (!process) st = make_process(shm_iface(lane), pid, &process);
    if (st == WEFT_OK) attach_join(lane, process);
    return st;
}

void weft__shm_process_put(struct shm_lane *lane) {
    struct shm_process *process = shm_process(lane);
    lane->mail.view.shape = NULL;
    if (!process || --process->n_lanes > 0) return;
    struct shm_process **at = bucket_of(process->iface, process->pid);
    while (*at != process) at = &(*at)->next;
    *at = process->next;
    end_process(process);
}

/* ---- what its workers have in common --------------------------------------------------------- */

static struct mail_shape shape_of(const struct shm_hello *hello) {
    return (struct mail_shape){.n_nodes = hello->n_nodes,
                               .n_near = SLOT_TABLE_NODES,
                               .blocks = pool_blocks_at(hello->n_nodes),
                               .staging = pool_staging_at(hello->n_nodes, hello->n_blocks),
                               .blocks_size = hello->n_blocks * MAIL_BLOCK,
                               .staging_size = hello->staging_size};
}

/* Workers of one process may have pools of several sizes, and more than one slot table. */
static bool is_as(const struct shm_process *process, const struct shm_hello *hello,
                  const int *fds) {
    struct mail_shape shape = shape_of(hello);
    return process->shape.n_nodes == shape.n_nodes &&
           process->shape.blocks_size == shape.blocks_size &&
           process->shape.staging_size == shape.staging_size &&
           weft__mapped_is(process->doorbells, fds[SHM_FD_DOORBELLS]) &&
           weft__mapped_is(process->tx_slots, fds[SHM_FD_TX_SLOTS]);
}

static weft_status_t recv_msg(struct shm_process *process, const struct shm_hello *hello,
                              const int *fds) {
    weft_status_t st = weft__mapped_get(fds[SHM_FD_DOORBELLS], SLOT_TABLE_DOORBELLS_SIZE, true,
                                        &process->doorbells);
    if (st < 0) return st;
    st =
        weft__mapped_get(fds[SHM_FD_TX_SLOTS], SLOT_TABLE_TX_SLOTS_SIZE, false, &process->tx_slots);
    if (st < 0) {
        weft__mapped_put(process->doorbells);
        process->doorbells = NULL;
        return st;
    }
    process->shape = shape_of(hello);
    process->n_blocks = hello->n_blocks;
    process->probe_at = hello->probe_at;
    process->probe = hello->probe;
    return WEFT_OK;
}

/* Moves the lane to the process object of the same pid that has this slot table and this shape. */
static weft_status_t change(struct shm_lane *lane, const struct shm_hello *hello, const int *fds) {
    struct shm_process *old = shm_process(lane), *process = *bucket_of(old->iface, old->pid);
    weft_status_t st = WEFT_OK;
    while (process && !(process->pid == old->pid && process->tx_slots &&
                        is_as(process, hello, fds) && lives(process)))
        process = process->next;
    if (!process) st = make_process(old->iface, old->pid, &process);
    if (st < 0) return st;
    weft__shm_process_put(lane);
    attach_join(lane, process);
    return process->tx_slots ? WEFT_OK : recv_msg(process, hello, fds);
}

weft_status_t weft__shm_process_meet(struct shm_lane *lane, const struct shm_hello *hello,
                                     const int *fds) {
    struct shm_process *process = shm_process(lane);
    if (!process->tx_slots) return recv_msg(process, hello, fds);
    return is_as(process, hello, fds) ? WEFT_OK : change(lane, hello, fds);
}

/* ---- the worker at the other end ---- */

/* Only an eventfd is safe to write to: a write to another file could raise SIGPIPE or never
 * return. A write to an eventfd can wait only if its owner fills the count and removes
 * O_NONBLOCK. The owner is a process of this user, which could stop this process anyway. */
static bool is_eventfd(int fd) {
    static const char eventfd[] = "anon_inode:[eventfd]";
    char path[40], what[sizeof eventfd];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return readlink(path, what, sizeof what) == sizeof eventfd - 1 &&
           memcmp(what, eventfd, sizeof eventfd - 1) == 0;
}

/* The lane keeps the eventfd; the caller closes the other descriptors. */
weft_status_t weft__shm_meet(struct shm_lane *lane, const struct shm_hello *hello, int *fds) {
    if (!is_eventfd(fds[SHM_FD_EVENT]))
        return weft__fail(WEFT_ERR_PROTOCOL, "shm: the peer passed no eventfd");
    weft_status_t st = weft__shm_process_meet(lane, hello, fds);
    if (st < 0) return st;
    const struct shm_process *process = shm_process(lane);
    lane->mail.tx.newest =
        &((struct doorbell *)process->doorbells->segment.at)[hello->place].mailbox;
    lane->mail.tx.slot = (uint16_t)hello->lane;
    lane->mail.tx.opening = hello->opening;
    lane->mail.view.near =
        ((const struct slot_table_tx_slot *)process->tx_slots->segment.at)[hello->place].nodes;
    lane->event_fd = fds[SHM_FD_EVENT];
    fds[SHM_FD_EVENT] = -1;
    fcntl(lane->event_fd, F_SETFL, O_NONBLOCK);
    return WEFT_OK;
}
