/* The table behind 32-bit handles: indices with generations, and a list of free places. */
#include "idmap.h"

#include "alloc.h"
#include "status.h"

/* Many are grown by less: what is not used yet is resident all the same. */
static weft_status_t grow_idmap(const void *parent, struct idmap *map) {
    uint32_t size = map->size < 16     ? 16
                    : map->size < 1024 ? 2 * map->size
                                       : map->size + map->size / 4;
    if (size > IDMAP_INDEX_MAX && map->size < IDMAP_INDEX_MAX) size = IDMAP_INDEX_MAX;
    if (size > IDMAP_INDEX_MAX)
        return weft__fail(WEFT_ERR_TOO_BIG, "more than %u objects", IDMAP_INDEX_MAX);

    struct idmap_slot *slot = weft__realloc(parent, map->slot, size * sizeof *slot, "idmap");
    if (!slot) return WEFT_ERR_NO_MEMORY;
    /* Slot 0 of generation 0 would be id 0, so generations begin at 1. */
    for (uint32_t i = map->size; i < size; i++)
        slot[i] = (struct idmap_slot){.id = i | 1u << IDMAP_INDEX_BITS, .next = i + 1};
    map->slot = slot;
    map->first_free = map->size;
    map->last_free = size - 1;
    map->n_free = size - map->size;
    map->size = size;
    return WEFT_OK;
}

weft_status_t weft__idmap_reserve(const void *parent, struct idmap *map) {
    return map->n_free ? WEFT_OK : grow_idmap(parent, map);
}

weft_status_t weft__idmap_add(const void *parent, struct idmap *map, void *object, uint32_t *id_p) {
    weft_status_t st = weft__idmap_reserve(parent, map);
    if (st < 0) return st;
    struct idmap_slot *slot = &map->slot[map->first_free];
    map->first_free = slot->next;
    map->n_free--;
    slot->object = object;
    *id_p = slot->id;
    return WEFT_OK;
}

/* Freed slots go to the end of the queue, so that a generation lasts as long as it can. */
void weft__idmap_remove(struct idmap *map, uint32_t id) {
    uint32_t index = id & (IDMAP_INDEX_MAX - 1);
    struct idmap_slot *slot = &map->slot[index];
    slot->object = NULL;
    slot->id += 1u << IDMAP_INDEX_BITS;
    if (slot->id >> IDMAP_INDEX_BITS == 0) slot->id += 1u << IDMAP_INDEX_BITS;
    if (map->n_free++ == 0)
        map->first_free = index;
    else
        map->slot[map->last_free].next = index;
    map->last_free = index;
}
