/*
 * Lists by hash, as many as what they hold needs. The hash is the caller's: a keyed one where a
 * peer chooses what is hashed. Members of one hash stay in the order in which they were added.
 */
#ifndef WEFT_BASE_HASH_TABLE_H
#define WEFT_BASE_HASH_TABLE_H

#include <stdint.h>

#include "list.h"

enum { HASH_TABLE_FIRST = 64 };

struct hash_table {
    struct list *bucket; /* `first`, or memory below the parent of weft__hash_table_add */
    uint32_t n_buckets;  /* a power of two */
    uint32_t n;          /* members */
    uint32_t (*hash_of)(const struct list *member);
    struct list first[HASH_TABLE_FIRST];
};

void weft__hash_table_init(struct hash_table *table,
                           uint32_t (*hash_of)(const struct list *member));
/* Adds a member; it must not move. Without memory to grow the table works on, with longer lists. */
void weft__hash_table_add(struct hash_table *table, const void *parent, struct list *member);
/* Removes a member; nothing if it is not in a list. */
static inline void weft__hash_table_remove(struct hash_table *table, struct list *member) {
    if (list_empty(member)) return;
    list_remove(member);
    table->n--;
}
/* The list of the members of that hash, and of others. */
static inline struct list *weft__hash_table_list(struct hash_table *table, uint32_t hash) {
    return &table->bucket[hash & (table->n_buckets - 1)];
}

#endif
