/* The calls that wait, for programs without an event loop: they drive the worker, or wait for
 * the thread that drives it. */
#include <errno.h>
#include <semaphore.h>
#include <weft/rma.h>
#include <weft/stream.h>

#include "drive.h"

#include <endpoints/core/worker.h>

struct waiter {
    weft_status_t done;
    bool elsewhere; /* the owner is another thread, and drives the worker */
    sem_t ended;
};

static void note_wait(weft_status_t status, void *arg) {
    struct waiter *waiter = arg;
    waiter->done = status;
    if (waiter->elsewhere) sem_post(&waiter->ended);
}

/* Polled callbacks come to the program, so it drives what there is for it to drive. */
static weft_status_t begin_wait(struct waiter *waiter, const weft_worker_t *worker) {
    if (!worker) return weft__fail(WEFT_ERR_INVALID_PARAM, "ep, mem or worker is NULL");
    weft_status_t st = weft__worker_check_wait(worker);
    if (st < 0) return st;
    waiter->done = WEFT_IN_PROGRESS;
    waiter->elsewhere = weft__worker_enter(worker) == WEFT_IN_PROGRESS &&
                        !(worker->driver.has_thread && worker->driver.polled);
    sem_init(&waiter->ended, 0, 0);
    return WEFT_OK;
}

static weft_status_t outcome(weft_worker_t *worker, struct waiter *waiter, weft_status_t st) {
    if (st == WEFT_IN_PROGRESS && waiter->elsewhere) {
        while (sem_wait(&waiter->ended) < 0 && errno == EINTR)
            ;
        st = waiter->done;
    } else if (st == WEFT_IN_PROGRESS) {
        st = weft__worker_wait_for(worker, &waiter->done);
    }
    sem_destroy(&waiter->ended);
    return st;
}

static weft_worker_t *worker_of(const weft_ep_t *ep) {
    return ep ? ep->worker : NULL;
}

/* `call` uses `op`, which has these flags; what it answers at once, or what comes later. */
#define WAIT_WITH(op_flags, worker, call)                                    \
    struct waiter waiter;                                                    \
    weft_op_t op = {.done = note_wait, .arg = &waiter, .flags = (op_flags)}; \
    weft_status_t may_wait = begin_wait(&waiter, (worker));                  \
    return may_wait < 0 ? may_wait : outcome((worker), &waiter, call)
#define WAIT(worker, call) WAIT_WITH(0, worker, call)

weft_status_t weft_ep_flush_wait(weft_ep_t *ep) {
    WAIT(worker_of(ep), weft_ep_flush(ep, &op));
}

weft_status_t weft_ep_flush_remote_wait(weft_ep_t *ep) {
    WAIT_WITH(WEFT_FLUSH_REMOTE, worker_of(ep), weft_ep_flush(ep, &op));
}

weft_status_t weft_worker_flush_wait(weft_worker_t *worker) {
    WAIT(worker, weft_worker_flush(worker, &op));
}

weft_status_t weft_worker_flush_remote_wait(weft_worker_t *worker) {
    WAIT_WITH(WEFT_FLUSH_REMOTE, worker, weft_worker_flush(worker, &op));
}

weft_status_t weft_ep_close_wait(weft_ep_t *ep, weft_close_mode_t mode) {
    weft_worker_t *worker = worker_of(ep);
    WAIT(worker, weft_ep_close(ep, mode, &op));
}

weft_status_t weft_put_wait(weft_ep_t *ep, const void *buf, size_t len, uint64_t remote,
                            weft_rkey_t *rkey) {
    WAIT(worker_of(ep), weft_put(ep, buf, len, remote, rkey, &op));
}

weft_status_t weft_get_wait(weft_ep_t *ep, void *buf, size_t len, uint64_t remote,
                            weft_rkey_t *rkey) {
    WAIT(worker_of(ep), weft_get(ep, buf, len, remote, rkey, &op));
}

weft_status_t weft_put_pieces_wait(weft_ep_t *ep, const weft_local_t *local, size_t n_local,
                                   const weft_remote_t *remote, size_t n_remote) {
    WAIT(worker_of(ep), weft_put_pieces(ep, local, n_local, remote, n_remote, &op));
}

weft_status_t weft_get_pieces_wait(weft_ep_t *ep, const weft_local_t *local, size_t n_local,
                                   const weft_remote_t *remote, size_t n_remote) {
    WAIT(worker_of(ep), weft_get_pieces(ep, local, n_local, remote, n_remote, &op));
}

weft_status_t weft_atomic_fetch_wait(weft_ep_t *ep, weft_atomic_t what, size_t size,
                                     uint64_t operand, uint64_t compare, void *old_p,
                                     uint64_t remote, weft_rkey_t *rkey) {
    WAIT(worker_of(ep),
         weft_atomic_fetch(ep, what, size, operand, compare, old_p, remote, rkey, &op));
}

weft_status_t weft_am_send_wait(weft_ep_t *ep, unsigned id, const void *header, size_t header_len,
                                const weft_iov_t *iov, size_t n_iov) {
    WAIT(worker_of(ep), weft_am_send(ep, id, header, header_len, iov, n_iov, &op));
}

weft_status_t weft_stream_send_wait(weft_ep_t *ep, const weft_iov_t *iov, size_t n_iov) {
    WAIT(worker_of(ep), weft_stream_send(ep, iov, n_iov, &op));
}

weft_status_t weft_stream_recv_wait(weft_ep_t *ep, const weft_iov_t *iov, size_t n_iov,
                                    size_t *len_p) {
    WAIT(worker_of(ep), weft_stream_recv(ep, iov, n_iov, len_p, &op));
}

weft_status_t weft_tag_send_wait(weft_ep_t *ep, uint64_t tag, const weft_iov_t *iov, size_t n_iov) {
    WAIT(worker_of(ep), weft_tag_send(ep, tag, iov, n_iov, &op));
}

weft_status_t weft_tag_recv_wait(weft_worker_t *worker, uint64_t tag, uint64_t mask,
                                 const weft_iov_t *iov, size_t n_iov, weft_tag_info_t *info_p) {
    WAIT(worker, weft_tag_recv(worker, tag, mask, iov, n_iov, info_p, &op));
}

/* ---- regions: the handle is gone when a release has ended */

static weft_worker_t *owner_of(const weft_mem_t *mem) {
    return mem ? mem->worker : NULL;
}

weft_status_t weft_mem_release_wait(weft_mem_t *mem) {
    weft_worker_t *worker = owner_of(mem);
    WAIT(worker, weft_mem_release(mem, &op));
}

weft_status_t weft_mem_revoke_wait(weft_mem_t *mem) {
    WAIT(owner_of(mem), weft_mem_revoke(mem, &op));
}

weft_status_t weft_mem_invalidate_wait(weft_worker_t *worker, const void *base, size_t len) {
    WAIT(worker, weft_mem_invalidate(worker, base, len, &op));
}
