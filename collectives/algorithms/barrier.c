/* Schedules of barrier, fan-in and fan-out: dissemination, trees and linear. */
#include <collectives/schedule.h>

/*
 * Dissemination (Hensgen, Finkel & Manber 1988): in round k each rank notifies the one 2^k further
 * on what it knows, and so knows 2^(k+1) ranks afterwards. Each round waits for the one before, or
 * it would pass on less.
 */
void weft__add_dissemination(struct schedule *s, uint32_t tag) {
    uint32_t size = s->shape.size, rank = s->shape.rank, received = 0;
    for (uint32_t far = 1; far < size; far *= 2, tag++) {
        weft__add_signal(s, (rank + far) % size, tag, AFTER(received));
        received = weft__add_await(s, (rank + size - far) % size, tag, AFTER(received));
    }
}

void weft__build_BARRIER_dissemination(struct schedule *s) {
    weft__add_dissemination(s, 0);
}

/*
 * A binomial tree, up and down again: 2 (size - 1) messages against size × log2(size), and twice
 * the rounds. Better where messages cost more than rounds, as with many ranks to a core.
 */
void weft__build_BARRIER_tree(struct schedule *s) {
    uint32_t size = s->shape.size, rank = s->shape.rank, received = 0, bit = 1;
    for (; bit < size && !(rank & bit); bit *= 2)
        if (rank + bit < size) received = weft__add_await(s, rank + bit, 0, AFTER(received));
    if (rank != 0) {
        uint32_t notified = weft__add_signal(s, rank - bit, 0, AFTER(received));
        received = weft__add_await(s, rank - bit, 1, AFTER(notified));
    }
    for (bit /= 2; bit > 0; bit /= 2)
        if (rank + bit < size) weft__add_signal(s, rank + bit, 1, AFTER(received));
}

/* ---- k-nomial trees -------------------------------------------------------------------------- */

struct knomial weft__knomial(const struct coll_shape *shape, uint32_t place) {
    uint32_t radix = weft__radix(shape);
    uint64_t unit = 1;
    while (unit < shape->size && place / unit % radix == 0) unit *= radix;
    uint32_t digit = (uint32_t)(place / unit % radix);
    return (struct knomial){place - digit * (uint32_t)unit,
                            (uint32_t)(unit < shape->size ? unit : shape->size)};
}

static uint32_t place_of(const struct coll_shape *shape) {
    return (shape->rank + shape->size - shape->root) % shape->size;
}
static uint32_t rank_at(const struct coll_shape *shape, uint32_t place) {
    return (uint32_t)(((uint64_t)place + shape->root) % shape->size);
}

/* The highest level of children: the largest power of the radix below `unit`. */
static uint64_t first_level(const struct coll_shape *shape, uint32_t unit) {
    uint64_t level = 1;
    while (level * weft__radix(shape) < unit) level *= weft__radix(shape);
    return unit > 1 ? level : 0;
}

/* Each notifies its parent when all below it have notified it. */
void weft__build_FANIN_knomial(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    uint32_t place = place_of(shape), radix = weft__radix(shape), received = 0;
    struct knomial tree = weft__knomial(shape, place);
    for (uint64_t level = 1; level < tree.unit; level *= radix)
        for (uint64_t child = place + level; child < place + level * radix; child += level)
            if (child < shape->size)
                received = weft__add_await(s, rank_at(shape, (uint32_t)child), 0, AFTER(received));
    if (place != 0) weft__add_signal(s, rank_at(shape, tree.parent), 0, AFTER(received));
}

void weft__build_FANOUT_knomial(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    uint32_t place = place_of(shape), radix = weft__radix(shape), received = 0;
    struct knomial tree = weft__knomial(shape, place);
    if (place != 0) received = weft__add_await(s, rank_at(shape, tree.parent), 0, AFTER(0));
    for (uint64_t level = first_level(shape, tree.unit); level > 0; level /= radix)
        for (uint64_t child = place + level; child < place + level * radix; child += level)
            if (child < shape->size)
                weft__add_signal(s, rank_at(shape, (uint32_t)child), 0, AFTER(received));
}

void weft__build_FANIN_linear(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    if (shape->rank != shape->root) weft__add_signal(s, shape->root, 0, AFTER(0));
    for (uint32_t r = 0; r < shape->size && shape->rank == shape->root; r++)
        if (r != shape->root) weft__add_await(s, r, 0, AFTER(0));
}

void weft__build_FANOUT_linear(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    if (shape->rank != shape->root) weft__add_await(s, shape->root, 0, AFTER(0));
    for (uint32_t r = 0; r < shape->size && shape->rank == shape->root; r++)
        if (r != shape->root) weft__add_signal(s, r, 0, AFTER(0));
}

/* In by one tree, out by the same. */
void weft__build_BARRIER_knomial(struct schedule *s) {
    struct coll_part in = {.build = weft__build_FANIN_knomial, .shape = s->shape, .number = 1};
    struct coll_part out = {.build = weft__build_FANOUT_knomial, .shape = s->shape, .number = 2};
    in.shape.kind = COLL_FANIN;
    out.shape.kind = COLL_FANOUT;
    weft__add_part(s, &in);
    weft__add_gate(s);
    weft__add_part(s, &out);
}
