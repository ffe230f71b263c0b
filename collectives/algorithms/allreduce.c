/* Schedules of allreduce: recursive doubling, rings, trees, Rabenseifner's, and in order of the
 * ranks. */
#include <collectives/schedule.h>
#include <reactor/reactor.h>

/* What is reduced, in the order of the ranks. */
struct operands {
    struct coll_ref left, right;
};

/* The lower ranks' part is the left operand, everywhere: then all members compute the same, bit
 * for bit. */
static struct operands in_order(struct coll_ref mine, struct coll_ref theirs, bool theirs_left) {
    return theirs_left ? (struct operands){theirs, mine} : (struct operands){mine, theirs};
}

/*
 * Recursive doubling (Thakur, Rabenseifner & Gropp 2005). Where the size is no power of two, the
 * first ranks work in pairs: the even one hands its part to the odd one and gets the result from
 * it, so that each partner of a later round stands for a run of neighbouring ranks and the order of
 * ranks is kept.
 */
void weft__build_ALLREDUCE_doubling(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    uint32_t size = shape->size, rank = shape->rank, power = 1, ready = 0, tag = 1;
    uint64_t bytes = weft__shape_bytes(shape);
    while (2 * power <= size) power *= 2;
    uint32_t pairs = size - power, last_tag = 40;
    struct coll_ref mine = AT(SRC, 0);

    if (rank < 2 * pairs && rank % 2 == 0) {
        uint32_t sent = weft__add_send(s, rank + 1, 0, AT(SRC, 0), bytes, AFTER(0));
        weft__add_recv(s, rank + 1, last_tag, AT(DST, 0), bytes, AFTER(sent));
        return;
    }
    if (rank < 2 * pairs) {
        uint32_t got = weft__add_recv(s, rank - 1, 0, AT(SCRATCH, 0), bytes, AFTER(0));
        ready = weft__add_reduce(s, AT(DST, 0), AT(SCRATCH, 0), AT(SRC, 0), bytes, AFTER(got));
        weft__reads_alone(s, got, ready);
        mine = AT(DST, 0);
    }
    /* Two halves of scratch in turn: a receive waits for the reduction that read its half last. */
    uint32_t index = rank < 2 * pairs ? rank / 2 : rank - pairs, before = ready, turn = ready != 0;
    for (uint32_t bit = 1; bit < power; bit *= 2, tag++, turn ^= 1) {
        uint32_t other = index ^ bit, peer = other < pairs ? 2 * other + 1 : other + pairs;
        uint32_t sent = weft__add_send(s, peer, tag, mine, bytes, AFTER(ready));
        uint32_t got =
            weft__add_recv(s, peer, tag, AT(SCRATCH, turn * bytes), bytes, AFTER(before));
        before = ready;
        struct operands of = in_order(mine, AT(SCRATCH, turn * bytes), other < index);
        ready = weft__add_reduce(s, AT(DST, 0), of.left, of.right, bytes, AFTER(sent, got, ready));
        weft__reads_alone(s, got, ready);
        mine = AT(DST, 0);
    }
    if (rank < 2 * pairs) weft__add_send(s, rank - 1, last_tag, AT(DST, 0), bytes, AFTER(ready));
    s->scratch = 2 * bytes;
}

/*
 * Ring (Patarasuk & Yuan 2009): the vector is cut into one piece a rank; each piece travels once
 * around and gathers contributions, then once more as the result. Every link carries 2 (size - 1) /
 * size of the vector.
 */
void weft__build_ALLREDUCE_ring(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    uint32_t size = shape->size, rank = shape->rank, next = (rank + 1) % size,
             before = (rank + size - 1) % size;
    uint64_t most = weft__piece(shape->count, shape->width, size, 0).len;
    uint32_t reduced[2] = {0, 0}, ready = 0;
    uint32_t *sent = weft__alloc(s, size * sizeof *sent, "sent");
    if (!sent) {
        s->status = WEFT_ERR_NO_MEMORY;
        return;
    }

    for (uint32_t i = 0; i + 1 < size; i++) {
        struct piece pass = weft__piece(shape->count, shape->width, size, (rank + size - i) % size);
        struct piece take =
            weft__piece(shape->count, shape->width, size, (rank + 2 * size - i - 1) % size);
        uint64_t room = (i % 2) * most;
        struct coll_ref from = i == 0 ? AT(SRC, pass.offset) : AT(DST, pass.offset);
        sent[i] = weft__add_send(s, next, i, from, pass.len, AFTER(ready));
        uint32_t got =
            weft__add_recv(s, before, i, AT(SCRATCH, room), take.len, AFTER(reduced[i % 2]));
        ready = weft__add_reduce(s, AT(DST, take.offset), AT(SCRATCH, room), AT(SRC, take.offset),
                                 take.len, AFTER(got));
        weft__reads_alone(s, got, ready);
        if (ready) reduced[i % 2] = ready; /* an empty piece read nothing */
    }
    s->scratch = 2 * most;

    /* A piece comes back to where it was sent from: not before that send is done. */
    for (uint32_t i = 0; i + 1 < size; i++) {
        struct piece pass =
            weft__piece(shape->count, shape->width, size, (rank + 1 + size - i) % size);
        struct piece take = weft__piece(shape->count, shape->width, size, (rank + size - i) % size);
        weft__add_send(s, next, size + i, AT(DST, pass.offset), pass.len, AFTER(ready));
        ready = weft__add_recv(s, before, size + i, AT(DST, take.offset), take.len, AFTER(sent[i]));
    }
    talloc_free(sent);
}

