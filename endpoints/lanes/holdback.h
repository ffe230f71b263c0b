/* A queue of copied messages that must not be delivered yet. */
#ifndef WEFT_ENDPOINTS_LANES_HOLDBACK_H
#define WEFT_ENDPOINTS_LANES_HOLDBACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/base.h>

struct hold_block;

/* All zero: empty. */
struct hold {
    struct hold_block *first, *last;
    size_t taken;  /* bytes already read of the first block */
    size_t bytes;  /* in all messages */
    size_t weight; /* the same, plus `each` per message */
};

/* What a hold-back queue may take: `most` bytes in all, with `each` more for each message. */
struct hold_limit {
    size_t each, most;
};

/* Adds a copy, allocated below `parent`. On WEFT_ERR_QUOTA (above the limit) or NO_MEMORY nothing
 * changes. */
weft_status_t weft__hold_add(struct hold *hold, const void *parent, struct hold_limit limit,
                             uint8_t id, const void *data, size_t len);
/* The oldest message, valid until it is popped or cleared. False: empty. */
bool weft__hold_first(struct hold *hold, uint8_t *id_p, const void **data_p, size_t *len_p);
/* Removes the oldest message. */
void weft__hold_pop(struct hold *hold, size_t each);
void weft__hold_clear(struct hold *hold);

#endif
