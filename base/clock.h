/* The machine's clock. A worker's own time is weft__now of the reactor, which simulations
 * replace. */
#ifndef WEFT_BASE_CLOCK_H
#define WEFT_BASE_CLOCK_H

#include <stdint.h>

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S  UINT64_C(1000000000)
/* the machine's, also where a simulation has a clock of its own; any thread */
uint64_t weft__real_now(void);
/* For what may be wrong by a factor, at the price of an instruction: some 2 to 3 a ns. */
uint64_t weft__ticks_of_clock(void);
static inline uint64_t weft__ticks(void) {
#if defined(__x86_64__) || defined(__i386__)
    return __builtin_ia32_rdtsc();
#else
    return weft__ticks_of_clock();
#endif
}

#endif