/* Everybody gets every contribution and folds them in the order of ranks. For short vectors. */
void weft__build_ALLREDUCE_fold(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    uint64_t bytes = weft__shape_bytes(shape);
    uint32_t own = weft__add_copy(s, AT(SCRATCH, shape->rank * bytes), AT(SRC, 0), bytes, AFTER(0));
    weft__add_gather(s, COLL_SCRATCH, bytes, own);
    weft__add_gate(s); /* in place, DST is the SRC that was copied from */
    uint32_t folded = 0;
    struct coll_ref sum = AT(SCRATCH, 0);
    for (uint32_t r = 1; r < shape->size; r++) {
        folded = weft__add_reduce(s, AT(DST, 0), sum, AT(SCRATCH, r * bytes), bytes, AFTER(folded));
        sum = AT(DST, 0);
    }
    s->scratch = shape->size * bytes;
}

/*
 * Contributions are added along the chain of ranks, a segment at a time, and the result comes back
 * the same way. The order is that of the fold; the cost is the ring's, and twice its delay.
 */
void weft__build_ALLREDUCE_pipeline(struct schedule *s) {
    enum { WINDOW = 4 };
    const struct coll_shape *shape = &s->shape;
    uint32_t rank = shape->rank, last = shape->size - 1, tag = 0, up_sent = 0, down_sent = 0,
             reduced[WINDOW] = {0};
    uint64_t bytes = weft__shape_bytes(shape), segment = weft__segment_bytes(shape);
    for (uint64_t at = 0; at < bytes; at += segment, tag += 2) {
        uint64_t len = bytes - at < segment ? bytes - at : segment;
        uint32_t slot = tag / 2 % WINDOW, ready = 0, sent = 0;
        if (rank > 0) {
            struct coll_ref room = AT(SCRATCH, slot * segment);
            uint32_t got = weft__add_recv(s, rank - 1, tag, room, len, AFTER(reduced[slot]));
            ready = reduced[slot] =
                weft__add_reduce(s, AT(DST, at), room, AT(SRC, at), len, AFTER(got));
            weft__reads_alone(s, got, ready);
        }
        if (rank < last) {
            struct coll_ref sum = rank > 0 ? AT(DST, at) : AT(SRC, at);
            up_sent = sent = weft__add_send(s, rank + 1, tag, sum, len, AFTER(ready, up_sent));
            ready = weft__add_recv(s, rank + 1, tag + 1, AT(DST, at), len, AFTER(sent));
        }
        if (rank > 0)
            down_sent =
                weft__add_send(s, rank - 1, tag + 1, AT(DST, at), len, AFTER(ready, down_sent));
    }
    if (rank > 0) s->scratch = WINDOW * segment;
}

/* ---- reduce-scatter and allgather ------------------------------------------------------------ */

struct half {
    uint32_t peer, sent;
    uint64_t keep, keep_len, give, give_len; /* bytes */
};

/* One round inwards: half of what is held goes to the other, whose half of it is added. */
static uint32_t halve(struct schedule *s, struct half *h, uint32_t tag, struct coll_ref mine,
                      bool theirs_left, uint32_t ready) {
    h->sent = weft__add_send(s, h->peer, tag, (struct coll_ref){mine.buffer, h->give}, h->give_len,
                             AFTER(ready));
    uint32_t got = weft__add_recv(s, h->peer, tag, AT(SCRATCH, h->keep), h->keep_len, AFTER(ready));
    struct operands of =
        in_order((struct coll_ref){mine.buffer, h->keep}, AT(SCRATCH, h->keep), theirs_left);
    uint32_t done =
        weft__add_reduce(s, AT(DST, h->keep), of.left, of.right, h->keep_len, AFTER(got, ready));
    weft__reads_alone(s, got, done);
    return done ? done : ready;
}

