/* The forms that wait, for programs without a loop of their own. */
#include <weft/stream.h>

#include "worker.h"

static void note(weft_status_t status, void *arg) {
    *(weft_status_t *)arg = status;
}

/* `call` uses `op`; what it answers at once, or what comes later. */
#define WAIT(worker, call)                       \
    weft_status_t done = WEFT_IN_PROGRESS;       \
    weft_op_t op = {.done = note, .arg = &done}; \
    weft_status_t st = call;                     \
    return st == WEFT_IN_PROGRESS ? weft__worker_wait_for(worker, &done) : st

weft_status_t weft_ep_flush_wait(weft_ep_t *ep) {
    WAIT(ep->worker, weft_ep_flush(ep, &op));
}

weft_status_t weft_ep_close_wait(weft_ep_t *ep, weft_close_mode_t mode) {
    weft_worker_t *worker = ep->worker;
    WAIT(worker, weft_ep_close(ep, mode, &op));
}

weft_status_t weft_am_send_wait(weft_ep_t *ep, unsigned id, const void *header, size_t header_len,
                                const weft_iov_t *iov, size_t n_iov) {
    WAIT(ep->worker, weft_am_send(ep, id, header, header_len, iov, n_iov, &op));
}

weft_status_t weft_stream_send_wait(weft_ep_t *ep, const weft_iov_t *iov, size_t n_iov) {
    WAIT(ep->worker, weft_stream_send(ep, iov, n_iov, &op));
}

weft_status_t weft_stream_recv_wait(weft_ep_t *ep, const weft_iov_t *iov, size_t n_iov, size_t *len_p) {
    WAIT(ep->worker, weft_stream_recv(ep, iov, n_iov, len_p, &op));
}

weft_status_t weft_tag_send_wait(weft_ep_t *ep, uint64_t tag, const weft_iov_t *iov, size_t n_iov) {
    WAIT(ep->worker, weft_tag_send(ep, tag, iov, n_iov, &op));
}

weft_status_t weft_tag_recv_wait(weft_worker_t *worker, uint64_t tag, uint64_t mask, const weft_iov_t *iov,
                                 size_t n_iov, weft_tag_info_t *info_p) {
    WAIT(worker, weft_tag_recv(worker, tag, mask, iov, n_iov, info_p, &op));
}
