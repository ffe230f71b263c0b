/* Everybody to everybody, and neighbours of a graph to each other. */
#include <collectives/schedule.h>

/* ---- straight to where it belongs ------------------------------------------------------------ */

/* Where a block is sent from. In place, SRC was copied first, packed. */
struct origin {
    bool copied;
    uint64_t at;
};

static struct coll_ref from_origin(const struct coll_shape *shape, const struct origin *origin,
                                   uint32_t r) {
    if (!origin->copied) return AT(SRC, weft__src_block(shape, r).offset);
    uint64_t at = 0;
    if (!shape->src.count) return AT(SCRATCH, weft__src_block(shape, r).offset);
    for (uint32_t i = 0; i < r; i++) at += weft__src_block(shape, i).len;
    return AT(SCRATCH, at);
}

static struct origin save_source(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    uint64_t at = 0;
    if (!shape->in_place) return (struct origin){false, 0};
    for (uint32_t r = 0; r < shape->size; r++) {
        struct piece block = weft__src_block(shape, r);
        weft__add_copy(s, AT(SCRATCH, at), AT(SRC, block.offset), block.len, AFTER(0));
        at += block.len;
    }
    weft__add_gate(s);
    s->scratch = at;
    return (struct origin){true, at};
}

/* In step i with those i further on and i before; one step after the other, or all at once. */
static void exchange_all(struct schedule *s, bool in_turn) {
    const struct coll_shape *shape = &s->shape;
    uint32_t size = shape->size, rank = shape->rank, sent = 0, got = 0;
    struct origin origin = save_source(s);
    struct piece own = weft__dst_block(shape, rank);
    if (!origin.copied)
        weft__add_copy(s, AT(DST, own.offset), from_origin(shape, &origin, rank), own.len,
                       AFTER(0));
    for (uint32_t i = 1; i < size; i++) {
        uint32_t to = (rank + i) % size, from = (rank + size - i) % size;
        struct piece give = weft__src_block(shape, to), take = weft__dst_block(shape, from);
        struct after after = in_turn ? AFTER(sent, got) : AFTER(0);
        uint32_t gone = weft__add_send(s, to, 0, from_origin(shape, &origin, to), give.len, after);
        uint32_t came = weft__add_recv(s, from, 0, AT(DST, take.offset), take.len, after);
        if (gone) sent = gone;
        if (came) got = came;
    }
}

void weft__build_ALLTOALL_pairwise(struct schedule *s) {
    exchange_all(s, true);
}
void weft__build_ALLTOALLV_pairwise(struct schedule *s) {
    exchange_all(s, true);
}
void weft__build_ALLTOALL_linear(struct schedule *s) {
    exchange_all(s, false);
}
void weft__build_ALLTOALLV_linear(struct schedule *s) {
    exchange_all(s, false);
}

/* ---- Bruck ----------------------------------------------------------------------------------- */

/* All blocks whose distance has this bit, packed, go 2^k further on; as many come. */
static void bruck_round(struct schedule *s, uint32_t bit, uint32_t tag) {
    const struct coll_shape *shape = &s->shape;
    uint32_t size = shape->size, rank = shape->rank, n = 0;
    uint64_t bytes = shape->count * shape->width, out = size * bytes, in = 2 * size * bytes;
    for (uint32_t i = bit; i < size; i++)
        if (i & bit)
            weft__add_copy(s, AT(SCRATCH, out + n++ * bytes), AT(SCRATCH, i * bytes), bytes,
                           AFTER(0));
    weft__add_gate(s);
    weft__add_send(s, (rank + bit) % size, tag, AT(SCRATCH, out), n * bytes, AFTER(0));
    weft__add_recv(s, (rank + size - bit) % size, tag, AT(SCRATCH, in), n * bytes, AFTER(0));
    weft__add_gate(s);
    n = 0;
    for (uint32_t i = bit; i < size; i++)
        if (i & bit)
            weft__add_copy(s, AT(SCRATCH, i * bytes), AT(SCRATCH, in + n++ * bytes), bytes,
                           AFTER(0));
    weft__add_gate(s);
}

/*
 * Bruck et al. 1997: log2(size) messages of half of everything each, for blocks so small that
 * messages cost more than bytes. Block i is the one for the rank i further on, and at the end from
 * the rank i before.
 */
void weft__build_ALLTOALL_bruck(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    uint32_t size = shape->size, rank = shape->rank, tag = 0;
    uint64_t bytes = shape->count * shape->width;
    for (uint32_t i = 0; i < size; i++)
        weft__add_copy(s, AT(SCRATCH, i * bytes), AT(SRC, (rank + i) % size * bytes), bytes,
                       AFTER(0));
    weft__add_gate(s);
    for (uint32_t bit = 1; bit < size; bit *= 2) bruck_round(s, bit, tag++);
    for (uint32_t i = 0; i < size; i++)
        weft__add_copy(s, AT(DST, (rank + size - i) % size * bytes), AT(SCRATCH, i * bytes), bytes,
                       AFTER(0));
    s->scratch = 3 * size * bytes;
}

/* ---- neighbours ------------------------------------------------------------------------------ */

/* An edge may be there twice: its tag is how often it came before in the list. */
static uint32_t seen_before(const uint32_t *list, uint32_t index) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < index; i++) n += list[i] == list[index];
    return n;
}

/* A member that is its own neighbour copies: the k-th edge out is the k-th edge in. */
static void copy_to_self(struct schedule *s, struct piece from, uint32_t k) {
    const struct coll_shape *shape = &s->shape;
    for (uint32_t i = 0; i < shape->n_sources; i++) {
        if (shape->source[i] != shape->rank || k-- > 0) continue;
        struct piece to = weft__dst_block(shape, i);
        weft__add_copy(s, AT(DST, to.offset), AT(SRC, from.offset), from.len, AFTER(0));
        return;
    }
}

void weft__build_NEIGHBOR_ALLTOALLV_linear(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    for (uint32_t i = 0; i < shape->n_destinations; i++) {
        uint32_t k = seen_before(shape->destination, i);
        struct piece give = weft__src_block(shape, i);
        if (shape->destination[i] == shape->rank)
            copy_to_self(s, give, k);
        else
            weft__add_send(s, shape->destination[i], k, AT(SRC, give.offset), give.len, AFTER(0));
    }
    for (uint32_t i = 0; i < shape->n_sources; i++) {
        struct piece take = weft__dst_block(shape, i);
        if (shape->source[i] != shape->rank)
            weft__add_recv(s, shape->source[i], seen_before(shape->source, i), AT(DST, take.offset),
                           take.len, AFTER(0));
    }
}
