/*
 * Message transfer: whole messages (eager), and messages that are offered, requested and then sent
 * in pieces (rendezvous). Active and tagged messages differ only in the header and in the receiver.
 */
#ifndef WEFT_ENDPOINTS_TRANSFER_RENDEZVOUS_H
#define WEFT_ENDPOINTS_TRANSFER_RENDEZVOUS_H

#include <endpoints/core/endpoint.h>

struct wire_cts;
struct wire_fin;
struct wire_gone;
struct wire_one;
struct wire_rts;

/* A message to send. */
struct message {
    enum wire_id id;    /* WIRE_AM or WIRE_TAG */
    uint64_t word;      /* its first 8 bytes */
    const void *header; /* follows the word: a user header, or the endpoint of a tagged message */
    size_t header_len;
    const weft_iov_t *iov; /* the payload */
    size_t n_iov, len;
};

enum protocol { PROTOCOL_COPY, PROTOCOL_ZCOPY, PROTOCOL_OFFER, PROTOCOL_PACK /* layouts only */ };
/* Chooses by the link's limits (protocol.h), the memory, and the flags of active messages. */
enum protocol weft__protocol(struct weft_ep *ep, const struct message *m, uint32_t flags);

/* PROTOCOL_COPY: OK, NO_RESOURCE or an error. */
weft_status_t weft__send_copy(struct link *link, struct lane *lane, const struct message *m);
/* PROTOCOL_ZCOPY: also IN_PROGRESS; the lane then reads the request's memory. */
weft_status_t weft__send_zcopy(struct link *link, struct lane *lane, const struct message *m,
                               struct weft_request *req);

/* PROTOCOL_OFFER. Sends RTS for an accepted request with an id. OK: the caller parks the request.
 * NO_RESOURCE, or an error. */
weft_status_t weft__send_offer(struct weft_request *req, struct lane *lane);
/* Members of the request kinds that offer. */
weft_status_t weft__advance_pieces(struct weft_request *req);
void weft__pieces_returned(struct weft_request *req, weft_status_t status);
/* The next bytes of device memory are in the host's memory now (device_staging.h). */
void weft__pieces_resume(struct weft_request *req);
void weft__withdraw_offer(struct weft_request *req);
void weft__release_send(struct weft_request *req);

/* The send by that id whose memory the peer may be reading, or NULL. */
struct weft_request *weft__offer_of(struct link *link, uint32_t id);
/* The offered send by that id that waits for the peer, or NULL. */
struct weft_request *weft__waiting_of(struct link *link, uint32_t id);
/* What the peer learns of a message that ended so here: a failure, or that it was taken back. */
weft_status_t weft__reason_for_peer(const struct link *link, weft_status_t status);
/* Sends GONE: the requested bytes will not come, or not all of them. */
void weft__send_gone(struct link *link, uint32_t to, weft_status_t why);

/* A receive of `req->len` bytes, accepted and bound to its endpoint, takes the offer
 * `req->peer_id`. */
weft_status_t weft__fetch(struct weft_request *req);
/* Ends the peer's offer with this status (FIN). */
void weft__offer_fin(struct link *link, uint32_t offer, weft_status_t status);

/* Request kinds of receives into the program's memory. */
extern const struct request_kind weft__receive_kind, weft__written_kind;

void weft__on_rts(struct link *link, struct lane *lane, const struct wire_rts *rts);
void weft__on_cts(struct link *link, struct lane *lane, const struct wire_cts *cts);
void weft__on_data(struct lane *lane, unsigned id, const void *data, size_t len);
void weft__on_fin(struct link *link, struct lane *lane, const struct wire_fin *fin);
void weft__on_cancel(struct link *link, struct lane *lane, const struct wire_one *one);
void weft__on_gone(struct link *link, struct lane *lane, const struct wire_gone *gone);
void weft__on_unknown(struct lane *lane, unsigned id, const void *data, size_t len);

#endif
