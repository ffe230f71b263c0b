/*
 * A mailbox: a queue with many senders and one receiver (MPSC), headed by one word.
 *
 * A sender writes a message into a node of its own memory. One compare-and-swap of the word
 * publishes it: the word then names this node, and the node names the one before. A sender that
 * dies at any moment leaves at most a node that was never published. The receiver takes the whole
 * chain by one exchange and reads it from its old end, so messages of one sender stay in order. It
 * publishes how many messages of a sender it has passed in a word of its own. Only then the sender
 * writes into those nodes again.
 *
 * The receiver trusts nothing in others' memory. A node is named by the sender's slot and an index,
 * and the receiver looks both up in private tables. A chain may be no longer than the nodes under
 * way. Each message carries its number.
 */
#ifndef WEFT_TRANSPORTS_SHM_QUEUES_MAILBOX_H
#define WEFT_TRANSPORTS_SHM_QUEUES_MAILBOX_H

#include <base/compiler.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    MAIL_INLINE = 240,
    MAIL_NEAR = 56, /* as much as am_short takes; the handshake of a link fits, too */
    MAIL_IDS = 32,
    MAIL_WINDOW = 64, /* messages of one sender to one receiver under way */
    MAIL_BLOCKS = 16, /* of these, messages in blocks */
    MAIL_BLOCK = 8192
};

struct mail_node {
    _Atomic uint64_t next; /* the node published before this one; 0: none */
    uint64_t word;         /* number 32, length 16, kind 8, id 8 */
    uint8_t data[MAIL_INLINE];
};
_Static_assert(sizeof(struct mail_node) == 256, "nodes fill lines");

/* A smaller node, for a worker that sends little. As much memory as a node has follows the last
 * near node, so no length in it leads out of the segment. */
struct mail_near {
    _Atomic uint64_t next;
    uint64_t word;
    uint8_t data[MAIL_NEAR];
};
_Static_assert(offsetof(struct mail_near, data) == offsetof(struct mail_node, data),
               "a node, but for its length");

enum mail_kind { MAIL_IN_NODE, MAIL_IN_BLOCK, MAIL_IN_STAGING };

/* The place of a message that is not in its node. */
struct mail_place {
    uint32_t offset, len;
};

/* Names a node to the receiver in whose table the sender has `slot`. Never 0. */
static inline uint64_t mail_ref(uint32_t slot, uint32_t index) {
    return (uint64_t)(slot + 1) << 32 | index;
}

static inline uint64_t mail_word(uint32_t number, enum mail_kind kind, uint8_t id, size_t len) {
    return (uint64_t)number << 32 | (uint64_t)len << 16 | (uint64_t)kind << 8 | id;
}

/* What a worker publishes to the peer of a lane, in memory that only the worker writes. */
struct mail_control {
    _Atomic uint32_t consumed; /* messages of the peer that this worker has passed */
    /* grows when this worker sleeps until the peer has passed more than `seen` */
    _Atomic uint32_t wants;
    _Atomic uint32_t seen; /* messages that the peer had passed then */
    /* the lane's `opening`: its peer may publish; MAIL_ENDED: this worker's side ended */
    _Atomic uint32_t open;
};
#define MAIL_ENDED UINT32_MAX

/* ---- sender ---------------------------------------------------------------------------------- */

enum { MAIL_NONE = UINT16_MAX }; /* no index of a node or block */

/* The sender's private note on a node: the next of its list, and the memory its message uses. */
struct mail_note {
    uint32_t next;
    uint32_t block;
    int32_t chunk; /* of staging memory, as weft__shm_chunk_get returned it; -1: none */
};

/* Free nodes or blocks: a list of returned ones, then the ones never used. */
struct mail_stock {
    uint32_t first; /* of the list of returned ones */
    uint32_t fresh; /* the lowest one never used */
    uint32_t total, free;
};

/* The memory that a worker sends from. */
struct mail_pool {
    struct mail_near *near; /* the first `n_near` nodes; `nodes` has the others */
    struct mail_node *nodes;
    uint32_t n_near;
    uint8_t *blocks;
    struct mail_note *notes; /* of nodes */
    uint32_t *next_block;    /* of free blocks */
    struct mail_stock node, block;
};

