/*
 * A tagged message that nobody need ask for, in parts: where a lane's bytes are copied in and out of its memory, the receiver
 * copies one part while the sender makes the next. The parts of a message follow each other; one that ends half way is given up.
 */
#ifndef WEFT_ENDPOINTS_TAG_PARTS_H
#define WEFT_ENDPOINTS_TAG_PARTS_H

#include "rendezvous.h"
#include "worker.h"

struct weft_tag_message;

/* The credit that a message costs beside its bytes. */
enum { TAG_MESSAGE_COST = 64 };

/* Where other messages are on their way already, the receiver has something to copy. */
static inline bool weft__tag_has_parts(const struct link *link, size_t len) {
    const struct lane_ops *ops = link->lane->ops;
    size_t part = weft__link_limits(link)->part;
    return part && len >= 2 * part && link->peer_flags & WIRE_HELLO_PARTS && ops->all_taken &&
           ops->all_taken(link->lane);
}
/* The next parts, as `advance` of a kind does. */
weft_status_t weft__tag_send_parts(struct weft_request *req, struct lane *lane);
/* It ends: if half of it has left, the peer waits no more. */
void weft__tag_end_parts(struct weft_request *req);

void weft__on_tag_begin(struct lane *lane, const void *data, size_t len);
void weft__on_tag_part(struct lane *lane, const void *data, size_t len);

/* Of tag.c. Room for an unexpected message of `len` bytes, or NULL, and the endpoint has failed. */
struct weft_tag_message *weft__tag_unexpected(struct weft_ep *ep, uint64_t tag, size_t len);
/* Its bytes go to this receive, and it is freed. */
weft_status_t weft__tag_receive_message(struct weft_request *req, struct weft_tag_message *message);
/* A message of that endpoint has been matched, or given up. */
void weft__tag_give_credit(struct weft_ep *ep, size_t len);
void weft__tag_give_back(struct weft_worker *worker, struct weft_tag_message *message);

#endif
