/*
 * A work-stealing deque of Chase and Lev (SPAA 2005): its owner pushes and pops at the bottom,
 * others steal at the top. All accesses are sequentially consistent, which needs no fences.
 */
#ifndef WEFT_RUNTIME_GRAPH_DEQUE_H
#define WEFT_RUNTIME_GRAPH_DEQUE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct deque_ring {
    int64_t mask;
    _Atomic(void *) slot[];
};

struct deque {
    _Alignas(64) atomic_llong top;
    _Alignas(64) atomic_llong bottom;
    _Atomic(struct deque_ring *) ring;
};

/* The owner's. The ring has room for all that may be in the deque. */
static inline void deque_push(struct deque *d, void *item) {
    int64_t b = atomic_load_explicit(&d->bottom, memory_order_relaxed);
    struct deque_ring *ring = atomic_load_explicit(&d->ring, memory_order_relaxed);
    atomic_store_explicit(&ring->slot[b & ring->mask], item, memory_order_relaxed);
    atomic_store(&d->bottom, b + 1);
}

/* The owner's. NULL: it is empty. */
static inline void *deque_pop(struct deque *d) {
    int64_t b = atomic_load_explicit(&d->bottom, memory_order_relaxed) - 1;
    struct deque_ring *ring = atomic_load_explicit(&d->ring, memory_order_relaxed);
    atomic_store(&d->bottom, b);
    long long t = atomic_load(&d->top);
    if (t > b) {
        atomic_store(&d->bottom, b + 1);
        return NULL;
    }
    void *item = atomic_load_explicit(&ring->slot[b & ring->mask], memory_order_relaxed);
    if (t < b) return item;
    if (!atomic_compare_exchange_strong(&d->top, &t, t + 1)) item = NULL; /* a thief was faster */
    atomic_store(&d->bottom, b + 1);
    return item;
}

static inline int deque_is_empty(struct deque *d) {
    long long t = atomic_load(&d->top);
    return t >= atomic_load(&d->bottom);
}

/* Any thread's. NULL: it is empty, or another thread was faster. */
static inline void *deque_steal(struct deque *d) {
    long long t = atomic_load(&d->top);
    if (t >= atomic_load(&d->bottom)) return NULL;
    struct deque_ring *ring = atomic_load(&d->ring);
    void *item = atomic_load_explicit(&ring->slot[t & ring->mask], memory_order_relaxed);
    return atomic_compare_exchange_strong(&d->top, &t, t + 1) ? item : NULL;
}

#endif
