/* Reads the machine's clock. */
#include "clock.h"

#include <time.h>

uint64_t weft__real_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

uint64_t weft__ticks_of_clock(void) {
    return 2 * weft__real_now(); /* as of a processor at 2 GHz */
}
