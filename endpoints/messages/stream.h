/*
 * Streams: bytes in order between the two halves of an endpoint. The window bounds the bytes that
 * the peer may have unconsumed here. OPEN and ACCEPT carry it, and consumed bytes are given back as
 * credit.
 */
#ifndef WEFT_ENDPOINTS_MESSAGES_STREAM_H
#define WEFT_ENDPOINTS_MESSAGES_STREAM_H

#include <weft/stream.h>

#include <endpoints/core/endpoint.h>

struct wire_credit;

/* One for each endpoint, made at its first use. */
struct stream {
    struct weft_ep *ep;

    /* Sending. The oldest incomplete send has the turn; other sends of the stream wait. */
    struct weft_request *turn;
    /* Waiting sends, oldest first. The turn's is at the head while the peer's window is full. */
    struct list sends;
    uint64_t room; /* bytes left in the peer's window */

    /* Receiving. Chunks wait for receives, or receives wait for chunks. */
    struct list chunks, receives;
    uint64_t outstanding; /* bytes received and not given back as credit: at most the window */
    uint64_t due;         /* bytes consumed and not yet given back */
    uint64_t in_flight;   /* bytes that the program took and has not released */
    bool notified;        /* on_data was called, and the program took nothing since */
    void (*on_data)(weft_ep_t *ep, void *arg);
    void *arg;
};

/* The endpoint's stream, made at the first call. NULL: no memory. */
struct stream *weft__stream_of(struct weft_ep *ep);

/* The peer announced its window. */
void weft__stream_opened(struct weft_ep *ep, uint32_t window);
/* No more bytes will come. Waiting receives end; received chunks stay available. */
void weft__stream_lost(struct weft_ep *ep);
/* The program will receive no more. Drops all chunks, and those that still come. */
void weft__stream_closing(struct weft_ep *ep);
/* Calls on_data; NOTICE_DATA is due. */
void weft__stream_notify(struct weft_ep *ep);

/* Members of ep_ops. */
weft_status_t weft__stream_send_wait(struct weft_ep *ep, const weft_iov_t *iov, size_t n_iov,
                                     size_t *sent_p, const weft_op_t *op);
weft_status_t weft__stream_send_ready(struct weft_ep *ep, const weft_iov_t *iov, size_t n_iov,
                                      size_t *sent_p, const weft_op_t *op);
/* OK if a receive may wait for bytes, or the reason why not. */
weft_status_t weft__stream_check_wait(struct weft_ep *ep);

void weft__on_stream(struct lane *lane, unsigned id, const void *data, size_t len);
void weft__on_stream_credit(struct link *link, struct lane *lane, const struct wire_credit *credit);

#endif
