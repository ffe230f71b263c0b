/*
 * Handles for the wire: a 32-bit id names an object of this worker, and stays wrong for ever once
 * the object is gone (index in the low 20 bits, generation above; a generation comes back after
 * 4,095 others of its place).
 */
#ifndef WEFT_BASE_IDMAP_H
#define WEFT_BASE_IDMAP_H

#include <weft/base.h>

enum { IDMAP_INDEX_BITS = 20, IDMAP_INDEX_MAX = 1 << IDMAP_INDEX_BITS };

struct idmap_slot {
    void *object;
    uint32_t id;   /* of the object, or of the next one here */
    uint32_t next; /* free slot after this one */
};

struct idmap {
    struct idmap_slot *slot;
    uint32_t size, n_free, first_free, last_free;
};

/* The next weft__idmap_add cannot fail. Errors: as there. */
weft_status_t weft__idmap_reserve(const void *parent, struct idmap *map);
/* Ids are never 0. WEFT_ERR_NO_MEMORY, or WEFT_ERR_TOO_BIG beyond a million objects. */
weft_status_t weft__idmap_add(const void *parent, struct idmap *map, void *object, uint32_t *id_p);
void weft__idmap_remove(struct idmap *map, uint32_t id);

static inline void *weft__idmap_find(const struct idmap *map, uint32_t id) {
    uint32_t index = id & (IDMAP_INDEX_MAX - 1);
    if (index >= map->size || map->slot[index].id != id) return NULL;
    return map->slot[index].object;
}

#endif
