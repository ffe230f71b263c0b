/* Messages that came before their turn: copied, in order, until they are taken. */
#ifndef WEFT_ENDPOINTS_HOLD_H
#define WEFT_ENDPOINTS_HOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/base.h>

struct hold_block;

/* Zeroed: empty. Its blocks are below `parent`. */
struct hold {
    struct hold_block *first, *last;
    size_t taken;  /* bytes of the first block */
    size_t bytes;  /* of all messages in it */
    size_t weight; /* these, and so much for each */
};

/* WEFT_ERR_QUOTA: beyond `most`; NO_MEMORY. Nothing changed then. */
weft_status_t weft__hold_add(struct hold *hold, const void *parent, size_t each, size_t most, uint8_t id,
                             const void *data, size_t len);
/* The oldest, which stays where it is until the next call of either function below; false: there is none. */
bool weft__hold_first(struct hold *hold, uint8_t *id_p, const void **data_p, size_t *len_p);
/* Takes it out. */
void weft__hold_pop(struct hold *hold, size_t each);
void weft__hold_clear(struct hold *hold);

#endif
