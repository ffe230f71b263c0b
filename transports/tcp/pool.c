#include "tcp.h"

/* Kept for the next lane that needs one; more than these go back to the allocator. */
static const unsigned most_idle[TCP_N_BUF_CLASSES] = {
    [TCP_BUF_READ] = 4, [TCP_BUF_BIG] = 2, [TCP_BUF_SLIP] = 16, [TCP_BUF_SHEET] = 4};

void tcp_pool_init(struct tcp_pool *pool, size_t buffer) {
    pool->size[TCP_BUF_READ] = buffer;
    pool->size[TCP_BUF_BIG] = tcp_frame_size(TCP_MAX_FRAME) + buffer;
    pool->size[TCP_BUF_SLIP] = sizeof(struct tcp_sheet) + TCP_SLIP + TCP_FRAME_HEAD;
    pool->size[TCP_BUF_SHEET] = sizeof(struct tcp_sheet) + buffer + TCP_FRAME_HEAD;
}

struct tcp_buffer *tcp_pool_take(struct tcp_pool *pool, const void *parent, enum tcp_buffer_class class) {
    struct tcp_buffer *b = pool->idle[class];
    if (b) {
        pool->idle[class] = b->next;
        pool->n_idle[class]--;
        return b;
    }
    b = weft__realloc(parent, NULL, sizeof *b + pool->size[class],
                      "tcp buffer"); /* not zeroed: most of it is never used */
    if (!b) return NULL;
    b->size = pool->size[class];
    b->class = class;
    return b;
}

void tcp_pool_put(struct tcp_pool *pool, struct tcp_buffer *b) {
    if (!b) return;
    if (pool->n_idle[b->class] == most_idle[b->class]) {
        talloc_free(b);
        return;
    }
    b->next = pool->idle[b->class];
    pool->idle[b->class] = b;
    pool->n_idle[b->class]++;
}
