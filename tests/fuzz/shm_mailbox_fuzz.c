/* What may stand in a mailbox and in the nodes of those who write to it: whatever is handed out
 * lies within their memory. */
#include "fuzz.h"
#include <transports/shm/queues/mailbox.h>

enum { SENDERS = 3, NEAR = 2, NODES = 8, ROOM = 4, BLOCKS = 4096, STAGING = 8192, HEAD = 24 };
enum { NEAR_SIZE = NEAR * sizeof(struct mail_near) + sizeof(struct mail_node) };

/* As a pool is laid out, but for what it is aligned to. */
struct pool {
    struct mail_node nodes[NODES];
    uint8_t blocks[BLOCKS], staging[STAGING];
};

struct post {
    struct mail_near *near[SENDERS];
    struct pool *pool[SENDERS];
    struct mail_view views[SENDERS];
};

static const struct mail_view *view_of(void *arg, uint32_t slot) {
    return slot < SENDERS ? &((struct post *)arg)->views[slot] : NULL;
}

static int within(const uint8_t *at, size_t len, const void *memory, size_t size) {
    const uint8_t *begin = memory;
    return at >= begin && at + len <= begin + size;
}

static void poll_at(const struct post *post, const struct mail_desc *desc, uint32_t number) {
    struct mail_message m;
    insist(desc->slot < SENDERS);
    const struct pool *pool = post->pool[desc->slot];
    if (mail_read(desc->node, number, &post->views[desc->slot], &m) < 0) return;
    insist(m.id < MAIL_IDS);
    insist(within(m.data, m.len, post->near[desc->slot], NEAR_SIZE) ||
           within(m.data, m.len, pool->nodes, sizeof pool->nodes) ||
           within(m.data, m.len, pool->blocks, BLOCKS) ||
           within(m.data, m.len, pool->staging, STAGING));
}

/* By themselves, so that a sanitizer sees one byte too many. */
static void *memory_new(size_t size) {
    void *memory = calloc(1, size);
    if (!memory) abort();
    return memory;
}

/* The input: the head word, and for each node its name of the next, its word and its first 8
 * bytes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct mail_shape shape = {
        NODES,  NEAR,   offsetof(struct pool, blocks), offsetof(struct pool, staging),
        BLOCKS, STAGING};
    struct post post;
    struct mail_desc descs[ROOM];
    struct mail_rx rx = {.descs = descs, .room = ROOM, .view = view_of, .arg = &post};
    uint64_t newest = 0;
    if (size < sizeof newest) return 0;
    memcpy(&newest, data, sizeof newest);
    data += sizeof newest, size -= sizeof newest;
    for (unsigned s = 0; s < SENDERS; s++) {
        struct mail_near *near = post.near[s] = memory_new(NEAR_SIZE);
        struct pool *pool = post.pool[s] = memory_new(sizeof *pool);
        for (unsigned n = 0; n < NODES && size >= HEAD; n++, data += HEAD, size -= HEAD)
            memcpy(n < NEAR ? (void *)&near[n] : (void *)&pool->nodes[n], data, HEAD);
        post.views[s] = (struct mail_view){pool->nodes, near, &shape};
    }
    if (weft__mail_take(&rx, newest, SENDERS * NODES) > 0) {
        uint32_t read = 0;
        for (; mail_next(&rx) > 0; read++) {
            const struct mail_desc desc = rx.descs[--rx.n];
            poll_at(&post, &desc, read % 4);
            if (read == 2) post.near[0][0].next = newest; /* it changes while it is read */
        }
        insist(read <= SENDERS * NODES);
    }
    insist(mail_all_read(&rx));
    for (unsigned s = 0; s < SENDERS; s++) free(post.near[s]), free(post.pool[s]);
    return 0;
}
