/* Tagged messages: sends and receives are matched by a 64-bit tag. */
#ifndef WEFT_TAG_H
#define WEFT_TAG_H

#include <weft/endpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_tag_info {
    uint64_t tag; /* the sender's */
    size_t len;   /* of the message; it may exceed the buffer */
    /* this side's endpoint that the message came over; NULL if that is closed by now */
    weft_ep_t *ep;
    /* a weft_mem_type_t (weft/memory.h): where the payload waits, if it waits at its sender */
    uint32_t memory;
    uint32_t reserved; /* zero */
} weft_tag_info_t;

/*
 * Sends the bytes of `iov` under `tag`. Messages of one endpoint match in the order sent.
 *
 * Completion: the memory of `iov` is free again. CANCELLED: the receiver gave up while it read that
 * memory (weft_am_send).
 *
 * Flow control: an unexpected message (without a posted receive) waits at the receiver within the
 * endpoint's credit, and at the sender beyond it. The credit is the receiver's setting
 * tag.unexpected_bytes, or less if there are many endpoints. The receiver's setting
 * peer.max_unexpected limits the unexpected messages and unread stream bytes of all endpoints
 * between two workers. Each of many endpoints has a share of it: at least 1 KiB, by default from
 * the 31st endpoint on. peers.max_unexpected limits those of all endpoints of a worker in the same
 * way, by default from the 482nd endpoint on. Only messages left by endpoints that were closed
 * repeatedly can exceed these limits. The endpoint whose message exceeds one is lost (QUOTA).
 * Messages of a disconnected peer can still be received; of all such peers together the newest
 * peer.max_unexpected bytes are kept.
 *
 * Flags: WEFT_AM_RENDEZVOUS, and WEFT_AM_EAGER (weft/am.h). WEFT_AM_EAGER is a preference here:
 * what does not fit into one message or into the credit waits at the sender.
 *
 * Errors: INVALID_PARAM, NO_MEMORY, CLOSED, and the status that the endpoint was lost with.
 */
WEFT_API weft_status_t weft_tag_send(weft_ep_t *ep, uint64_t tag, const weft_iov_t *iov,
                                     size_t n_iov, const weft_op_t *op);

/*
 * Receives the first message whose tag equals `tag` in the bits set in `mask` (0: any tag), from
 * any endpoint of the worker. Receives match in the order posted. `info_p` is optional; `*info_p`
 * is written before completion and must live until then.
 *
 * A receive belongs to no endpoint. It stays posted when a peer dies or closes, the only one too,
 * since others may still send. A program that waits for a peer sets op->deadline_ms, or cancels
 * the receive in the endpoint's on_error (op->request_p).
 *
 * Outcomes: TRUNCATED if the message is longer than `iov`. The bytes that fit are written and the
 * rest is lost. The call itself returns it if the message is already here. If the receive had
 * matched, and the message then ended at its sender: CANCELLED if it was withdrawn (cancel,
 * deadline, close), else the failure there (IO, NO_MEMORY, or what a layout returned). A sender of
 * an older version reports each failure as CANCELLED. `iov` may have been written to.
 *
 * If the connection is lost while the message comes: the receive ends with the endpoint's status if
 * the message was offered (rendezvous) or came in parts; else it matches another message, and `iov`
 * may have been written to behind that one's end.
 *
 * Errors of the call: CLOSED if the worker is closing.
 */
WEFT_API weft_status_t weft_tag_recv(weft_worker_t *worker, uint64_t tag, uint64_t mask,
                                     const weft_iov_t *iov, size_t n_iov, weft_tag_info_t *info_p,
                                     const weft_op_t *op);

/* A message that weft_tag_take removed from matching. */
typedef struct weft_tag_message weft_tag_message_t;

/*
 * Looks for an unexpected message without taking it. `info_p` is optional. Errors: NOT_FOUND;
 * CLOSED if the worker is closing.
 */
WEFT_API weft_status_t weft_tag_probe(weft_worker_t *worker, uint64_t tag, uint64_t mask,
                                      weft_tag_info_t *info_p);

/*
 * As weft_tag_probe, and removes the message from matching. The message stays until
 * weft_tag_message_recv.
 */
WEFT_API weft_status_t weft_tag_take(weft_worker_t *worker, uint64_t tag, uint64_t mask,
                                     weft_tag_info_t *info_p, weft_tag_message_t **message_p);

/*
 * Receives a taken message. With n_iov 0 it drops the message.
 *
 * The handle is gone when the call returns. That includes TRUNCATED, CANCELLED (the sender withdrew
 * the message) and the status of a lost endpoint (CLOSED: closed on this side). The handle stays
 * valid if the call was refused: INVALID_PARAM, NO_MEMORY, TOO_BIG (too many operations),
 * WRONG_THREAD, FORKED, UNSUPPORTED, and what a layout's `start` returned. After an error of a
 * layout's `unpack` it is gone, so `unpack` should return none of these.
 */
WEFT_API weft_status_t weft_tag_message_recv(weft_worker_t *worker, weft_tag_message_t *message,
                                             const weft_iov_t *iov, size_t n_iov,
                                             const weft_op_t *op);

/* As above, and drive the worker until the operation is complete (weft_ep_flush_wait). */
WEFT_API weft_status_t weft_tag_send_wait(weft_ep_t *ep, uint64_t tag, const weft_iov_t *iov,
                                          size_t n_iov);
WEFT_API weft_status_t weft_tag_recv_wait(weft_worker_t *worker, uint64_t tag, uint64_t mask,
                                          const weft_iov_t *iov, size_t n_iov,
                                          weft_tag_info_t *info_p);

#ifdef __cplusplus
}
#endif
#endif
