/* Active messages: a message calls a handler at its receiver. */
#ifndef WEFT_AM_H
#define WEFT_AM_H

#include <weft/endpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_AM_ID_MAX     1023 /* handler ids are 0 … 1023 */
#define WEFT_AM_HEADER_MAX 256  /* maximum user header, bytes, on every transport */

/*
 * A message, as its handler gets it. `header` is valid during the handler. `data` is the whole
 * payload, valid during the handler unless it is kept (weft_am_retain). Both are non-NULL if their
 * length is 0.
 *
 * Over shared memory `data` may lie where its sender can still write. If you do not trust the peer,
 * copy the data before you check and use it.
 *
 * `data` is NULL if the payload still waits at the sender (rendezvous). That is so for messages
 * large enough to gain from it, and for those above the setting rendezvous.threshold. Fetch the
 * payload with weft_am_recv.
 *
 * `memory` then is the kind of the memory that it waits in: a weft_mem_type_t (weft/memory.h). A
 * handler may choose its buffer by that. It is WEFT_MEMORY_HOST for a payload that is here.
 *
 * A handler that returns without fetching such a payload refuses the message. The sender's
 * operation then ends as WEFT_ERR_REJECTED. Here the counter "am.refused" grows and the log has a
 * line (warn). A large message to an id without a handler is refused in the same way.
 */
typedef struct weft_am {
    const void *header;
    size_t header_len;
    const void *data;
    size_t len;
    void *internal; /* the library's: do not change it */
    uint32_t memory;
    uint32_t reserved; /* zero */
} weft_am_t;

/*
 * A handler. It runs where callbacks run (weft_done_fn). `ep` is this side's endpoint of the pair,
 * for replies. It is NULL for a message that was sent with WEFT_AM_NO_REPLY: check it if a peer may
 * do that. Within a lease it is never NULL. The handler may call what every callback may
 * (weft/base.h).
 */
typedef void (*weft_am_fn)(weft_ep_t *ep, weft_am_t *am, void *arg);

/*
 * Sets the worker's handler for `id` and replaces the previous one. NULL removes it. Messages
 * without a handler are counted ("am.dropped") and dropped. Errors: INVALID_PARAM, also for an `id`
 * above WEFT_AM_ID_MAX.
 */
WEFT_API weft_status_t weft_am_handler_set(weft_worker_t *worker, unsigned id, weft_am_fn fn,
                                           void *arg);

/* weft_op_t.flags */
enum {
    /* send the payload with the message; TOO_BIG if one message cannot hold it */
    WEFT_AM_EAGER = 1,
    WEFT_AM_RENDEZVOUS = 2, /* keep the payload here until the handler fetches it */
    /*
     * The handler gets no endpoint, so the message does not wait for the peer's half of the
     * endpoint. It leaves as soon as the connection is up and nothing of this endpoint is queued
     * before it. It is sent as with WEFT_AM_EAGER, even if WEFT_AM_RENDEZVOUS is set.
     */
    WEFT_AM_NO_REPLY = 4
};

/*
 * Sends `header` (copied, at most WEFT_AM_HEADER_MAX bytes) and the bytes of `iov` to handler `id`
 * at the peer. Messages of one endpoint arrive in the order sent.
 *
 * Completion: the memory of `iov` is free again. It does not mean that the handler has run. An
 * error does not mean that the handler will not run: a message that ends as TIMED_OUT, CANCELLED or
 * with the status of its endpoint may have been on its way. A program that sends it again numbers
 * its messages.
 *
 * A large message also ends as
 * - REJECTED: the receiver's handler did not fetch the payload;
 * - CANCELLED: the receiver cancelled its receive, its deadline passed, or its worker closed, while
 *   it read the sender's memory directly. If it had requested the bytes as messages instead, they
 *   are sent and the send is OK.
 *
 * Queued messages to a peer that does not read are limited by the program only. It counts the
 * operations in progress, or asks before each message whether it would be queued
 * (weft_ep_has_room). It sends no more, or closes the endpoint, when there are too many. A handler
 * cannot hold its peer back. So a server that answers a client which does not read closes it, or
 * gives each client a number of questions that it may ask before it has their answers.
 * Questions that are tagged messages or stream bytes wait at their sender, within credits, until
 * the server receives them (weft/tag.h, weft/stream.h).
 *
 * Errors: INVALID_PARAM, TOO_BIG, NO_MEMORY, CLOSED, and the status that the endpoint was lost
 * with.
 */
WEFT_API weft_status_t weft_am_send(weft_ep_t *ep, unsigned id, const void *header,
                                    size_t header_len, const weft_iov_t *iov, size_t n_iov,
                                    const weft_op_t *op);

/*
 * Receives the payload into `iov`, which is borrowed until completion. Call it within the handler.
 * Returns WEFT_OK if the payload was already here.
 *
 * With op->stream the payload is kept until its turn, and `iov` is written then: here, or, for a
 * payload that waits at its sender, there. A receive that is cancelled before its turn, or whose
 * deadline passes, ends the sender's operation as CANCELLED.
 *
 * Errors: TRUNCATED if `iov` is shorter than the payload (nothing is written). For a payload that
 * waits at its sender also: EXISTS if it was requested before; CLOSED if the endpoint was lost. It
 * ends as CANCELLED if the sender withdraws the message, or as the message failed there
 * (weft_tag_recv).
 */
WEFT_API weft_status_t weft_am_recv(weft_am_t *am, const weft_iov_t *iov, size_t n_iov,
                                    const weft_op_t *op);

/*
 * Keeps the payload in `am->data` beyond the handler. Call it within the handler. On WEFT_OK,
 * `*data_p` is valid until weft_am_release, which the owner's thread calls, and at most until the
 * worker is closed.
 *
 * The payload is kept in place, without a copy, where the library owns enough memory of that kind:
 * - messages of the self transport;
 * - tcp receive buffers, if the payload is at least an eighth of one ("tcp.buffer");
 * - messages that a worker's own thread held for the program.
 * Otherwise it is copied: if the peer waits for the memory (rings and nodes of shm, receive buffers
 * of rdma), if it is small, or if it is kept a second time. The counter
 * "am.retained_in_place" counts the payloads that are kept in place.
 *
 * Errors: UNSUPPORTED if the payload still waits at the sender; NO_MEMORY for the copy. Releasing
 * NULL has no effect.
 */
WEFT_API weft_status_t weft_am_retain(weft_am_t *am, const void **data_p);
WEFT_API void weft_am_release(weft_worker_t *worker, const void *data);

/* As weft_am_send, and drives the worker until the operation is complete (weft_ep_flush_wait). */
WEFT_API weft_status_t weft_am_send_wait(weft_ep_t *ep, unsigned id, const void *header,
                                         size_t header_len, const weft_iov_t *iov, size_t n_iov);

#ifdef __cplusplus
}
#endif
#endif
