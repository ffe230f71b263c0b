/*
 * Remote keys as bytes, little-endian:
 *
 *   'W' 'K' version n | worker 8 | region 4 | epoch 4 | token 16 | base 8 | length 8 |
 *   rights 4 | n × (name length 1, name, length 1, bytes)
 *
 * There is one entry for each transport that registered the region.
 */
#ifndef WEFT_ENDPOINTS_WIRE_RKEY_WIRE_H
#define WEFT_ENDPOINTS_WIRE_RKEY_WIRE_H

#include <transports/transport.h>
#include <weft/memory.h>

enum { RKEY_VERSION = 1, RKEY_ENTRIES = 8, RKEY_HEAD = 56 };

/* The part of a key that one transport made. */
struct rkey_entry {
    const char *name;
    const uint8_t *bytes;
    uint8_t name_len, len;
};
struct rkey_packed {
    uint64_t worker;
    struct remote_region region;
    uint32_t n;
    struct rkey_entry entry[RKEY_ENTRIES]; /* name and bytes point into the bytes read */
};
/* Packs a key into at most WEFT_RKEY_MAX bytes and returns the length. Entries that do not fit
 * are left out. */
size_t weft__rkey_write(void *to, const struct rkey_packed *key);
/* Returns WEFT_ERR_ADDRESS if the bytes are not a key of this version. */
weft_status_t weft__rkey_read(const void *bytes, size_t len, struct rkey_packed *key_p);

#endif
