/* Tag matching: posted receives and unexpected messages of one worker, each found in the order it came. */
#ifndef WEFT_ENDPOINTS_MATCH_H
#define WEFT_ENDPOINTS_MATCH_H

#include "request.h"

enum { MATCH_BUCKETS = 256 };

/* A message that came before its receive. */
struct weft_tag_message {
    struct list in_order, in_bucket, in_offers;
    struct weft_worker *worker;
    uint32_t *unread;   /* the count that it is in: its link's, or `left`; NULL: none any more */
    uint32_t ep, offer; /* ids: of our endpoint; of the sender's request, 0 for a whole message */
    uint64_t tag, len, remote;
    uint32_t cost;
    uint32_t number; /* of one that comes in parts, */
    uint64_t came;   /* and the bytes of it that are here */
    uint8_t bytes[]; /* a whole message's */
};

/* Why a message, or a receive, may not go the short way; mostly nothing speaks against it, and one word is asked. The first two are
 * set in time, and cleared by who finds that it is not so any more. */
enum {
    MATCH_MASKED = 1,     /* a receive with a mask is posted */
    MATCH_UNEXPECTED = 2, /* a message waits for its receive */
    MATCH_DUE = 4,        /* other completions are due, and come first */
    MATCH_AWAY = 8        /* the program is not there to be told */
};

struct match {
    uint32_t seldom;                   /* bits of those */
    struct list posted_any;            /* with a mask */
    uint64_t order;                    /* of posting: how many had a mask */
    struct list unexpected;            /* all, in order of arrival */
    struct list posted[MATCH_BUCKETS]; /* exact tags, by hash */
    struct list bucket[MATCH_BUCKETS]; /* the same, by hash */
    struct list offers[MATCH_BUCKETS]; /* those of them, and of `taken`, that are offers, by the sender's request */
    struct list taken;                 /* out of matching, not yet received */
    struct list takers[MATCH_BUCKETS]; /* receives that took an offer and wait for its bytes, by the same number */
    struct list filling, gathering;    /* what comes in parts: receives, and messages that are not whole yet */
    uint32_t left;                     /* bytes of those of `unexpected` whose link is gone */
    uint32_t landings;                 /* begun */
};

void weft__match_init(struct match *m);
static inline unsigned weft__match_bucket(uint64_t tag) {
    return (unsigned)(tag * UINT64_C(0x9e3779b97f4a7c15) >> 56);
}
/* Where a receive stands that is posted now. */
static inline struct list *weft__match_queue(struct match *m, uint64_t tag, uint64_t mask) {
    if (__builtin_expect(mask == UINT64_MAX, 1)) return &m->posted[weft__match_bucket(tag)];
    m->seldom |= MATCH_MASKED;
    return &m->posted_any;
}
/* The number of a receive that is posted now: with a mask it is older than those of the same number without. */
static inline uint64_t weft__match_order(struct match *m, uint64_t mask) {
    return mask == UINT64_MAX ? m->order : ++m->order;
}
/* The first posted receive for that tag, or NULL; it stays posted. */
struct weft_request *weft__match_posted(struct match *m, uint64_t tag);
/* The same where none has a mask, and mostly it is the first of its bucket: NULL, too, if that is another's. */
static inline struct weft_request *weft__match_first(struct match *m, uint64_t tag) {
    struct list *queue = &m->posted[weft__match_bucket(tag)], *first = queue->next;
    struct weft_request *req = list_of(first, struct weft_request, queued);
    assert(list_empty(&m->posted_any));
    return first != queue && req->tag == tag ? req : NULL;
}
/* One that was posted, and whose message broke off, is posted again, where it stood. */
void weft__match_again(struct match *m, struct weft_request *req);
/* The first unexpected message for that tag, or NULL; it stays. Mostly there is none. */
struct weft_tag_message *weft__match_unexpected_among(struct match *m, uint64_t tag, uint64_t mask);
static inline struct weft_tag_message *weft__match_unexpected(struct match *m, uint64_t tag, uint64_t mask) {
    return m->seldom & MATCH_UNEXPECTED ? weft__match_unexpected_among(m, tag, mask) : NULL;
}
void weft__match_add(struct match *m, struct weft_tag_message *message);
/* Out of matching, into `taken`; an offer can still be withdrawn. */
void weft__match_take(struct match *m, struct weft_tag_message *message);
void weft__match_remove(struct weft_tag_message *message);
/* Where the messages stand that are offers of that number, of whatever peer, and others. */
static inline struct list *weft__match_offers(struct match *m, uint32_t offer) {
    return &m->offers[weft__match_bucket(offer)];
}
/* The same of the receives that took one. */
static inline struct list *weft__match_takers(struct match *m, uint32_t offer) {
    return &m->takers[weft__match_bucket(offer)];
}
/* An endpoint is gone: so are the offers that came over it, and what came half. Whole messages stay. */
void weft__match_forget(struct match *m, uint32_t ep);
/* Its bytes are no unread ones any more. */
void weft__match_read(struct weft_tag_message *message);
/* A link goes before what came by it. Of all that such links left, so many bytes stay: the newest. */
void weft__match_unlink(struct match *m, struct link *link, uint32_t most);

#endif
