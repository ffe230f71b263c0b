/* Reductions to one member. */
#include <collectives/schedule.h>

/* Where in scratch memory the `n`-th part is received: the first room becomes the sum of those that
 * have no DST for it, and the others take `window` rooms in turn. */
static uint32_t room_for(uint32_t n, uint32_t window) {
    return n == 0 ? 0 : 1 + (n - 1) % window;
}

/*
 * Children's sums are added in the order of places, so that each partial sum is of places in a row.
 * Only the root has DST; the others add up in scratch memory.
 */
void weft__build_REDUCE_knomial(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    uint32_t size = shape->size, place = (shape->rank + size - shape->root) % size;
    uint32_t radix = weft__radix(shape), ready = 0, reduced[3] = {0}, n = 0;
    uint64_t bytes = weft__shape_bytes(shape);
    struct knomial tree = weft__knomial(shape, place);
    struct coll_ref sum = AT(SRC, 0), to = place ? AT(SCRATCH, 0) : AT(DST, 0);
    for (uint64_t level = 1; level < tree.unit; level *= radix)
        for (uint64_t child = place + level; child < place + level * radix; child += level) {
            if (child >= size) continue;
            uint32_t slot = room_for(n++, 2);
            struct coll_ref room = AT(SCRATCH, slot * bytes);
            uint32_t got = weft__add_recv(s, (uint32_t)((child + shape->root) % size), 0, room,
                                          bytes, AFTER(reduced[slot]));
            ready = reduced[slot] = weft__add_reduce(s, to, sum, room, bytes, AFTER(got, ready));
            weft__reads_alone(s, got, ready);
            sum = to;
        }
    if (place != 0)
        weft__add_send(s, (uint32_t)(((uint64_t)tree.parent + shape->root) % size), 0, sum, bytes,
                       AFTER(ready));
    if (ready) s->scratch = 3 * bytes;
}

/* The root takes everybody's part and folds them in the order of ranks. */
void weft__build_REDUCE_linear(struct schedule *s) {
    enum { WINDOW = 4 };
    const struct coll_shape *shape = &s->shape;
    uint64_t bytes = weft__shape_bytes(shape);
    uint32_t read[1 + WINDOW] = {0}, ready = 0, n = 0;
    struct coll_ref sum = AT(SRC, 0);
    if (shape->rank != shape->root) {
        weft__add_send(s, shape->root, 0, AT(SRC, 0), bytes, AFTER(0));
        return;
    }
    /* In place, DST is the root's own part until that has been added. */
    for (uint32_t r = 0; r < shape->size; r++) {
        bool own = r == shape->root;
        uint32_t slot = own ? 0 : room_for(n++, WINDOW), got = 0;
        struct coll_ref part = own ? AT(SRC, 0) : AT(SCRATCH, slot * bytes);
        struct coll_ref to = r < shape->root ? AT(SCRATCH, 0) : AT(DST, 0);
        if (!own) got = weft__add_recv(s, r, 0, part, bytes, AFTER(read[slot]));
        if (r == 0) {
            sum = part;
            ready = got;
            continue;
        }
        ready = weft__add_reduce(s, to, sum, part, bytes, AFTER(got, ready));
        if (!own) read[slot] = ready;
        sum = to;
    }
    s->scratch = (1 + WINDOW) * bytes;
}

/* Along the chain of ranks, a segment at a time, and from its end to the root. */
void weft__build_REDUCE_chain(struct schedule *s) {
    enum { WINDOW = 4 };
    const struct coll_shape *shape = &s->shape;
    uint32_t rank = shape->rank, last = shape->size - 1, tag = 0, sent[WINDOW] = {0},
             reduced[WINDOW] = {0};
    bool ends = rank == last && shape->root == last;
    uint64_t bytes = weft__shape_bytes(shape), segment = weft__segment_bytes(shape);
    for (uint64_t at = 0; at < bytes; at += segment, tag++) {
        uint64_t len = bytes - at < segment ? bytes - at : segment;
        uint32_t slot = tag % WINDOW, ready = 0, gone = 0;
        struct coll_ref sum = AT(SRC, at), room = AT(SCRATCH, slot * segment);
        if (rank > 0) {
            uint32_t got =
                weft__add_recv(s, rank - 1, tag, room, len, AFTER(reduced[slot], sent[slot]));
            sum = ends ? AT(DST, at) : room;
            ready = reduced[slot] = weft__add_reduce(s, sum, room, AT(SRC, at), len, AFTER(got));
            weft__reads_alone(s, got, ready);
        }
        /* The last one's send to the root is along no link of the chain. */
        uint32_t peer = rank < last ? rank + 1 : shape->root;
        if (!ends) gone = sent[slot] = weft__add_send(s, peer, tag, sum, len, AFTER(ready));
        if (rank == shape->root && rank != last)
            weft__add_recv(s, last, tag, AT(DST, at), len, AFTER(ready, gone));
    }
    if (rank > 0) s->scratch = WINDOW * segment;
}
