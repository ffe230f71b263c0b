/*
 * Registrations found again by address: a sorted array of intervals, which may overlap, with the oldest unused ones leaving first.
 * It knows nothing of what is registered. Nobody tells it that memory was unmapped but the program (weft__region_cache_cut).
 */
#ifndef WEFT_ENDPOINTS_REGION_CACHE_H
#define WEFT_ENDPOINTS_REGION_CACHE_H

#include <stdbool.h>
#include <stdint.h>
#include <weft/base.h>

#include "list.h"

/* Embedded in what is registered. */
struct cached {
    uintptr_t base, end;
    unsigned rights;
    uint32_t place; /* in the array; valid while `in` */
    bool in;
    struct list unused; /* in the cache's list, when nobody holds it */
};

struct region_cache {
    struct cached **at; /* by base */
    uintptr_t *reach;   /* the greatest end of at[0 … i] */
    uint32_t n, room;
    struct list unused; /* oldest first */
    size_t bytes, max_bytes;
    uint32_t max_regions;
    uint64_t generation; /* grows when an entry leaves: what was found before may be gone */
    struct cached *last; /* found last, in generation last_of */
    uint64_t last_of;
};

void weft__region_cache_init(struct region_cache *cache, uint32_t max_regions, size_t max_bytes);
/* One that holds all of [base, end) with these rights, or NULL. */
struct cached *weft__region_cache_find(struct region_cache *cache, uintptr_t base, uintptr_t end, unsigned rights);
/* Adds it, in use. `parent` is talloc's, for the array. NO_MEMORY. */
weft_status_t weft__region_cache_add(struct region_cache *cache, const void *parent, struct cached *entry);
void weft__region_cache_remove(struct region_cache *cache, struct cached *entry);
/* Nobody, or somebody, holds it now. */
void weft__region_cache_rest(struct region_cache *cache, struct cached *entry);
void weft__region_cache_use(struct region_cache *cache, struct cached *entry);
/* The oldest unused one while there are too many, or NULL. It is for the caller to remove. */
struct cached *weft__region_cache_surplus(struct region_cache *cache);
/* Takes one that overlaps [base, end) out of the cache and returns it; NULL: none is left. */
struct cached *weft__region_cache_cut(struct region_cache *cache, uintptr_t base, uintptr_t end);

#endif
