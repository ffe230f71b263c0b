/* A table of hashes, one key in each place: a later key takes the place of an earlier one. */
#include "sizes.h"

#include "key_hash.h"
#include <string.h>

enum { PLACES = 4096, KEY_MOST = 128 }; /* a longer key is not kept: to hash it takes too long */

static uint64_t places[PLACES]; /* 0: free */

/* Two keys of one hash are taken for one: a reply may then have one more long value. */
static uint64_t hash_of(const void *key, size_t key_len) {
    uint64_t hash = key_hash(key, key_len);
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

void sizes_forget(void) {
    memset(places, 0, sizeof places);
}
