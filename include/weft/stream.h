/* Streams: ordered bytes between the two sides of an endpoint, without messages' borders. */
#ifndef WEFT_STREAM_H
#define WEFT_STREAM_H

#include <weft/endpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Adds the bytes of `iov` to the endpoint's stream. Completion says that the memory is free again. Beyond the peer's
 * "stream.window" of bytes that it has not consumed, sends wait (a share of that, where it has many endpoints: weft/tag.h).
 * Not ordered with messages. A send that ends early (cancel, deadline, a layout that refuses) may have added a first
 * part of its bytes; those behind it are not affected.
 */
WEFT_API weft_status_t weft_stream_send(weft_ep_t *ep, const weft_iov_t *iov, size_t n_iov, const weft_op_t *op);

enum { WEFT_STREAM_WAIT_ALL = 1 }; /* weft_op_t.flags: not before `iov` is full */

/*
 * Receives the next bytes into `iov`; `*len_p` tells how many, 1 at least (0 for an empty iov), before completion,
 * and must live until then. Receives of an endpoint are filled in the order posted. When the peer closes in good
 * order the rest that came is received first; then, and for the part of a WAIT_ALL that never came (`*len_p` says
 * what did), WEFT_ERR_PEER_CLOSED; after a loss likewise, with its status. A cancelled WAIT_ALL keeps what it has,
 * and `*len_p` says so. Our own close ends receives as WEFT_ERR_CLOSED, and throws away what nobody received. A flush
 * does not wait for receives.
 */
WEFT_API weft_status_t weft_stream_recv(weft_ep_t *ep, const weft_iov_t *iov, size_t n_iov, size_t *len_p,
                                        const weft_op_t *op);

/*
 * The next bytes where they are, without a copy: WEFT_OK with `*data_p` and `*len_p`, to be given back by
 * weft_stream_release in any order, until the worker closes; they count as unconsumed until then: what is left of
 * "stream.window" goes on to flow, and nothing does for who holds all of it, which a few pieces may be (each is up to one message
 * of the transport, 256 KiB). No bytes: WEFT_ERR_NOT_FOUND (on_data tells), or what a receive would end with. BUSY while
 * receives are posted. On the worker's thread.
 */
WEFT_API weft_status_t weft_stream_take(weft_ep_t *ep, const void **data_p, size_t *len_p);
WEFT_API void weft_stream_release(weft_worker_t *worker, const void *data);

/*
 * Called when bytes are here and no receive waits for them, once until some are taken or received; NULL: nobody.
 * Bytes that are here already when it is set are told of too. The end of the stream is told by the endpoint's
 * on_error. Errors: INVALID_PARAM, NO_MEMORY.
 */
WEFT_API weft_status_t weft_stream_on_data(weft_ep_t *ep, void (*on_data)(weft_ep_t *ep, void *arg), void *arg);

WEFT_API weft_status_t weft_stream_send_wait(weft_ep_t *ep, const weft_iov_t *iov, size_t n_iov);
WEFT_API weft_status_t weft_stream_recv_wait(weft_ep_t *ep, const weft_iov_t *iov, size_t n_iov, size_t *len_p);

#ifdef __cplusplus
}
#endif
#endif
