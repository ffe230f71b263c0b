/* Layouts: the memory of a message or transfer that is not contiguous. */
#ifndef WEFT_LAYOUT_H
#define WEFT_LAYOUT_H

#include <weft/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Set weft_op_t.layout of a send or receive (active, tagged or stream); `iov` then has exactly one
 * entry. Bytes cross the wire, so the layouts of the two sides may differ. The layout is copied
 * when the operation is posted; the objects that its pointers refer to are not.
 *
 * For a put or get it describes the memory on this side, with `buf` and `len` as the entry. The
 * peer's memory is contiguous. The library packs a WEFT_LAYOUT_USER layout whole within the call,
 * into memory that it allocates. A submission of another thread is packed on the owner's thread.
 * It unpacks the layout whole before the operation ends.
 *
 * UNSUPPORTED for weft_put_pieces and weft_get_pieces, whose pieces have strides, and for atomics.
 */
typedef enum weft_layout_kind { WEFT_LAYOUT_STRIDED = 1, WEFT_LAYOUT_USER } weft_layout_kind_t;

/*
 * Functions of a program's own layout. `iov->base` is its object and `iov->len` the count for
 * `start`.
 *
 * - start: creates the state of one operation (it may be the object itself) and returns the packed
 *   length. Optional: without it the state is the object and the packed length is the count.
 * - pack, unpack: move `len` bytes at `offset` of the packed form. Offsets ascend without gaps. The
 *   one for the unused direction may be NULL.
 * - end: called once for each start that returned WEFT_OK, before `done`, or before the call
 *   returns. Optional.
 *
 * An error of `start` is returned by the call. An error of `pack` or `unpack` ends the operation
 * with that status. All functions run on the worker's thread and must not call the library.
 */
typedef struct weft_pack_ops {
    weft_status_t (*start)(void *object, size_t count, int receives, void **state_p, size_t *len_p);
    weft_status_t (*pack)(void *state, size_t offset, void *to, size_t len);
    weft_status_t (*unpack)(void *state, size_t offset, const void *from, size_t len);
    void (*end)(void *state);
} weft_pack_ops_t;

struct weft_layout {
    weft_layout_kind_t kind;
    /*
     * STRIDED: `count` blocks of `block` bytes, the first at iov->base, each `stride` bytes after
     * the previous one. iov->len is ignored.
     */
    size_t block, stride, count;
    const weft_pack_ops_t *user; /* USER */
    uint64_t reserved[2];        /* must be zero, else INVALID_PARAM */
};

#ifdef __cplusplus
}
#endif
#endif
