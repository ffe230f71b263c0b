/*
 * Chance that can be replayed: what a step or a callback draws follows from the seed and from what
 * it is about, and not from when it comes. So a run differs from its repetition by no more than
 * real time makes of it.
 */
#ifndef WEFT_TESTS_RANDOM_CHANCE_H
#define WEFT_TESTS_RANDOM_CHANCE_H

#include <stdbool.h>
#include <stdint.h>

/* Where this thread draws from. */
extern _Thread_local uint64_t chance_state;

static inline uint64_t chance_mix(uint64_t z) {
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}
static inline uint64_t chance(void) {
    return chance_mix(chance_state += UINT64_C(0x9e3779b97f4a7c15));
}
/* From now on, of this. Returns where draws came from before. */
static inline uint64_t chance_of(uint64_t seed, uint64_t about) {
    uint64_t before = chance_state;
    chance_state = chance_mix(seed * UINT64_C(0x2545f4914f6cdd1d) + about);
    return before;
}

static inline uint32_t below(uint64_t limit) {
    return (uint32_t)(chance() % limit);
}
/* So many of a hundred say yes. */
static inline bool percent(uint32_t yes) {
    return below(100) < yes;
}

#endif
