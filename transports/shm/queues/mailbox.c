/* The slow path of a mailbox: chains, and messages that do not fit their nodes. */
#include "mailbox.h"

/* Skips `skip` nodes of the chain from `at` on, and puts the next `n` into `descs`. */
static int walk(struct mail_rx *rx, uint64_t at, size_t skip, size_t n) {
    for (size_t i = 0; i < skip + n; i++) {
        uint32_t slot = 0;
        const struct mail_node *node = at ? mail_find(rx, at, &slot) : NULL;
        if (!node) return MAIL_LIES;
        if (i >= skip) rx->descs[i - skip] = (struct mail_desc){node, slot};
        at = atomic_load_explicit(&node->next, memory_order_relaxed);
    }
    rx->n = (uint32_t)n;
    return 1;
}

int weft__mail_gather(struct mail_rx *rx) {
    size_t n = rx->n_rest < rx->room ? rx->n_rest : rx->room, skip = rx->n_rest - n;
    rx->n_rest = skip;
    if (walk(rx, rx->rest, skip, n) > 0) return 1;
    rx->n = 0;
    rx->n_rest = 0;
    return MAIL_LIES;
}

int weft__mail_take(struct mail_rx *rx, uint64_t newest, size_t most) {
    size_t length = 0;
    for (uint64_t at = newest; at; length++) {
        uint32_t slot = 0;
        const struct mail_node *node = length < most ? mail_find(rx, at, &slot) : NULL;
        if (!node) return MAIL_LIES;
        if (length < rx->room) rx->descs[length] = (struct mail_desc){node, slot};
        at = atomic_load_explicit(&node->next, memory_order_relaxed);
    }
    rx->rest = newest;
    rx->n_rest = length;
    if (length > rx->room) return weft__mail_gather(rx);
    rx->n_rest = 0;
    rx->n = (uint32_t)length;
    return length > 0;
}

int weft__mail_read_elsewhere(const struct mail_node *node, unsigned kind,
                              const struct mail_view *view, struct mail_message *m) {
    struct mail_place place;
    memcpy(&place, node->data, sizeof place);
    atomic_signal_fence(memory_order_seq_cst); /* the compiler may not read it again */
    bool staged = kind == MAIL_IN_STAGING;
    const struct mail_shape *shape = view->shape;
    uint32_t size = staged ? shape->staging_size : shape->blocks_size;
    if (kind > MAIL_IN_STAGING || place.len > size || place.offset > size - place.len)
        return MAIL_LIES;
    m->data =
        (const uint8_t *)view->nodes + (staged ? shape->staging : shape->blocks) + place.offset;
    m->len = place.len;
    return 1;
}
