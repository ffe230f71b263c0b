/* The registration cache: lookup by range, the order of unused entries, and invalidation. */
#include "region_cache.h"

#include <reactor/reactor.h>
#include <string.h>

void weft__region_cache_init(struct region_cache *cache, uint32_t max_regions, size_t max_bytes) {
    *cache = (struct region_cache){.max_regions = max_regions, .max_bytes = max_bytes};
    list_init(&cache->unused);
}

/* The first place whose entry begins beyond `base`. */
static uint32_t place_after(const struct region_cache *cache, uintptr_t base) {
    uint32_t low = 0, high = cache->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (cache->at[middle]->base <= base)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void settle_from(struct region_cache *cache, uint32_t i) {
    for (; i < cache->n; i++) {
        uintptr_t before = i ? cache->reach[i - 1] : 0;
        cache->at[i]->place = i;
        cache->reach[i] = cache->at[i]->end > before ? cache->at[i]->end : before;
    }
}

static bool region_cache_holds(const struct cached *entry, uintptr_t base, uintptr_t end,
                               unsigned rights) {
    return entry->base <= base && entry->end >= end && (rights & ~entry->rights) == 0;
}

struct cached *weft__region_cache_find(struct region_cache *cache, uintptr_t base, uintptr_t end,
                                       unsigned rights) {
    if (cache->last && cache->last_of == cache->generation &&
        region_cache_holds(cache->last, base, end, rights))
        return cache->last;
    for (uint32_t i = place_after(cache, base); i-- > 0 && cache->reach[i] >= end;) {
        if (!region_cache_holds(cache->at[i], base, end, rights)) continue;
        cache->last = cache->at[i];
        cache->last_of = cache->generation;
        return cache->at[i];
    }
    return NULL;
}

static weft_status_t grow_regions(struct region_cache *cache, const void *parent) {
    uint32_t room = cache->room ? 2 * cache->room : 16;
    struct cached **at = weft__realloc(parent, cache->at, room * sizeof *at, "region cache");
    if (!at) return WEFT_ERR_NO_MEMORY;
    cache->at = at;
    uintptr_t *reach = weft__realloc(parent, cache->reach, room * sizeof *reach, "region cache");
    if (!reach) return WEFT_ERR_NO_MEMORY;
    cache->reach = reach;
    cache->room = room;
    return WEFT_OK;
}

weft_status_t weft__region_cache_add(struct region_cache *cache, const void *parent,
                                     struct cached *entry) {
    if (cache->n == cache->room && grow_regions(cache, parent) < 0) return WEFT_ERR_NO_MEMORY;
    uint32_t place = place_after(cache, entry->base);
    memmove(&cache->at[place + 1], &cache->at[place], (cache->n - place) * sizeof *cache->at);
    cache->at[place] = entry;
    cache->n++;
    cache->bytes += entry->end - entry->base;
    entry->in = true;
    list_init(&entry->unused);
    settle_from(cache, place);
    return WEFT_OK;
}

void weft__region_cache_remove(struct region_cache *cache, struct cached *entry) {
    if (!entry->in) return;
    list_remove(&entry->unused);
    cache->n--;
    memmove(&cache->at[entry->place], &cache->at[entry->place + 1],
            (cache->n - entry->place) * sizeof *cache->at);
    settle_from(cache, entry->place);
    cache->bytes -= entry->end - entry->base;
    cache->generation++;
    entry->in = false;
}

void weft__region_cache_rest(struct region_cache *cache, struct cached *entry) {
    if (!entry->in) return;
    list_remove(&entry->unused);
    list_append(&cache->unused, &entry->unused);
}

void weft__region_cache_use(struct region_cache *cache, struct cached *entry) {
    list_remove(&entry->unused);
}

struct cached *weft__region_cache_surplus(struct region_cache *cache) {
    if (cache->n <= cache->max_regions && cache->bytes <= cache->max_bytes) return NULL;
    return list_empty(&cache->unused) ? NULL : list_of(cache->unused.next, struct cached, unused);
}

struct cached *weft__region_cache_cut(struct region_cache *cache, uintptr_t base, uintptr_t end) {
    if (end <= base) return NULL;
    for (uint32_t i = place_after(cache, end - 1); i-- > 0 && cache->reach[i] > base;) {
        struct cached *entry = cache->at[i];
        if (entry->end <= base) continue;
        weft__region_cache_remove(cache, entry);
        return entry;
    }
    return NULL;
}
