/* The mapped pools of peers' workers, and the wake-up of a peer that sleeps. */
#include "shm.h"
#include <errno.h>
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

/* One pool of each process is mapped once for all workers of this process: usually one worker of
 * a peer dials many of them. A lane maps any other pool for itself, and keeps only its address. */
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

static bool write_signal(const struct shm_lane *lane) {
    static const uint64_t one = 1;
    return write(lane->event_fd, &one, sizeof one) == sizeof one || errno != EAGAIN;
}

/* Only a hostile peer can bring the eventfd's count to its end. Reading it makes room again. */
static void reset_count(const struct shm_lane *lane) {
    uint64_t count;
    ssize_t got = read(lane->event_fd, &count, sizeof count);
    (void)got;
}

void weft__shm_signal(struct shm_lane *lane, uint32_t sleep) {
    shm_iface(lane)->count->shm_signals++;
    if (!write_signal(lane)) {
        reset_count(lane);
        write_signal(lane);
    }
    doorbell_signalled(shm_doorbell(lane), sleep);
}
