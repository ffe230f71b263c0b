/* Encoder and decoder of an interface's place on the fabric. */
#include "wire.h"

#include <string.h>

void weft__rd_place_encode(const struct rd_place *place, void *to) {
    uint8_t *p = to;
    memcpy(p, place->gid, 16);
    rd_put16(p + 16, place->lid);
    p[18] = place->link;
    p[19] = place->mtu;
}

weft_status_t weft__rd_place_decode(const void *bytes, size_t len, struct rd_place *place_p) {
    const uint8_t *p = bytes;
    struct rd_place place;
    if (len < RD_PLACE_SIZE) return WEFT_ERR_ADDRESS;
    memcpy(place.gid, p, 16);
    place.lid = rd_get16(p + 16);
    place.link = p[18];
    place.mtu = p[19];
    if (place.link != RD_LINK_ROCE && place.link != RD_LINK_INFINIBAND) return WEFT_ERR_ADDRESS;
    if (place.mtu < 1 || place.mtu > 5) return WEFT_ERR_ADDRESS;
    *place_p = place;
    return WEFT_OK;
}

bool weft__rd_gid_is_v4(const uint8_t gid[16]) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    return memcmp(gid, mapped, sizeof mapped) == 0;
}

bool weft__rd_gid_is_link_local(const uint8_t gid[16]) {
    return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}
