/* How the memory of a message is laid out, when it is more than a few pieces. */
#ifndef WEFT_LAYOUT_H
#define WEFT_LAYOUT_H

#include <weft/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Named in weft_op_t.layout of a send or receive, active, tagged or stream; `iov` then has one entry. The two sides
 * of a message need not agree: what crosses are bytes. Copied when the operation is posted, except for what its
 * pointers point to.
 *
 * Of a put or get it says how the memory here is laid out, `buf` and `len` being that entry; the peer's is contiguous.
 * A program's own is packed whole within the call (another thread's: when the owner comes to it), and unpacked whole before
 * the operation's end, from and to memory that the library allocates for it. Pieces (weft_put_pieces) say their strides
 * themselves: UNSUPPORTED there, as of atomics.
 */
typedef enum weft_layout_kind { WEFT_LAYOUT_STRIDED = 1, WEFT_LAYOUT_USER } weft_layout_kind_t;

/*
 * A program's own: `iov->base` is its object and `iov->len` the count it is asked with. `start` makes the state of
 * one operation (it may be the object itself) and tells the packed length; `pack` and `unpack` move `len` bytes at
 * `offset` of the packed form, in ascending offsets without gaps. A refusal (< 0) of `start` is the call's answer;
 * one of `pack` or `unpack` ends the operation with it. `end` comes once for each `start` that was WEFT_OK: before
 * `done`, or before the call returns. Without `start` the state is the object and the count is the length; `end`, and
 * the direction that is not used, may be NULL. All run on the worker's thread and call nothing of the library.
 */
typedef struct weft_pack_ops {
    weft_status_t (*start)(void *object, size_t count, int receives, void **state_p, size_t *len_p);
    weft_status_t (*pack)(void *state, size_t offset, void *to, size_t len);
    weft_status_t (*unpack)(void *state, size_t offset, const void *from, size_t len);
    void (*end)(void *state);
} weft_pack_ops_t;

struct weft_layout {
    weft_layout_kind_t kind;
    /* STRIDED: `count` blocks of `block` bytes from iov->base on, `stride` bytes from one's begin to the next's;
     * iov->len is not looked at. */
    size_t block, stride, count;
    const weft_pack_ops_t *user; /* USER */
    uint64_t reserved[2];        /* zero, else INVALID_PARAM */
};

#ifdef __cplusplus
}
#endif
#endif
