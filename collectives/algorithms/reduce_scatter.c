/* Reductions of which each member gets a block. */
#include <collectives/schedule.h>
#include <reactor/reactor.h>

/* The place of a rank's block of the result: it may stand in SRC. */
static uint64_t largest(const struct coll_shape *shape) {
    uint64_t most = 0;
    for (uint32_t r = 0; r < shape->size; r++) {
        uint64_t len = weft__src_block(shape, r).len;
        if (len > most) most = len;
    }
    return most;
}

/* A block travels the ring, gathers contributions, and ends at its owner. */
static void build_ring(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    uint32_t size = shape->size, rank = shape->rank, next = (rank + 1) % size,
             before = (rank + size - 1) % size, sent[2] = {0, 0}, read[2] = {0, 0}, ready = 0;
    uint64_t most = largest(shape);
    for (uint32_t i = 0; i + 1 < size; i++) {
        struct piece pass = weft__src_block(shape, (rank + 2 * size - i - 1) % size);
        struct piece take = weft__src_block(shape, (rank + 2 * size - i - 2) % size);
        struct coll_ref room = AT(SCRATCH, (i % 2) * most),
                        from = i ? AT(SCRATCH, ((i + 1) % 2) * most) : AT(SRC, pass.offset);
        uint32_t gone = weft__add_send(s, next, i, from, pass.len, AFTER(ready));
        if (gone && i) sent[(i + 1) % 2] = gone;
        uint32_t got =
            weft__add_recv(s, before, i, room, take.len, AFTER(sent[i % 2], read[i % 2]));
        struct coll_ref to = i + 2 == size ? AT(DST, 0) : room;
        ready = weft__add_reduce(s, to, room, AT(SRC, take.offset), take.len, AFTER(got));
        weft__reads_alone(s, got, ready);
        if (ready) read[i % 2] = ready;
    }
    s->scratch = 2 * most;
}

/* In step i each gives the member i further on its block, and adds one to its own. */
static void build_pairwise(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    uint32_t size = shape->size, rank = shape->rank, ready = 0, read[2] = {0, 0};
    struct piece own = weft__src_block(shape, rank);
    struct coll_ref sum = AT(SRC, own.offset);
    for (uint32_t i = 1; i < size; i++) {
        uint32_t to = (rank + i) % size, from = (rank + size - i) % size;
        struct piece give = weft__src_block(shape, to);
        struct coll_ref room = AT(SCRATCH, ((i + 1) % 2) * own.len);
        weft__add_send(s, to, i, AT(SRC, give.offset), give.len, AFTER(0));
        uint32_t got = weft__add_recv(s, from, i, room, own.len, AFTER(read[i % 2]));
        ready = read[i % 2] =
            weft__add_reduce(s, AT(DST, 0), sum, room, own.len, AFTER(got, ready));
        weft__reads_alone(s, got, ready);
        sum = AT(DST, 0);
    }
    s->scratch = 2 * own.len;
}

/* The same in the order of ranks: contributions wait in scratch memory for those before them. The
 * first becomes the sum of those below this rank. */
static void build_fold(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    uint32_t size = shape->size, rank = shape->rank, ready = 0;
    struct piece own = weft__src_block(shape, rank);
    for (uint32_t i = 1; i < size; i++) {
        struct piece give = weft__src_block(shape, (rank + i) % size);
        weft__add_send(s, (rank + i) % size, 0, AT(SRC, give.offset), give.len, AFTER(0));
    }
    struct coll_ref sum = AT(SRC, own.offset);
    for (uint32_t r = 0; r < size; r++) {
        struct coll_ref room = AT(SCRATCH, (r < rank ? r : r - 1) * own.len);
        struct coll_ref part = r == rank ? AT(SRC, own.offset) : room;
        uint32_t got = r == rank ? 0 : weft__add_recv(s, r, 0, part, own.len, AFTER(0));
        struct coll_ref to = r < rank ? AT(SCRATCH, 0) : AT(DST, 0);
        if (r > 0) ready = weft__add_reduce(s, to, sum, part, own.len, AFTER(got, ready));
        if (r == 0) ready = got;
        sum = r == 0 ? part : to;
    }
    s->scratch = (size - 1) * own.len;
}

/* ---- recursive halving ----------------------------------------------------------------------- */

/* Where the size is no power of two, the first ranks work in pairs, as in allreduce doubling. */
struct halves {
    uint32_t pairs, power;
};

