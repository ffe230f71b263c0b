/* A lane's queue of those that wait for its resources, in the order added. */
#ifndef WEFT_TRANSPORTS_PENDING_H
#define WEFT_TRANSPORTS_PENDING_H

#include <stdbool.h>
#include <transports/transport.h>

struct pending_queue {
    struct pending *first, **last;
};

static inline void pending_queue_init(struct pending_queue *q) {
    q->first = NULL;
    q->last = &q->first;
}

static inline void pending_queue_add(struct pending_queue *q, struct pending *pending) {
    pending->next = NULL;
    *q->last = pending;
    q->last = &pending->next;
}

/* Nothing if it is not there. */
static inline void pending_queue_remove(struct pending_queue *q, const struct pending *pending) {
    for (struct pending **at = &q->first; *at; at = &(*at)->next) {
        if (*at != pending) continue;
        *at = pending->next;
        if (!*at) q->last = at;
        return;
    }
}

/* Tries the first again. False when nobody waits, or when it still has to and stays the first. */
static inline bool pending_queue_retry(struct pending_queue *q) {
    struct pending *p = q->first;
    if (!p) return false;
    q->first = p->next; /* off the queue first: `retry` may free it, or add to the queue */
    if (!q->first) q->last = &q->first;
    if (p->retry(p) != WEFT_NO_RESOURCE) return true;
    p->next = q->first;
    q->first = p;
    if (!p->next) q->last = &p->next;
    return false;
}

#endif
