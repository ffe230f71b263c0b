/* The pauses between tries at one place: the first follows at once, each later one after a pause
 * twice as long. */
#ifndef WEFT_ENDPOINTS_CORE_PACE_H
#define WEFT_ENDPOINTS_CORE_PACE_H

#include <base/clock.h>

#define PACE_FIRST NS_PER_MS /* ns */
#define PACE_LAST  (250 * NS_PER_MS)

/* Returns the pause before the next try, and doubles `*of`, which is 0 before the first. */
static inline uint64_t weft__pace_next(uint64_t *of) {
    uint64_t wait = *of;
    *of = wait == 0 ? PACE_FIRST : wait > PACE_LAST / 2 ? PACE_LAST : 2 * wait;
    return wait;
}

#endif