/* Inwards by halving, and outwards the same way, among a power of two of ranks. */
static uint32_t halve_and_double(struct schedule *s, uint32_t index, uint32_t pairs, uint32_t power,
                                 struct coll_ref mine, uint32_t ready) {
    struct half half[32];
    uint32_t n = 0;
    uint64_t width = s->shape.width, low = 0, high = s->shape.count;
    for (uint32_t bit = power / 2; bit > 0; bit /= 2, n++) {
        uint32_t other = index ^ bit;
        uint64_t middle = low + (high - low) / 2;
        bool upper = index & bit;
        half[n] = (struct half){.peer = other < pairs ? 2 * other + 1 : other + pairs,
                                .give = (upper ? low : middle) * width,
                                .give_len = (upper ? middle - low : high - middle) * width};
        if (upper)
            low = middle;
        else
            high = middle;
        half[n].keep = low * width;
        half[n].keep_len = (high - low) * width;
        ready = halve(s, &half[n], 1 + n, mine, other < index, ready);
        mine = AT(DST, 0);
    }
    for (uint32_t i = n; i-- > 0;) {
        const struct half *h = &half[i];
        weft__add_send(s, h->peer, 100 + i, AT(DST, h->keep), h->keep_len, AFTER(ready));
        uint32_t got = weft__add_recv(s, h->peer, 100 + i, AT(DST, h->give), h->give_len,
                                      AFTER(h->sent, ready));
        if (got) ready = got;
    }
    return ready;
}

/* Rabenseifner 2004: as doubling, but each round carries half of the one before. */
void weft__build_ALLREDUCE_rabenseifner(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    uint32_t size = shape->size, rank = shape->rank, power = 1, ready = 0;
    uint64_t bytes = weft__shape_bytes(shape);
    while (2 * power <= size) power *= 2;
    uint32_t pairs = size - power, last_tag = 200;
    struct coll_ref mine = AT(SRC, 0);
    if (rank < 2 * pairs && rank % 2 == 0) {
        uint32_t sent = weft__add_send(s, rank + 1, 0, AT(SRC, 0), bytes, AFTER(0));
        weft__add_recv(s, rank + 1, last_tag, AT(DST, 0), bytes, AFTER(sent));
        return;
    }
    if (rank < 2 * pairs) {
        uint32_t got = weft__add_recv(s, rank - 1, 0, AT(SCRATCH, 0), bytes, AFTER(0));
        ready = weft__add_reduce(s, AT(DST, 0), AT(SCRATCH, 0), AT(SRC, 0), bytes, AFTER(got));
        weft__reads_alone(s, got, ready);
        mine = AT(DST, 0);
    }
    halve_and_double(s, rank < 2 * pairs ? rank / 2 : rank - pairs, pairs, power, mine, ready);
    if (rank < 2 * pairs) {
        weft__add_gate(s);
        weft__add_send(s, rank - 1, last_tag, AT(DST, 0), bytes, AFTER(0));
    }
    s->scratch = bytes;
}

/* ---- two rings, a tree ----------------------------------------------------------------------- */

/* Half of the vector around each way: both directions of every link are used. */
void weft__build_ALLREDUCE_biring(struct schedule *s) {
    uint32_t size = s->shape.size;
    uint32_t *back = weft__alloc(s, size * sizeof *back, "back");
    if (!back) {
        s->status = WEFT_ERR_NO_MEMORY;
        return;
    }
    for (uint32_t r = 0; r < size; r++) back[r] = size - 1 - r;
    uint64_t scratch = 0;
    for (uint32_t half = 0; half < 2; half++) {
        struct piece piece = weft__piece(s->shape.count, s->shape.width, 2, half);
        struct coll_part part = {.build = weft__build_ALLREDUCE_ring,
                                 .shape = s->shape,
                                 .map = half ? back : NULL,
                                 .number = 1 + half,
                                 .src = AT(SRC, piece.offset),
                                 .dst = AT(DST, piece.offset),
                                 .scratch = scratch};
        if (half) part.shape.rank = back[s->shape.rank];
        part.shape.count = piece.len / s->shape.width;
        weft__add_part(s, &part);
        scratch = s->scratch;
    }
}

/* To one member by a k-nomial tree, and out again. */
void weft__build_ALLREDUCE_tree(struct schedule *s) {
    struct coll_part in = {.build = weft__build_REDUCE_knomial,
                           .shape = s->shape,
                           .number = 1,
                           .src = AT(SRC, 0),
                           .dst = AT(DST, 0)};
    struct coll_part out = {
        .build = weft__build_BCAST_knomial, .shape = s->shape, .number = 2, .dst = AT(DST, 0)};
    in.shape.kind = COLL_REDUCE;
    out.shape.kind = COLL_BCAST;
    in.shape.root = out.shape.root = 0;
    weft__add_part(s, &in);
    weft__add_gate(s);
    weft__add_part(s, &out);
}