/* The sender's side of a lane. */
struct mail_tx {
    _Atomic uint64_t *newest;          /* the receiver's mailbox */
    const struct mail_control *theirs; /* the receiver's */
    uint32_t sent, returned, limit;    /* `limit`: first number that may not be sent */
    union {
        /* While `limit` is 0: what theirs->open says when the peer has opened this lane. Another
         * number there is that of an earlier or a later lane, which had this lane's place. */
        uint32_t opening;
        struct {
            uint16_t last; /* of the nodes under way */
            /* of the staging memory (lane/staging.c): the newest chunk that messages under way lie
             * in, if `n_staged` is not 0 */
            uint16_t newest_chunk;
        };
    };
    uint16_t first;    /* of the nodes under way, in their order; MAIL_NONE: there are none */
    uint16_t slot;     /* ours, in the receiver's table */
    uint16_t n_staged; /* messages under way that lie in staging memory */
    uint8_t n_chunks;  /* the chunks of these */
    uint8_t n_blocks;
};

static inline uint32_t mail_under_way(const struct mail_tx *tx) {
    return tx->sent - tx->returned;
}

/*
 * A lane may hold no more than is free. So a lane whose receiver takes nothing leaves half of what
 * it found to the other lanes.
 */
static inline bool mail_may_take(const struct mail_stock *stock, uint32_t held) {
    return held < stock->free;
}

/* Nodes may return, or the peer may open the lane. */
static inline bool mail_is_due(const struct mail_tx *tx) {
    return mail_under_way(tx) || tx->limit == 0;
}

static inline bool mail_blocked(const struct mail_tx *tx, const struct mail_pool *pool) {
    return tx->sent == tx->limit || !mail_may_take(&pool->node, mail_under_way(tx));
}

static inline struct mail_node *mail_node_at(const struct mail_pool *pool, uint32_t index) {
    return index < pool->n_near ? (struct mail_node *)&pool->near[index] : &pool->nodes[index];
}

/* Bytes of a message that fit the node. */
static inline size_t mail_room(const struct mail_pool *pool, uint32_t index) {
    return index < pool->n_near ? MAIL_NEAR : MAIL_INLINE;
}

static inline uint32_t mail_node_get(struct mail_pool *pool) {
    uint32_t index = pool->node.first;
    pool->node.free--;
    if (index == MAIL_NONE) return pool->node.fresh++;
    pool->node.first = pool->notes[index].next;
    return index;
}

static inline void mail_node_put(struct mail_pool *pool, uint32_t index) {
    pool->notes[index].next = pool->node.first;
    pool->node.first = index;
    pool->node.free++;
}

static inline uint32_t mail_block_get(struct mail_pool *pool) {
    uint32_t index = pool->block.first;
    pool->block.free--;
    if (index == MAIL_NONE) return pool->block.fresh++;
    pool->block.first = pool->next_block[index];
    return index;
}

static inline void mail_block_put(struct mail_pool *pool, uint32_t index) {
    pool->next_block[index] = pool->block.first;
    pool->block.first = index;
    pool->block.free++;
}

/* Publishes a node. Before the exchange succeeds no receiver sees it; after it, the node is
 * complete. */
static inline void mail_publish(_Atomic uint64_t *newest, struct mail_node *node, uint64_t ref) {
    uint64_t before = atomic_load_explicit(newest, memory_order_relaxed);
    do atomic_store_explicit(&node->next, before, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(newest, &before, ref, memory_order_seq_cst,
                                                  memory_order_relaxed));
}

/* What a node of the queue carries, or points to. */
struct mail_content {
    enum mail_kind kind;
    uint8_t id;
    size_t len;     /* in the node */
    uint32_t block; /* MAIL_NONE: none */
    int32_t chunk;  /* of staging memory; -1: none */
};

/* Fills the first two words of a node and publishes it. */
static inline void mail_send(struct mail_tx *tx, struct mail_pool *pool, uint32_t index,
                             struct mail_content m) {
    struct mail_node *node = mail_node_at(pool, index);
    pool->notes[index] = (struct mail_note){MAIL_NONE, m.block, m.chunk};
    if (tx->first == MAIL_NONE)
        tx->first = (uint16_t)index;
    else
        pool->notes[tx->last].next = index;
    tx->last = (uint16_t)index;
    node->word = mail_word(tx->sent++, m.kind, m.id, m.len);
    mail_publish(tx->newest, node, mail_ref(tx->slot, index));
}

enum { MAIL_SAME, MAIL_MOVED, MAIL_LIES = -1 };

/* Takes back the oldest node under way. */
static inline void mail_take_back(struct mail_tx *tx, struct mail_pool *pool,
                                  void (*give_back)(void *arg, int32_t chunk), void *arg) {
    uint32_t index = tx->first;
    const struct mail_note note = pool->notes[index];
    tx->first = (uint16_t)note.next;
    tx->returned++;
    if (note.block != MAIL_NONE) {
        mail_block_put(pool, note.block);
        tx->n_blocks--;
    }
    if (note.chunk >= 0) give_back(arg, note.chunk);
    mail_node_put(pool, index);
}

