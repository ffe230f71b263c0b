/* Schedules of allgather and allgatherv: Bruck, ring, recursive doubling, neighbour exchange and
 * linear. */
#include <collectives/schedule.h>

/* The user's own block into its place, which may be where it stands already. */
static uint32_t place_own(struct schedule *s, uint64_t bytes) {
    return weft__add_copy(s, AT(DST, s->shape.rank * bytes), AT(SRC, 0), bytes, AFTER(0));
}

/* Blocks [first, first + n) around the circle lie in at most two runs. */
static uint32_t runs(uint32_t size, uint32_t first, uint32_t n, uint32_t start[2],
                     uint32_t len[2]) {
    start[0] = first;
    len[0] = first + n <= size ? n : size - first;
    start[1] = 0;
    len[1] = n - len[0];
    return len[1] ? 2 : 1;
}

/*
 * Bruck et al. 1997: after round k a rank has the 2^(k+1) blocks that begin with its own, for it
 * takes those of the rank 2^k further on. Blocks go to where they belong at once, in up to two
 * messages a round, so nothing is rotated afterwards.
 */
uint32_t weft__add_gather(struct schedule *s, enum coll_buffer buffer, uint64_t bytes,
                          uint32_t own) {
    uint32_t size = s->shape.size, rank = s->shape.rank, have = 1, tag = 0, start[2], len[2];
    uint32_t got[2] = {own, 0};
    while (have < size) {
        uint32_t n = size - have < have ? size - have : have;
        uint32_t to = (rank + size - have) % size, from = (rank + have) % size;
        uint32_t n_runs = runs(size, rank, n, start, len);
        for (uint32_t i = 0; i < n_runs; i++)
            weft__add_send(s, to, tag + i, (struct coll_ref){buffer, start[i] * bytes},
                           len[i] * bytes, AFTER(got[0], got[1]));
        n_runs = runs(size, from, n, start, len);
        /* What is passed on next is all that came so far: each receive waits for those before
         * it. */
        uint32_t first = weft__add_recv(s, from, tag, (struct coll_ref){buffer, start[0] * bytes},
                                        len[0] * bytes, AFTER(got[0], got[1]));
        uint32_t second = n_runs < 2 ? 0
                                     : weft__add_recv(s, from, tag + 1,
                                                      (struct coll_ref){buffer, start[1] * bytes},
                                                      len[1] * bytes, AFTER(got[0], got[1]));
        got[0] = first;
        got[1] = second;
        have += n;
        tag += 2;
    }
    return got[0] > got[1] ? got[0] : got[1];
}

void weft__build_ALLGATHER_bruck(struct schedule *s) {
    uint64_t bytes = s->shape.count * s->shape.width;
    weft__add_gather(s, COLL_DST, bytes, place_own(s, bytes));
}

/* A ring: every block travels from neighbour to neighbour, so that each link carries each byte
 * once. */
void weft__build_ALLGATHERV_ring(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    uint32_t size = shape->size, rank = shape->rank, sent = 0;
    struct piece own = weft__dst_block(shape, rank);
    uint32_t have = weft__add_copy(s, AT(DST, own.offset), AT(SRC, 0), own.len, AFTER(0));
    for (uint32_t i = 0; i + 1 < size; i++) {
        struct piece pass = weft__dst_block(shape, (rank + size - i) % size);
        struct piece take = weft__dst_block(shape, (rank + 2 * size - i - 1) % size);
        sent = weft__add_send(s, (rank + 1) % size, i, AT(DST, pass.offset), pass.len,
                              AFTER(have, sent));
        have = weft__add_recv(s, (rank + size - 1) % size, i, AT(DST, take.offset), take.len,
                              AFTER(0));
    }
}

void weft__build_ALLGATHER_neighbours(struct schedule *s) {
    weft__build_ALLGATHERV_ring(s);
}

/* Each to each. */
void weft__build_ALLGATHERV_linear(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    uint32_t size = shape->size, rank = shape->rank;
    struct piece own = weft__dst_block(shape, rank);
    uint32_t have = weft__add_copy(s, AT(DST, own.offset), AT(SRC, 0), own.len, AFTER(0));
    for (uint32_t i = 1; i < size; i++) {
        uint32_t from = (rank + size - i) % size;
        struct piece take = weft__dst_block(shape, from);
        weft__add_send(s, (rank + i) % size, 0, AT(DST, own.offset), own.len, AFTER(have));
        weft__add_recv(s, from, 0, AT(DST, take.offset), take.len, AFTER(0));
    }
}

void weft__build_ALLGATHER_linear(struct schedule *s) {
    weft__build_ALLGATHERV_linear(s);
}

/*
 * Recursive doubling: in round k the 2^k blocks that two groups have change hands. Where the size
 * is no power of two the ring is taken.
 */
void weft__build_ALLGATHER_doubling(struct schedule *s) {
    uint32_t size = s->shape.size, rank = s->shape.rank, tag = 0;
    uint64_t bytes = s->shape.count * s->shape.width;
    if (size & (size - 1)) {
        weft__build_ALLGATHERV_ring(s);
        return;
    }
    uint32_t have = place_own(s, bytes);
    for (uint32_t bit = 1; bit < size; bit *= 2) {
        uint32_t mine = rank & ~(bit - 1), theirs = mine ^ bit;
        weft__add_send(s, rank ^ bit, tag, AT(DST, mine * bytes), bit * bytes, AFTER(have));
        have =
            weft__add_recv(s, rank ^ bit, tag++, AT(DST, theirs * bytes), bit * bytes, AFTER(have));
    }
}

/*
 * Neighbour exchange (Chen et al. 2005): pairs of neighbours swap, with the one side and the other
 * in turn, what they got last, two blocks at a time: half the rounds of the ring. An odd size takes
 * the ring.
 */
void weft__build_ALLGATHER_exchange(struct schedule *s) {
    uint32_t size = s->shape.size, rank = s->shape.rank;
    uint64_t bytes = s->shape.count * s->shape.width;
    if (size % 2) {
        weft__build_ALLGATHERV_ring(s);
        return;
    }
    bool even = rank % 2 == 0;
    uint32_t side[2] = {(rank + (even ? 1 : size - 1)) % size,
                        (rank + (even ? size - 1 : 1)) % size};
    uint32_t base = rank & ~1u, last = base, have = place_own(s, bytes);
    weft__add_send(s, side[0], 0, AT(DST, rank * bytes), bytes, AFTER(have));
    uint32_t got = weft__add_recv(s, side[0], 0, AT(DST, side[0] * bytes), bytes, AFTER(0));
    for (uint32_t i = 1; i < size / 2; i++) {
        /* Pairs come from further and further off, from below and from above in turn. */
        uint32_t far = 2 * ((i + 1) / 2), below = (base + size - far) % size;
        uint32_t take = even == (i % 2 == 1) ? below : (base + far) % size;
        weft__add_send(s, side[i % 2], i, AT(DST, last * bytes), 2 * bytes, AFTER(have, got));
        got = weft__add_recv(s, side[i % 2], i, AT(DST, take * bytes), 2 * bytes, AFTER(0));
        have = 0;
        last = take;
    }
}
