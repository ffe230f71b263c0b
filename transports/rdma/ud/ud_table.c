/* Lanes of rdma_ud by number and by sender. */
#include "ud_table.h"
#include <reactor/reactor.h>

enum { ROOM_FIRST = 64, ROOM_MOST = 1 << UD_ID_BITS, GENERATIONS = 1 << (32 - UD_ID_BITS) };
#define NO_SLOT UINT32_MAX

/* The finaliser of splitmix64 (Steele, Lea and Flood, OOPSLA 2014). */
static uint64_t mix_table(uint64_t z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

void weft__ud_table_init(struct ud_table *t, const void *parent, uint32_t seed) {
    *t = (struct ud_table){.parent = parent,
                           .first_free = NO_SLOT,
                           .last_free = NO_SLOT,
                           .seed = seed,
                           .most = ROOM_MOST};
}

/* ---- by peer --------------------------------------------------------------------------------- */

static struct ud_node **bucket_of(const struct ud_table *t, const void *path, uint32_t qpn,
                                  uint32_t remote) {
    uint64_t key = (uint64_t)(uintptr_t)path + ((uint64_t)qpn << 32 | remote) + t->seed;
    return &t->bucket[mix_table(key) & (t->room - 1)];
}

static void list(struct ud_table *t, struct ud_node *node) {
    struct ud_node **at = bucket_of(t, node->path, node->qpn, node->remote);
    node->next = *at;
    *at = node;
    node->listed = true;
}

static void unlist(struct ud_table *t, struct ud_node *node) {
    if (!node->listed) return;
    struct ud_node **at = bucket_of(t, node->path, node->qpn, node->remote);
    while (*at != node) at = &(*at)->next;
    *at = node->next;
    node->listed = false;
}

void weft__ud_table_answer(struct ud_table *t, struct ud_node *node, uint32_t remote) {
    unlist(t, node);
    node->remote = remote;
    if (remote) list(t, node);
}

struct ud_node *weft__ud_table_of_peer(const struct ud_table *t, const void *path, uint32_t qpn,
                                       uint32_t remote) {
    if (!t->room) return NULL;
    struct ud_node *node = *bucket_of(t, path, qpn, remote);
    while (node && (node->path != path || node->qpn != qpn || node->remote != remote))
        node = node->next;
    return node;
}

/* ---- by number ------------------------------------------------------------------------------- */

static void free_slot(struct ud_table *t, uint32_t place) {
    t->slot[place].node = NULL;
    t->slot[place].next_free = NO_SLOT;
    if (t->last_free == NO_SLOT)
        t->first_free = place;
    else
        t->slot[t->last_free].next_free = place;
    t->last_free = place;
}

static weft_status_t grow_table(struct ud_table *t) {
    uint32_t old = t->room, room = old ? 2 * old : ROOM_FIRST;
    if (room > t->most) return WEFT_ERR_QUOTA;
    struct ud_node **bucket = weft__alloc(t->parent, room * sizeof *bucket, "rdma lanes by peer");
    if (!bucket) return WEFT_ERR_NO_MEMORY;
    struct ud_slot *slot =
        weft__realloc(t->parent, t->slot, room * sizeof *slot, "rdma lanes by number");
    if (!slot) {
        talloc_free(bucket);
        return WEFT_ERR_NO_MEMORY;
    }
    talloc_free(t->bucket);
    t->slot = slot;
    t->bucket = bucket;
    t->room = room;
    for (uint32_t i = 0; i < old; i++)
        if (slot[i].node->listed) list(t, slot[i].node);
    for (uint32_t i = old; i < room; i++) {
        slot[i].generation = (uint32_t)mix_table((uint64_t)t->seed << 32 | i) % GENERATIONS;
        free_slot(t, i);
    }
    return WEFT_OK;
}

weft_status_t weft__ud_table_add(struct ud_table *t, struct ud_node *node) {
    weft_status_t st = t->first_free == NO_SLOT ? grow_table(t) : WEFT_OK;
    if (st < 0) return st;
    uint32_t place = t->first_free;
    struct ud_slot *slot = &t->slot[place];
    t->first_free = slot->next_free;
    if (t->first_free == NO_SLOT) t->last_free = NO_SLOT;
    slot->generation = slot->generation % (GENERATIONS - 1) + 1; /* never 0, so that no number is */
    slot->node = node;
    node->id = slot->generation << UD_ID_BITS | place;
    t->n++;
    return WEFT_OK;
}

void weft__ud_table_remove(struct ud_table *t, struct ud_node *node) {
    unlist(t, node);
    free_slot(t, node->id & (ROOM_MOST - 1));
    t->n--;
}
