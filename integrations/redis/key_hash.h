/* FNV-1a of 64 bits. */
#ifndef WEFT_REDIS_KEY_HASH_H
#define WEFT_REDIS_KEY_HASH_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t key_hash(const void *key, size_t len) {
    const unsigned char *at = key;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < len; i++) hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

#endif
