/* What fuzz targets share: a claim that must hold, and decoders of which the first byte chooses
 * one. */
#ifndef WEFT_TESTS_FUZZ_FUZZ_H
#define WEFT_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void insist(int held) {
    if (!held) abort();
}

typedef void (*decode_fn)(const uint8_t *bytes, size_t len);

/* It has the other bytes on a block of just their length, so that a sanitizer sees one byte too
 * many. */
static inline int fuzz_one_of(const decode_fn *decoders, size_t n, const uint8_t *data,
                              size_t size) {
    if (size == 0) return 0;
    uint8_t *exact = calloc(1, size > 1 ? size - 1 : 1);
    if (!exact) abort();
    memcpy(exact, data + 1, size - 1);
    decoders[data[0] % n](exact, size - 1);
    free(exact);
    return 0;
}
#define FUZZ_ONE_OF(decoders, data, size) \
    fuzz_one_of(decoders, sizeof(decoders) / sizeof *(decoders), data, size)

#endif
