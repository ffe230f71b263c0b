/* A packed key, whatever its bytes: what is read of it lies within it, and is written again as
 * it was. */
#include "fuzz.h"
#include <endpoints/wire/rkey_wire.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct rkey_packed key;
    uint8_t again[WEFT_RKEY_MAX];
    if (weft__rkey_read(data, size, &key) != WEFT_OK) return 0;
    for (uint32_t i = 0; i < key.n; i++) {
        const struct rkey_entry *e = &key.entry[i];
        if ((const uint8_t *)e->name < data || e->bytes + e->len > data + size) abort();
    }
    if (key.region.rights & WEFT_MEM_ATOMIC_DEVICE && !(key.region.rights & WEFT_MEM_ATOMIC))
        abort();
    if (weft__rkey_write(again, &key) != size || memcmp(again, data, size) != 0) abort();
    return 0;
}
