/* FNV-1a, of one piece after the other. Not for what a peer may choose. */
#ifndef WEFT_BASE_HASH_H
#define WEFT_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_BEGIN UINT64_C(0xcbf29ce484222325)

static inline uint64_t hash_more(uint64_t hash, const void *bytes, size_t len) {
    const uint8_t *at = bytes;
    for (size_t i = 0; i < len; i++) hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

#endif
