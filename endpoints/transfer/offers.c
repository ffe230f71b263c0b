/* The table of accepted offers, by link and number. */
#include "offers.h"

#include <transports/trust.h>

#include <endpoints/core/endpoint.h>

/* The key comes from the kernel, also in simulations: no order depends on it. */
void weft__offers_draw_key(struct siphash_key *key) {
    if (weft__trust_secret_bytes(key, sizeof *key) == WEFT_OK) return;
    *key = (struct siphash_key){{(uintptr_t)key, weft__ticks()}};
}

static uint32_t taker_hash(const struct list *member) {
    return list_of(member, const struct weft_request, recv.taker)->recv.taker_hash;
}

void weft__offers_init(struct offers *offers) {
    weft__offers_draw_key(&offers->key);
    weft__hash_table_init(&offers->takers, taker_hash);
}

static uint32_t hash_of(const struct offers *offers, const struct link *link, uint32_t offer) {
    return (uint32_t)siphash_word(&offers->key, offer_number(link, offer));
}

void weft__offers_await(struct offers *offers, const struct link *link, struct weft_request *req) {
    req->recv.taker_hash = hash_of(offers, link, req->peer_id);
    weft__hash_table_add(&offers->takers, req->worker, &req->recv.taker);
}

bool weft__offer_is_taken(struct offers *offers, const struct link *link, uint32_t offer) {
    struct list *takers = weft__hash_table_list(&offers->takers, hash_of(offers, link, offer));
    const struct weft_request *req;
    list_for_each_entry(req, takers, recv.taker) {
        if (req->peer_id == offer && req->ep->link == link && !request_is_done(&req->core.fsm))
            return true;
    }
    return false;
}
