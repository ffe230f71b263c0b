/* Schedules of broadcast: trees, a chain, scatter with allgather, and two trees at once. */
#include <collectives/schedule.h>
#include <reactor/reactor.h>

/* A binomial tree over ranks counted from the root: the farthest child first, since its subtree
 * is the largest. */
void weft__build_BCAST_binomial(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    uint32_t size = shape->size, place = (shape->rank + size - shape->root) % size, got = 0,
             bit = 1;
    while (bit < size && !(place & bit)) bit *= 2;
    if (place != 0) {
        uint32_t parent = (place - bit + shape->root) % size;
        got = weft__add_recv(s, parent, 0, AT(DST, 0), weft__shape_bytes(shape), AFTER(0));
    }
    for (bit /= 2; bit > 0; bit /= 2) {
        if (place + bit >= size) continue;
        uint32_t child = (place + bit + shape->root) % size;
        weft__add_send(s, child, 0, AT(DST, 0), weft__shape_bytes(shape), AFTER(got));
    }
}

/* A chain from the root on, a segment at a time: every link carries every byte once, all at the
 * same time. */
void weft__build_BCAST_chain(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    uint32_t size = shape->size, place = (shape->rank + size - shape->root) % size;
    uint32_t before = (shape->rank + size - 1) % size, next = (shape->rank + 1) % size, sent = 0,
             tag = 0;
    uint64_t bytes = weft__shape_bytes(shape);
    for (uint64_t at = 0; at < bytes; at += shape->segment, tag++) {
        uint64_t len = bytes - at < shape->segment ? bytes - at : shape->segment;
        uint32_t got = place > 0 ? weft__add_recv(s, before, tag, AT(DST, at), len, AFTER(0)) : 0;
        if (place + 1 < size)
            sent = weft__add_send(s, next, tag, AT(DST, at), len, AFTER(got, sent));
    }
}

/* ---- k-nomial, linear ------------------------------------------------------------------------ */

void weft__build_BCAST_knomial(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    uint32_t size = shape->size, place = (shape->rank + size - shape->root) % size, got = 0;
    uint64_t bytes = weft__shape_bytes(shape), radix = weft__radix(shape), level = 1;
    struct knomial tree = weft__knomial(shape, place);
    if (place != 0)
        got = weft__add_recv(s, (uint32_t)(((uint64_t)tree.parent + shape->root) % size), 0,
                             AT(DST, 0), bytes, AFTER(0));
    while (level * radix < tree.unit) level *= radix;
    for (; level > 0 && tree.unit > 1; level /= radix)
        for (uint64_t child = place + level; child < place + level * radix; child += level)
            if (child < size)
                weft__add_send(s, (uint32_t)((child + shape->root) % size), 0, AT(DST, 0), bytes,
                               AFTER(got));
}

void weft__build_BCAST_linear(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    if (shape->rank != shape->root)
        weft__add_recv(s, shape->root, 0, AT(DST, 0), weft__shape_bytes(shape), AFTER(0));
    for (uint32_t r = 0; r < shape->size && shape->rank == shape->root; r++)
        if (r != shape->root)
            weft__add_send(s, r, 0, AT(DST, 0), weft__shape_bytes(shape), AFTER(0));
}

/* ---- scatter and allgather ------------------------------------------------------------------- */

/* The pieces of the vector, one a rank, as blocks of a v-form. */
static bool cut_into_pieces(struct schedule *s, struct coll_vector *pieces_p) {
    const struct coll_shape *shape = &s->shape;
    uint64_t *at = weft__alloc(s, 2 * (size_t)shape->size * sizeof *at, "pieces");
    if (!at) {
        s->status = WEFT_ERR_NO_MEMORY;
        return false;
    }
    for (uint32_t r = 0; r < shape->size; r++) {
        struct piece piece = weft__piece(shape->count, 1, shape->size, r);
        at[r] = piece.len;
        at[shape->size + r] = piece.offset;
    }
    *pieces_p = (struct coll_vector){at, at + shape->size};
    return true;
}

