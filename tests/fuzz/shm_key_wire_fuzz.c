/* What a shm peer may say of one-sided access, and what stands in a packed key. */
#include <stdlib.h>
#include <string.h>
#include <transports/shm/key_wire.h>
#include <weft/memory.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void insist(int held) {
    if (!held) abort();
}

static void word(const uint8_t *p, size_t len) {
    struct shm_key_word w;
    if (weft__shm_key_decode(p, len, &w) != WEFT_OK) return;
    insist(weft__shm_is_key_word(p, len));
    if (w.kind == SHM_WANT) {
        insist(w.want.rights && w.want.rights <= WEFT_MEM_ALL && w.want.ways && w.want.ways <= SHM_WAYS);
        insist(w.want.base + w.want.len >= w.want.base && w.want.serial == w.serial);
    }
    if (w.kind == SHM_GRANT) {
        insist(w.grant.way == SHM_WAY_MAP || w.grant.way == SHM_WAY_VM);
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
    static void (*const decoders[])(const uint8_t *, size_t) = {word, key};
    if (size == 0) return 0;
    uint8_t *exact = malloc(size); /* so that a sanitizer sees one byte too many */
    if (!exact) return 0;
    memcpy(exact, data + 1, size - 1);
    decoders[data[0] % 2](exact, size - 1);
    free(exact);
    return 0;
}
