/*
 * One per worker, in memory that all its peers may write: which rings want to be looked at, and what came by the mailbox. A thousand
 * quiet peers cost a look at one line. Everything here is a hint: a peer that lies delays, or causes needless looks.
 */
#ifndef WEFT_TRANSPORTS_SHM_DOORBELL_H
#define WEFT_TRANSPORTS_SHM_DOORBELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { DOORBELL_LANES = 4096, DOORBELL_BITS = 64 };

struct doorbell {
    _Alignas(64) _Atomic uint64_t rung; /* a bit for the lanes of every 64th number */
    _Atomic uint64_t mailbox;           /* what came by the mailbox, newest first (mailbox.h) */
    _Atomic uint32_t armed;  /* the sleep that the owner is in, or about to begin; 0: none, or signalled */
    _Atomic uint32_t wanted; /* somebody sleeps for want of room that the owner is to make (mailbox_lane.c) */
};

/*
 * After what was published by a sequentially consistent access, or with a fence behind it: that and this load are in one order with
 * the owner's store and its look at what was published. Not 0: the owner sleeps; the caller must signal it, and then say so with this
 * number. In this order, since who is stopped in between must not keep others from signalling; and of this sleep only, since
 * the owner may have been up and be asleep again.
 */
static inline uint32_t doorbell_armed(const struct doorbell *bell) {
    return atomic_load(&bell->armed);
}
static inline void doorbell_signalled(struct doorbell *bell, uint32_t sleep) {
    atomic_compare_exchange_strong(&bell->armed, &sleep, 0);
}

/*
 * Lane `index` has something for the owner. The read-modify-write stands between what was published before and the look at
 * `armed`, which is returned as doorbell_armed does.
 */
static inline uint32_t doorbell_ring(struct doorbell *bell, unsigned index) {
    atomic_fetch_or(&bell->rung, UINT64_C(1) << index % DOORBELL_BITS);
    return doorbell_armed(bell);
}

/* The owner: calls `look` for each bit that was set. They are taken first, so that a later ring is seen again. */
static inline void doorbell_answer(struct doorbell *bell, void (*look)(void *arg, unsigned bit), void *arg) {
    uint64_t rung = atomic_exchange(&bell->rung, 0);
    for (; rung; rung &= rung - 1) look(arg, (unsigned)__builtin_ctzll(rung));
}

static inline bool doorbell_rang(const struct doorbell *bell) {
    return atomic_load_explicit(&bell->rung, memory_order_acquire) != 0;
}

#endif
