/* Bytes for decoders that must take any: whole, cut short, and with a bit turned round. */
#ifndef WEFT_TESTS_BYTES_H
#define WEFT_TESTS_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef void (*decode_fn)(const uint8_t *bytes, size_t len);

/* On a block of just that length, so that a sanitizer sees one byte too many. */
static inline void bytes_decode(decode_fn decode, const void *bytes, size_t len) {
    uint8_t *exact = calloc(1, len ? len : 1);
    if (!exact) abort();
    if (len) memcpy(exact, bytes, len);
    decode(exact, len);
    free(exact);
}

/* Every beginning of them, and then with each bit turned round by itself. */
static inline void bytes_maul(decode_fn decode, const void *bytes, size_t len) {
    uint8_t *copy = malloc(len ? len : 1);
    if (!copy) abort();
    for (size_t cut = 0; cut <= len; cut++) bytes_decode(decode, bytes, cut);
    for (size_t bit = 0; bit < 8 * len; bit++) {
        memcpy(copy, bytes, len);
        copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
        bytes_decode(decode, copy, len);
    }
    free(copy);
}

#endif
