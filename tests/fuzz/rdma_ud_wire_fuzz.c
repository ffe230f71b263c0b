/* What a datagram of rdma_ud may hold, and what its addresses may: any bytes are answered, and
 * what is accepted is what its encoder would have written. */
#include "fuzz.h"

#ifdef WEFT_HAVE_RDMA
#include <transports/rdma/ud/ud_wire.h>

static void frame(const uint8_t *p, size_t len) {
    struct ud_frame f;
    uint8_t again[UD_HEAD_MOST];
    if (!weft__ud_frame_decode(p, len, &f)) return;
    size_t head = ud_head((enum ud_kind)f.kind);
    insist(f.data == p + head && f.len == len - head && f.id < 32);
    weft__ud_frame_encode(&f, again);
    insist(f.kind == UD_NOTHING || memcmp(again, p, head) == 0);
}

static void address(const uint8_t *p, size_t len) {
    struct ud_address a;
    uint8_t again[UD_ADDRESS];
    if (weft__ud_address_decode(p, len, &a) != WEFT_OK) return;
    weft__ud_address_encode(&a, again);
    insist(len == UD_ADDRESS && memcmp(again, p, len) == 0);
}

static void source(const uint8_t *p, size_t len) {
    uint8_t gid[16];
    if (weft__ud_source_decode(p, len, true, gid)) insist(len >= UD_GRH && weft__rd_gid_is_v4(gid));
    if (weft__ud_source_decode(p, len, false, gid))
        insist(len >= UD_GRH && memcmp(gid, p + 8, 16) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const decode_fn decoders[] = {frame, address, source};
    return FUZZ_ONE_OF(decoders, data, size);
}
#else
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    return 0;
}
#endif
