/*
 * Streams: bytes in order between the two halves of an endpoint. What the peer may have here unconsumed is its window; it is told
 * in OPEN and ACCEPT and given back as bytes are consumed.
 */
#ifndef WEFT_ENDPOINTS_STREAM_H
#define WEFT_ENDPOINTS_STREAM_H

#include <weft/stream.h>

#include "ep.h"

/* Its endpoint's, from the first use on. */
struct stream {
    struct weft_ep *ep;

    /* Out. The oldest send that is not all sent has the turn: no other of the stream may send. */
    struct weft_request *turn;
    /* Those that asked for the lane meanwhile, oldest first; at the head the turn's, while there is no room. */
    struct list sends;
    uint64_t room; /* bytes that the peer still takes */

    /* In. Bytes wait for receives, or receives for bytes. */
    struct list chunks, receives;
    uint64_t owed; /* what the peer has sent and not got back: at most the window */
    uint64_t due;  /* consumed, and to be given back */
    uint64_t lent; /* taken, and not released */
    bool told;     /* on_data was called, and nothing taken since */
    void (*on_data)(weft_ep_t *ep, void *arg);
    void *arg;
};

/* The endpoint's, made when it is first asked for; NULL when memory runs out. */
struct stream *weft__stream_of(struct weft_ep *ep);

/* The peer's window for us became known. */
void weft__stream_opened(struct weft_ep *ep, uint32_t window);
/* No more will come: receives that wait end. What came stays to be received. */
void weft__stream_lost(struct weft_ep *ep);
/* Nobody will receive any more: what came, and comes, is thrown away. */
void weft__stream_closing(struct weft_ep *ep);
/* NOTICE_DATA is due. */
void weft__stream_tell(struct weft_ep *ep);

/* Of ep_ops. */
weft_status_t weft__stream_send_wait(struct weft_ep *ep, const weft_iov_t *iov, size_t n_iov, const weft_op_t *op);
weft_status_t weft__stream_send_ready(struct weft_ep *ep, const weft_iov_t *iov, size_t n_iov, const weft_op_t *op);
/* May a receive wait for bytes? OK, or why not. */
weft_status_t weft__stream_may_wait(struct weft_ep *ep);

void weft__on_stream(struct lane *lane, const void *data, size_t len);
void weft__on_stream_credit(struct lane *lane, const void *data, size_t len);

#endif
