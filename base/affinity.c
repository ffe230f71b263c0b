/* Asks the kernel which processors a thread may run on. */
#include "affinity.h"

#include <string.h>

bool weft__affinity_read(struct affinity *affinity) {
    memset(affinity, 0, sizeof *affinity);
    return sched_getaffinity(0, sizeof *affinity, affinity->set) == 0;
}

void weft__affinity_only(struct affinity *affinity, int cpu) {
    memset(affinity, 0, sizeof *affinity);
    CPU_SET_S((size_t)cpu, sizeof *affinity, affinity->set);
}

uint32_t weft__affinity_count(const struct affinity *affinity) {
    return (uint32_t)CPU_COUNT_S(sizeof *affinity, affinity->set);
}

int weft__affinity_next(const struct affinity *affinity, int cpu) {
    for (; cpu < AFFINITY_CPUS; cpu++)
        if (CPU_ISSET_S((size_t)cpu, sizeof *affinity, affinity->set)) return cpu;
    return -1;
}

int weft__affinity_nth(const struct affinity *affinity, uint32_t n) {
    uint32_t count = weft__affinity_count(affinity), left = count > 0 ? n % count : 0;
    int cpu = weft__affinity_next(affinity, 0);
    while (cpu >= 0 && left-- > 0) cpu = weft__affinity_next(affinity, cpu + 1);
    return cpu;
}
