/* Tag matching of one worker: posted receives and unexpected messages, both in order. */
#ifndef WEFT_ENDPOINTS_MESSAGES_MATCH_H
#define WEFT_ENDPOINTS_MESSAGES_MATCH_H

#include <base/compiler.h>
#include <endpoints/transfer/offers.h>

enum { MATCH_BUCKETS = 256 };

/* A message that came before its receive. */
struct weft_tag_message {
    struct list in_order, in_bucket, in_offers;
    struct list of_ep; /* an offer: in its endpoint's `offers`, until it is taken */
    struct weft_worker *worker;
    /* the counter that includes it: its link's, or `left`; NULL: none */
    uint32_t *unexpected_bytes;
    /* ids: of our endpoint; of the sender's request, 0 for a whole message */
    uint32_t ep, offer;
    uint64_t tag, len, remote;
    uint32_t tag_hash, offer_hash;
    uint32_t cost;
    uint32_t number; /* of a message in fragments */
    uint64_t came;   /* bytes received of it */
    uint8_t memory;  /* an offer: a weft_mem_type_t, of the payload in the sender */
    bool taken;      /* by weft__match_take */
    /* an offer: bytes below that say of device memory; 0: none */
    uint16_t device_len;
    uint8_t bytes[]; /* the payload of a whole message */
};

/* Reasons to leave the fast path. Usually zero, so the fast path tests one word. The first two
 * are set early and cleared by the next search that finds the queue empty. */
enum {
    MATCH_MASKED = 1,      /* a receive with a mask is posted */
    MATCH_UNEXPECTED = 2,  /* a message waits for its receive */
    MATCH_DUE = 4,         /* other callbacks are due first */
    MATCH_CB_DEFERRED = 8, /* callbacks are held for the program */
    MATCH_LEASED = 16      /* tags with the highest bit belong to leases: there was one */
};

struct spare_message;

struct match {
    uint32_t slow;             /* MATCH_… bits */
    struct list posted_masked; /* with a mask */
    uint64_t order;            /* number of receives posted with a mask */
    struct list unexpected;    /* all, in order of arrival */
    /* exact tags, by an unkeyed hash: the program chooses them */
    struct list posted[MATCH_BUCKETS];
    struct siphash_key key; /* of the other hashes: peers choose the numbers */
    /* Of `unexpected`, but for the newest: a search enters them that the oldest does not answer.
     * Usually the oldest does, and nothing is hashed. */
    struct hash_table by_tag;
    /* offers in `unexpected` and `taken`, by link and sender's request */
    struct hash_table by_offer;
    struct list taken;           /* taken out of matching, not yet received */
    struct spare_message *spare; /* message_memory.c */
    uint32_t n_spare;
    uint32_t left;       /* bytes in `unexpected` whose link is gone */
    uint32_t placements; /* number of placements so far */
};

/* Incomplete messages of one endpoint's peer. Made when the first one comes. */
struct ep_tags {
    struct list offers;    /* unexpected messages that are offers */
    struct list filling;   /* the receive whose message comes in fragments, */
    struct list gathering; /* or the unexpected message that does; at most one of both */
};

void weft__match_init(struct match *m);
static inline unsigned weft__match_bucket(uint64_t tag) {
    return (unsigned)(tag * UINT64_C(0x9e3779b97f4a7c15) >> 56);
}
/* The queue for a new receive. */
static inline struct list *weft__match_queue(struct match *m, uint64_t tag, uint64_t mask) {
    if (LIKELY(mask == UINT64_MAX)) return &m->posted[weft__match_bucket(tag)];
    m->slow |= MATCH_MASKED;
    return &m->posted_masked;
}
/* The order of a new receive. A receive with a mask precedes those of the same order without. */
static inline uint64_t weft__match_order(struct match *m, uint64_t mask) {
    return mask == UINT64_MAX ? m->order : ++m->order;
}
/* The first posted receive for that tag, or NULL; it stays posted. */
struct weft_request *weft__match_posted(struct match *m, uint64_t tag);
/* The same if no receive has a mask. Only tests the first of the bucket, and returns NULL if it
 * differs. */
static inline struct weft_request *weft__match_first(struct match *m, uint64_t tag) {
    struct list *queue = &m->posted[weft__match_bucket(tag)], *first = queue->next;
    struct weft_request *req = list_of(first, struct weft_request, queued);
    assert(list_empty(&m->posted_masked));
    return first != queue && req->match.tag == tag ? req : NULL;
}
/* Posts a receive again, in its old position, after its message broke off. */
void weft__match_again(struct match *m, struct weft_request *req);
/* The first unexpected message for that tag, or NULL; it stays queued. */
struct weft_tag_message *weft__match_unexpected_among(struct match *m, uint64_t tag, uint64_t mask);
static inline struct weft_tag_message *weft__match_unexpected(struct match *m, uint64_t tag,
                                                              uint64_t mask) {
    return m->slow & MATCH_UNEXPECTED ? weft__match_unexpected_among(m, tag, mask) : NULL;
}
void weft__match_add(struct match *m, struct weft_tag_message *message);
/* Moves a message to `taken`. An offer can still be withdrawn. */
void weft__match_take(struct match *m, struct weft_tag_message *message);
void weft__match_remove(struct match *m, struct weft_tag_message *message);
/* A hash with the worker's secret key. */
static inline uint32_t weft__match_hash(const struct match *m, uint64_t number) {
    return (uint32_t)siphash_word(&m->key, number);
}
static inline uint32_t weft__match_offer_hash(const struct match *m, const struct link *link,
                                              uint32_t offer) {
    return weft__match_hash(m, offer_number(link, offer));
}
/* The bucket of messages that are offers with this number from this link's peer. */
static inline struct list *weft__match_offers(struct match *m, const struct link *link,
                                              uint32_t offer) {
    return weft__hash_table_list(&m->by_offer, weft__match_offer_hash(m, link, offer));
}
/* Tags with the highest bit are leases' from now on, for good: what a peer sent may come after its
 * lease has ended. Receives that are posted with a mask take none of them. */
void weft__match_lease(struct match *m);
/* Drops the unexpected messages that a receive of this tag and mask would take. Their endpoints
 * have ended. */
void weft__match_drop(struct match *m, uint64_t tag, uint64_t mask);
/* An endpoint is gone: drops its offers and incomplete messages. Whole messages stay. */
void weft__match_forget(struct match *m, struct ep_tags *tags);
/* The link is gone: drops incomplete messages. */
void weft__match_forget_half(struct match *m, struct ep_tags *tags);
/* The message no longer counts as unread. */
void weft__match_read(struct weft_tag_message *message);
/* True if the peer of this endpoint may leave `bytes` more unexpected bytes. False: the endpoint
 * has ended. First drops messages of disconnected peers, if all peers together leave too much. */
bool weft__match_may_leave(struct weft_ep *ep, size_t bytes);
/* A link ends before its messages. Keeps at most `most` bytes of such messages, the newest. */
void weft__match_unlink(struct match *m, struct link *link, uint32_t most);

#endif
