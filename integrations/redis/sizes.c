/* A table of hashes, one key in each place: a later key takes the place of an earlier one. */
#include "sizes.h"

#include <stdint.h>

enum { PLACES = 4096, KEY_MOST = 128 }; /* a longer key is not kept: to hash it takes too long */

static uint64_t places[PLACES]; /* 0: free */

/* FNV-1a of 64 bits. Two keys of one hash are taken for one: a reply may then have one more long
 * value. */
static uint64_t hash_of(const unsigned char *key, size_t key_len) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < key_len; i++) hash = (hash ^ key[i]) * UINT64_C(0x100000001b3);
    return hash ? hash : 1;
}

bool sizes_is_short(const void *key, size_t key_len) {
    if (key_len > KEY_MOST) return false;
    uint64_t hash = hash_of(key, key_len);
    return places[hash % PLACES] == hash;
}

void sizes_note(const void *key, size_t key_len, bool is_short) {
    if (key_len > KEY_MOST) return;
    uint64_t hash = hash_of(key, key_len), *place = &places[hash % PLACES];
    if (is_short)
        *place = hash;
    else if (*place == hash)
        *place = 0;
}
