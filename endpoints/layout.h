/*
 * The memory of an operation: pieces (an iov), blocks at a stride, or a program's own form that it packs and unpacks itself.
 * Fragments are gathered and scattered in ascending order; each finds its place without looking through those before it.
 */
#ifndef WEFT_ENDPOINTS_LAYOUT_H
#define WEFT_ENDPOINTS_LAYOUT_H

#include <weft/layout.h>

#include "rendezvous.h"

/* Below its request. A request that has one has no iov. */
struct layout {
    struct weft_layout of;
    char *base;  /* STRIDED: the first block */
    void *state; /* USER: what `start` made */
};

/* What may not be asked of any operation's: another kind, or a reserved field that is set. */
weft_status_t weft__layout_check(const weft_layout_t *layout);
/* The bytes of blocks at a stride, which begin at `base`, if all of them are there; `name`: of the base. */
weft_status_t weft__layout_measure(const weft_layout_t *layout, const char *name, const void *base, size_t *len_p);
/* They lie in one piece. */
static inline bool weft__layout_is_dense(const weft_layout_t *layout) {
    return layout->stride == layout->block || layout->count <= 1 || layout->block == 0;
}
/* What packs and unpacks itself begins: its state, and its bytes. */
weft_status_t weft__layout_start(const weft_pack_ops_t *user, void *object, size_t count, bool receives,
                                 void **state_p, size_t *len_p);

/* `weft_op_t.layout` of a request that is not accepted yet: few blocks become an iov, all else a struct layout. */
weft_status_t weft__layout_set(struct weft_request *req, const weft_layout_t *layout, const weft_iov_t *iov,
                               size_t n_iov, bool receives);
/* Once, when the request gives back what it holds. */
void weft__layout_end(struct weft_request *req);

/* The memory that the call named. */
static inline weft_status_t weft__request_memory(struct weft_request *req, const weft_iov_t *iov, size_t n_iov,
                                                 const weft_op_t *op, bool receives) {
    if (__builtin_expect(op && op->layout, 0)) return weft__layout_set(req, op->layout, iov, n_iov, receives);
    return weft__request_iov(req, iov, n_iov);
}

/* `len` bytes at `offset`, to or from the request's memory. An error is the program's. */
weft_status_t weft__request_gather(struct weft_request *req, void *to, size_t offset, size_t len);
weft_status_t weft__request_scatter(struct weft_request *req, size_t offset, const void *from, size_t len);
/* As weft__iov_slice, from `offset` on; 0 pieces when the memory cannot be lent as it is. */
size_t weft__request_slice(struct weft_request *req, weft_iov_t *to, size_t room, size_t offset, size_t *len_p);

/* What a layout makes of a protocol: it is packed where it would be copied, and there is no iov to lend. */
static inline enum protocol weft__layout_protocol(enum protocol protocol) {
    return protocol == PROTOCOL_COPY ? PROTOCOL_PACK : PROTOCOL_OFFER;
}

/* An eager message whose payload is the request's layout: OK, NO_RESOURCE, or an error, the program's among them. */
weft_status_t weft__send_packed(struct lane *lane, const struct message *m, struct weft_request *req);

/*
 * A piece of the request's memory from `req->offset` on, at most `most` bytes, behind `head`: OK (copied), IN_PROGRESS (lent), and
 * the offset is moved; NO_RESOURCE, or an error. When the program refuses to pack, `head` and payload are sent as a head of zeros, a
 * word for nobody: the lane's room was taken by then.
 */
weft_status_t weft__send_piece(struct weft_request *req, enum wire_id id, const void *head, size_t head_len,
                               size_t most);
/* The same, never lent. */
weft_status_t weft__send_piece_copied(struct weft_request *req, enum wire_id id, const void *head, size_t head_len,
                                      size_t most);

#endif
