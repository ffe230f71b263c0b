/*
 * Registrations by address: a sorted array of intervals, which may overlap. The least recently
 * unused ones leave first. The cache does not know what is registered. Only the program reports
 * memory that is unmapped (weft__region_cache_cut).
 */
#ifndef WEFT_ENDPOINTS_MEMORY_REGION_CACHE_H
#define WEFT_ENDPOINTS_MEMORY_REGION_CACHE_H

#include <stdbool.h>
#include <stdint.h>
#include <weft/base.h>

#include <base/list.h>

/* Embedded in the registered object. */
struct cached {
    uintptr_t base, end;
    unsigned rights;
    uint32_t place; /* in the array; valid while `in` */
    bool in;
    struct list unused; /* in the cache's list of unused entries */
};

struct region_cache {
    struct cached **at; /* by base */
    uintptr_t *reach;   /* the greatest end of at[0 … i] */
    uint32_t n, room;
    struct list unused; /* oldest first */
    size_t bytes, max_bytes;
    uint32_t max_regions;
    uint64_t generation; /* grows when an entry leaves, and invalidates `last` */
    struct cached *last; /* found last, in generation last_of */
    uint64_t last_of;
};

void weft__region_cache_init(struct region_cache *cache, uint32_t max_regions, size_t max_bytes);
/* An entry that covers [base, end) with these rights, or NULL. */
struct cached *weft__region_cache_find(struct region_cache *cache, uintptr_t base, uintptr_t end,
                                       unsigned rights);
/* Adds an entry that is in use. `parent` owns the array (talloc). May return NO_MEMORY. */
weft_status_t weft__region_cache_add(struct region_cache *cache, const void *parent,
                                     struct cached *entry);
void weft__region_cache_remove(struct region_cache *cache, struct cached *entry);
/* Marks an entry as unused, or as in use. */
void weft__region_cache_rest(struct region_cache *cache, struct cached *entry);
void weft__region_cache_use(struct region_cache *cache, struct cached *entry);
/* The oldest unused entry while the cache is over its limits, or NULL. The caller removes it. */
struct cached *weft__region_cache_surplus(struct region_cache *cache);
/* Removes an entry that overlaps [base, end) and returns it. NULL: none is left. */
struct cached *weft__region_cache_cut(struct region_cache *cache, uintptr_t base, uintptr_t end);

#endif
