/* The memory of one operation: pieces, strides or a type of the program's own; filled before,
 * looked at after, and then gone. */
#ifndef WEFT_TESTS_RANDOM_SHAPE_H
#define WEFT_TESTS_RANDOM_SHAPE_H

#include <stdbool.h>
#include <weft/weft.h>

enum { LARGEST = 1400000, SHAPE_PIECES = 8 };

/* Bytes from `at` on of everything that is called `name`: LARGEST of them may be read. */
const uint8_t *bytes_of(uint64_t name, uint64_t at);

/* Where blocks come from: a piece of a region that its worker exposes, or any other
 * memory. */
struct room {
    uint8_t *base;
    size_t len;
    struct room_taken {
        size_t from, to;
    } taken[48];
};
void *room_take(struct room *room, size_t len); /* NULL: there is none */
void room_give(struct room *room, void *block);

enum shape_kind { SHAPE_PLAIN, SHAPE_PIECED, SHAPE_STRIDED, SHAPE_PACKED };

struct shape {
    enum shape_kind kind;
    size_t len;     /* bytes of a message that it holds */
    uint8_t *block; /* all its memory, `span` bytes; NULL: it is gone */
    /* where that is from; NULL: it has a block of its own, so that a sanitizer sees its ends */
    struct room *room;
    size_t span;
    weft_iov_t iov[SHAPE_PIECES];
    size_t n_iov;
    weft_layout_t layout;
    /* Of SHAPE_PACKED: the block holds the bytes backwards, and each is moved once, from the
     * first on. */
    size_t moved, refuse_at; /* refuse_at: from here on it refuses; SIZE_MAX: never */
    bool refuses_start, refused;
    int starts, ends;
};
#define SHAPE_REFUSES WEFT_ERR_ADDRESS /* what a type of the program's own says that refuses */

/* Draws one of `len` bytes. `layouts`: it may be more than an iov; `one`: a single piece;
 * `refuses`: it may refuse. */
struct shape_wants {
    struct room *room;
    bool layouts, one, refuses;
};
void shape_draw(struct shape *shape, size_t len, struct shape_wants wants);
void shape_fill(struct shape *shape, const uint8_t *bytes);
void shape_clear(struct shape *shape); /* for a receive: all of it is known */
/* The first `len` bytes of the message are these, and nothing else of the block has changed
 * since shape_clear. */
bool shape_holds(const struct shape *shape, const uint8_t *bytes, size_t len);
/* The same, and the rest of the block may be anything. */
bool shape_holds_at_least(const struct shape *shape, const uint8_t *bytes, size_t len);
/* Some of its first bytes have changed since shape_clear. */
bool shape_begun(const struct shape *shape);
/* No operation uses it any more: it is poisoned, and given back. */
void shape_end(struct shape *shape);

#endif
