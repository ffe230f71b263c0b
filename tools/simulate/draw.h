/*
 * Chance that can be replayed in parts: each decision is drawn by (seed, site, actor, n), the n-th
 * question of that kind by that actor, and no draw moves another. So an operation or a fault may be
 * taken out of a run, and the rest stays.
 */
#ifndef WEFT_TOOLS_SIMULATE_DRAW_H
#define WEFT_TOOLS_SIMULATE_DRAW_H

#include <stdbool.h>
#include <stdint.h>

/* What is asked. The values are part of every seed's meaning: append only. */
enum draw_site {
    DRAW_WORLD = 1, /* topology and settings */
    DRAW_SWARM,     /* which faults this seed has, and how much of them */
    DRAW_ITEM,      /* what one item is, and when */
    DRAW_SIZE,      /* of messages */
    DRAW_PATTERN,   /* which bytes a message has */
    DRAW_PROGRAM,   /* what the program does with what arrives */
    DRAW_REDIAL,
    DRAW_DEADLINE
};

uint64_t draw(uint64_t seed, enum draw_site site, uint64_t actor, uint64_t n);

static inline uint64_t draw_below(uint64_t seed, enum draw_site site, uint64_t actor, uint64_t n,
                                  uint64_t limit) {
    return draw(seed, site, actor, n) % limit;
}
/* `percent` of a hundred say yes. */
static inline bool draw_chance(uint64_t seed, enum draw_site site, uint64_t actor, uint64_t n,
                               unsigned percent) {
    return draw_below(seed, site, actor, n, 100) < percent;
}

#endif
