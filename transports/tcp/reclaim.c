/*
 * Returns zero-copy memory to its owner before the socket has taken all of it. The lane copies the
 * bytes that remain, so the stream of frames does not change: a part of the message may have left,
 * and later frames follow it.
 */
#include "tcp.h"

#include <string.h>

/* The lane's copy of zero-copy bytes, until they are written or the lane ends. */
struct tcp_copy {
    struct completion written;
    uint8_t bytes[];
};

static void copy_written(struct completion *written, weft_status_t status) {
    talloc_free(container_of(written, struct tcp_copy, written));
}

static bool is_zcopied(const struct tcp_iov_batch *iov_batch, const struct iovec *piece) {
    const struct tcp_buffer *buffer = tcp_buffer_of(iov_batch);
    return (uintptr_t)piece->iov_base - (uintptr_t)buffer->bytes >= buffer->size;
}

/* A message's head is in the batch, and its borrowed pieces behind it; `last` has its
 * completion. */
static uint32_t first_zcopied(const struct tcp_output *out, uint32_t last) {
    uint32_t i = last;
    while (i > out->first && is_zcopied(out->iov_batch, &out->iov_batch->iov[i - 1]) &&
           !out->iov_batch->done[i - 1])
        i--;
    return i;
}

static bool copy_pieces(struct tcp_lane *lane, uint32_t from, uint32_t last) {
    struct tcp_iov_batch *iov_batch = lane->out.iov_batch;
    size_t len = 0;
    for (uint32_t i = from; i <= last; i++) len += iov_batch->iov[i].iov_len;
    struct tcp_copy *copy =
        weft__realloc(tcp_iface_of(lane), NULL, sizeof *copy + len, "reclaimed bytes");
    if (!copy) return false;
    copy->written = (struct completion){.done = copy_written, .count = 1};
    uint8_t *to = copy->bytes;
    for (uint32_t i = from; i <= last; i++) {
        if (iov_batch->iov[i].iov_len)
            memcpy(to, iov_batch->iov[i].iov_base, iov_batch->iov[i].iov_len);
        iov_batch->iov[i].iov_base = to;
        to += iov_batch->iov[i].iov_len;
    }
    iov_batch->done[last] = &copy->written;
    return true;
}

/* True: the lane does not look at that memory any more, and its completion is not the lane's to
 * step. */
static bool let_go(struct tcp_lane *lane, uint32_t last) {
    struct tcp_output *out = &lane->out;
    if (last >= out->first && lane->watch.fd >= 0)
        return copy_pieces(lane, first_zcopied(out, last), last);
    out->iov_batch->done[last] = NULL; /* it was written, or never will be */
    return true;
}

void weft__tcp_reclaim(struct lane *l, const struct completion *completion) {
    struct tcp_lane *lane = tcp_lane(l);
    struct tcp_output *out = &lane->out;
    for (uint32_t i = out->notified; out->iov_batch && i < out->end; i++) {
        struct completion *done = out->iov_batch->done[i];
        if (!done || done != completion) continue;
        weft_status_t status = i < out->first || lane->watch.fd >= 0 ? WEFT_OK : WEFT_ERR_CLOSED;
        if (let_go(lane, i)) completion_step(done, status);
    }
}
