/* Time and randomness: the machine's own, or a simulation's. */
#include "local.h"
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

uint64_t weft__real_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

uint64_t weft__now(struct reactor *r) {
    return r->trace.now = r->clock ? weft__clock_now(r->clock) : weft__real_now();
}

bool weft__reactor_virtual(const struct reactor *r) {
    return r->clock != NULL;
}

/* Seeded: splitmix64 (Steele, Lea and Flood, OOPSLA 2014). */
static uint64_t splitmix(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

void random_open(struct reactor *r, uint64_t seed) {
    r->random_is_seeded = seed != 0;
    r->random[0] = seed;
}

static void refill(struct reactor *r) {
    char *to = (char *)r->random;
    for (size_t have = 0; have < sizeof r->random;) {
        ssize_t n = getrandom(to + have, sizeof r->random - have, 0);
        if (n > 0) have += (size_t)n;
    }
    r->n_random = sizeof r->random / sizeof *r->random;
}

/* From the kernel: never from a generator that a peer could run on from what it has seen of it. */
uint64_t weft__random(struct reactor *r) {
    if (r->random_is_seeded) return splitmix(&r->random[0]);
    if (!r->n_random) refill(r);
    uint64_t value = r->random[--r->n_random];
    r->random[r->n_random] = 0;
    return value;
}
