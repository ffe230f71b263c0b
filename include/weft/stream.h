/* Streams: ordered bytes between the two sides of an endpoint, without message boundaries. */
#ifndef WEFT_STREAM_H
#define WEFT_STREAM_H

#include <weft/endpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Appends the bytes of `iov` to the endpoint's stream. Completion: the memory of `iov` is free
 * again.
 *
 * Sends wait while the peer has not consumed its setting stream.window (or a share of it, if it has
 * many endpoints: weft/tag.h). Streams are not ordered with messages. A send that ends early
 * (cancel, deadline, a layout that failed) may have appended a first part of its bytes
 * (weft_stream_send_counted says how many); later sends are not affected.
 *
 * Errors: CLOSED, and the status that the endpoint was lost with.
 */
WEFT_API weft_status_t weft_stream_send(weft_ep_t *ep, const weft_iov_t *iov, size_t n_iov,
                                        const weft_op_t *op);
/*
 * The same. `*sent_p` is the number of bytes that were appended: all of them at WEFT_OK, and the
 * first part at any other end. It is written before completion and must live until then. The peer
 * receives appended bytes before those of later sends, unless the endpoint is lost.
 */
WEFT_API weft_status_t weft_stream_send_counted(weft_ep_t *ep, const weft_iov_t *iov, size_t n_iov,
                                                size_t *sent_p, const weft_op_t *op);

enum { WEFT_STREAM_WAIT_ALL = 1 }; /* weft_op_t.flags: complete only when `iov` is full */

/*
 * Receives the next bytes into `iov`. `*len_p` is their number, at least 1 (0 for an empty iov). It
 * is written before completion and must live until then. Receives of an endpoint are filled in the
 * order posted.
 *
 * End of the stream: when the peer closes in good order, the remaining bytes are received first.
 * Then receives end as PEER_CLOSED, and so does a WAIT_ALL that was filled in part (`*len_p` says
 * how far). After a loss they end in the same way with its status. A cancelled WAIT_ALL keeps the
 * bytes that it has (`*len_p`). A call that returns NO_MEMORY has received nothing. A close on this
 * side ends receives as CLOSED and discards the bytes that were not received. Flushes do not wait
 * for receives.
 */
WEFT_API weft_status_t weft_stream_recv(weft_ep_t *ep, const weft_iov_t *iov, size_t n_iov,
                                        size_t *len_p, const weft_op_t *op);

/*
 * Returns the next bytes in place, without a copy. Give them back with weft_stream_release, in any
 * order, until the worker closes. Releasing NULL has no effect. Owner's thread, in every mode.
 *
 * Taken bytes count as unconsumed. The peer sends what is left of stream.window, and stops if taken
 * pieces fill it. A few pieces may do that: each is up to one message of the transport (256 KiB).
 *
 * Errors: NOT_FOUND if there are no bytes (weft_stream_on_data notifies); the status that a receive
 * would end with; BUSY while receives are posted.
 */
WEFT_API weft_status_t weft_stream_take(weft_ep_t *ep, const void **data_p, size_t *len_p);
WEFT_API void weft_stream_release(weft_worker_t *worker, const void *data);

/*
 * Sets a callback for bytes that no receive waits for. It is called once, and again only after some
 * were taken or received. It also reports bytes that are here when it is set. NULL removes it. The
 * end of the stream is reported by the endpoint's on_error. Errors: INVALID_PARAM, NO_MEMORY.
 */
WEFT_API weft_status_t weft_stream_on_data(weft_ep_t *ep, void (*on_data)(weft_ep_t *ep, void *arg),
                                           void *arg);

/* As above, and drive the worker until the operation is complete (weft_ep_flush_wait). */
WEFT_API weft_status_t weft_stream_send_wait(weft_ep_t *ep, const weft_iov_t *iov, size_t n_iov);
WEFT_API weft_status_t weft_stream_recv_wait(weft_ep_t *ep, const weft_iov_t *iov, size_t n_iov,
                                             size_t *len_p);

#ifdef __cplusplus
}
#endif
#endif
