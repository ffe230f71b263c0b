/* A program's own form of memory, which watches how it is packed, unpacked and let go. */
#ifndef WEFT_TESTS_SUPPORT_OP_FORMS_H
#define WEFT_TESTS_SUPPORT_OP_FORMS_H

#include <stdbool.h>
#include <string.h>
#include <weft/layout.h>

struct form {
    char *bytes;
    size_t len, at;
    weft_status_t start_refuses, refuses;
    size_t refuses_at; /* the offset from which on it does */
    int starts, ends, receives, moves;
    int wrong; /* a gap, a step back, or a call after the end */
};

static inline weft_status_t form_start(void *object, size_t count, int receives, void **state_p,
                                       size_t *len_p) {
    struct form *f = object;
    f->starts++;
    f->receives = receives;
    if (f->start_refuses) return f->start_refuses;
    f->wrong += count != 7;
    f->at = 0;
    *state_p = f;
    *len_p = f->len;
    return WEFT_OK;
}
static inline weft_status_t form_move(struct form *f, size_t offset, size_t len) {
    f->wrong += offset != f->at || f->ends != f->starts - 1 || len == 0 || len > f->len - offset;
    f->moves++;
    if (f->refuses && offset + len > f->refuses_at) return f->refuses;
    f->at += len;
    return WEFT_OK;
}
static inline weft_status_t form_pack(void *state, size_t offset, void *to, size_t len) {
    struct form *f = state;
    weft_status_t st = form_move(f, offset, len);
    if (st == WEFT_OK) memcpy(to, f->bytes + offset, len);
    return st;
}
static inline weft_status_t form_unpack(void *state, size_t offset, const void *from, size_t len) {
    struct form *f = state;
    weft_status_t st = form_move(f, offset, len);
    if (st == WEFT_OK) memcpy(f->bytes + offset, from, len);
    return st;
}
static inline void form_end(void *state) {
    ((struct form *)state)->ends++;
}
static const weft_pack_ops_t form_ops = {form_start, form_pack, form_unpack, form_end};
static const weft_layout_t form_layout = {.kind = WEFT_LAYOUT_USER, .user = &form_ops};

/* It was started that many times, and released as often. */
static inline bool settled(const struct form *f, int times) {
    return f->starts == times && f->ends == times && !f->wrong;
}

#endif
