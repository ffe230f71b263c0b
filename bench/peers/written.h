/* What a rank gives is new before each operation, as with weft-perf --fresh. */
#ifndef WEFT_BENCH_PEERS_WRITTEN_H
#define WEFT_BENCH_PEERS_WRITTEN_H

#include <stddef.h>

/* The same value in all ranks, and another one in the next operation. */
static inline void write_floats(void *given, size_t bytes, long operation) {
    float *to = (float *)given, value = (float)(1 + operation % 97);
    for (size_t i = 0; i < bytes / sizeof *to; i++) to[i] = value;
}

#endif
