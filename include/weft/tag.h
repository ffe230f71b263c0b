/* Tagged messages: sends and receives that find each other by a 64-bit tag. */
#ifndef WEFT_TAG_H
#define WEFT_TAG_H

#include <weft/endpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_tag_info {
    uint64_t tag;  /* the sender's */
    size_t len;    /* the message's, which may exceed the buffer given */
    weft_ep_t *ep; /* this side's endpoint it came over; NULL when that is closed by now */
} weft_tag_info_t;

/*
 * Sends the bytes of `iov` under `tag`. Messages of one endpoint match in the order sent. Completion says that `iov`'s memory
 * is free again; CANCELLED: the receiver gave up while it read that (weft_am_send). A message that nobody has asked for yet
 * waits at the receiver within the endpoint's credits, beyond that at the sender. They are the receiver's
 * "tag.unexpected_bytes", or less: what all endpoints between two workers leave there together, streams' unread bytes included,
 * is bounded by its "peer.max_unread", and of many endpoints each has a share (1 KiB at least; by default from the 31st on).
 * Only what closed endpoints left, time and again, can add up to more, and then the endpoint whose message goes beyond is lost
 * (QUOTA). What a peer that is gone has left stays to be received; of all such peers' together the newest "peer.max_unread".
 * Flags: WEFT_AM_RENDEZVOUS, and WEFT_AM_EAGER (weft/am.h), which is a wish here: what one message or the credits do not hold
 * waits at the sender.
 */
WEFT_API weft_status_t weft_tag_send(weft_ep_t *ep, uint64_t tag, const weft_iov_t *iov, size_t n_iov,
                                     const weft_op_t *op);

/*
 * Receives the first message whose tag equals `tag` in the bits of `mask` (0: any), from any endpoint of the
 * worker, in the order of posting. `*info_p` (may be NULL) is filled before completion and must live until
 * then. A message longer than `iov` completes with WEFT_ERR_TRUNCATED, what fits is written and the rest is lost; the
 * call itself answers so where the message is here already. A receive that has found its message, whose sender then takes it back
 * (cancel, deadline, a layout that refuses), ends as CANCELLED: it may have been written to.
 */
WEFT_API weft_status_t weft_tag_recv(weft_worker_t *worker, uint64_t tag, uint64_t mask, const weft_iov_t *iov,
                                     size_t n_iov, weft_tag_info_t *info_p, const weft_op_t *op);

/* A message taken out of matching by weft_tag_take. */
typedef struct weft_tag_message weft_tag_message_t;

/* Is there such a message? WEFT_OK with `*info_p` (may be NULL), or WEFT_ERR_NOT_FOUND; CLOSED: the worker is closing. */
WEFT_API weft_status_t weft_tag_probe(weft_worker_t *worker, uint64_t tag, uint64_t mask, weft_tag_info_t *info_p);

/* The same, and takes it: it matches nobody else and waits for weft_tag_message_recv. */
WEFT_API weft_status_t weft_tag_take(weft_worker_t *worker, uint64_t tag, uint64_t mask, weft_tag_info_t *info_p,
                                     weft_tag_message_t **message_p);

/* Receives a taken message; n_iov 0 drops it. The handle is gone when the call returns, also with TRUNCATED, CANCELLED (its
 * sender took it back) or the status of an endpoint that is lost (CLOSED: closed here); it stays where the call was
 * refused: INVALID_PARAM, NO_MEMORY, WRONG_THREAD and their like. */
WEFT_API weft_status_t weft_tag_message_recv(weft_worker_t *worker, weft_tag_message_t *message,
                                             const weft_iov_t *iov, size_t n_iov, const weft_op_t *op);

WEFT_API weft_status_t weft_tag_send_wait(weft_ep_t *ep, uint64_t tag, const weft_iov_t *iov, size_t n_iov);
WEFT_API weft_status_t weft_tag_recv_wait(weft_worker_t *worker, uint64_t tag, uint64_t mask, const weft_iov_t *iov,
                                          size_t n_iov, weft_tag_info_t *info_p);

#ifdef __cplusplus
}
#endif
#endif
