/* One-sided operations on granted memory that is not mapped: process_vm_readv and
 * process_vm_writev. */
#include "key.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/uio.h>
#include <transports/pieces.h>

enum { BATCH = 128, SMALL_BLOCK = 1024 };

/* Probes each process once: the number of its handshake must stand at the address of its
 * handshake. */
bool weft__shm_vm_allowed(const struct shm_lane *lane) {
    struct shm_process *process = shm_process(lane);
    uint64_t found = 0;
    struct iovec here = {&found, sizeof found},
                 there = {(void *)(uintptr_t)process->probe_at, sizeof found};
    if (process->vm) return process->vm > 0;
    bool read = process_vm_readv(process->pid, &here, 1, &there, 1, 0) == sizeof found;
    process->vm = read && found == process->probe ? 1 : -1;
    return process->vm > 0;
}

char *weft__shm_bounce(struct shm_lane *lane) {
    struct shm_md *md = shm_iface(lane)->md;
    if (!md->bounce) md->bounce = weft__alloc(shm_iface(lane), SHM_RMA_BCOPY, "shm bounce");
    return md->bounce;
}

/* True: neither the socket nor the pidfd reports an event. A child of a dead peer may keep the
 * socket open, but not the pidfd. */
static bool none_of(const struct shm_lane *lane, short events) {
    struct pollfd look[2] = {{lane->watch.fd, events, 0}, {shm_process(lane)->death.fd, POLLIN, 0}};
    int n;
    while ((n = poll(look, 2, 0)) < 0 && errno == EINTR) continue;
    return n == 0;
}
static bool peer_lives(const struct shm_lane *lane) {
    return none_of(lane, POLLRDHUP);
}

/* With a silent socket the peer has not parted either, so its offers still stand. */
bool weft__shm_peer_stays(const struct shm_lane *lane) {
    return none_of(lane, POLLIN | POLLRDHUP);
}

static weft_status_t vm_failed(ssize_t n) {
    weft_status_t st = n < 0 && errno == ESRCH ? WEFT_ERR_PEER_FAILED : WEFT_ERR_IO;
    return weft__fail(st, "shm: process_vm: %s",
                      n < 0 ? strerror(errno) : "part of the peer's memory is not mapped");
}

/* The pid must be the peer's. So the peer must live before a write, and after a read. */
static weft_status_t copy_vm(const struct shm_lane *lane, bool put, const struct iovec *iov,
                             size_t n, uint64_t remote, size_t len) {
    struct iovec there = {(void *)(uintptr_t)remote, len};
    if (put && !peer_lives(lane)) return WEFT_ERR_PEER_FAILED;
    ssize_t done = put ? process_vm_writev(shm_pid(lane), iov, n, &there, 1, 0)
                       : process_vm_readv(shm_pid(lane), iov, n, &there, 1, 0);
    if (done != (ssize_t)len) return vm_failed(done);
    return put || peer_lives(lane) ? WEFT_OK : WEFT_ERR_PEER_FAILED;
}

static weft_status_t copy_blocks(const struct shm_lane *lane, bool put, const struct rma_piece *p,
                                 uint64_t remote) {
    struct iovec iov[BATCH];
    char *block = p->base;
    for (size_t left = p->count; left;) {
        size_t n = left < BATCH ? left : BATCH;
        for (size_t i = 0; i < n; i++, block += p->stride) iov[i] = (struct iovec){block, p->len};
        weft_status_t st = copy_vm(lane, put, iov, n, remote, n * p->len);
        if (st < 0) return st;
        remote += n * p->len;
        left -= n;
    }
    return WEFT_OK;
}

/* Many small blocks go through a buffer: the kernel's cost is by block. */
static weft_status_t copy_bounced(struct shm_lane *lane, bool put, struct rma_piece p,
                                  uint64_t remote) {
    char *bounce = weft__shm_bounce(lane);
    size_t most = SHM_RMA_BCOPY / p.len;
    if (!bounce) return WEFT_ERR_NO_MEMORY;
    for (size_t left = p.count; left;) {
        p.count = left < most ? left : most;
        size_t len = p.count * p.len;
        if (put) pieces_gather(bounce, &p, 1);
        weft_status_t st = copy_vm(lane, put, &(struct iovec){bounce, len}, 1, remote, len);
        if (st < 0) return st;
        if (!put) pieces_scatter(&p, 1, bounce);
        p.base = (char *)p.base + p.count * p.stride;
        remote += len;
        left -= p.count;
    }
    return WEFT_OK;
}

weft_status_t weft__shm_vm_copy(struct lane *l, bool put, const struct rma_piece *pieces, size_t n,
                                uint64_t remote) {
    struct shm_lane *lane = (struct shm_lane *)l;
    for (size_t i = 0; i < n; i++) {
        const struct rma_piece *p = &pieces[i];
        if (p->len == 0 || p->count == 0) continue;
        bool bounced = p->count > 1 && p->len < SMALL_BLOCK;
        weft_status_t st =
            bounced ? copy_bounced(lane, put, *p, remote) : copy_blocks(lane, put, p, remote);
        if (st < 0) return st;
        remote += p->len * p->count;
    }
    return WEFT_OK;
}
