/* Tag matching: the queues of posted receives and of unexpected messages, and the order among
 * them. */
#include "match.h"

#include "message_memory.h"
#include "unread.h"

static uint32_t tag_hash(const struct list *member) {
    return list_of(member, const struct weft_tag_message, in_bucket)->tag_hash;
}
static uint32_t offer_hash(const struct list *member) {
    return list_of(member, const struct weft_tag_message, in_offers)->offer_hash;
}

void weft__match_init(struct match *m) {
    for (unsigned i = 0; i < MATCH_BUCKETS; i++) list_init(&m->posted[i]);
    weft__offers_draw_key(&m->key);
    weft__hash_table_init(&m->by_tag, tag_hash);
    weft__hash_table_init(&m->by_offer, offer_hash);
    list_init(&m->posted_masked);
    list_init(&m->unexpected);
    list_init(&m->taken);
}

static bool fits_match(uint64_t tag, uint64_t wanted, uint64_t mask) {
    return ((tag ^ wanted) & mask) == 0;
}

static struct weft_request *first_fit(struct list *queue, uint64_t tag) {
    list_for_each(n, queue) {
        struct weft_request *req = list_of(n, struct weft_request, queued);
        if (fits_match(tag, req->match.tag, req->match.mask)) return req;
    }
    return NULL;
}

/* Exact and masked receives stand in two queues; the older of the two firsts was posted first. */
struct weft_request *weft__match_posted(struct match *m, uint64_t tag) {
    if (list_empty(&m->posted_masked)) m->slow &= ~(uint32_t)MATCH_MASKED;
    struct weft_request *exact = first_fit(&m->posted[weft__match_bucket(tag)], tag);
    struct weft_request *any = first_fit(&m->posted_masked, tag);
    if (!exact || !any) return exact ? exact : any;
    return exact->match.order < any->match.order ? exact : any;
}

/* Of one order are those without a mask: who found a message stood before those that did not, or
 * did later. */
static bool stood_before(const struct weft_request *a, const struct weft_request *b) {
    if (a->match.order != b->match.order) return a->match.order < b->match.order;
    return a->number && (int32_t)(a->number - b->number) < 0;
}

void weft__match_again(struct match *m, struct weft_request *req) {
    struct list *queue = weft__match_queue(m, req->match.tag, req->match.mask), *next = queue->next;
    while (next != queue && stood_before(list_of(next, struct weft_request, queued), req))
        next = next->next;
    weft__request_queue(req, queue);
    list_remove(&req->queued);
    list_append(next, &req->queued); /* before it */
}

static struct weft_tag_message *in_order(struct list *node) {
    return list_of(node, struct weft_tag_message, in_order);
}

/* Hashes the messages that came since the last search by hash: the newest ones. */
static void hash_new(struct match *m) {
    struct list *last = m->unexpected.prev;
    while (last != &m->unexpected && list_empty(&in_order(last)->in_bucket)) last = last->prev;
    for (struct list *n = last->next; n != &m->unexpected; n = n->next) {
        struct weft_tag_message *message = in_order(n);
        message->tag_hash = weft__match_hash(m, message->tag);
        weft__hash_table_add(&m->by_tag, message->worker, &message->in_bucket);
    }
}

struct weft_tag_message *weft__match_unexpected_among(struct match *m, uint64_t tag,
                                                      uint64_t mask) {
    if (list_empty(&m->unexpected)) m->slow &= ~(uint32_t)MATCH_UNEXPECTED;
    if (list_empty(&m->unexpected)) return NULL;
    struct weft_tag_message *oldest = in_order(m->unexpected.next);
    if (fits_match(oldest->tag, tag, mask)) return oldest;
    if (mask == UINT64_MAX) {
        hash_new(m);
        struct list *bucket = weft__hash_table_list(&m->by_tag, weft__match_hash(m, tag));
        list_for_each(n, bucket) {
            struct weft_tag_message *message = list_of(n, struct weft_tag_message, in_bucket);
            if (message->tag == tag) return message;
        }
        return NULL;
    }
    list_for_each(n, &m->unexpected) {
        struct weft_tag_message *message = list_of(n, struct weft_tag_message, in_order);
        if (fits_match(message->tag, tag, mask)) return message;
    }
    return NULL;
}

void weft__match_add(struct match *m, struct weft_tag_message *message) {
    m->slow |= MATCH_UNEXPECTED;
    list_append(&m->unexpected, &message->in_order);
    if (message->offer) weft__hash_table_add(&m->by_offer, message->worker, &message->in_offers);
}

static void leave_match(struct match *m, struct weft_tag_message *message) {
    list_remove(&message->in_order);
    list_remove(&message->of_ep);
    weft__hash_table_remove(&m->by_tag, &message->in_bucket);
}