/* van de Geijn: every member gets a piece from the root, then all pieces go around. */
void weft__build_BCAST_scatter_allgather(struct schedule *s) {
    struct coll_vector pieces;
    if (!cut_into_pieces(s, &pieces)) return;
    struct coll_part scatter = {
        .build = weft__build_SCATTERV_linear, .shape = s->shape, .number = 1, .src = AT(DST, 0)};
    struct coll_part gather = {
        .build = weft__build_ALLGATHERV_ring, .shape = s->shape, .number = 2, .dst = AT(DST, 0)};
    uint32_t rank = s->shape.rank;
    uint64_t own = pieces.offset[rank] * s->shape.width;
    scatter.shape.kind = COLL_SCATTERV;
    scatter.shape.src = pieces;
    scatter.shape.count = gather.shape.count = pieces.count[rank];
    gather.shape.kind = COLL_ALLGATHERV;
    gather.shape.dst = pieces;
    scatter.dst = gather.src = AT(DST, own);
    weft__add_part(s, &scatter);
    weft__add_gate(s);
    weft__add_part(s, &gather);
}

/* ---- two trees ------------------------------------------------------------------------------- */

/*
 * A binary tree over 1..n whose order is that of its places: a place's height is that of its lowest
 * bit, and the odd ones are leaves.
 */
static uint32_t tree_parent(uint32_t n, uint32_t place) {
    uint32_t low = place & -place, parent = place;
    do {
        bool right = parent & 2 * low;
        parent = right ? parent - low : parent + low;
        low *= 2;
    } while (parent > n);
    return parent;
}

/* The root of the tree: its highest power of two; it has no parent among the places. */
static uint32_t tree_top(uint32_t n) {
    uint32_t top = 1;
    while (2 * top <= n) top *= 2;
    return top;
}

/* Place 0 is the root of the collective, and hands all to the top. */
static uint32_t parent_of(uint32_t n, uint32_t place) {
    return place == tree_top(n) ? 0 : tree_parent(n, place);
}

static void build_tree_segments(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    uint32_t place = shape->rank, n = shape->size - 1, child[2], n_children = 0, tag = 0;
    uint32_t sent[2] = {0, 0};
    uint64_t bytes = weft__shape_bytes(shape), segment = weft__segment_bytes(shape);
    for (uint32_t p = 1; p <= n && n_children < 2; p++)
        if (p != place && parent_of(n, p) == place) child[n_children++] = p;
    for (uint64_t at = 0; at < bytes; at += segment, tag++) {
        uint64_t len = bytes - at < segment ? bytes - at : segment;
        uint32_t got =
            place ? weft__add_recv(s, parent_of(n, place), tag, AT(DST, at), len, AFTER(0)) : 0;
        for (uint32_t i = 0; i < n_children; i++)
            sent[i] = weft__add_send(s, child[i], tag, AT(DST, at), len, AFTER(got, sent[i]));
    }
}

/*
 * Sanders, Speck & Traeff 2009: each half of the vector goes down a binary tree of its own, in
 * segments; who is within one tree is a leaf of the other, where sizes allow it.
 */
void weft__build_BCAST_double_tree(struct schedule *s) {
    uint32_t size = s->shape.size, n = size - 1, place = 0;
    uint32_t *map = weft__alloc(s, 2 * (size_t)size * sizeof *map, "map");
    if (!map) {
        s->status = WEFT_ERR_NO_MEMORY;
        return;
    }
    for (uint32_t half = 0; half < 2; half++) {
        uint32_t *to = map + half * size;
        for (uint32_t p = 0; p < size; p++) {
            /* The second tree: one place on where the count is odd, else mirrored. */
            uint32_t q = !half || !p ? p : n % 2 ? p % n + 1 : n + 1 - p;
            to[p] = (q + s->shape.root) % size;
            if (to[p] == s->shape.rank) place = p;
        }
        struct piece piece = weft__piece(s->shape.count, s->shape.width, 2, half);
        struct coll_part part = {.build = build_tree_segments,
                                 .shape = s->shape,
                                 .map = to,
                                 .number = 1 + half,
                                 .dst = AT(DST, piece.offset)};
        part.shape.rank = place;
        part.shape.root = 0;
        part.shape.count = piece.len / s->shape.width;
        weft__add_part(s, &part);
    }
}
