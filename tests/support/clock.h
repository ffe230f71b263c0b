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

#endif
