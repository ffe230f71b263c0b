/* The time that passes, of no beginning. */
#ifndef WEFT_TESTS_CLOCK_H
#define WEFT_TESTS_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t test_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* In seconds. */
static inline double test_now(void) {
    return (double)test_now_ns() * 1e-9;
}

/* For what the kernel does in its own time (acknowledgements, probes), which the fast clock of
 * slow_clock.c makes no faster: the time of day, which that leaves as it is. */
static inline void test_kernel_pause(long us) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    long long ns = until.tv_nsec + us * 1000LL;
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    while (clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &until, NULL) != 0) continue;
}

#endif
