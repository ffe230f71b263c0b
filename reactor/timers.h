/* The running timers of a reactor, in a binary heap. */
#ifndef WEFT_REACTOR_TIMERS_H
#define WEFT_REACTOR_TIMERS_H

#include <reactor/reactor.h>

/* One running timer. `order` makes equal times fire in the order set. */
struct heap_entry {
    uint64_t at, order;
    struct timer *timer;
};

/* timers.c: a binary heap; `n_timers` of struct reactor run. */
struct reactor_timers {
    struct heap_entry *heap;
    unsigned room;
    unsigned n_places; /* taken by running timers and by reserved ones */
    uint64_t order;    /* of the next start */
};

/* timers.c */
unsigned weft__timers_run(struct reactor *r, unsigned budget);

#endif
