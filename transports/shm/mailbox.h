/*
 * A mailbox: one word that any number of senders write and one worker empties.
 *
 * A sender writes a message into a node of its own memory, and publishes it by one compare-and-swap of the word, which
 * then names this node; the node names the one before. So there is no moment at which a sender that dies leaves more than a
 * node that nobody was told of. The receiver takes the whole chain by one exchange and reads it from its old end, so
 * that messages of one sender stay in order. It tells how many of a sender's it has passed in a word of its own, and only then
 * the sender writes into those nodes again.
 *
 * The receiver believes nothing that it reads in others' memory: a node is named by the sender's slot and an index, both
 * looked up in private tables; a chain is as long as there may be nodes under way, at most; and each message bears its number.
 */
#ifndef WEFT_TRANSPORTS_SHM_MAILBOX_H
#define WEFT_TRANSPORTS_SHM_MAILBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    MAIL_INLINE = 240,
    MAIL_NEAR = 56, /* what am_short takes, so a greeting and that an endpoint is accepted as well */
    MAIL_IDS = 32,
    MAIL_WINDOW = 64, /* messages of one sender to one receiver under way */
    MAIL_BLOCKS = 16, /* of these, in blocks */
    MAIL_BLOCK = 8192
};

struct mail_node {
    _Atomic uint64_t next; /* the one published before; 0: none */
    uint64_t word;         /* number 32, length 16, kind 8, id 8 */
    uint8_t data[MAIL_INLINE];
};
_Static_assert(sizeof(struct mail_node) == 256, "nodes fill lines");

/* A smaller one, for who says little. Behind the last of them its owner shows as much memory as a node has, so that no length
 * that it writes leads out of it. */
struct mail_near {
    _Atomic uint64_t next;
    uint64_t word;
    uint8_t data[MAIL_NEAR];
};
_Static_assert(offsetof(struct mail_near, data) == offsetof(struct mail_node, data), "a node, but for its length");

enum mail_kind { MAIL_IN_NODE, MAIL_IN_BLOCK, MAIL_IN_STAGING };

/* Where a message lies that is not in its node. */
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

/* What the receiver of a lane's messages tells their sender, in memory that only the receiver writes; and, of the lane's other
 * direction, what a sender that sleeps wants. */
struct mail_control {
    _Atomic uint32_t consumed; /* messages of yours that I have passed */
    _Atomic uint32_t wants;    /* grows when I go to sleep wanting that you pass more than .. */
    _Atomic uint32_t seen;     /* .. so many */
    _Atomic uint32_t open;     /* I know your nodes: you may publish */
};

/* ---- sender -------------------------------------------------------------------------------------------------- */

enum { MAIL_NONE = UINT16_MAX }; /* there are fewer nodes, and blocks */

/* Of a node: the next of its list, and what it lends. */
struct mail_note {
    uint32_t next;
    uint32_t block;
    int32_t chunk; /* of staging; -1: none */
};

/* Nodes or blocks: those that came back, and those never used so far. */
struct mail_stock {
    uint32_t first; /* of a list of those that came back */
    uint32_t fresh; /* lowest never used */
    uint32_t total, free;
};

/* All that a worker sends from. */
struct mail_pool {
    struct mail_near *near; /* the first `n_near` nodes; the others are among */
    struct mail_node *nodes;
    uint32_t n_near;
    uint8_t *blocks;
    struct mail_note *notes; /* of nodes */
    uint32_t *next_block;    /* of free blocks */
    struct mail_stock node, block;
};

/* One way to one receiver. */
struct mail_tx {
    _Atomic uint64_t *newest;          /* the receiver's mailbox */
    const struct mail_control *theirs; /* the receiver's */
    uint32_t sent, returned, limit;    /* `limit`: first number that may not be sent */
    uint16_t first, last;              /* nodes under way, in their order */
    uint16_t slot;                     /* ours, in the receiver's table */
    uint16_t n_blocks;
    uint32_t n_lent; /* chunks of staging that the receiver may still be reading; counted by whoever lends them */
};

static inline uint32_t mail_under_way(const struct mail_tx *tx) {
    return tx->sent - tx->returned;
}

/*
 * Many that are stuck must not take all from one that is not: nobody holds more than what is left for others. So n of them
 * leave 1/(n + 1) of all.
 */
static inline bool mail_may_take(const struct mail_stock *stock, uint32_t held) {
    return held < stock->free;
}

/* Something may come back, or the way be opened. */
static inline bool mail_is_due(const struct mail_tx *tx) {
    return mail_under_way(tx) || tx->limit == 0;
}

static inline bool mail_blocked(const struct mail_tx *tx, const struct mail_pool *pool) {
    return tx->sent == tx->limit || !mail_may_take(&pool->node, mail_under_way(tx));
}

static inline struct mail_node *mail_node_at(const struct mail_pool *pool, uint32_t index) {
    return index < pool->n_near ? (struct mail_node *)&pool->near[index] : &pool->nodes[index];
}

/* Bytes of a message that it holds. */
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

/* The whole of publishing. Before the exchange succeeds nobody knows the node; from then on everybody finds it whole. */
static inline void mail_publish(_Atomic uint64_t *newest, struct mail_node *node, uint64_t ref) {
    uint64_t before = atomic_load_explicit(newest, memory_order_relaxed);
    do atomic_store_explicit(&node->next, before, memory_order_relaxed);
    while (
        !atomic_compare_exchange_weak_explicit(newest, &before, ref, memory_order_seq_cst, memory_order_relaxed));
}