/* Takes back the nodes that the receiver has passed. */
static inline int mail_refresh(struct mail_tx *tx, struct mail_pool *pool,
                               void (*give_back)(void *arg, int32_t chunk), void *arg) {
    if (tx->limit == 0) {
        if (atomic_load_explicit(&tx->theirs->open, memory_order_acquire) != tx->opening)
            return MAIL_SAME;
        tx->limit = MAIL_WINDOW;
        return MAIL_MOVED;
    }
    uint32_t passed =
        atomic_load_explicit(&tx->theirs->consumed, memory_order_acquire) - tx->returned;
    if (passed == 0) return MAIL_SAME;
    if (passed > mail_under_way(tx)) return MAIL_LIES;
    while (passed--) mail_take_back(tx, pool, give_back, arg);
    tx->limit = tx->returned + MAIL_WINDOW;
    /* A limit of 0 means "not open yet". Where the count wraps to 0, one less serves as well. */
    if (tx->limit == 0) tx->limit--;
    return MAIL_MOVED;
}

/* ---- receiver -------------------------------------------------------------------------------- */

/* The layout of a sender's pool: offsets of blocks and staging from the first node. */
struct mail_shape {
    uint32_t n_nodes, n_near; /* the first `n_near` are not in `nodes` */
    size_t blocks, staging;
    uint32_t blocks_size, staging_size;
};

/* A sender's memory, as mapped by the receiver. */
struct mail_view {
    const struct mail_node *nodes;
    const struct mail_near *near;
    const struct mail_shape *shape;
};

struct mail_desc {
    const struct mail_node *node;
    uint32_t slot;
};

/* The sender of a slot; NULL: the slot has none. */
typedef const struct mail_view *(*mail_view_fn)(void *arg, uint32_t slot);

struct mail_rx {
    struct mail_desc *descs; /* the next messages to read; the oldest is the last */
    uint32_t room, n;
    uint64_t rest; /* the chain that they come from */
    size_t n_rest; /* nodes of the chain that are not in `descs` yet */
    mail_view_fn view;
    void *arg;
};

/* The node of a name; NULL: the name is invalid. */
static inline const struct mail_node *mail_find(const struct mail_rx *rx, uint64_t ref,
                                                uint32_t *slot_p) {
    uint32_t slot = (uint32_t)(ref >> 32) - 1, index = (uint32_t)ref;
    const struct mail_view *view = rx->view(rx->arg, slot);
    if (!view || index >= view->shape->n_nodes) return NULL;
    *slot_p = slot;
    return index < view->shape->n_near ? (const struct mail_node *)&view->near[index]
                                       : &view->nodes[index];
}

/* mailbox.c: puts the oldest nodes of the rest of a chain into `descs`. */
int weft__mail_gather(struct mail_rx *rx);

/* 1: the oldest node taken is rx->descs[rx->n - 1], and n-- removes it. 0: all were read.
 * MAIL_LIES: the chain is not valid, and its rest is lost. */
static inline int mail_next(struct mail_rx *rx) {
    if (rx->n) return 1;
    return rx->n_rest ? weft__mail_gather(rx) : 0;
}

/*
 * Takes all that is in the mailbox: what mail_next answers for the first of it. Nothing may be left
 * of what was taken before. No more than `most` messages can be under way.
 */
int weft__mail_take(struct mail_rx *rx, uint64_t newest, size_t most);

static inline bool mail_all_read(const struct mail_rx *rx) {
    return rx->n == 0 && rx->n_rest == 0;
}

struct mail_message {
    const void *data;
    size_t len;
    uint8_t id;
};

/* mailbox.c */
int weft__mail_read_elsewhere(const struct mail_node *node, unsigned kind,
                              const struct mail_view *view, struct mail_message *m);

/* 1 and the message, or MAIL_LIES. The node's head and the place are read once. */
static inline int mail_read(const struct mail_node *node, uint32_t number,
                            const struct mail_view *view, struct mail_message *m) {
    uint64_t word = *(const volatile uint64_t *)&node->word;
    unsigned kind = word >> 8 & 0xff, len = word >> 16 & 0xffff;
    m->id = (uint8_t)word;
    if ((uint32_t)(word >> 32) != number || m->id >= MAIL_IDS) return MAIL_LIES;
    if (UNLIKELY(kind != MAIL_IN_NODE)) return weft__mail_read_elsewhere(node, kind, view, m);
    if (len > MAIL_INLINE) return MAIL_LIES;
    m->data = node->data;
    m->len = len;
    return 1;
}

#endif
