/* Hash table of lists: insertion, removal, growth, and lookup by hash. */
#include "hash_table.h"

#include "alloc.h"
#include "status.h"

enum { LOAD = 2, GROWTH = 4, MOST = 1 << 22 };

static void use(struct hash_table *table, struct list *bucket, uint32_t n_buckets) {
    table->bucket = bucket;
    table->n_buckets = n_buckets;
    for (uint32_t i = 0; i < n_buckets; i++) list_init(&bucket[i]);
}

void weft__hash_table_init(struct hash_table *table,
                           uint32_t (*hash_of)(const struct list *member)) {
    table->n = 0;
    table->hash_of = hash_of;
    use(table, table->first, HASH_TABLE_FIRST);
}

static void free_buckets(const struct hash_table *table, struct list *bucket) {
    if (bucket != table->first) talloc_free(bucket);
}

static void grow_hash_table(struct hash_table *table, const void *parent) {
    uint32_t n = table->n_buckets, more = n * GROWTH;
    struct list *old = table->bucket,
                *bucket =
                    more <= MOST ? weft__alloc(parent, more * sizeof *bucket, "buckets") : NULL;
    if (!bucket) return;
    use(table, bucket, more);
    for (uint32_t i = 0; i < n; i++)
        for (struct list *member; (member = list_pop(&old[i])) != NULL;)
            list_append(weft__hash_table_list(table, table->hash_of(member)), member);
    free_buckets(table, old);
}

void weft__hash_table_add(struct hash_table *table, const void *parent, struct list *member) {
    if (table->n == 0 && table->bucket != table->first) {
        free_buckets(table, table->bucket);
        use(table, table->first, HASH_TABLE_FIRST);
    }
    if (table->n >= LOAD * table->n_buckets) grow_hash_table(table, parent);
    list_append(weft__hash_table_list(table, table->hash_of(member)), member);
    table->n++;
}
