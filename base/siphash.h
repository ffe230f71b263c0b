/*
 * SipHash-2-4 of one 64-bit word: a keyed hash for numbers that a peer may choose. Without the key,
 * numbers that collide cannot be found. Source: Aumasson and Bernstein, "SipHash: a fast
 * short-input PRF", 2012.
 */
#ifndef WEFT_BASE_SIPHASH_H
#define WEFT_BASE_SIPHASH_H

#include <stdint.h>

struct siphash_key {
    uint64_t word[2];
};

static inline uint64_t siphash_rotate(uint64_t x, unsigned n) {
    return x << n | x >> (64 - n);
}

static inline void siphash_round(uint64_t v[4]) {
    v[0] += v[1];
    v[1] = siphash_rotate(v[1], 13) ^ v[0];
    v[0] = siphash_rotate(v[0], 32);
    v[2] += v[3];
    v[3] = siphash_rotate(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = siphash_rotate(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = siphash_rotate(v[1], 17) ^ v[2];
    v[2] = siphash_rotate(v[2], 32);
}

/* Equals SipHash-2-4 of the eight bytes of `word`, little-endian. */
static inline uint64_t siphash_word(const struct siphash_key *key, uint64_t word) {
    const uint64_t length = UINT64_C(8) << 56;
    uint64_t v[4] = {
        key->word[0] ^ UINT64_C(0x736f6d6570736575), key->word[1] ^ UINT64_C(0x646f72616e646f6d),
        key->word[0] ^ UINT64_C(0x6c7967656e657261), key->word[1] ^ UINT64_C(0x7465646279746573)};
    v[3] ^= word;
    siphash_round(v);
    siphash_round(v);
    v[0] ^= word;
    v[3] ^= length;
    siphash_round(v);
    siphash_round(v);
    v[0] ^= length;
    v[2] ^= 0xff;
    for (int i = 0; i < 4; i++) siphash_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

#endif
