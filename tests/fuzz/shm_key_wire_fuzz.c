/* What a shm peer may say of one-sided access, and what stands in a packed key. */
#include "fuzz.h"
#include <transports/region.h>
#include <transports/shm/wire/key_wire.h>

static void word(const uint8_t *p, size_t len) {
    struct shm_key_word w;
    if (weft__shm_key_decode(p, len, &w) != WEFT_OK) return;
    insist(weft__shm_is_key_word(p, len));
    if (w.kind == SHM_WANT) {
        insist(w.want.rights && rights_are_known(w.want.rights) && w.want.ways &&
               w.want.ways <= SHM_WAYS);
        insist(w.want.base + w.want.len >= w.want.base && w.want.serial == w.serial);
    }
    if (w.kind == SHM_GRANT) {
        bool device = len == sizeof(struct shm_device_grant);
        insist(w.grant.way == SHM_WAY_MAP || w.grant.way == SHM_WAY_VM ||
               w.grant.way == SHM_WAY_DEVICE);
        insist(device == (w.grant.way == SHM_WAY_DEVICE));
        insist(w.grant.offset % SHM_PAGE == 0 && w.grant.offset <= INT64_MAX);
    }
    if (w.kind == SHM_DENY) insist(w.status < 0 && w.status >= WEFT_STATUS_LAST);
}

static void key(const uint8_t *p, size_t len) {
    uint8_t again[SHM_KEY_LEN];
    uint32_t ways = weft__shm_key_ways(p, len);
    insist((ways & ~(uint32_t)SHM_WAYS) == 0);
    if (!ways) return;
    weft__shm_key_encode(ways, again);
    insist(weft__shm_key_ways(again, sizeof again) == ways);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const decode_fn decoders[] = {word, key};
    return FUZZ_ONE_OF(decoders, data, size);
}
