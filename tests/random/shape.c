#include "shape.h"

#include <stdlib.h>
#include <string.h>

#include "chance.h"

enum { PERIOD = 65521, CLEAR = 0xc7, POISONED = 0xdb };

/* ---- bytes */

static uint8_t bytes[PERIOD + LARGEST];
static __attribute__((constructor)) void bytes_begin(void) {
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)chance_mix(1 + i % PERIOD);
}

const uint8_t *bytes_of(uint64_t name, uint64_t at) {
    return bytes + (name * 7919 + at) % PERIOD;
}

/* ---- blocks */

void *room_take(struct room *room, size_t len) {
    size_t from = 64 * below(room->len / 64), to = from + len;
    struct room_taken *place = NULL;
    if (to > room->len || len == 0) return NULL;
    for (size_t i = 0; i < sizeof room->taken / sizeof *room->taken; i++) {
        struct room_taken *other = &room->taken[i];
        if (other->from == other->to)
            place = other;
        else if (from < other->to && other->from < to)
            return NULL;
    }
    if (!place) return NULL;
    *place = (struct room_taken){from, to};
    return room->base + from;
}

void room_give(struct room *room, void *block) {
    size_t from = (size_t)((uint8_t *)block - room->base);
    for (size_t i = 0; i < sizeof room->taken / sizeof *room->taken; i++)
        if (room->taken[i].from == from && room->taken[i].to > from) room->taken[i].to = from;
}

static void block_take(struct shape *s, struct room *room, size_t span) {
    s->span = span;
    s->block = room ? room_take(room, span) : NULL;
    s->room = s->block ? room : NULL;
    if (!s->block) s->block = malloc(span ? span : 1);
    if (!s->block) abort();
}

void shape_end(struct shape *s) {
    if (!s->block) return;
    memset(s->block, POISONED, s->span);
    if (s->room)
        room_give(s->room, s->block);
    else
        free(s->block);
    s->block = NULL;
}

/* ---- a type of the program's own */

static weft_status_t packed_start(void *object, size_t count, int receives, void **state_p,
                                  size_t *len_p) {
    struct shape *s = object;
    if (count != 7) abort();
    if (s->refuses_start) {
        s->refused = true;
        return SHAPE_REFUSES;
    }
    s->starts++;
    *state_p = s;
    *len_p = s->len;
    return WEFT_OK;
}
static void packed_end(void *state) {
    ((struct shape *)state)->ends++;
}

static weft_status_t packed_moves(struct shape *s, size_t offset, size_t len) {
    if (offset != s->moved || offset + len > s->len) abort(); /* ascending, without gaps */
    if (offset + len > s->refuse_at) s->refused = true;
    if (s->refused) return SHAPE_REFUSES;
    s->moved += len;
    return WEFT_OK;
}
static weft_status_t packed_pack(void *state, size_t offset, void *to, size_t len) {
    struct shape *s = state;
    weft_status_t st = packed_moves(s, offset, len);
    for (size_t i = 0; st == WEFT_OK && i < len; i++)
        ((uint8_t *)to)[i] = s->block[s->len - 1 - offset - i];
    return st;
}
static weft_status_t packed_unpack(void *state, size_t offset, const void *from, size_t len) {
    struct shape *s = state;
    weft_status_t st = packed_moves(s, offset, len);
    for (size_t i = 0; st == WEFT_OK && i < len; i++)
        s->block[s->len - 1 - offset - i] = ((const uint8_t *)from)[i];
    return st;
}

/* ---- drawn */

static void draw_plain(struct shape *s, struct room *room) {
    block_take(s, room, s->len);
    s->iov[0] = (weft_iov_t){s->block, s->len};
    s->n_iov = s->len || percent(50);
}

/* Pieces of any length, some of none, with gaps between. */
static void draw_pieced(struct shape *s, struct room *room) {
    size_t cut[SHAPE_PIECES + 1], gap[SHAPE_PIECES], at = 0;
    s->n_iov = 2 + below(SHAPE_PIECES - 1);
    cut[0] = 0;
    cut[s->n_iov] = s->len;
    for (size_t i = 1; i < s->n_iov; i++)
        cut[i] = cut[i - 1] + below(s->len - cut[i - 1] + 1) / (1 + below(4));
    for (size_t i = 0; i < s->n_iov; i++) gap[i] = percent(50) ? 0 : below(40);
    for (size_t i = 0; i < s->n_iov; i++) at += gap[i] + cut[i + 1] - cut[i];
    block_take(s, room, at);
    at = 0;
    for (size_t i = 0; i < s->n_iov; i++) {
        size_t len = cut[i + 1] - cut[i];
        s->iov[i] = (weft_iov_t){len || percent(50) ? s->block + at + gap[i] : NULL, len};
        at += gap[i] + len;
    }
}