/* The node was filled but for its first two words. `block` MAIL_NONE, `chunk` -1: none. */
static inline void mail_send(struct mail_tx *tx, struct mail_pool *pool, uint32_t index, enum mail_kind kind,
                             uint8_t id, size_t len, uint32_t block, int32_t chunk) {
    struct mail_node *node = mail_node_at(pool, index);
    pool->notes[index] = (struct mail_note){MAIL_NONE, block, chunk};
    if (tx->first == MAIL_NONE)
        tx->first = (uint16_t)index;
    else
        pool->notes[tx->last].next = index;
    tx->last = (uint16_t)index;
    node->word = mail_word(tx->sent++, kind, id, len);
    mail_publish(tx->newest, node, mail_ref(tx->slot, index));
}

enum { MAIL_SAME, MAIL_MOVED, MAIL_LIES = -1 };

/* The oldest that is under way is ours again. */
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

/* Looks how far the receiver came. */
static inline int mail_refresh(struct mail_tx *tx, struct mail_pool *pool,
                               void (*give_back)(void *arg, int32_t chunk), void *arg) {
    if (tx->limit == 0) {
        if (!atomic_load_explicit(&tx->theirs->open, memory_order_acquire)) return MAIL_SAME;
        tx->limit = MAIL_WINDOW;
        return MAIL_MOVED;
    }
    uint32_t passed = atomic_load_explicit(&tx->theirs->consumed, memory_order_acquire) - tx->returned;
    if (passed == 0) return MAIL_SAME;
    if (passed > mail_under_way(tx)) return MAIL_LIES;
    while (passed--) mail_take_back(tx, pool, give_back, arg);
    tx->limit = tx->returned + MAIL_WINDOW;
    /* 0 means "not open yet", and is met once in 4 billion messages: one less is as good. */
    if (tx->limit == 0) tx->limit--;
    return MAIL_MOVED;
}

/* ---- receiver ------------------------------------------------------------------------------------------------ */

/* How senders' memory is laid out: blocks and staging so many bytes behind the first node. */
struct mail_shape {
    uint32_t n_nodes, n_near; /* the first `n_near` are not in `nodes` */
    size_t blocks, staging;
    uint32_t blocks_size, staging_size;
};

/* A sender's memory, as mapped here. */
struct mail_view {
    const struct mail_node *nodes;
    const struct mail_near *near;
    const struct mail_shape *shape;
};

struct mail_letter {
    const struct mail_node *node;
    uint32_t slot;
};

/* Whose nodes a slot's are: NULL for one that has none here. */
typedef const struct mail_view *(*mail_view_fn)(void *arg, uint32_t slot);

struct mail_rx {
    struct mail_letter *letters; /* of those taken, the next to be read: the oldest is the last */
    uint32_t room, n;
    uint64_t rest; /* the chain that they are from, */
    size_t n_rest; /* and how many of it are left */
    mail_view_fn view;
    void *arg;
};

/* Follows a name to its node, or NULL: nobody's. */
static inline const struct mail_node *mail_find(const struct mail_rx *rx, uint64_t ref, uint32_t *slot_p) {
    uint32_t slot = (uint32_t)(ref >> 32) - 1, index = (uint32_t)ref;
    const struct mail_view *view = rx->view(rx->arg, slot);
    if (!view || index >= view->shape->n_nodes) return NULL;
    *slot_p = slot;
    return index < view->shape->n_near ? (const struct mail_node *)&view->near[index] : &view->nodes[index];
}

/* mailbox.c: of a chain of which rx->n_rest are left, the oldest that there is room for. */
int weft__mail_gather(struct mail_rx *rx);

/* 1: the oldest of what was taken is rx->letters[rx->n - 1], to be removed by n--; 0: all were read; MAIL_LIES: the chain
 * leads astray, and its rest is lost. */
static inline int mail_next(struct mail_rx *rx) {
    if (rx->n) return 1;
    return rx->n_rest ? weft__mail_gather(rx) : 0;
}

/*
 * Takes all that is in the mailbox: what mail_next answers for the first of it. Nothing may be left of what was taken
 * before. No more than `most` messages can be under way.
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
int weft__mail_read_elsewhere(const struct mail_node *node, unsigned kind, const struct mail_view *view,
                              struct mail_message *m);

/* 1, or MAIL_LIES. The node's head is read once, and so is a place. */
static inline int mail_read(const struct mail_node *node, uint32_t number, const struct mail_view *view,
                            struct mail_message *m) {
    uint64_t word = *(const volatile uint64_t *)&node->word;
    unsigned kind = word >> 8 & 0xff, len = word >> 16 & 0xffff;
    m->id = (uint8_t)word;
    if ((uint32_t)(word >> 32) != number || m->id >= MAIL_IDS) return MAIL_LIES;
    if (__builtin_expect(kind != MAIL_IN_NODE, 0)) return weft__mail_read_elsewhere(node, kind, view, m);
    if (len > MAIL_INLINE) return MAIL_LIES;
    m->data = node->data;
    m->len = len;
    return 1;
}

#endif
