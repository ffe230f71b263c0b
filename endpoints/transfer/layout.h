/*
 * The memory of an operation: pieces (an iov), blocks at a stride, or a layout that the program
 * packs and unpacks. Fragments are gathered and scattered in ascending order; each finds its place
 * in constant time.
 */
#ifndef WEFT_ENDPOINTS_TRANSFER_LAYOUT_H
#define WEFT_ENDPOINTS_TRANSFER_LAYOUT_H

#include <base/compiler.h>
#include <weft/layout.h>

#include "device_memory.h"
#include "device_staging.h"
#include "rendezvous.h"

/* Checks the kind and the reserved fields. */
weft_status_t weft__layout_check(const weft_layout_t *layout);
/* Measures strided blocks at `base`, and checks that the memory exists. `name` is for the error
 * text. */
weft_status_t weft__layout_measure(const weft_layout_t *layout, const char *name, const void *base,
                                   size_t *len_p);
/* True if the blocks are contiguous. */
static inline bool weft__layout_is_dense(const weft_layout_t *layout) {
    return layout->stride == layout->block || layout->count <= 1 || layout->block == 0;
}
/* Calls the program's `start`. Returns its state and its length. */
weft_status_t weft__layout_start(const weft_pack_ops_t *user, void *object, size_t count,
                                 bool receives, void **state_p, size_t *len_p);

/* Sets `weft_op_t.layout` on a request that is not accepted yet. Few blocks become an iov. */
weft_status_t weft__layout_set(struct weft_request *req, const weft_layout_t *layout,
                               const weft_iov_t *iov, size_t n_iov, bool receives);

/* Sets the memory of the call: its layout, or its iov. A program's own functions see to device
 * memory themselves. */
static inline weft_status_t weft__request_memory(struct weft_request *req, const weft_iov_t *iov,
                                                 size_t n_iov, const weft_op_t *op, bool receives) {
    if (weft__call_is_of_device(iov, n_iov, op))
        return weft__request_device_memory(req, iov, n_iov, op ? op->layout : NULL, receives);
    if (UNLIKELY(op && op->layout)) return weft__layout_set(req, op->layout, iov, n_iov, receives);
    return weft__request_iov(req, iov, n_iov);
}

weft_status_t weft__fail_too_long(size_t len);
/* The same of a message to send. One that is longer than any object ends its connection at the
 * receiver, and is refused here. */
static inline weft_status_t weft__request_message(struct weft_request *req, const weft_iov_t *iov,
                                                  size_t n_iov, const weft_op_t *op) {
    weft_status_t st = weft__request_memory(req, iov, n_iov, op, false);
    return UNLIKELY(st == WEFT_OK && req->len > PTRDIFF_MAX) ? weft__fail_too_long(req->len) : st;
}

/* Copies `len` bytes at `offset` from or to the request's memory. Errors come from the program. */
weft_status_t weft__request_gather(struct weft_request *req, void *to, size_t offset, size_t len);
weft_status_t weft__request_scatter(struct weft_request *req, size_t offset, const void *from,
                                    size_t len);
/* As weft__iov_slice, from `offset`, within the memory. 0: the layout has no iov form. */
size_t weft__request_slice(struct weft_request *req, weft_iov_t *to, size_t room, size_t offset,
                           size_t *len_p);
/* True if the pieces, in order from `offset`, lie within the request's memory. */
bool weft__request_covers(struct weft_request *req, size_t offset, const weft_iov_t *iov, size_t n);

/* The protocol for a layout: pack instead of copy, and offer instead of zcopy. */
static inline enum protocol weft__layout_protocol(enum protocol protocol) {
    return protocol == PROTOCOL_COPY ? PROTOCOL_PACK : PROTOCOL_OFFER;
}

/* The same of a request. Device memory that is long enough to be staged is offered, so that its
 * copies are not waited for. */
static inline enum protocol weft__request_protocol(const struct weft_request *req,
                                                   enum protocol protocol) {
    bool whole = req->send.flags & (WEFT_AM_EAGER | WEFT_AM_NO_REPLY);
    if (!req->layout) return protocol;
    return !whole && weft__request_stages(req) ? PROTOCOL_OFFER : weft__layout_protocol(protocol);
}

/* Sends an eager message with the request's layout: OK, NO_RESOURCE, or an error. */
weft_status_t weft__send_packed(struct lane *lane, const struct message *m,
                                struct weft_request *req);

/*
 * Sends at most `most` bytes from `req->offset`, behind `head`. OK (copied) and IN_PROGRESS
 * (zero-copy) advance the offset; also NO_RESOURCE, or an error. If the program fails to pack, a
 * head of zeros is sent, which receivers ignore: the lane's buffer was taken by then.
 */
weft_status_t weft__send_piece(struct weft_request *req, enum wire_id id, const void *head,
                               size_t head_len, size_t most);
/* The same, always copied. */
weft_status_t weft__send_piece_copied(struct weft_request *req, enum wire_id id, const void *head,
                                      size_t head_len, size_t most);

#endif