static void draw_strided(struct shape *s, struct room *room) {
    weft_layout_t *l = &s->layout;
    l->kind = WEFT_LAYOUT_STRIDED;
    l->block = 1 + (percent(50) ? below(100) : below(s->len));
    l->count = s->len / l->block;
    if (l->count == 0) l->count = 1, l->block = s->len;
    while (l->block * l->count != s->len) l->block--, l->count = s->len / l->block;
    l->stride = l->block + (percent(30) ? 0 : below(50));
    block_take(s, room, (l->count - 1) * l->stride + l->block);
    s->iov[0] = (weft_iov_t){s->block, percent(50) ? 0 : 12345};
    s->n_iov = 1;
}

static void draw_packed(struct shape *s, struct room *room, bool refuses) {
    static const weft_pack_ops_t with_state = {packed_start, packed_pack, packed_unpack,
                                               packed_end};
    static const weft_pack_ops_t without = {NULL, packed_pack, packed_unpack, NULL};
    s->layout.kind = WEFT_LAYOUT_USER;
    s->layout.user = percent(70) ? &with_state : &without;
    s->refuse_at = refuses && percent(30) ? below(s->len + 1) : SIZE_MAX;
    s->refuses_start = refuses && percent(10) && s->layout.user->start;
    s->iov[0] = (weft_iov_t){s, s->layout.user == &without ? s->len : 7};
    s->n_iov = 1;
    block_take(s, room, s->len);
}

void shape_draw(struct shape *s, size_t len, struct shape_wants wants) {
    *s = (struct shape){.len = len, .refuse_at = SIZE_MAX};
    uint32_t which = below(100);
    s->kind = which < 55   ? SHAPE_PLAIN
              : which < 75 ? SHAPE_PIECED
              : which < 88 ? SHAPE_STRIDED
                           : SHAPE_PACKED;
    if (s->kind > SHAPE_PIECED && (!wants.layouts || len == 0)) s->kind = SHAPE_PLAIN;
    if (s->kind == SHAPE_PIECED && wants.one) s->kind = SHAPE_PLAIN;
    switch (s->kind) {
    case SHAPE_PLAIN: draw_plain(s, wants.room); break;
    case SHAPE_PIECED: draw_pieced(s, wants.room); break;
    case SHAPE_STRIDED: draw_strided(s, wants.room); break;
    case SHAPE_PACKED: draw_packed(s, wants.room, wants.refuses); break;
    }
}

/* ---- filled, and looked at */

/* Lays the first `len` bytes of the message into a block of the shape's form. */
static void lay(const struct shape *s, uint8_t *block, const uint8_t *from, size_t len) {
    if (s->kind == SHAPE_PACKED)
        for (size_t i = 0; i < len; i++) block[s->len - 1 - i] = from[i];
    else if (s->kind == SHAPE_STRIDED)
        for (size_t at = 0, i = 0; at < len; at += s->layout.block, i++)
            memcpy(block + i * s->layout.stride, from + at,
                   len - at < s->layout.block ? len - at : s->layout.block);
    else
        for (size_t at = 0, i = 0; at < len; at += s->iov[i++].len) {
            size_t part = s->iov[i].len < len - at ? s->iov[i].len : len - at;
            if (part) memcpy(block + ((uint8_t *)s->iov[i].base - s->block), from + at, part);
        }
}

void shape_fill(struct shape *s, const uint8_t *from) {
    shape_clear(s);
    lay(s, s->block, from, s->len);
}

void shape_clear(struct shape *s) {
    memset(s->block, CLEAR, s->span);
}

bool shape_begun(const struct shape *s) {
    for (size_t i = 0; s->block && i < s->span && i < 4096; i++)
        if (s->block[i] != CLEAR) return true;
    return false;
}

/* `rest`: what stands where the message does not. */
static bool holds(const struct shape *s, const uint8_t *from, size_t len, uint8_t *rest) {
    lay(s, rest, from, len);
    bool same = memcmp(s->block, rest, s->span) == 0;
    free(rest);
    return same;
}

static uint8_t *new_rest(const struct shape *s) {
    uint8_t *rest = malloc(s->span + 1);
    if (!rest) abort();
    return rest;
}

bool shape_holds(const struct shape *s, const uint8_t *from, size_t len) {
    uint8_t *rest = new_rest(s);
    return holds(s, from, len, memset(rest, CLEAR, s->span));
}
bool shape_holds_at_least(const struct shape *s, const uint8_t *from, size_t len) {
    uint8_t *rest = new_rest(s);
    return holds(s, from, len, memcpy(rest, s->block, s->span));
}