void weft__match_remove(struct match *m, struct weft_tag_message *message) {
    leave_match(m, message);
    weft__hash_table_remove(&m->by_offer, &message->in_offers);
}

void weft__match_take(struct match *m, struct weft_tag_message *message) {
    if (message->unexpected_bytes == &m->left) weft__match_read(message);
    leave_match(m, message);
    message->taken = true;
    list_append(&m->taken, &message->in_order);
}

static void drop_match(struct match *m, struct weft_tag_message *message) {
    weft__match_read(message);
    weft__match_remove(m, message);
    weft__message_free(message);
}

void weft__match_read(struct weft_tag_message *message) {
    if (!message->unexpected_bytes) return;
    *message->unexpected_bytes -= message->cost;
    weft__unread_remove(message->worker, message->cost);
    message->unexpected_bytes = NULL;
}

/* What is in the one count is in the other from now on, or in none. */
static void count_in(struct list *queue, const uint32_t *from, uint32_t *to) {
    list_for_each(n, queue) {
        struct weft_tag_message *message = list_of(n, struct weft_tag_message, in_order);
        if (message->unexpected_bytes != from) continue;
        weft__match_read(message);
        if (!to) continue;
        message->unexpected_bytes = to;
        *to += message->cost;
        weft__unread_add(message->worker, message->cost);
    }
}

/* Drops the oldest messages beyond `most`. Their endpoints are gone: no peer can be limited. */
static void drop_oldest(struct match *m, struct weft_worker *worker, uint32_t most) {
    if (m->left > most)
        weft__log_limited(worker->context, WEFT_LOG_WARN, "endpoints",
                          "dropped unexpected messages of disconnected peers "
                          "(peer.max_unexpected, peers.max_unexpected)");
    for (struct list *n = m->unexpected.next, *next; m->left > most; n = next) {
        struct weft_tag_message *message = list_of(n, struct weft_tag_message, in_order);
        next = n->next;
        if (message->unexpected_bytes != &m->left) continue;
        drop_match(m, message);
        worker->count->tag_dropped++;
    }
}

static bool worker_keeps(struct weft_worker *worker, size_t bytes) {
    const struct worker_limits *limit = &worker->limit;
    uint64_t room = limit->kept < limit->max_kept ? limit->max_kept - limit->kept : 0;
    if (bytes <= room) return true;
    uint64_t excess = bytes - room;
    struct match *m = &worker->match;
    drop_oldest(m, worker, m->left > excess ? m->left - (uint32_t)excess : 0);
    return limit->kept <= limit->max_kept && bytes <= limit->max_kept - limit->kept;
}

bool weft__match_may_leave(struct weft_ep *ep, size_t bytes) {
    const char *what = NULL;
    uint32_t most = ep->worker->limit.link_unexpected, left = ep->link->unexpected_bytes;
    if (bytes > most || left > most - bytes)
        what = "more unread bytes than one peer may leave (peer.max_unexpected)";
    else if (!worker_keeps(ep->worker, bytes))
        what = "more unread bytes than all peers may leave (peers.max_unexpected)";
    if (what) weft__ep_violation(ep, WEFT_ERR_QUOTA, what);
    return !what;
}

void weft__match_unlink(struct match *m, struct link *link, uint32_t most) {
    if (link->unexpected_bytes == 0) return;
    count_in(&m->taken, &link->unexpected_bytes, NULL);
    drop_oldest(m, link->worker, most - link->unexpected_bytes);
    count_in(&m->unexpected, &link->unexpected_bytes, &m->left);
    assert(link->unexpected_bytes == 0);
}

void weft__match_lease(struct match *m) {
    const uint64_t leased = UINT64_C(1) << 63;
    m->slow |= MATCH_LEASED;
    list_for_each(node, &m->posted_masked) {
        struct weft_request *req = list_of(node, struct weft_request, queued);
        if (req->match.mask & leased) continue;
        req->match.mask |= leased;
        req->match.tag &= ~leased;
    }
}

void weft__match_drop(struct match *m, uint64_t tag, uint64_t mask) {
    list_for_each_safe(node, next, &m->unexpected) {
        struct weft_tag_message *message = list_of(node, struct weft_tag_message, in_order);
        if (((message->tag ^ tag) & mask) == 0) drop_match(m, message);
    }
}

void weft__match_forget_half(struct match *m, struct ep_tags *tags) {
    while (!list_empty(&tags->gathering))
        drop_match(m, list_of(tags->gathering.next, struct weft_tag_message, in_order));
}

void weft__match_forget(struct match *m, struct ep_tags *tags) {
    while (!list_empty(&tags->offers))
        drop_match(m, list_of(tags->offers.next, struct weft_tag_message, of_ep));
    weft__match_forget_half(m, tags);
}
