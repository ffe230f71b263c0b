/*
 * Eager tagged messages in fragments, for lanes that copy through their own memory: the receiver
 * copies one fragment while the sender packs the next. Fragments of a message are consecutive. The
 * sender gives up a message that it cannot complete.
 */
#ifndef WEFT_ENDPOINTS_MESSAGES_TAG_FRAGMENTS_H
#define WEFT_ENDPOINTS_MESSAGES_TAG_FRAGMENTS_H

#include <endpoints/core/worker.h>
#include <endpoints/transfer/rendezvous.h>

struct wire_tag_begin;
struct wire_tag_part;

struct weft_tag_message;

/* The credit that a message costs beside its bytes. */
enum { TAG_MESSAGE_COST = 64 };

/* If other messages are under way, the receiver is already busy with copies: no fragments then. */
static inline bool weft__tag_has_parts(const struct link *link, size_t len) {
    const struct lane_ops *ops = link->lane->ops;
    size_t part = weft__link_limits(link)->part;
    return part && len >= 2 * part && link->peer_flags & WIRE_HELLO_PARTS &&
           HAS_OP(ops, buffer, all_taken) && ops->buffer->all_taken(link->lane);
}
/* Sends the next fragments; called by `advance`. */
weft_status_t weft__tag_send_parts(struct weft_request *req, struct lane *lane);
/* The send ends. If it is incomplete, notifies the peer that no more will come. */
void weft__tag_end_parts(struct weft_request *req);

void weft__on_tag_begin(struct link *link, struct lane *lane, const struct wire_tag_begin *m);
void weft__on_tag_part(struct link *link, struct lane *lane, const struct wire_tag_part *part);

/* Makes an unexpected message of `len` bytes, with uninitialized room for `room` of them
 * (tag.c). NULL: the endpoint has failed. */
struct weft_tag_message *weft__tag_unexpected(struct weft_ep *ep, uint64_t tag, size_t len,
                                              size_t room);
/* The endpoint's tags, made at the first call. NULL: no memory. */
struct ep_tags *weft__ep_tags(struct weft_ep *ep);
/* Delivers a message to this receive and frees it. NO_MEMORY or TOO_BIG may refuse that: then the
 * message is unchanged, and nothing was sent. */
weft_status_t weft__tag_receive_message(struct weft_request *req, struct weft_tag_message *message);
/* A message of the endpoint was matched or given up: returns its credit. */
void weft__tag_give_credit(struct weft_ep *ep, size_t len);
void weft__tag_give_back(struct weft_worker *worker, struct weft_tag_message *message);

#endif
