/* Prefix reductions: each member gets that of all ranks up to itself, or of those before it. */
#include <collectives/schedule.h>

/* From rank to rank, which keeps their order. */
void weft__build_SCAN_linear(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    uint32_t rank = shape->rank, ready = 0;
    uint64_t bytes = weft__shape_bytes(shape);
    if (rank == 0) {
        ready = weft__add_copy(s, AT(DST, 0), AT(SRC, 0), bytes, AFTER(0));
    } else {
        uint32_t got = weft__add_recv(s, rank - 1, 0, AT(SCRATCH, 0), bytes, AFTER(0));
        ready = weft__add_reduce(s, AT(DST, 0), AT(SCRATCH, 0), AT(SRC, 0), bytes, AFTER(got));
        s->scratch = bytes;
    }
    if (rank + 1 < shape->size) weft__add_send(s, rank + 1, 0, AT(DST, 0), bytes, AFTER(ready));
}

/* Between the first and the last: what came is kept for the copy, and what goes on is beside it. */
static void pass_on(struct schedule *s) {
    enum { WINDOW = 4 };
    const struct coll_shape *shape = &s->shape;
    uint32_t rank = shape->rank, tag = 0, copied[WINDOW] = {0}, sent[WINDOW] = {0};
    uint64_t bytes = weft__shape_bytes(shape), segment = weft__segment_bytes(shape);
    for (uint64_t at = 0; at < bytes; at += segment, tag++) {
        uint64_t len = bytes - at < segment ? bytes - at : segment;
        uint32_t slot = tag % WINDOW;
        struct coll_ref before = AT(SCRATCH, slot * segment),
                        sum = AT(SCRATCH, (WINDOW + slot) * segment);
        uint32_t got = weft__add_recv(s, rank - 1, tag, before, len, AFTER(copied[slot]));
        uint32_t ready = weft__add_reduce(s, sum, before, AT(SRC, at), len, AFTER(got, sent[slot]));
        sent[slot] = weft__add_send(s, rank + 1, tag, sum, len, AFTER(ready));
        copied[slot] = weft__add_copy(s, AT(DST, at), before, len, AFTER(got, ready));
    }
    s->scratch = 2 * WINDOW * segment;
}

/* The same, a segment at a time. The first sends its own, and the last takes what comes. */
void weft__build_EXSCAN_linear(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    uint32_t rank = shape->rank, tag = 0;
    uint64_t bytes = weft__shape_bytes(shape), segment = weft__segment_bytes(shape);
    if (rank > 0 && rank + 1 < shape->size) {
        pass_on(s);
        return;
    }
    for (uint64_t at = 0; at < bytes; at += segment, tag++) {
        uint64_t len = bytes - at < segment ? bytes - at : segment;
        if (rank == 0)
            weft__add_send(s, 1, tag, AT(SRC, at), len, AFTER(0));
        else
            weft__add_recv(s, rank - 1, tag, AT(DST, at), len, AFTER(0));
    }
}

/*
 * Recursive doubling (Hillis & Steele 1986): in round k each adds the sum of the 2^k ranks that end
 * 2^k before it. The sum of all up to here is in scratch memory, that of those before in DST.
 */
static void build_doubling(struct schedule *s, bool exclusive) {
    const struct coll_shape *shape = &s->shape;
    uint32_t size = shape->size, rank = shape->rank, tag = 0, taken = 0;
    uint64_t bytes = weft__shape_bytes(shape);
    struct coll_ref sum = AT(SCRATCH, 0), room = AT(SCRATCH, bytes);
    uint32_t ready = weft__add_copy(s, sum, AT(SRC, 0), bytes, AFTER(0)), first = ready, sent = 0;
    bool some = false;
    for (uint32_t far = 1; far < size; far *= 2, tag++) {
        if (rank + far < size) sent = weft__add_send(s, rank + far, tag, sum, bytes, AFTER(ready));
        if (rank < far) continue;
        uint32_t got = weft__add_recv(s, rank - far, tag, room, bytes, AFTER(taken, ready));
        if (exclusive)
            taken =
                some ? weft__add_reduce(s, AT(DST, 0), room, AT(DST, 0), bytes, AFTER(got, taken))
                     : weft__add_copy(s, AT(DST, 0), room, bytes, AFTER(got, first));
        ready = weft__add_reduce(s, sum, room, sum, bytes, AFTER(got, ready, sent));
        some = true;
    }
    if (!exclusive) weft__add_copy(s, AT(DST, 0), sum, bytes, AFTER(ready));
    s->scratch = 2 * bytes;
}

void weft__build_SCAN_doubling(struct schedule *s) {
    build_doubling(s, false);
}
void weft__build_EXSCAN_doubling(struct schedule *s) {
    build_doubling(s, true);
}
