/* A schedule made ready to run: who waits for whom, and which step a message belongs to. Shared
 * by equal collectives. */
#ifndef WEFT_COLLECTIVES_PLAN_H
#define WEFT_COLLECTIVES_PLAN_H

#include "schedule.h"

struct plan {
    struct schedule *schedule;
    unsigned algorithm;
    uint32_t users;    /* collectives that run it now */
    uint64_t used;     /* when last, in calls */
    uint32_t *waits;   /* of each step: for how many others */
    uint32_t *first;   /* of each step: 1 + edge to the first that waits for it */
    uint32_t *next;    /* of each edge; edge 3 i + k is step i's k-th dependency */
    uint32_t *by_wire; /* hash of (peer, tag, direction): 1 + step */
    uint32_t mask;     /* of by_wire */
};

enum { PLANS_KEPT = 8, PLAN_STEPS_KEPT = 4096 };
struct plans {
    struct plan *kept[PLANS_KEPT];
    uint64_t calls;
};

weft_status_t weft__plan_get(const void *parent, struct plans *plans, enum coll_algorithm algorithm,
                             const struct coll_shape *shape, struct plan **plan_p);
/* Of a schedule that asks for counts; it is not kept. */
weft_status_t weft__plan_ask(const void *parent, const struct coll_asking *asking,
                             const struct coll_shape *shape, struct plan **plan_p);
void weft__plan_put(struct plans *plans, struct plan *plan);

/* A copy of one of the caller's arrays, or NULL for NULL; false: no memory. */
bool weft__keep_array(const void *parent, const void *from, size_t bytes, const void **kept_p);
/* Copies of the caller's arrays in their place; false: no memory. */
bool weft__keep_shape(const void *parent, struct coll_shape *shape);

enum { NO_STEP = UINT32_MAX };
/* The step (from 0) that receives `tag` from `peer`, or sends it there. NO_STEP: the schedule
 * has none. */
uint32_t weft__plan_find(const struct plan *plan, enum step_verb verb, uint32_t peer, uint32_t tag);

#endif
