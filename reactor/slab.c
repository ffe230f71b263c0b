/* Blocks of small objects: taking, giving back, and growth. */
#include "slab.h"

#include <base/compiler.h>
#include <string.h>

/* Under a sanitizer each object is a block of its own, so that a late use of one is seen. */
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
enum { SECOND_BLOCK = 0, BLOCK = 0, LINE = 0 };
#else
enum { SECOND_BLOCK = 1024, BLOCK = 8 * 1024, LINE = 64 };
#endif

/* In the last word of an object, so that a dead one stays what it was but for that. */
struct slab_object {
    struct slab_object *next;
};

static void push_slab(const struct slab *slab, struct slab_object **list, void *object) {
    struct slab_object *o = (struct slab_object *)(void *)((char *)object + slab->size - sizeof *o);
    o->next = *list;
    *list = o;
}

static void *pop(const struct slab *slab, struct slab_object **list) {
    struct slab_object *o = *list;
    if (!o) return NULL;
    *list = o->next;
    return (char *)(o + 1) - slab->size;
}

/* No callback is under way between two jobs. */
static void sweep_slab(struct job *job) {
    struct slab *slab = container_of(job, struct slab, sweep);
    void *object;
    while ((object = pop(slab, &slab->dead)) != NULL) weft__slab_put(slab, object);
}

void weft__slab_init(struct slab *slab, struct reactor *r, const void *parent, size_t size,
                     const char *name) {
    size = (size + 7) & ~(size_t)7;
    *slab = (struct slab){.name = name,
                          .size = (uint32_t)size,
                          .parent = parent,
                          .reactor = r,
                          .sweep.run = sweep_slab};
}

/* The first object has a block of its own and begins a cache line: in a process with many workers
 * most of them have one link, and opening it waits for the pages of the block. */
static bool grow_slab(struct slab *slab) {
    size_t n = slab->block > slab->size ? slab->block / slab->size : 1,
           slack = slab->block == 0 ? LINE : 0;
    char *block = weft__realloc(slab->parent, NULL, n * slab->size + slack, slab->name);
    if (!block) return false;
    slab->fresh = slack ? block + -(uintptr_t)block % slack : block;
    slab->n_fresh = n;
    if (slab->block != BLOCK) slab->block = slab->block ? 2 * slab->block : SECOND_BLOCK;
    return true;
}

void *weft__slab_take(struct slab *slab) {
    void *object = pop(slab, &slab->free);
    if (!object) {
        if (!slab->n_fresh && !grow_slab(slab)) return NULL;
        object = slab->fresh;
        slab->fresh += slab->size;
        slab->n_fresh--;
    }
    return memset(object, 0, slab->size);
}

void weft__slab_put(struct slab *slab, void *object) {
    if (BLOCK == 0)
        talloc_free(object);
    else
        push_slab(slab, &slab->free, object);
}

void weft__slab_free_later(struct slab *slab, void *object) {
    if (BLOCK == 0) {
        weft__free_later(slab->reactor, object);
        return;
    }
    push_slab(slab, &slab->dead, object);
    weft__job_post(slab->reactor, &slab->sweep);
}

void weft__slab_end(struct slab *slab) {
    weft__job_drop(slab->reactor, &slab->sweep);
}
