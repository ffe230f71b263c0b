/*
 * Bytes that the rdma transports exchange about themselves: where an interface is on the fabric.
 * Numbers are little-endian; decoders take (pointer, length).
 */
#ifndef WEFT_TRANSPORTS_RDMA_VERBS_WIRE_H
#define WEFT_TRANSPORTS_RDMA_VERBS_WIRE_H

#include <stdbool.h>
#include <stdint.h>
#include <weft/base.h>

static inline void rd_put16(void *to, uint16_t v) {
    for (int i = 0; i < 2; i++) ((uint8_t *)to)[i] = (uint8_t)(v >> 8 * i);
}
static inline void rd_put32(void *to, uint32_t v) {
    for (int i = 0; i < 4; i++) ((uint8_t *)to)[i] = (uint8_t)(v >> 8 * i);
}
static inline void rd_put64(void *to, uint64_t v) {
    for (int i = 0; i < 8; i++) ((uint8_t *)to)[i] = (uint8_t)(v >> 8 * i);
}
static inline uint16_t rd_get16(const void *from) {
    const uint8_t *b = from;
    return (uint16_t)(b[0] | b[1] << 8);
}
static inline uint32_t rd_get32(const void *from) {
    return rd_get16(from) | (uint32_t)rd_get16((const uint8_t *)from + 2) << 16;
}
static inline uint64_t rd_get64(const void *from) {
    return rd_get32(from) | (uint64_t)rd_get32((const uint8_t *)from + 4) << 32;
}

enum rd_link { RD_LINK_ROCE = 1, RD_LINK_INFINIBAND = 2 };

/* A port on its fabric. */
struct rd_place {
    uint8_t gid[16];
    uint16_t lid; /* InfiniBand; 0 elsewhere */
    uint8_t link; /* enum rd_link */
    uint8_t mtu;  /* as verbs count it: 1 is 256 bytes, 5 is 4096 */
};
enum { RD_PLACE_SIZE = 20 };

void weft__rd_place_encode(const struct rd_place *place, void *to);
/* WEFT_ERR_ADDRESS: too short, or no such link or mtu. What follows is not looked at. */
weft_status_t weft__rd_place_decode(const void *bytes, size_t len, struct rd_place *place_p);
/* The GID is an IPv4 or IPv6 address: the lower four bytes, or all. */
bool weft__rd_gid_is_v4(const uint8_t gid[16]);
bool weft__rd_gid_is_link_local(const uint8_t gid[16]);

#endif
