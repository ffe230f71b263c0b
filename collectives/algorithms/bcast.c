#include <collectives/schedule.h>

static uint64_t bytes_of(const struct coll_shape *shape) {
    return shape->count * shape->width;
}

/* A binomial tree over ranks counted from the root: the farthest child first, since its subtree is the largest. */
void weft__build_BCAST_binomial(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    uint32_t size = shape->size, place = (shape->rank + size - shape->root) % size, got = 0, bit = 1;
    while (bit < size && !(place & bit)) bit *= 2;
    if (place != 0) {
        uint32_t parent = (place - bit + shape->root) % size;
        got = weft__add_recv(s, parent, 0, AT(DST, 0), bytes_of(shape), AFTER(0));
    }
    for (bit /= 2; bit > 0; bit /= 2) {
        if (place + bit >= size) continue;
        uint32_t child = (place + bit + shape->root) % size;
        weft__add_send(s, child, 0, AT(DST, 0), bytes_of(shape), AFTER(got));
    }
}

/* A chain from the root on, a segment at a time: every link carries every byte once, all at the same time. */
void weft__build_BCAST_chain(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    uint32_t size = shape->size, place = (shape->rank + size - shape->root) % size;
    uint32_t before = (shape->rank + size - 1) % size, next = (shape->rank + 1) % size, sent = 0, tag = 0;
    uint64_t bytes = bytes_of(shape);
    for (uint64_t at = 0; at < bytes; at += shape->segment, tag++) {
        uint64_t len = bytes - at < shape->segment ? bytes - at : shape->segment;
        uint32_t got = place > 0 ? weft__add_recv(s, before, tag, AT(DST, at), len, AFTER(0)) : 0;
        if (place + 1 < size) sent = weft__add_send(s, next, tag, AT(DST, at), len, AFTER(got, sent));
    }
}
