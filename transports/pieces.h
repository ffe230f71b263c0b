/* Iterates over pieces of local memory, block by block. */
#ifndef WEFT_TRANSPORTS_PIECES_H
#define WEFT_TRANSPORTS_PIECES_H

#include <stdbool.h>
#include <string.h>
#include <transports/transport.h>

/* Returns false for more than `most` bytes or more than `most_pieces` pieces. */
static inline bool pieces_fit(const struct rma_piece *pieces, size_t n, size_t most,
                              size_t most_pieces, size_t *total_p) {
    size_t total = 0, len;
    if (n > most_pieces) return false;
    for (size_t i = 0; i < n; i++) {
        if (__builtin_mul_overflow(pieces[i].len, pieces[i].count, &len) || len > most - total)
            return false;
        total += len;
    }
    *total_p = total;
    return true;
}

static inline void pieces_gather(char *to, const struct rma_piece *from, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const char *block = from[i].base;
        if (from[i].len == 0) continue;
        for (size_t k = 0; k < from[i].count; k++, block += from[i].stride, to += from[i].len)
            memmove(to, block, from[i].len);
    }
}

static inline void pieces_scatter(const struct rma_piece *to, size_t n, const char *from) {
    for (size_t i = 0; i < n; i++) {
        char *block = to[i].base;
        if (to[i].len == 0) continue;
        for (size_t k = 0; k < to[i].count; k++, block += to[i].stride, from += to[i].len)
            memmove(block, from, to[i].len);
    }
}

#endif
