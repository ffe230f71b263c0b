/* Reading the peer's memory in the kernel: one copy, where that is permitted and pays. */
#include "shm.h"
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PIECE = 256 * 1024 }; /* read in one go, so that a turn stays short */

#define OF_BULK_JOB(j) ((struct shm_more *)((char *)(j)-offsetof(struct shm_more, bulk_job)))

/* ---- does it pay? -------------------------------------------------------------------------------------------- */

/* Two copies through staging run on two cores at once, so one copy by the kernel must cost little more than one of them. */
static bool measure(const void *parent) {
    uint8_t *from = weft__alloc(parent, 2 * PIECE, "shm calibration");
    if (!from) return false;
    uint8_t *to = from + PIECE;
    uint64_t copied = UINT64_MAX, read = UINT64_MAX;
    struct iovec here = {to, PIECE}, there = {from, PIECE};
    for (int i = 0; i < 3; i++) {
        uint64_t t0 = weft__real_now();
        memcpy(to, from, PIECE);
        __asm__ volatile("" ::"r"(to) : "memory");
        uint64_t t1 = weft__real_now();
        if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) != PIECE) break;
        uint64_t t2 = weft__real_now();
        if (t1 - t0 < copied) copied = t1 - t0;
        if (t2 - t1 < read) read = t2 - t1;
    }
    talloc_free(from);
    return read != UINT64_MAX && read < copied + copied / 2;
}

bool weft__shm_vm_pays(const struct shm_iface *iface, const char *way) {
    static _Atomic int known; /* of this process; 0: not measured yet */
    if (strcmp(way, "vm") == 0) return true;
    if (strcmp(way, "auto") != 0) return false;
    if (known == 0) known = measure(iface) ? 1 : -1;
    return known > 0;
}

/* ---- the reads --------------------------------------------------------------------------------------------------- */

/* While the socket stands the peer lives, and its pid is its own. While it is silent the peer has not parted either, and its
 * memory is still what it offered: all that an attached peer says there is its last word. */
static bool peer_stands(const struct shm_lane *lane) {
    char byte;
    return recv(lane->watch.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EINTR);
}

static weft_status_t read_piece(struct shm_lane *lane, struct shm_bulk *b) {
    struct iovec here[SHM_IOV], there = {(void *)(uintptr_t)b->remote, 0};
    unsigned n = 0;
    for (; n < b->n_iov && there.iov_len < PIECE; n++) {
        size_t len = b->iov[n].len;
        if (len > PIECE - there.iov_len) len = PIECE - there.iov_len;
        here[n] = (struct iovec){b->iov[n].base, len};
        there.iov_len += len;
    }
    ssize_t got = process_vm_readv(shm_pid(lane), here, n, &there, 1, 0);
    if (got <= 0) {
        weft_status_t st = errno == ESRCH   ? WEFT_ERR_PEER_FAILED
                           : errno == EPERM ? WEFT_ERR_UNSUPPORTED
                                            : WEFT_ERR_IO;
        return weft__fail(st, "shm: process_vm_readv: %s", got < 0 ? strerror(errno) : "nothing there");
    }
    if (!peer_stands(lane)) return WEFT_ERR_PEER_FAILED;
    b->remote += (size_t)got;
    b->left -= (size_t)got;
    while (got > 0) {
        size_t step = (size_t)got < b->iov[0].len ? (size_t)got : b->iov[0].len;
        b->iov[0].base = (uint8_t *)b->iov[0].base + step;
        b->iov[0].len -= step;
        got -= (ssize_t)step;
        if (b->iov[0].len == 0) memmove(b->iov, b->iov + 1, --b->n_iov * sizeof *b->iov);
    }
    return WEFT_OK;
}

static struct shm_bulk *bulk_new(struct shm_more *more, struct completion *completion) {
    struct shm_bulk *b = &more->bulk[(more->bulk_first + more->n_bulk++) % SHM_BULKS];
    *b = (struct shm_bulk){.completion = completion};
    weft__job_post(more->lane->lane.iface->reactor, &more->bulk_job);
    return b;
}

static struct shm_more *bulk_of(struct shm_lane *lane) {
    struct shm_more *more = weft__shm_more(lane);
    if (more && !more->bulk)
        more->bulk = weft__alloc(shm_iface(lane), SHM_BULKS * sizeof *more->bulk, "struct shm_bulk");
    return more && more->bulk ? more : NULL;
}

weft_status_t weft__shm_bulk_get(struct lane *l, uint64_t remote, const weft_iov_t *iov, size_t n_iov,
                                 struct completion *completion) {
    struct shm_lane *lane = (struct shm_lane *)l;
    if (!shm_iface(lane)->vm || !weft__shm_vm_allowed(lane)) return WEFT_ERR_UNSUPPORTED;
    if (n_iov > SHM_IOV) return weft__fail(WEFT_ERR_TOO_BIG, "bulk_get into %zu pieces over shm", n_iov);
    struct shm_more *more = bulk_of(lane);
    if (!more) return WEFT_ERR_NO_MEMORY;
    if (more->n_bulk == SHM_BULKS) return WEFT_NO_RESOURCE;
    struct shm_bulk *b = bulk_new(more, completion);
    b->remote = remote;
    for (size_t i = 0; i < n_iov; i++) {
        if (iov[i].len) b->iov[b->n_iov++] = iov[i];
        b->left += iov[i].len;
    }
    return WEFT_IN_PROGRESS;
}

/* What was sent has left with its call; only reads can be under way. */
weft_status_t weft__shm_flush(struct lane *l, struct completion *completion) {
    struct shm_more *more = ((struct shm_lane *)l)->more;
    if (!more || more->n_bulk == 0) return WEFT_OK;
    if (more->n_bulk == SHM_BULKS) return WEFT_NO_RESOURCE;
    bulk_new(more, completion);
    return WEFT_IN_PROGRESS;
}

static void bulk_done(struct shm_more *more, weft_status_t status) {
    struct completion *completion = more->bulk[more->bulk_first].completion;
    more->bulk_first = (more->bulk_first + 1) % SHM_BULKS;
    more->n_bulk--;
    if (completion) completion_step(completion, status);
}

/* A piece a turn. */
void weft__shm_bulk_run(struct job *job) {
    struct shm_more *more = OF_BULK_JOB(job);
    struct shm_lane *lane = more->lane;
    if (more->n_bulk == 0) return;
    struct shm_bulk *b = &more->bulk[more->bulk_first];
    weft_status_t st = b->left ? read_piece(lane, b) : WEFT_OK;
    if (st < 0 || b->left == 0) {
        bulk_done(more, st);
        if (pending_queue_waits(&lane->pending) && lane->am) shm_way(lane)->activate(lane);
    }
    if (more->n_bulk) weft__job_post(lane->lane.iface->reactor, job);
}

void weft__shm_bulk_end(struct shm_lane *lane, weft_status_t status) {
    struct shm_more *more = lane->more;
    if (!more) return;
    weft__job_drop(lane->lane.iface->reactor, &more->bulk_job);
    while (more->n_bulk) bulk_done(more, status);
}
