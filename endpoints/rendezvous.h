/*
 * How messages cross: whole (eager), or offered, asked for and then sent in pieces (rendezvous). Active and tagged
 * messages differ only in what stands before the payload and in who receives it.
 */
#ifndef WEFT_ENDPOINTS_RENDEZVOUS_H
#define WEFT_ENDPOINTS_RENDEZVOUS_H

#include "ep.h"

/* A message on its way out. */
struct message {
    enum wire_id id;    /* WIRE_AM or WIRE_TAG */
    uint64_t word;      /* its first 8 bytes */
    const void *header; /* then this: a user header, or a tagged message's endpoint */
    size_t header_len;
    const weft_iov_t *iov; /* then these */
    size_t n_iov, len;
};

enum protocol { PROTOCOL_COPY, PROTOCOL_BORROW, PROTOCOL_OFFER, PROTOCOL_PACK /* of a layout only */ };
/* By the link's limits (protocol.h), where the memory lies, and the flags of active messages. */
enum protocol weft__protocol(struct weft_ep *ep, const struct message *m, uint32_t flags);

/* PROTOCOL_COPY: OK, NO_RESOURCE or an error. */
weft_status_t weft__send_copy(struct link *link, struct lane *lane, const struct message *m);
/* PROTOCOL_BORROW: also IN_PROGRESS, and then the request's memory is lent. */
weft_status_t weft__send_borrow(struct link *link, struct lane *lane, const struct message *m,
                                struct weft_request *req);

/* PROTOCOL_OFFER. An accepted send with an id tells the peer of itself: OK (then it is to be parked),
 * NO_RESOURCE or an error. */
weft_status_t weft__send_offer(struct weft_request *req, struct lane *lane);
/* The rest of it, as `advance` of the kinds that offer. */
weft_status_t weft__advance_pieces(struct weft_request *req);
void weft__pieces_returned(struct weft_request *req, weft_status_t status);
void weft__withdraw_offer(struct weft_request *req);
/* `release` of the same kinds. */
void weft__release_send(struct weft_request *req);

/* What the peer may be reading of ours; NULL: nothing by that id. */
struct weft_request *weft__offer_of(struct link *link, uint32_t id);
/* What it may be told of now, and asks for by that id; NULL: nothing. */
struct weft_request *weft__waiting_of(struct link *link, uint32_t id);
/* What the peer asked for will not come, or not all of it. */
void weft__say_gone(struct link *link, uint32_t to);
/* The peer reads no more of what it was offered: it said so, or is gone. */
void weft__offer_over(struct weft_request *req);

/* A receive of `req->len` bytes, accepted and bound to its endpoint, takes the offer `req->peer_id`. */
weft_status_t weft__fetch(struct weft_request *req);
/* Releases whoever offered. */
void weft__refuse_offer(struct link *link, uint32_t offer, weft_status_t status);

/* An offer of a tagged message came (tag.c); an active one (am.c). */
void weft__tag_offered(struct weft_ep *ep, const struct wire_rts *rts);
void weft__am_offered(struct weft_ep *ep, const struct wire_rts *rts);
/* Its sender took it back; false: no message stands for it (tag.c). */
bool weft__tag_offer_withdrawn(struct link *link, uint32_t offer);

/* Of ep_ops. */
weft_status_t weft__tag_send_wait(struct weft_ep *ep, uint64_t tag, const weft_iov_t *iov, size_t n_iov,
                                  const weft_op_t *op);
weft_status_t weft__tag_send_ready(struct weft_ep *ep, uint64_t tag, const weft_iov_t *iov, size_t n_iov,
                                   const weft_op_t *op);
weft_status_t weft__flush_post(struct weft_ep *ep, const weft_op_t *op);

/* The kinds of receives: their memory is the program's. */
extern const struct request_kind weft__receive_kind, weft__written_kind, weft__am_offer_kind, weft__tag_offer_kind;

void weft__on_am(struct lane *lane, const void *data, size_t len);
void weft__on_tag(struct lane *lane, const void *data, size_t len);
void weft__on_rts(struct lane *lane, const void *data, size_t len);
void weft__on_cts(struct lane *lane, const void *data, size_t len);
void weft__on_data(struct lane *lane, const void *data, size_t len);
void weft__on_fin(struct lane *lane, const void *data, size_t len);
void weft__on_cancel(struct lane *lane, const void *data, size_t len);
void weft__on_gone(struct lane *lane, const void *data, size_t len);
void weft__on_credit(struct lane *lane, const void *data, size_t len);
void weft__on_unknown(struct lane *lane, const void *data, size_t len);

#endif
