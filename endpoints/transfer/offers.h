/*
 * Offers of messages (RTS): the receives that took one, and the classes of messages that are
 * offered.
 */
#ifndef WEFT_ENDPOINTS_TRANSFER_OFFERS_H
#define WEFT_ENDPOINTS_TRANSFER_OFFERS_H

#include <base/hash_table.h>
#include <base/siphash.h>
#include <endpoints/core/request.h>
#include <endpoints/wire/wire.h>

struct weft_ep;

/* One class of offered messages: active messages, or tagged ones. */
struct offer_class {
    /* The peer offers a message to this endpoint. */
    void (*offered)(struct weft_ep *ep, const struct wire_rts *rts);
    /* The peer withdraws an offer. False: this class holds no such offer. */
    bool (*withdrawn)(struct link *link, uint32_t offer);
};
enum { OFFER_CLASSES = WIRE_OFFER_TAG + 1 };

/* Of a worker: receives that took an offer and wait for its bytes, by link and offer. */
struct offers {
    struct siphash_key key; /* peers choose the numbers */
    struct hash_table takers;
};

/* Draws a secret key for a hash of numbers that peers choose. */
void weft__offers_draw_key(struct siphash_key *key);
void weft__offers_init(struct offers *offers);

/* A number for a link and an offer of its peer, to be hashed. */
static inline uint64_t offer_number(const struct link *link, uint32_t offer) {
    return (uintptr_t)link ^ siphash_rotate(offer, 32) ^ offer;
}
/* The receive took the offer `req->peer_id` of that link's peer. */
void weft__offers_await(struct offers *offers, const struct link *link, struct weft_request *req);
/* The receive waits no longer. */
static inline void weft__offers_await_no_more(struct offers *offers, struct weft_request *req) {
    if (req->recv.taker.next) weft__hash_table_remove(&offers->takers, &req->recv.taker);
}
/* True if a receive waits for this offer, on any endpoint of the link. */
bool weft__offer_is_taken(struct offers *offers, const struct link *link, uint32_t offer);

#endif
