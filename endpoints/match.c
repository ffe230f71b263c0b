#include "match.h"

#include <reactor/counters.h>
#include <reactor/mutant.h>

#include "worker.h"

void weft__match_init(struct match *m) {
    for (unsigned i = 0; i < MATCH_BUCKETS; i++) {
        list_init(&m->posted[i]);
        list_init(&m->bucket[i]);
        list_init(&m->offers[i]);
        list_init(&m->takers[i]);
    }
    list_init(&m->posted_any);
    list_init(&m->unexpected);
    list_init(&m->taken);
    list_init(&m->filling);
    list_init(&m->gathering);
}

static bool fits(uint64_t tag, uint64_t wanted, uint64_t mask) {
    return ((tag ^ wanted) & mask) == 0;
}

static struct weft_request *first_posted(struct list *queue, uint64_t tag) {
    for (struct list *n = queue->next; n != queue; n = n->next) {
        struct weft_request *req = list_of(n, struct weft_request, queued);
        if (fits(tag, req->tag, req->tag_mask) && !(WEFT_MUTANT(match_last) && n->next != queue)) return req;
    }
    return NULL;
}

/* Exact and masked receives stand in two queues; the older of the two firsts was posted first. */
struct weft_request *weft__match_posted(struct match *m, uint64_t tag) {
    if (list_empty(&m->posted_any)) m->seldom &= ~(uint32_t)MATCH_MASKED;
    struct weft_request *exact = first_posted(&m->posted[weft__match_bucket(tag)], tag);
    struct weft_request *any = first_posted(&m->posted_any, tag);
    if (!exact || !any) return exact ? exact : any;
    return exact->order < any->order ? exact : any;
}

/* Of one order are those without a mask: who found a message stood before those that did not, or did later. */
static bool stood_before(const struct weft_request *a, const struct weft_request *b) {
    if (a->order != b->order) return a->order < b->order;
    return a->number && (int32_t)(a->number - b->number) < 0;
}

void weft__match_again(struct match *m, struct weft_request *req) {
    struct list *queue = weft__match_queue(m, req->tag, req->tag_mask), *next = queue->next;
    while (next != queue && stood_before(list_of(next, struct weft_request, queued), req)) next = next->next;
    weft__request_queue(req, queue);
    list_remove(&req->queued);
    list_append(next, &req->queued); /* before it */
}

struct weft_tag_message *weft__match_unexpected_among(struct match *m, uint64_t tag, uint64_t mask) {
    if (list_empty(&m->unexpected)) m->seldom &= ~(uint32_t)MATCH_UNEXPECTED;
    if (mask == UINT64_MAX) {
        struct list *bucket = &m->bucket[weft__match_bucket(tag)];
        for (struct list *n = bucket->next; n != bucket; n = n->next) {
            struct weft_tag_message *message = list_of(n, struct weft_tag_message, in_bucket);
            if (message->tag == tag) return message;
        }
        return NULL;
    }
    for (struct list *n = m->unexpected.next; n != &m->unexpected; n = n->next) {
        struct weft_tag_message *message = list_of(n, struct weft_tag_message, in_order);
        if (fits(message->tag, tag, mask)) return message;
    }
    return NULL;
}

void weft__match_add(struct match *m, struct weft_tag_message *message) {
    m->seldom |= MATCH_UNEXPECTED;
    if (WEFT_MUTANT(match_unexpected_last))
        list_prepend(&m->unexpected, &message->in_order);
    else
        list_append(&m->unexpected, &message->in_order);
    list_append(&m->bucket[weft__match_bucket(message->tag)], &message->in_bucket);
    if (message->offer) list_append(weft__match_offers(m, message->offer), &message->in_offers);
}

static void leave(struct weft_tag_message *message) {
    list_remove(&message->in_order);
    list_remove(&message->in_bucket);
}

void weft__match_remove(struct weft_tag_message *message) {
    leave(message);
    list_remove(&message->in_offers);
}

void weft__match_take(struct match *m, struct weft_tag_message *message) {
    if (message->unread == &m->left) weft__match_read(message);
    leave(message);
    list_append(&m->taken, &message->in_order);
}

static void drop(struct weft_tag_message *message) {
    weft__match_read(message);
    weft__match_remove(message);
    talloc_free(message);
}

static void forget(struct list *queue, uint32_t ep, bool offers) {
    for (struct list *n = queue->next, *next; n != queue; n = next) {
        struct weft_tag_message *message = list_of(n, struct weft_tag_message, in_order);
        next = n->next;
        if (message->ep == ep && (!offers || message->offer)) drop(message);
    }
}

void weft__match_read(struct weft_tag_message *message) {
    if (message->unread) *message->unread -= message->cost;
    message->unread = NULL;
}

/* What is in the one count is in the other from now on, or in none. */
static void count_in(struct list *queue, const uint32_t *from, uint32_t *to) {
    for (struct list *n = queue->next; n != queue; n = n->next) {
        struct weft_tag_message *message = list_of(n, struct weft_tag_message, in_order);
        if (message->unread != from) continue;
        weft__match_read(message);
        message->unread = to;
        if (to) *to += message->cost;
    }
}

/* Nobody is there any more who could be told, or held to less. */
static void drop_oldest(struct match *m, struct weft_worker *worker, uint32_t most) {
    if (m->left > most)
        weft__log_limited(worker->context, WEFT_LOG_WARN, "endpoints",
                          "messages of peers that have gone are dropped");
    for (struct list *n = m->unexpected.next, *next; m->left > most; n = next) {
        struct weft_tag_message *message = list_of(n, struct weft_tag_message, in_order);
        next = n->next;
        if (message->unread != &m->left) continue;
        drop(message);
        worker->count->tag_dropped++;
    }
}

void weft__match_unlink(struct match *m, struct link *link, uint32_t most) {
    if (link->unread == 0) return;
    count_in(&m->taken, &link->unread, NULL);
    count_in(&m->gathering, &link->unread, NULL);
    drop_oldest(m, link->worker, most - link->unread);
    count_in(&m->unexpected, &link->unread, &m->left);
    assert(link->unread == 0);
}

void weft__match_forget(struct match *m, uint32_t ep) {
    forget(&m->unexpected, ep, true);
    forget(&m->gathering, ep, false);
}
