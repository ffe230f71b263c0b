/* What a peer's worker shows of itself, and how it is woken. */
#include "shm.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t size_of_pool(const struct shm_process *process) {
    return pool_size(process->shape.n_nodes, process->n_blocks, process->shape.staging_size);
}

weft_status_t weft__shm_pool_map(const struct shm_process *process, int fd, struct segment *pool_p) {
    return weft__segment_map(pool_p, fd, size_of_pool(process), false);
}

void weft__shm_pool_unmap(struct shm_lane *lane) {
    struct mail_view *view = &lane->mail.view;
    if (view->nodes) munmap((void *)(uintptr_t)view->nodes, size_of_pool(shm_process(lane)));
    view->nodes = NULL;
}

/* The eventfd itself is kept. */
weft_status_t weft__shm_meet(struct shm_lane *lane, const struct shm_hello *hello, int *fds) {
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

void weft__shm_signal(struct shm_lane *lane, uint32_t sleep) {
    static const uint64_t one = 1;
    shm_iface(lane)->count->shm_signals++;
    /* EAGAIN: the count is at its end, so the fd is readable as it is. */
    ssize_t written = write(lane->event_fd, &one, sizeof one);
    (void)written;
    doorbell_signalled(shm_bell(lane), sleep);
}
