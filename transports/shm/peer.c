/* What a peer's worker shows of itself, and how it is woken. */
#include "shm.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t size_of_pool(const struct shm_process *process) {
    return pool_size(process->shape.n_nodes, process->n_blocks, process->shape.staging_size);
}

static weft_status_t map_alone(int fd, size_t size, const void **pool_p) {
    struct segment pool;
    weft_status_t st = weft__segment_map(&pool, fd, size, false);
    if (st == WEFT_OK) *pool_p = pool.at;
    return st;
}

/* A process that dials many of our workers mostly does by one of its own: a pool of each process is mapped once for all of ours. Its
 * others are mapped for a lane alone, which keeps no more of them than where they are. */
weft_status_t weft__shm_pool_get(struct shm_process *process, int fd, const void **pool_p) {
    size_t size = size_of_pool(process);
    if (process->pool && !weft__mapped_is(process->pool, fd)) return map_alone(fd, size, pool_p);
    weft_status_t st = process->pool ? WEFT_OK : weft__mapped_get(fd, size, false, &process->pool);
    if (st < 0) return st;
    process->pool_users++;
    *pool_p = process->pool->segment.at;
    return WEFT_OK;
}

void weft__shm_pool_put(struct shm_process *process, const void *pool) {
    if (!pool) return;
    if (!process->pool || pool != process->pool->segment.at) {
        munmap((void *)(uintptr_t)pool, size_of_pool(process));
        return;
    }
    if (--process->pool_users > 0) return;
    weft__mapped_put(process->pool);
    process->pool = NULL;
}

void weft__shm_pool_leave(struct shm_lane *lane) {
    weft__shm_pool_put(shm_process(lane), lane->mail.view.nodes);
    lane->mail.view.nodes = NULL;
}

/* A write to anything else could end us (SIGPIPE), or never return. To an eventfd it waits only where its owner brought the count to
 * the end and undid O_NONBLOCK: our own user's process, which might as well stop us. */
static bool is_eventfd(int fd) {
    static const char eventfd[] = "anon_inode:[eventfd]";
    char path[40], what[sizeof eventfd];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return readlink(path, what, sizeof what) == sizeof eventfd - 1 &&
           memcmp(what, eventfd, sizeof eventfd - 1) == 0;
}

/* The eventfd itself is kept. */
weft_status_t weft__shm_meet(struct shm_lane *lane, const struct shm_hello *hello, int *fds) {
    if (!is_eventfd(fds[SHM_FD_EVENT])) return weft__fail(WEFT_ERR_PROTOCOL, "shm: no eventfd wakes the peer");
    weft_status_t st = weft__shm_process_meet(lane, hello, fds);
    if (st < 0) return st;
    const struct shm_process *process = shm_process(lane);
    lane->mail.tx.newest = &((struct doorbell *)process->bells->segment.at)[hello->place].mailbox;
    lane->mail.tx.slot = (uint16_t)hello->lane;
    lane->mail.view.near = ((const struct hall_shelf *)process->shelves->segment.at)[hello->place].nodes;
    lane->event_fd = fds[SHM_FD_EVENT];
    fds[SHM_FD_EVENT] = -1;
    fcntl(lane->event_fd, F_SETFL, O_NONBLOCK);
    return WEFT_OK;
}

static bool signal_is_written(const struct shm_lane *lane) {
    static const uint64_t one = 1;
    return write(lane->event_fd, &one, sizeof one) == sizeof one || errno != EAGAIN;
}

/* Nobody rings so often that the count comes to its end; who brought it there would be the last to wake anybody. */
static void begin_count_anew(const struct shm_lane *lane) {
    uint64_t count;
    ssize_t got = read(lane->event_fd, &count, sizeof count);
    (void)got;
}

void weft__shm_signal(struct shm_lane *lane, uint32_t sleep) {
    shm_iface(lane)->count->shm_signals++;
    if (!signal_is_written(lane)) {
        begin_count_anew(lane);
        signal_is_written(lane);
    }
    doorbell_signalled(shm_bell(lane), sleep);
}
