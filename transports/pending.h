/* A lane's queue of `struct pending`: operations that wait for its resources, in the order
 * added. */
#ifndef WEFT_TRANSPORTS_PENDING_H
#define WEFT_TRANSPORTS_PENDING_H

#include <stdbool.h>
#include <transports/transport.h>

/* A circular list. `last->next` is the first entry. */
struct pending_queue {
    struct pending *last; /* NULL: empty */
};

static inline void pending_queue_init(struct pending_queue *q) {
    q->last = NULL;
}

/* Returns true if the queue has an entry. */
static inline bool pending_queue_waits(const struct pending_queue *q) {
    return q->last != NULL;
}

static inline void pending_queue_prepend(struct pending_queue *q, struct pending *pending) {
    if (!q->last) {
        q->last = pending->next = pending;
        return;
    }
    pending->next = q->last->next;
    q->last->next = pending;
}

static inline void pending_queue_add(struct pending_queue *q, struct pending *pending) {
    pending_queue_prepend(q, pending);
    q->last = pending;
}

/* Removes the entry after `before`. */
static inline void pending_queue_unlink(struct pending_queue *q, struct pending *before) {
    struct pending *pending = before->next;
    before->next = pending->next;
    if (q->last == pending) q->last = before == pending ? NULL : before;
}

/* No effect if the entry is not in the queue. */
static inline void pending_queue_remove(struct pending_queue *q, const struct pending *pending) {
    struct pending *before = q->last;
    if (!before) return;
    do {
        if (before->next == pending) {
            pending_queue_unlink(q, before);
            return;
        }
        before = before->next;
    } while (before != q->last);
}

/* Retries the first entry. Returns false if the queue is empty, or if the entry must wait and
 * stays first. */
static inline bool pending_queue_retry(struct pending_queue *q) {
    if (!pending_queue_waits(q)) return false;
    struct pending *first = q->last->next;
    pending_queue_unlink(q, q->last); /* remove it first: `retry` may free it or add entries */
    if (first->retry(first) != WEFT_NO_RESOURCE) return true;
    pending_queue_prepend(q, first);
    return false;
}

/* Defines pending_add and pending_remove of lane_ops, for a lane that has a member `pending` and
 * retries without being asked. */
#define LANE_PENDING(lane_type)                                           \
    static void pending_add(struct lane *l, struct pending *pending) {    \
        pending_queue_add(&((struct lane_type *)l)->pending, pending);    \
    }                                                                     \
    static void pending_remove(struct lane *l, struct pending *pending) { \
        pending_queue_remove(&((struct lane_type *)l)->pending, pending); \
    }

#endif
