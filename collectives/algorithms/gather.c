/* Gathers and scatters: by a k-nomial tree of blocks, or straight to and from the root. */
#include <collectives/schedule.h>

/* Blocks of places [first, first + n) lie in at most two runs of ranks. */
struct runs {
    uint32_t rank[2], n[2];
};

static struct runs runs_of(const struct coll_shape *shape, uint32_t first, uint32_t n) {
    uint32_t rank = (uint32_t)(((uint64_t)first + shape->root) % shape->size);
    uint32_t here = rank + n <= shape->size ? n : shape->size - rank;
    return (struct runs){{rank, 0}, {here, n - here}};
}

static uint32_t place_of(const struct coll_shape *shape) {
    return (shape->rank + shape->size - shape->root) % shape->size;
}
static uint32_t rank_at(const struct coll_shape *shape, uint32_t place) {
    return (uint32_t)(((uint64_t)place + shape->root) % shape->size);
}
static uint32_t blocks_below(const struct coll_shape *shape, uint32_t place, uint64_t unit) {
    return (uint32_t)(place + unit <= shape->size ? unit : shape->size - place);
}

/* ---- gather ---------------------------------------------------------------------------------- */

/* A child's blocks: at the root where they belong, elsewhere by place in scratch memory. */
static void take_subtree(struct schedule *s, uint32_t child, uint32_t n) {
    const struct coll_shape *shape = &s->shape;
    uint32_t place = place_of(shape), peer = rank_at(shape, child);
    uint64_t bytes = shape->count * shape->width;
    if (place != 0) {
        weft__add_recv(s, peer, 0, AT(SCRATCH, (child - place) * bytes), n * bytes, AFTER(0));
        return;
    }
    struct runs runs = runs_of(shape, child, n);
    for (uint32_t i = 0; i < 2; i++)
        weft__add_recv(s, peer, i, AT(DST, runs.rank[i] * bytes), runs.n[i] * bytes, AFTER(0));
}

static void give_subtree(struct schedule *s, uint32_t parent, uint32_t n) {
    const struct coll_shape *shape = &s->shape;
    uint64_t bytes = shape->count * shape->width, at = 0;
    struct runs runs = {{0, 0}, {n, 0}};
    if (parent == 0) runs = runs_of(shape, place_of(shape), n);
    for (uint32_t i = 0; i < 2; at += runs.n[i++] * bytes)
        weft__add_send(s, rank_at(shape, parent), i, n == 1 ? AT(SRC, 0) : AT(SCRATCH, at),
                       runs.n[i] * bytes, AFTER(0));
}

void weft__build_GATHER_knomial(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    uint32_t place = place_of(shape), radix = weft__radix(shape);
    uint64_t bytes = shape->count * shape->width;
    struct knomial tree = weft__knomial(shape, place);
    uint32_t n = blocks_below(shape, place, tree.unit);
    if (place == 0)
        weft__add_copy(s, AT(DST, shape->rank * bytes), AT(SRC, 0), bytes, AFTER(0));
    else if (n > 1)
        weft__add_copy(s, AT(SCRATCH, 0), AT(SRC, 0), bytes, AFTER(0));
    for (uint64_t level = 1; level < tree.unit; level *= radix)
        for (uint64_t child = place + level; child < place + level * radix; child += level)
            if (child < shape->size)
                take_subtree(s, (uint32_t)child, blocks_below(shape, (uint32_t)child, level));
    if (place == 0) return;
    if (n > 1) weft__add_gate(s);
    give_subtree(s, tree.parent, n);
    if (n > 1) s->scratch = n * bytes;
}

void weft__build_GATHERV_linear(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    if (shape->rank != shape->root) {
        weft__add_send(s, shape->root, 0, AT(SRC, 0), shape->count * shape->width, AFTER(0));
        return;
    }
    for (uint32_t r = 0; r < shape->size; r++) {
        struct piece block = weft__dst_block(shape, r);
        if (r == shape->rank)
            weft__add_copy(s, AT(DST, block.offset), AT(SRC, 0), block.len, AFTER(0));
        else
            weft__add_recv(s, r, 0, AT(DST, block.offset), block.len, AFTER(0));
    }
}

void weft__build_GATHER_linear(struct schedule *s) {
    weft__build_GATHERV_linear(s);
}

/* ---- scatter: the same, backwards ------------------------------------------------------------ */

static void hand_down(struct schedule *s, uint32_t child, uint32_t n, uint32_t got) {
    const struct coll_shape *shape = &s->shape;
    uint32_t place = place_of(shape), peer = rank_at(shape, child);
    uint64_t bytes = shape->count * shape->width;
    if (place != 0) {
        weft__add_send(s, peer, 0, AT(SCRATCH, (child - place) * bytes), n * bytes, AFTER(got));
        return;
    }
    struct runs runs = runs_of(shape, child, n);
    for (uint32_t i = 0; i < 2; i++)
        weft__add_send(s, peer, i, AT(SRC, runs.rank[i] * bytes), runs.n[i] * bytes, AFTER(0));
}

/* What comes from the parent: the last step of it. */
static uint32_t get_subtree(struct schedule *s, uint32_t parent, uint32_t n) {
    const struct coll_shape *shape = &s->shape;
    uint64_t bytes = shape->count * shape->width, at = 0;
    uint32_t got = 0;
    struct runs runs = {{0, 0}, {n, 0}};
    if (parent == 0) runs = runs_of(shape, place_of(shape), n);
    for (uint32_t i = 0; i < 2; at += runs.n[i++] * bytes) {
        struct coll_ref to = n == 1 ? AT(DST, 0) : AT(SCRATCH, at);
        uint32_t part =
            weft__add_recv(s, rank_at(shape, parent), i, to, runs.n[i] * bytes, AFTER(got));
        if (part) got = part;
    }
    return got;
}

void weft__build_SCATTER_knomial(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    uint32_t place = place_of(shape), radix = weft__radix(shape), got = 0;
    uint64_t bytes = shape->count * shape->width, level = 1;
    struct knomial tree = weft__knomial(shape, place);
    uint32_t n = blocks_below(shape, place, tree.unit);
    if (place != 0) got = get_subtree(s, tree.parent, n);
    while (level * radix < tree.unit) level *= radix;
    for (; level > 0 && tree.unit > 1; level /= radix)
        for (uint64_t child = place + level; child < place + level * radix; child += level)
            if (child < shape->size)
                hand_down(s, (uint32_t)child, blocks_below(shape, (uint32_t)child, level), got);
    if (place == 0)
        weft__add_copy(s, AT(DST, 0), AT(SRC, shape->rank * bytes), bytes, AFTER(0));
    else if (n > 1)
        weft__add_copy(s, AT(DST, 0), AT(SCRATCH, 0), bytes, AFTER(got));
    if (place != 0 && n > 1) s->scratch = n * bytes;
}

void weft__build_SCATTERV_linear(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    if (shape->rank != shape->root) {
        weft__add_recv(s, shape->root, 0, AT(DST, 0), shape->count * shape->width, AFTER(0));
        return;
    }
    for (uint32_t r = 0; r < shape->size; r++) {
        struct piece block = weft__src_block(shape, r);
        if (r == shape->rank)
            weft__add_copy(s, AT(DST, 0), AT(SRC, block.offset), block.len, AFTER(0));
        else
            weft__add_send(s, r, 0, AT(SRC, block.offset), block.len, AFTER(0));
    }
}

void weft__build_SCATTER_linear(struct schedule *s) {
    weft__build_SCATTERV_linear(s);
}
