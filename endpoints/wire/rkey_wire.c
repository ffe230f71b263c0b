/* Encoder and decoder of packed remote keys. */
#include "rkey_wire.h"

#include <reactor/reactor.h>
#include <string.h>
#include <transports/region.h>

static uint8_t *put_rkey_wire(uint8_t *at, uint64_t value, unsigned width) {
    for (unsigned i = 0; i < width; i++) at[i] = (uint8_t)(value >> 8 * i);
    return at + width;
}

static uint64_t get_rkey_wire(const uint8_t *at, unsigned width) {
    uint64_t value = 0;
    for (unsigned i = 0; i < width; i++) value |= (uint64_t)at[i] << 8 * i;
    return value;
}

static uint8_t *put_bytes(uint8_t *at, const void *bytes, uint8_t len) {
    *at++ = len;
    if (len) memcpy(at, bytes, len);
    return at + len;
}

size_t weft__rkey_write(void *to, const struct rkey_packed *key) {
    uint8_t *head = to, *at = head + 4, n = 0;
    at = put_rkey_wire(at, key->worker, 8);
    at = put_rkey_wire(at, key->region.id, 4);
    at = put_rkey_wire(at, key->region.epoch, 4);
    memcpy(at, key->region.token, sizeof key->region.token);
    at = put_rkey_wire(at + sizeof key->region.token, key->region.base, 8);
    at = put_rkey_wire(at, key->region.len, 8);
    at = put_rkey_wire(at, key->region.rights, 4);
    for (uint32_t i = 0; i < key->n; i++) {
        const struct rkey_entry *e = &key->entry[i];
        if (at + 2 + e->name_len + e->len > head + WEFT_RKEY_MAX) continue;
        at = put_bytes(at, e->name, e->name_len);
        at = put_bytes(at, e->bytes, e->len);
        n++;
    }
    head[0] = 'W';
    head[1] = 'K';
    head[2] = RKEY_VERSION;
    head[3] = n;
    return (size_t)(at - head);
}

/* Reads bytes that begin with their length. False: the input is too short. */
static bool get_bytes(const uint8_t **at, const uint8_t *end, const uint8_t **bytes_p,
                      uint8_t *len_p) {
    if (*at == end) return false;
    *len_p = *(*at)++;
    if (*len_p > end - *at) return false;
    *bytes_p = *at;
    *at += *len_p;
    return true;
}

static bool read_entries(const uint8_t *at, const uint8_t *end, struct rkey_packed *key) {
    for (uint32_t i = 0; i < key->n; i++) {
        struct rkey_entry *e = &key->entry[i];
        const uint8_t *name;
        if (!get_bytes(&at, end, &name, &e->name_len) || !get_bytes(&at, end, &e->bytes, &e->len))
            return false;
        if (e->name_len == 0 || e->len > MD_KEY_MAX) return false;
        e->name = (const char *)name;
    }
    return at == end;
}

weft_status_t weft__rkey_read(const void *bytes, size_t len, struct rkey_packed *key_p) {
    const uint8_t *p = bytes;
    if (len < RKEY_HEAD || len > WEFT_RKEY_MAX || p[0] != 'W' || p[1] != 'K')
        return weft__fail(WEFT_ERR_ADDRESS, "the %zu bytes are not a key", len);
    if (p[2] != RKEY_VERSION)
        return weft__fail(WEFT_ERR_ADDRESS, "the key has the unknown version %u", p[2]);
    struct rkey_packed key = {.worker = get_rkey_wire(p + 4, 8), .n = p[3]};
    key.region.id = (uint32_t)get_rkey_wire(p + 12, 4);
    key.region.epoch = (uint32_t)get_rkey_wire(p + 16, 4);
    memcpy(key.region.token, p + 20, sizeof key.region.token);
    key.region.base = get_rkey_wire(p + 36, 8);
    key.region.len = get_rkey_wire(p + 44, 8);
    key.region.rights = (unsigned)get_rkey_wire(p + 52, 4);
    if (key.n > RKEY_ENTRIES || !read_entries(p + RKEY_HEAD, p + len, &key))
        return weft__fail(WEFT_ERR_ADDRESS, "the key is malformed");
    if (key.worker == 0 || key.region.len == 0 || !rights_are_known(key.region.rights) ||
        key.region.base + key.region.len < key.region.base)
        return weft__fail(WEFT_ERR_ADDRESS, "the key names no region");
    *key_p = key;
    return WEFT_OK;
}
