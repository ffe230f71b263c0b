/* What an endpoint that connects has tried, and what is left to try. */
#ifndef WEFT_ENDPOINTS_CORE_TRIES_H
#define WEFT_ENDPOINTS_CORE_TRIES_H

#include <reactor/reactor.h>

struct cause;
struct weft_worker;

struct tries {
    uint16_t left; /* transports by which the peer may be reached: a bit for each worker->iface[] */
    int8_t status; /* a weft_status_t: why the last try failed; WEFT_OK: none has */
    struct cause *why; /* the failures so far, as text; NULL: none, or no memory for it */
    uint64_t pause;    /* before the next try at the same place, in ns */
    struct timer due;  /* that try */
};

void weft__tries_begin(struct tries *tries);
void weft__tries_end(struct tries *tries);

/* A try failed with this status, for this reason (NULL: no memory for it), behind those before. */
void weft__tries_add(struct weft_worker *worker, struct tries *tries, weft_status_t status,
                     struct cause *why);
/* The same, of a try at a place that has failed before: the text has only the last of these. */
void weft__tries_replace(struct tries *tries, weft_status_t status, struct cause *why);

/* The transport worker->iface[number] is not tried again. */
static inline void weft__tries_leave(struct tries *tries, unsigned number) {
    tries->left &= (uint16_t) ~(1u << number);
}
static inline bool weft__tries_has(const struct tries *tries, unsigned number) {
    return tries->left >> number & 1;
}
/* Is there another transport than that one? */
static inline bool weft__tries_has_other(const struct tries *tries, unsigned number) {
    return (tries->left & ~(1u << number)) != 0;
}

/* True if another transport may do better than one that failed so: the peer has not answered, and
 * this side has not given up. */
bool weft__tries_goes_on(weft_status_t status);

#endif
