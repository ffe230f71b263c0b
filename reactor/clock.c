/* Time and randomness: the machine's own, or a simulation's. */
#include "local.h"
#include <errno.h>
#include <string.h>
#include <sys/random.h>

uint64_t weft__reactor_time(const struct reactor *r) {
    return r->virtual.clock ? weft__clock_now(r->virtual.clock) : weft__real_now();
}

uint64_t weft__now(struct reactor *r) {
    return r->trace.now = weft__reactor_time(r);
}

bool weft__reactor_virtual(const struct reactor *r) {
    return r->virtual.clock != NULL;
}

/* Seeded: splitmix64 (Steele, Lea and Flood, OOPSLA 2014). */
static uint64_t splitmix(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

void weft__random_open(struct reactor *r, uint64_t seed) {
    r->rng.is_seeded = seed != 0;
    r->rng.value[0] = seed;
}

static void refill(struct reactor *r) {
    char *to = (char *)r->rng.value;
    for (size_t have = 0; have < sizeof r->rng.value;) {
        ssize_t n = getrandom(to + have, sizeof r->rng.value - have, 0);
        if (n > 0) have += (size_t)n;
    }
    r->rng.n = sizeof r->rng.value / sizeof *r->rng.value;
}

/* From the kernel: never from a generator that a peer could run on from what it has seen of it. */
uint64_t weft__random(struct reactor *r) {
    if (r->rng.is_seeded) return splitmix(&r->rng.value[0]);
    if (!r->rng.n) refill(r);
    uint64_t value = r->rng.value[--r->rng.n];
    r->rng.value[r->rng.n] = 0;
    return value;
}
