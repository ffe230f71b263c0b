/*
 * A worker's doorbell: the rings that have messages, and the head of the mailbox. It is one cache
 * line that all peers may write, so a thousand quiet peers cost a look at one line. Its values are
 * hints: a peer that lies causes delays or needless looks.
 */
#ifndef WEFT_TRANSPORTS_SHM_MEMORY_DOORBELL_H
#define WEFT_TRANSPORTS_SHM_MEMORY_DOORBELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { DOORBELL_LANES = 4096, DOORBELL_BITS = 64 };

struct doorbell {
    _Alignas(64) _Atomic uint64_t rung; /* a bit for the lanes whose numbers are equal modulo 64 */
    _Atomic uint64_t mailbox;           /* the newest message in the mailbox (mailbox.h); 0: none */
    /* the owner's sleep, present or about to begin; 0: none, or signalled */
    _Atomic uint32_t armed;
    /* 1: a sender sleeps until the owner passes messages (mailbox_lane.c) */
    _Atomic uint32_t wanted;
};

/*
 * Not 0: the owner sleeps. The caller must signal it, and then call doorbell_signalled with this
 * number.
 *
 * Before this load the message was published by a sequentially consistent access, or a fence
 * follows its publication. The owner stores `armed` and then looks for messages, so one side sees
 * the other. The signal comes first, since a caller that is stopped in between must not keep others
 * from signalling. The number names one sleep, since the owner may be up and asleep again by then.
 */
static inline uint32_t doorbell_armed(const struct doorbell *doorbell) {
    return atomic_load(&doorbell->armed);
}
static inline void doorbell_signalled(struct doorbell *doorbell, uint32_t sleep) {
    atomic_compare_exchange_strong(&doorbell->armed, &sleep, 0);
}

/*
 * Notifies the owner that lane `index` has a message, and returns doorbell_armed. The
 * read-modify-write is the fence between the message and the load of `armed`.
 */
static inline uint32_t doorbell_ring(struct doorbell *doorbell, unsigned index) {
    atomic_fetch_or(&doorbell->rung, UINT64_C(1) << index % DOORBELL_BITS);
    return doorbell_armed(doorbell);
}

/* For the owner: calls `look` for each bit that is set. The bits are cleared first, so no later
 * ring is lost. */
static inline void doorbell_answer(struct doorbell *doorbell, void (*look)(void *arg, unsigned bit),
                                   void *arg) {
    uint64_t rung = atomic_exchange(&doorbell->rung, 0);
    for (; rung; rung &= rung - 1) look(arg, (unsigned)__builtin_ctzll(rung));
}

static inline bool doorbell_rang(const struct doorbell *doorbell) {
    return atomic_load_explicit(&doorbell->rung, memory_order_acquire) != 0;
}

#endif
