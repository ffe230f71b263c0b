/* The processors that a thread may run on, of as many as Linux can be built for. A `cpu_set_t` has
 * 1,024 bits, and with it the kernel refuses to answer on a machine that may have more. */
#ifndef WEFT_BASE_AFFINITY_H
#define WEFT_BASE_AFFINITY_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

enum { AFFINITY_CPUS = 8192 };

struct affinity {
    cpu_set_t set[AFFINITY_CPUS / CPU_SETSIZE]; /* one set for the macros CPU_..._S */
};

/* Those of the calling thread. False, and none: the kernel refuses to say. */
bool weft__affinity_read(struct affinity *affinity);
/* One processor alone: 0 to AFFINITY_CPUS - 1. */
void weft__affinity_only(struct affinity *affinity, int cpu);
uint32_t weft__affinity_count(const struct affinity *affinity);
/* The first of them that is not below `cpu`. -1: there is none. */
int weft__affinity_next(const struct affinity *affinity, int cpu);
/* The n-th of them, from 0, and around. -1: there are none. */
int weft__affinity_nth(const struct affinity *affinity, uint32_t n);

#endif
