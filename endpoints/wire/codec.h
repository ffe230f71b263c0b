/* How words for a peer are packed and read: little-endian, by (pointer, length). */
#ifndef WEFT_ENDPOINTS_WIRE_CODEC_H
#define WEFT_ENDPOINTS_WIRE_CODEC_H

#include <string.h>

#include "wire.h"

/* A cursor over bytes being written or read; a read past the end empties it for good. */
struct cursor {
    uint8_t *at;
    size_t left;
};

/* `width` is 8 at most. */
static inline void put(struct cursor *c, uint64_t value, unsigned width) {
    memcpy(c->at, &value, width);
    c->at += width;
}

static inline uint64_t get(struct cursor *c, unsigned width) {
    uint64_t value = 0;
    if (c->left < width) {
        c->left = 0;
        c->at = NULL;
        return 0;
    }
    memcpy(&value, c->at, width);
    c->at += width;
    c->left -= width;
    return value;
}

static inline void put_raw(struct cursor *c, const void *from, size_t n) {
    memcpy(c->at, from, n);
    c->at += n;
}

/* Zeros when they are not all there. */
static inline void get_raw(struct cursor *c, void *to, size_t n) {
    memset(to, 0, n);
    if (c->left < n) {
        c->left = 0;
        c->at = NULL;
        return;
    }
    memcpy(to, c->at, n);
    c->at += n;
    c->left -= n;
}

static inline struct cursor writing(struct wire_message *m, enum wire_id id) {
    m->id = (uint8_t)id;
    return (struct cursor){.at = m->bytes, .left = sizeof m->bytes};
}
static inline struct cursor reading(const void *p, size_t len) {
    return (struct cursor){.at = (uint8_t *)(uintptr_t)p, .left = len};
}
static inline void written(struct wire_message *m, const struct cursor *c) {
    m->len = (uint16_t)(c->at - m->bytes);
}
/* All of it was there, and nothing more. */
static inline bool read_all(const struct cursor *c) {
    return c->at && c->left == 0;
}

#endif
