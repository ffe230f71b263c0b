/* What raw peers need of a transport: its table, the victim's entry in an address, a message
 * that is packed as it is. */
#ifndef WEFT_TESTS_SUPPORT_RAW_LANE_H
#define WEFT_TESTS_SUPPORT_RAW_LANE_H

#include <string.h>
#include <transports/registry.h>
#include <transports/transport.h>

static inline const struct transport *transport_named(const char *name) {
    for (const struct transport *const *t = weft__transports; *t; t++)
        if (!strcmp((*t)->name, name)) return *t;
    return NULL;
}

/* The entry of that transport in a worker's address; its layout is in docs/wire.md. */
static inline const uint8_t *entry_of(const uint8_t *address, const char *name, size_t *len_p) {
    const uint8_t *at = address + 12;
    for (unsigned i = 0; i < address[3]; i++) {
        size_t name_len = at[0];
        const uint8_t *bytes = at + 1 + name_len + 1;
        *len_p = at[1 + name_len];
        if (name_len == strlen(name) && !memcmp(at + 1, name, name_len)) return bytes;
        at = bytes + *len_p;
    }
    return NULL;
}

struct piece {
    const void *bytes;
    size_t len;
};
static inline size_t pack(void *to, void *arg) {
    const struct piece *piece = arg;
    if (piece->len) memcpy(to, piece->bytes, piece->len);
    return piece->len;
}

#endif
