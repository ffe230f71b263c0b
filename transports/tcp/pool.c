#include "tcp.h"

/* Kept for the next lane that needs one; more than these go back to the allocator. */
static const unsigned most_idle[TCP_N_BUF_CLASSES] = {
    [TCP_BUF_READ] = 4, [TCP_BUF_BIG] = 2, [TCP_BUF_SLIP] = 16, [TCP_BUF_SHEET] = 4};

static size_t pieces_of(enum tcp_buffer_class class) {
    return class == TCP_BUF_SLIP ? TCP_SLIP_SEGMENTS : TCP_SEGMENTS;
}

/* What stands before a sheet's bytes. */
static size_t head_of(enum tcp_buffer_class class) {
    size_t piece = sizeof(struct iovec) + sizeof(struct completion *);
    return (sizeof(struct tcp_sheet) + pieces_of(class) * piece + 15) & ~(size_t)15;
}

static void lay_out(struct tcp_buffer *b) {
    struct tcp_sheet *sheet = (struct tcp_sheet *)(void *)b->bytes;
    sheet->pieces = (uint32_t)pieces_of(b->class);
    sheet->done = (struct completion **)(void *)(sheet->iov + sheet->pieces);
    sheet->bytes = b->bytes + head_of(b->class);
    sheet->room = (uint32_t)(b->size - head_of(b->class) - TCP_FRAME_HEAD);
}

void tcp_pool_init(struct tcp_pool *pool, size_t buffer) {
    pool->size[TCP_BUF_READ] = buffer;
    pool->size[TCP_BUF_BIG] = tcp_frame_size(TCP_MAX_FRAME) + buffer;
    pool->size[TCP_BUF_SLIP] = head_of(TCP_BUF_SLIP) + TCP_SLIP + TCP_FRAME_HEAD;
    pool->size[TCP_BUF_SHEET] = head_of(TCP_BUF_SHEET) + TCP_SHEET_BUFFERS * buffer + TCP_FRAME_HEAD;
}

static void release(struct lane_keep *keep) {
    struct tcp_buffer *b = (struct tcp_buffer *)((char *)keep - offsetof(struct tcp_buffer, keep));
    if (--b->n_kept > 0 || !b->put) return;
    b->put = false;
    tcp_pool_put(b->pool, b);
}

struct tcp_buffer *tcp_pool_make(struct tcp_pool *pool, const void *parent, enum tcp_buffer_class class) {
    struct tcp_buffer *b = weft__realloc(parent, NULL, sizeof *b + pool->size[class],
                                         "tcp buffer"); /* not zeroed: most of it is never used */
    if (!b) return NULL;
    *b = (struct tcp_buffer){.size = pool->size[class], .class = class, .keep = {release}, .pool = pool};
    if (class == TCP_BUF_SLIP || class == TCP_BUF_SHEET) lay_out(b);
    return b;
}

void tcp_pool_put(struct tcp_pool *pool, struct tcp_buffer *b) {
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
