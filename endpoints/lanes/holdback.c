/* The queue of held-back messages: blocks of copies, first in, first out. */
#include "holdback.h"

#include <reactor/reactor.h>
#include <string.h>

enum { BLOCK = 32 << 10, ALIGN = 16 };

struct hold_block {
    struct hold_block *next;
    size_t used, room;
    _Alignas(ALIGN) uint8_t bytes[];
};

/* Precedes each message. */
struct head {
    _Alignas(ALIGN) uint64_t len;
    uint8_t id;
};

static size_t padded(size_t len) {
    return (len + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

static struct hold_block *block_for(struct hold *hold, const void *parent, size_t need) {
    struct hold_block *b = hold->last;
    if (b && b->room - b->used >= need) return b;
    size_t room = need > BLOCK ? need : BLOCK;
    b = weft__alloc(parent, sizeof *b + room, "held messages");
    if (!b) return NULL;
    *b = (struct hold_block){.room = room};
    if (hold->last)
        hold->last->next = b;
    else
        hold->first = b;
    hold->last = b;
    return b;
}

weft_status_t weft__hold_add(struct hold *hold, const void *parent, struct hold_limit limit,
                             uint8_t id, const void *data, size_t len) {
    if (len > limit.most || hold->weight + limit.each + len > limit.most) return WEFT_ERR_QUOTA;
    size_t need = sizeof(struct head) + padded(len);
    struct hold_block *b = block_for(hold, parent, need);
    if (!b) return WEFT_ERR_NO_MEMORY;
    struct head head = {.len = len, .id = id};
    memcpy(b->bytes + b->used, &head, sizeof head);
    if (len) memcpy(b->bytes + b->used + sizeof head, data, len);
    b->used += need;
    hold->bytes += len;
    hold->weight += limit.each + len;
    return WEFT_OK;
}

/* Frees blocks that were read to their end. */
static void drop_read(struct hold *hold) {
    while (hold->first && hold->taken == hold->first->used) {
        struct hold_block *b = hold->first;
        hold->first = b->next;
        hold->taken = 0;
        if (!hold->first) hold->last = NULL;
        talloc_free(b);
    }
}

bool weft__hold_first(struct hold *hold, uint8_t *id_p, const void **data_p, size_t *len_p) {
    struct head head;
    drop_read(hold);
    if (!hold->first) return false;
    const uint8_t *at = hold->first->bytes + hold->taken;
    memcpy(&head, at, sizeof head);
    *id_p = head.id;
    *data_p = at + sizeof head;
    *len_p = head.len;
    return true;
}

void weft__hold_pop(struct hold *hold, size_t each) {
    struct head head;
    memcpy(&head, hold->first->bytes + hold->taken, sizeof head);
    hold->taken += sizeof head + padded(head.len);
    hold->bytes -= head.len;
    hold->weight -= each + head.len;
}

void weft__hold_clear(struct hold *hold) {
    for (struct hold_block *b = hold->first, *next; b; b = next) {
        next = b->next;
        talloc_free(b);
    }
    *hold = (struct hold){0};
}
