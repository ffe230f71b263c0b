/* A worker whose association ends: what waits on it, and what each kind of new call returns. */
#ifndef WEFT_TESTS_SUPPORT_ENDING_WORKER_H
#define WEFT_TESTS_SUPPORT_ENDING_WORKER_H

#include <tests/support/worker_pair.h>

/* A large send that no receive takes, and two receives to which nothing comes. */
struct ending {
    weft_worker_t *worker;
    weft_ep_t *ep;
    struct tally sent, received, streamed;
    size_t len; /* of what the stream brought */
    char large[1 << 20], small[8];
};

static inline void ending_begin(struct ending *e, weft_worker_t *worker, weft_ep_t *ep) {
    memset(e, 0, sizeof *e);
    e->worker = worker;
    e->ep = ep;
    weft_iov_t iov = {e->small, sizeof e->small};
    CHECK_EQ(weft_tag_send(ep, 1, &(weft_iov_t){e->large, sizeof e->large}, 1, OP(&e->sent)),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_recv(worker, 2, ~0ull, &iov, 1, NULL, OP(&e->received)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_stream_recv(ep, &iov, 1, &e->len, OP(&e->streamed)), WEFT_IN_PROGRESS);
}

/* While it ends; and no callback came within a call. */
static inline void ending_calls_return(struct ending *e, weft_status_t status) {
    weft_ep_t *ep;
    weft_mem_t *mem;
    weft_listener_t *listener;
    weft_tag_info_t info;
    weft_iov_t iov = {e->small, sizeof e->small};
    CHECK_EQ(weft_connect(e->worker, "tcp://127.0.0.1:1", NULL, &ep), status);
    CHECK_EQ(weft_listen(e->worker, "tcp://127.0.0.1:0", NULL, &listener), status);
    CHECK_EQ(weft_tag_recv(e->worker, 3, ~0ull, &iov, 1, NULL, NULL), status);
    CHECK_EQ(weft_tag_recv(e->worker, 3, ~0ull, &iov, 0, NULL, NULL), status);
    CHECK_EQ(weft_tag_probe(e->worker, 3, ~0ull, &info), status);
    CHECK_EQ(weft_mem_alloc(e->worker, 4096, NULL, &mem), status);
    CHECK_EQ(weft_am_send(e->ep, 3, NULL, 0, &iov, 1, NULL), status);
    CHECK_EQ(weft_tag_send(e->ep, 3, &iov, 1, NULL), status);
    CHECK_EQ(weft_stream_send(e->ep, &iov, 1, NULL), status);
    CHECK_EQ(weft_stream_recv(e->ep, &iov, 1, &e->len, NULL), status);
    CHECK_EQ(weft_ep_flush(e->ep, NULL), status);
    CHECK_EQ(e->sent.calls + e->received.calls + e->streamed.calls, 0);
}

static inline void ending_ended(const struct ending *e, weft_status_t status) {
    CHECK(e->sent.calls == 1 && e->received.calls == 1 && e->streamed.calls == 1);
    CHECK_EQ(e->sent.status, status);
    CHECK_EQ(e->received.status, status);
    CHECK_EQ(e->streamed.status, status);
}

#endif
