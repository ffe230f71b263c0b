/* The pool of tcp's buffers and I/O batches: idle ones are kept for the next lane. */
#include "tcp.h"

/* Kept for the next lane that needs one; more than these go back to the allocator. */
static const unsigned most_idle[TCP_N_BUF_CLASSES] = {
    [TCP_BUF_READ] = 4, [TCP_BUF_BIG] = 2, [TCP_BUF_SMALL_BUF] = 16, [TCP_BUF_IOV_BATCH] = 4};

static size_t pieces_of(enum tcp_buffer_class class) {
    return class == TCP_BUF_SMALL_BUF ? TCP_SMALL_BUF_SEGMENTS : TCP_SEGMENTS;
}

/* What stands before an I/O batch's bytes. */
static size_t head_of(enum tcp_buffer_class class) {
    size_t piece = sizeof(struct iovec) + sizeof(struct completion *);
    return (sizeof(struct tcp_iov_batch) + pieces_of(class) * piece + 15) & ~(size_t)15;
}

static void lay_out(struct tcp_buffer *b) {
    struct tcp_iov_batch *iov_batch = (struct tcp_iov_batch *)(void *)b->bytes;
    iov_batch->pieces = (uint32_t)pieces_of(b->class);
    iov_batch->done = (struct completion **)(void *)(iov_batch->iov + iov_batch->pieces);
    iov_batch->bytes = b->bytes + head_of(b->class);
    iov_batch->room = (uint32_t)(b->size - head_of(b->class) - TCP_FRAME_HEAD);
}

void weft__tcp_pool_init(struct tcp_pool *pool, size_t buffer) {
    pool->size[TCP_BUF_READ] = buffer;
    pool->size[TCP_BUF_BIG] = tcp_frame_size(TCP_MAX_FRAME) + buffer;
    pool->size[TCP_BUF_SMALL_BUF] = head_of(TCP_BUF_SMALL_BUF) + TCP_SMALL_BUF + TCP_FRAME_HEAD;
    pool->size[TCP_BUF_IOV_BATCH] =
        head_of(TCP_BUF_IOV_BATCH) + TCP_IOV_BATCH_BUFFERS * buffer + TCP_FRAME_HEAD;
}

static void release_kept(struct lane_keep *keep) {
    struct tcp_buffer *b = container_of(keep, struct tcp_buffer, keep);
    if (--b->n_kept > 0 || !b->put) return;
    b->put = false;
    weft__tcp_pool_put(b->pool, b);
}

struct tcp_buffer *weft__tcp_pool_make(struct tcp_pool *pool, const void *parent,
                                       enum tcp_buffer_class class) {
    struct tcp_buffer *b = weft__realloc(parent, NULL, sizeof *b + pool->size[class],
                                         "tcp buffer"); /* not zeroed: most of it is never used */
    if (!b) return NULL;
    *b = (struct tcp_buffer){
        .size = pool->size[class], .class = class, .keep = {release_kept}, .pool = pool};
    if (class == TCP_BUF_SMALL_BUF || class == TCP_BUF_IOV_BATCH) lay_out(b);
    return b;
}

void weft__tcp_pool_put(struct tcp_pool *pool, struct tcp_buffer *b) {
    if (!b) return;
    if (b->n_kept) {
        b->put = true;
        return;
    }
    if (pool->n_idle[b->class] == most_idle[b->class]) {
        talloc_free(b);
        return;
    }
    b->next = pool->idle[b->class];
    pool->idle[b->class] = b;
    pool->n_idle[b->class]++;
}
