/*
 * Small objects of one size by the thousand, without an allocator's head on each: taken from blocks
 * that belong to `parent`, and given back to them. The blocks go with the parent.
 */
#ifndef WEFT_REACTOR_SLAB_H
#define WEFT_REACTOR_SLAB_H

#include <reactor/reactor.h>

struct slab_object; /* one that is free: where the next is */

struct slab {
    const char *name;
    uint32_t size;  /* of an object */
    uint32_t block; /* bytes of the next block */
    struct slab_object *free, *dead;
    char *fresh; /* in the last block: those that were never taken, */
    size_t n_fresh;
    const void *parent;
    struct reactor *reactor;
    struct job sweep;
};

/* `size` is a multiple of 8, or the last word is padding. */
void weft__slab_init(struct slab *slab, struct reactor *r, const void *parent, size_t size,
                     const char *name);
/* Zeroed; NULL when memory runs out. */
void *weft__slab_take(struct slab *slab);
/* Frees a block at once. No callback may refer to it any more. */
void weft__slab_put(struct slab *slab, void *object);
/* As weft__free_later: it stays as it is until no callback is under way, except for its last
 * word. */
void weft__slab_free_later(struct slab *slab, void *object);
/* Before the parent goes; what was not given back goes with it. */
void weft__slab_end(struct slab *slab);

#endif
