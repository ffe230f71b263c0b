/*
 * Which lane a datagram is for: by the number that its receiver gave it, or, when the sender knows
 * none, by who the sender is. Pure but for its memory. A number is 20 bits of place and 12 of
 * generation; places are used again oldest first, and the generation of a place goes on by one each
 * time, from a random one, so that what was meant for an earlier lane finds nothing.
 */
#ifndef WEFT_TRANSPORTS_RDMA_UD_UD_TABLE_H
#define WEFT_TRANSPORTS_RDMA_UD_UD_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <weft/base.h>

/* Of a lane: its number, and its peer. */
struct ud_node {
    uint32_t id;
    uint32_t remote;  /* the peer's number for the lane; 0: not known yet */
    uint32_t qpn;     /* of the peer */
    bool listed;      /* by its peer */
    const void *path; /* to the peer: one for each port that is known here */
    struct ud_node *next;
};

struct ud_slot {
    struct ud_node *node; /* NULL: free */
    uint32_t generation, next_free;
};

struct ud_table {
    const void *parent; /* talloc's */
    struct ud_slot *slot;
    struct ud_node **bucket; /* `room` of them, by peer */
    uint32_t room, n, most;
    uint32_t first_free, last_free;
    uint32_t seed;
};

enum { UD_ID_BITS = 20 };

void weft__ud_table_init(struct ud_table *t, const void *parent, uint32_t seed);
/* Gives it a number. WEFT_ERR_NO_MEMORY; WEFT_ERR_QUOTA when there are a million. */
weft_status_t weft__ud_table_add(struct ud_table *t, struct ud_node *node);
void weft__ud_table_remove(struct ud_table *t, struct ud_node *node);
/* From now on it answers that lane of its peer (`path` and `qpn` are set); 0: none. */
void weft__ud_table_answer(struct ud_table *t, struct ud_node *node, uint32_t remote);
/* The one that answers it, or NULL. */
struct ud_node *weft__ud_table_of_peer(const struct ud_table *t, const void *path, uint32_t qpn,
                                       uint32_t remote);

/* The one with that number and that peer's queue pair, or NULL. */
static inline struct ud_node *ud_table_find(const struct ud_table *t, uint32_t id, uint32_t qpn) {
    uint32_t place = id & ((1u << UD_ID_BITS) - 1);
    if (place >= t->room) return NULL;
    struct ud_node *node = t->slot[place].node;
    return node && node->id == id && node->qpn == qpn ? node : NULL;
}

#endif