static uint64_t start_of(const struct coll_shape *shape, struct halves h, uint32_t index) {
    uint32_t rank = index < h.pairs ? 2 * index : index + h.pairs;
    if (index < h.power) return weft__src_block(shape, rank).offset;
    struct piece last = weft__src_block(shape, shape->size - 1);
    return last.offset + last.len;
}

/* The blocks that `index` keeps and gives away, at a distance. */
static uint32_t halve(struct schedule *s, struct halves h, uint32_t index, uint32_t ready,
                      struct coll_ref *mine) {
    const struct coll_shape *shape = &s->shape;
    uint64_t total = start_of(shape, h, h.power);
    uint32_t low = 0, tag = 1;
    for (uint32_t bit = h.power / 2; bit > 0; bit /= 2, tag++) {
        uint32_t other = index ^ bit, peer = other < h.pairs ? 2 * other + 1 : other + h.pairs;
        uint64_t a = start_of(shape, h, low), b = start_of(shape, h, low + bit),
                 c = start_of(shape, h, low + 2 * bit);
        bool upper = index & bit;
        uint64_t keep = upper ? b : a, len = upper ? c - b : b - a, give = upper ? a : b;
        struct coll_ref from = {mine->buffer, mine->offset + give},
                        own = {mine->buffer, mine->offset + keep};
        weft__add_send(s, peer, tag, from, c - a - len, AFTER(ready));
        /* Nothing lies in the first half yet in the first round. */
        uint64_t room = mine->buffer == COLL_SRC ? keep : total + keep;
        struct coll_ref theirs = AT(SCRATCH, room), to = AT(SCRATCH, keep);
        uint32_t got = weft__add_recv(s, peer, tag, theirs, len, AFTER(ready));
        uint32_t done = other < index
                            ? weft__add_reduce(s, to, theirs, own, len, AFTER(got, ready))
                            : weft__add_reduce(s, to, own, theirs, len, AFTER(got, ready));
        weft__reads_alone(s, got, done);
        if (done) ready = done;
        *mine = AT(SCRATCH, 0);
        if (upper) low += bit;
    }
    return ready;
}

static void build_halving(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    uint32_t size = shape->size, rank = shape->rank, ready = 0;
    struct halves h = {0, 1};
    while (2 * h.power <= size) h.power *= 2;
    h.pairs = size - h.power;
    uint64_t total = start_of(shape, h, h.power);
    struct piece own = weft__src_block(shape, rank);
    struct coll_ref mine = AT(SRC, 0);
    if (rank < 2 * h.pairs && rank % 2 == 0) {
        uint32_t sent = weft__add_send(s, rank + 1, 0, AT(SRC, 0), total, AFTER(0));
        weft__add_recv(s, rank + 1, 60, AT(DST, 0), own.len, AFTER(sent));
        return;
    }
    if (rank < 2 * h.pairs) {
        uint32_t got = weft__add_recv(s, rank - 1, 0, AT(SCRATCH, 0), total, AFTER(0));
        ready = weft__add_reduce(s, AT(SCRATCH, 0), AT(SCRATCH, 0), AT(SRC, 0), total, AFTER(got));
        mine = AT(SCRATCH, 0);
    }
    ready = halve(s, h, rank < 2 * h.pairs ? rank / 2 : rank - h.pairs, ready, &mine);
    if (rank < 2 * h.pairs) {
        struct piece theirs = weft__src_block(shape, rank - 1);
        weft__add_send(s, rank - 1, 60, AT(SCRATCH, theirs.offset), theirs.len, AFTER(ready));
    }
    weft__add_gate(s); /* DST may stand in SRC, which is sent from */
    weft__add_copy(s, AT(DST, 0), AT(SCRATCH, own.offset), own.len, AFTER(ready, s->gate));
    s->scratch = 2 * total;
}

void weft__build_REDUCE_SCATTER_ring(struct schedule *s) {
    build_ring(s);
}
void weft__build_REDUCE_SCATTERV_ring(struct schedule *s) {
    build_ring(s);
}
void weft__build_REDUCE_SCATTER_pairwise(struct schedule *s) {
    build_pairwise(s);
}
void weft__build_REDUCE_SCATTERV_pairwise(struct schedule *s) {
    build_pairwise(s);
}
void weft__build_REDUCE_SCATTER_fold(struct schedule *s) {
    build_fold(s);
}
void weft__build_REDUCE_SCATTERV_fold(struct schedule *s) {
    build_fold(s);
}
void weft__build_REDUCE_SCATTER_halving(struct schedule *s) {
    build_halving(s);
}
void weft__build_REDUCE_SCATTERV_halving(struct schedule *s) {
    build_halving(s);
}
