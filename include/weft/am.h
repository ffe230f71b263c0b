/* Active messages: a message that calls a handler at its receiver. */
#ifndef WEFT_AM_H
#define WEFT_AM_H

#include <weft/endpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_AM_ID_MAX     1023 /* a program's ids are 0 … 1023 */
#define WEFT_AM_HEADER_MAX 256  /* bytes of user header that every transport carries */

/*
 * A message in its handler. `header` is valid during the handler only. `data` is all of the payload, valid
 * during the handler unless kept; it is NULL when the payload still waits at the sender (rendezvous, for messages so
 * large that it pays, or beyond "rendezvous.threshold"): take it with weft_am_recv, or return and so refuse it. The
 * sender is not told of that: its send is WEFT_OK. `data` and `header` of no bytes are not NULL.
 */
typedef struct weft_am {
    const void *header;
    size_t header_len;
    const void *data;
    size_t len;
    void *internal;
} weft_am_t;

/* Runs where callbacks do (weft_done_fn). `ep` is this side's endpoint of the pair: reply on it; NULL for a
 * message that was sent with WEFT_AM_NO_REPLY, so look where a peer may do that. May call anything but progress,
 * wait and the _wait forms. */
typedef void (*weft_am_fn)(weft_ep_t *ep, weft_am_t *am, void *arg);

/* Sets the worker's handler for `id`, in place of the one before; NULL: none. Messages without one are counted
 * ("am.dropped") and dropped. Errors: INVALID_PARAM, an `id` beyond WEFT_AM_ID_MAX too. */
WEFT_API weft_status_t weft_am_handler_set(weft_worker_t *worker, unsigned id, weft_am_fn fn, void *arg);

enum {
    WEFT_AM_EAGER = 1,      /* weft_op_t.flags: send it whole, or refuse as TOO_BIG if no one message holds it */
    WEFT_AM_RENDEZVOUS = 2, /* leave the payload here until the handler asks for it */
    /* The handler gets no endpoint, so the peer's half need not be there yet: the message leaves as soon as the
     * connection stands and nothing of this endpoint waits before it. Whole, as with WEFT_AM_EAGER. */
    WEFT_AM_NO_REPLY = 4 /* what must go whole does, whatever WEFT_AM_RENDEZVOUS says */
};

/*
 * Sends `header` (copied, up to WEFT_AM_HEADER_MAX bytes) and the bytes of `iov` to handler `id` at the
 * peer. Messages of one endpoint arrive in the order sent. Completion says that `iov`'s memory is free again,
 * not that the handler ran. When the receiver of a large message gives up half way (cancel, deadline), a sender whose memory
 * it was reading is told CANCELLED; one that it had asked for the bytes sends them all the same, and is told OK. What waits
 * here for a peer that does not read has no bound but the program's: it counts those that are IN_PROGRESS, and holds its
 * messages back, or closes. Errors: INVALID_PARAM, TOO_BIG, NO_MEMORY, CLOSED, and the endpoint's own error.
 */
WEFT_API weft_status_t weft_am_send(weft_ep_t *ep, unsigned id, const void *header, size_t header_len,
                                    const weft_iov_t *iov, size_t n_iov, const weft_op_t *op);

/*
 * Within the handler: receives the payload into `iov`, which is borrowed until completion. WEFT_OK when it was
 * there already. WEFT_ERR_TRUNCATED when `iov` is shorter than the payload (nothing is written); of one that waits at its
 * sender also EXISTS: it was asked for before; CLOSED: the endpoint is lost. It ends as CANCELLED, too, when the sender
 * takes its message back.
 */
WEFT_API weft_status_t weft_am_recv(weft_am_t *am, const weft_iov_t *iov, size_t n_iov, const weft_op_t *op);

/*
 * Within the handler: keeps what `am->data` holds beyond it. On WEFT_OK `*data_p` holds the payload until
 * weft_am_release, by the owner's thread, and at most until the worker is closed. It stays where it is, without a copy, in
 * memory that the library has as much of as it likes: self's own messages, tcp's receive buffers when the payload is an
 * eighth of one ("tcp.buffer") at least, and what a worker's own thread held for the program. It is copied where the
 * peer waits for its place (shm's rings and nodes, rdma's receive buffers), where it is small, and when it is kept a second time.
 * The counter "am.kept_in_place" tells. UNSUPPORTED: the payload still waits at its sender; NO_MEMORY: for the copy.
 * To release NULL is nothing.
 */
WEFT_API weft_status_t weft_am_keep(weft_am_t *am, const void **data_p);
WEFT_API void weft_am_release(weft_worker_t *worker, const void *data);

WEFT_API weft_status_t weft_am_send_wait(weft_ep_t *ep, unsigned id, const void *header, size_t header_len,
                                         const weft_iov_t *iov, size_t n_iov);

#ifdef __cplusplus
}
#endif
#endif
