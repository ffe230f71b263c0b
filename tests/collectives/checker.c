#include "checker.h"

#include <collectives/share.h>
#include <reactor/reactor.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A symbol is a leaf (left < 0: the contribution of rank ~left to element `right`) or the
 * reduction of two. */
struct symbol {
    int32_t left, right;
};

struct member {
    struct schedule *schedule;
    struct coll_shape shape; /* with its vectors */
    int32_t *memory;         /* a symbol an element: DST, then SCRATCH, then SRC unless in place */
    uint64_t base[N_COLL_BUFFERS], len[N_COLL_BUFFERS];
    uint32_t *waits;      /* of each step: for so many others */
    uint32_t *mate_step;  /* of each send and receive: its other side */
    uint32_t *share_step; /* its steps through the segment of its group, from 1 */
    uint32_t n_shared;
    bool *ready;
    uint64_t *past;     /* of each step: those before it; only where there are puts */
    uint64_t *received; /* of each step: the ranks known to have begun when it is done */
};

struct proof {
    const struct check *check;
    struct member *member;
    struct symbol *symbol;
    int32_t *bucket; /* hash of symbols: index + 1 */
    uint32_t n_symbols, symbol_room, n_done, n_steps;
    uint32_t words;  /* of a set of ranks; 0: not kept */
    uint64_t *queue; /* rank << 32 | step: ready to be done */
    uint32_t head, tail;
    char *why;
    size_t why_size;
    const struct coll_asking *asking; /* its schedule of counts is proved; or NULL */
    uint64_t **known;                 /* what each member learnt by that; or NULL */
};

static bool refute(struct proof *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool refute(struct proof *p, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(p->why, p->why_size, format, args);
    va_end(args);
    return false;
}

/* ---- symbols: equal trees are one symbol ----------------------------------------------------- */

static uint32_t hash_pair(uint64_t a, uint64_t b) {
    uint64_t h = (a + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u ^
                 (b + 0x94d049bb133111ebu) * 0xd6e8feb86659fd93u;
    return (uint32_t)(h ^ h >> 32);
}

static bool grow_symbols(struct proof *p) {
    uint32_t room = p->symbol_room ? 2 * p->symbol_room : 1024;
    p->symbol = weft__realloc(p->member, p->symbol, room * sizeof *p->symbol, "symbols");
    p->bucket = weft__realloc(p->member, p->bucket, 2 * room * sizeof *p->bucket, "buckets");
    if (!p->symbol || !p->bucket) return false;
    memset(p->bucket, 0, 2 * room * sizeof *p->bucket);
    for (uint32_t i = 0; i < p->n_symbols; i++) {
        uint32_t at =
            hash_pair((uint32_t)p->symbol[i].left, (uint32_t)p->symbol[i].right) & (2 * room - 1);
        while (p->bucket[at]) at = (at + 1) & (2 * room - 1);
        p->bucket[at] = (int32_t)i + 1;
    }
    p->symbol_room = room;
    return true;
}

static int32_t symbol(struct proof *p, int32_t left, int32_t right) {
    if (p->n_symbols == p->symbol_room && !grow_symbols(p)) return -1;
    uint32_t mask = 2 * p->symbol_room - 1, at = hash_pair((uint32_t)left, (uint32_t)right) & mask;
    for (; p->bucket[at]; at = (at + 1) & mask) {
        const struct symbol *s = &p->symbol[p->bucket[at] - 1];
        if (s->left == left && s->right == right) return p->bucket[at] - 1;
    }
    p->symbol[p->n_symbols] = (struct symbol){left, right};
    p->bucket[at] = (int32_t)++p->n_symbols;
    return (int32_t)p->n_symbols - 1;
}

static int32_t leaf(struct proof *p, uint32_t rank, uint64_t element) {
    return symbol(p, ~(int32_t)rank, (int32_t)element);
}

/* ---- setting up ------------------------------------------------------------------------------ */

enum { NOTHING = -1 };

static uint64_t extent(const struct coll_shape *shape, struct coll_vector v, uint32_t n) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct piece block = weft__block(shape, v, i);
        if (block.offset + block.len > most) most = block.offset + block.len;
    }
    return most / shape->width;
}

static uint64_t dst_elements(const struct coll_shape *shape) {
    bool root = shape->rank == shape->root;
    switch (shape->kind) {
    case COLL_BARRIER:
    case COLL_FANIN:
    case COLL_FANOUT: return 0;
    case COLL_REDUCE: return root ? shape->count : 0;
    case COLL_GATHER:
    case COLL_GATHERV: return root ? extent(shape, shape->dst, shape->size) : 0;
    case COLL_ALLGATHER:
    case COLL_ALLGATHERV:
    case COLL_ALLTOALL:
    case COLL_ALLTOALLV: return extent(shape, shape->dst, shape->size);
    case COLL_NEIGHBOR_ALLTOALLV: return extent(shape, shape->dst, shape->n_sources);
    default: return shape->count;
    }
}

static uint64_t src_elements(const struct coll_shape *shape) {
    switch (shape->kind) {
    case COLL_BARRIER:
    case COLL_FANIN:
    case COLL_FANOUT:
    case COLL_BCAST: return 0;
    case COLL_SCATTER:
    case COLL_SCATTERV:
        return shape->rank == shape->root ? extent(shape, shape->src, shape->size) : 0;
    case COLL_REDUCE_SCATTER:
    case COLL_REDUCE_SCATTERV:
    case COLL_ALLTOALL:
    case COLL_ALLTOALLV: return extent(shape, shape->src, shape->size);
    case COLL_NEIGHBOR_ALLTOALLV: return extent(shape, shape->src, shape->n_destinations);
    default: return shape->count;
    }
}

/* ---- the v-forms' blocks: unequal, some empty, with gaps ------------------------------------- */

static uint64_t some_count(const struct check *check, uint32_t from, uint32_t to) {
    if (check->shape.kind == COLL_ALLTOALLV)
        return check->in_place ? (from + to + check->shape.count) % 4
                               : (from * 3 + to * 5 + check->shape.count) % 4;
    return (from * 7 + check->shape.count) % 5;
}

static bool make_vector(struct proof *p, struct coll_vector *v, uint32_t n, uint64_t gap,
                        uint32_t rank, bool rank_sends) {
    uint64_t *at = weft__alloc(p->member, (2 * (size_t)n + 1) * sizeof *at, "vector"), sum = gap;
    if (!at) return refute(p, "no memory");
    for (uint32_t i = 0; i < n; i++) {
        at[i] = rank_sends ? some_count(p->check, rank, i) : some_count(p->check, i, rank);
        at[n + i] = sum;
        sum += at[i] + gap;
    }
    *v = (struct coll_vector){at, at + n};
    return true;
}

/* To the next twice, to another, and to itself. */
enum { EDGES = 4 };
static uint32_t edge(uint32_t size, uint32_t from, uint32_t k) {
    const uint32_t to[EDGES] = {(from + 1) % size, (from * 3 + 2) % size, (from + 1) % size, from};
    return to[k];
}

static bool make_graph(struct proof *p, struct coll_shape *shape) {
    uint32_t size = shape->size, n = 0;
    uint32_t *at = weft__alloc(p->member, (EDGES * (size_t)size + EDGES) * sizeof *at, "graph");
    uint64_t *count = weft__alloc(p->member, 4 * (EDGES * (size_t)size) * sizeof *count, "edges");
    if (!at || !count) return refute(p, "no memory");
    shape->destination = at;
    shape->source = at + EDGES;
    shape->n_destinations = EDGES;
    uint64_t *out = count, *in = count + 2 * EDGES, sent = 1, came = 0,
             most = EDGES * (uint64_t)size;
    for (uint32_t k = 0; k < EDGES; k++) {
        at[k] = edge(size, shape->rank, k);
        out[k] = (shape->rank + k) % 3;
        out[EDGES + k] = sent;
        sent += out[k] + 1;
    }
    for (uint32_t r = 0; r < size; r++)
        for (uint32_t k = 0; k < EDGES; k++) {
            if (edge(size, r, k) != shape->rank) continue;
            at[EDGES + n] = r;
            in[n] = (r + k) % 3;
            in[most + n++] = came;
            came += (r + k) % 3;
        }
    shape->n_sources = n;
    shape->src = (struct coll_vector){out, out + EDGES};
    shape->dst = (struct coll_vector){in, in + most};
    return true;
}

static uint64_t n_known(const struct proof *p, uint32_t rank) {
    return p->known && p->known[rank] ? p->known[rank][0] : 0;
}

static bool make_shape(struct proof *p, uint32_t rank) {
    struct coll_shape *shape = &p->member[rank].shape;
    bool made = true, root = rank == p->check->shape.root;
    *shape = p->check->shape;
    shape->rank = rank;
    shape->in_place = p->check->in_place;
    shape->n_known = n_known(p, rank);
    shape->known = shape->n_known ? p->known[rank] + 1 : NULL;
    switch (shape->kind) {
    case COLL_GATHERV:
    case COLL_ALLGATHERV:
        if (root || shape->kind == COLL_ALLGATHERV)
            made = make_vector(p, &shape->dst, shape->size, 1, rank, false);
        shape->count = some_count(p->check, rank, 0);
        break;
    case COLL_SCATTERV:
        if (root) made = make_vector(p, &shape->src, shape->size, 1, 0, false);
        shape->count = some_count(p->check, rank, 0);
        break;
    case COLL_REDUCE_SCATTERV:
        made = make_vector(p, &shape->src, shape->size, 0, 0, false);
        shape->count = some_count(p->check, rank, 0);
        break;
    case COLL_ALLTOALLV:
        made = make_vector(p, &shape->src, shape->size, 1, rank, true) &&
               make_vector(p, &shape->dst, shape->size, p->check->in_place ? 1 : 2, rank, false);
        break;
    case COLL_NEIGHBOR_ALLTOALLV: return make_graph(p, shape);
    default: break;
    }
    return made;
}

static void lay_out(struct member *m, const struct check *check, const struct coll_asking *asking) {
    const struct coll_shape *shape = &m->shape;
    m->len[COLL_DST] = asking ? 0 : dst_elements(shape);
    m->len[COLL_SRC] = asking ? asking->counts(shape, NULL) : src_elements(shape);
    m->len[COLL_SCRATCH] = (m->schedule->scratch + shape->width - 1) / shape->width;
    m->base[COLL_SCRATCH] = m->len[COLL_DST];
    m->base[COLL_SRC] = m->base[COLL_SCRATCH] + m->len[COLL_SCRATCH];
    if (!check->in_place || asking) return;
    switch (shape->kind) {
    case COLL_ALLREDUCE:
    case COLL_SCAN:
    case COLL_EXSCAN:
    case COLL_ALLTOALL:
    case COLL_ALLTOALLV: m->base[COLL_SRC] = 0; break;
    case COLL_REDUCE:
        if (shape->rank == shape->root) m->base[COLL_SRC] = 0;
        break;
    case COLL_GATHER:
    case COLL_GATHERV:
        if (shape->rank != shape->root) break;
        /* fall through */
    case COLL_ALLGATHER:
    case COLL_ALLGATHERV:
        m->base[COLL_SRC] = weft__dst_block(shape, shape->rank).offset / shape->width;
        break;
    case COLL_SCATTER:
    case COLL_SCATTERV:
        if (shape->rank != shape->root) break;
        /* fall through */
    case COLL_REDUCE_SCATTER:
    case COLL_REDUCE_SCATTERV:
        m->base[COLL_DST] =
            m->base[COLL_SRC] + weft__src_block(shape, shape->rank).offset / shape->width;
        break;
    default: break;
    }
}

static bool fill(struct proof *p, uint32_t rank) {
    const struct coll_shape *shape = &p->member[rank].shape;
    struct member *m = &p->member[rank];
    uint64_t total = m->len[COLL_DST] + m->len[COLL_SCRATCH] + m->len[COLL_SRC];
    m->memory = weft__alloc(p->member, (total + 1) * sizeof *m->memory, "memory");
    if (!m->memory) return refute(p, "no memory");
    for (uint64_t i = 0; i < total; i++) m->memory[i] = NOTHING;
    for (uint64_t i = 0; i < m->len[COLL_SRC]; i++)
        m->memory[m->base[COLL_SRC] + i] = leaf(p, rank, i);
    if (shape->kind == COLL_BCAST && rank == shape->root)
        for (uint64_t i = 0; i < shape->count; i++) m->memory[i] = leaf(p, rank, i);
    return true;
}

static bool build(struct proof *p, uint32_t rank) {
    struct member *m = &p->member[rank];
    if (!make_shape(p, rank)) return false;
    void (*by)(struct schedule *) =
        p->check->build ? p->check->build : weft__algorithms[p->check->algorithm].build;
    if (p->asking) by = p->asking->build;
    weft_status_t status = weft__schedule_build_by(p->member, by, &m->shape, &m->schedule);
    if (status < 0) return refute(p, "rank %u: not built: %d", rank, status);
    uint32_t n = m->schedule->n_steps;
    p->n_steps += n;
    lay_out(m, p->check, p->asking);
    m->waits = weft__alloc(p->member, (n + 1) * sizeof *m->waits, "waits");
    m->mate_step = weft__alloc(p->member, (n + 1) * sizeof *m->mate_step, "mates");
    m->share_step = weft__alloc(p->member, (n + 1) * sizeof *m->share_step, "shares");
    m->ready = weft__alloc(p->member, n + 1, "ready");
    m->received = weft__alloc(p->member, (n * (uint64_t)p->words + 1) * 8, "received");
    if (!m->waits || !m->mate_step || !m->share_step || !m->ready || !m->received)
        return refute(p, "no memory");
    for (uint32_t i = 0; i < n; i++)
        if (m->schedule->step[i].verb == STEP_SHARE) m->share_step[m->n_shared++] = i + 1;
    return fill(p, rank);
}

/* ---- every send has its receive -------------------------------------------------------------- */

struct wire {
    uint32_t from, to, tag, step; /* step + 1 of the sender; 0: free */
};

static struct wire *find_wire(struct wire *table, uint32_t mask, uint32_t from, uint32_t to,
                              uint32_t tag) {
    uint32_t at = hash_pair((uint64_t)from << 32 | to, tag) & mask;
    while (table[at].step && (table[at].from != from || table[at].to != to || table[at].tag != tag))
        at = (at + 1) & mask;
    return &table[at];
}

static bool enter_sends(struct proof *p, struct wire *table, uint32_t mask, uint32_t rank) {
    const struct schedule *s = p->member[rank].schedule;
    for (uint32_t i = 0; i < s->n_steps; i++) {
        const struct step *step = &s->step[i];
        if (step->verb != STEP_SEND) continue;
        if (step->peer >= s->shape.size || step->peer == rank)
            return refute(p, "rank %u step %u sends to rank %u", rank, i + 1, step->peer);
        struct wire *w = find_wire(table, mask, rank, step->peer, step->tag);
        if (w->step)
            return refute(p, "rank %u sends tag %u to rank %u twice", rank, step->tag, step->peer);
        *w = (struct wire){rank, step->peer, step->tag, i + 1};
    }
    return true;
}

static bool match_receives(struct proof *p, struct wire *table, uint32_t mask, uint32_t rank) {
    struct member *m = &p->member[rank];
    for (uint32_t i = 0; i < m->schedule->n_steps; i++) {
        const struct step *step = &m->schedule->step[i];
        if (step->verb != STEP_RECV) continue;
        struct wire *w = find_wire(table, mask, step->peer, rank, step->tag);
        if (!w->step)
            return refute(p, "rank %u awaits tag %u from rank %u in vain", rank, step->tag,
                          step->peer);
        struct member *peer = &p->member[step->peer];
        if (peer->mate_step[w->step - 1])
            return refute(p, "rank %u receives tag %u of rank %u twice", rank, step->tag,
                          step->peer);
        if (peer->schedule->step[w->step - 1].len != step->len)
            return refute(p, "rank %u step %u: the message is of another length", rank, i + 1);
        peer->mate_step[w->step - 1] = i + 1;
        m->mate_step[i] = w->step;
    }
    return true;
}

static bool all_matched(struct proof *p, uint32_t rank) {
    struct member *m = &p->member[rank];
    for (uint32_t i = 0; i < m->schedule->n_steps; i++)
        if (m->schedule->step[i].verb == STEP_SEND && !m->mate_step[i])
            return refute(p, "rank %u step %u is a send without a receive", rank, i + 1);
    return true;
}

/* The `number`-th steps through a segment of a group's members are one collective. */
static bool same_group(const struct proof *p, uint32_t a, uint32_t b) {
    return weft__group_of(&p->check->shape, a) == weft__group_of(&p->check->shape, b);
}

static bool match_shares(struct proof *p, uint32_t rank) {
    uint32_t first = 0, n = 0;
    while (!same_group(p, first, rank)) first++;
    for (uint32_t r = 0; r < p->check->shape.size; r++) n += same_group(p, r, rank);
    const struct member *m = &p->member[rank], *other = &p->member[first];
    if (m->n_shared != other->n_shared)
        return refute(p, "rank %u has another number of steps through its segment", rank);
    for (uint32_t k = 0; k < m->n_shared; k++) {
        const struct step *a = &m->schedule->step[m->share_step[k] - 1],
                          *b = &other->schedule->step[other->share_step[k] - 1];
        if (a->tag != b->tag || a->peer != b->peer || a->len != b->len || a->right != n ||
            a->peer >= n ||
            !weft__slots_fit(a->tag, a->len, p->check->shape.width, n, p->check->shape.slot))
            return refute(p, "rank %u step %u is another collective than its group's", rank,
                          m->share_step[k]);
    }
    return true;
}

static bool match(struct proof *p) {
    uint32_t size = p->check->shape.size, room = 64;
    while (room < p->n_steps + 1) room *= 2;
    struct wire *table = weft__alloc(p->member, room * sizeof *table, "wires");
    if (!table) return refute(p, "no memory");
    for (uint32_t r = 0; r < size; r++)
        if (!enter_sends(p, table, room - 1, r)) return false;
    for (uint32_t r = 0; r < size; r++)
        if (!match_receives(p, table, room - 1, r)) return false;
    for (uint32_t r = 0; r < size; r++)
        if (!all_matched(p, r) || !match_shares(p, r)) return false;
    talloc_free(table);
    return true;
}

/* ---- what steps touch ------------------------------------------------------------------------ */

struct touch {
    uint64_t first, end; /* elements of the member's memory */
    uint32_t step;       /* from 0 */
    bool writes;
};

static bool touch_bytes(struct proof *p, uint32_t rank, uint32_t step, unsigned buffer,
                        uint64_t offset, uint64_t len, bool writes, struct touch *touch_p) {
    const struct member *m = &p->member[rank];
    uint32_t width = p->check->shape.width;
    if (offset % width || len % width)
        return refute(p, "rank %u step %u splits an element", rank, step + 1);
    if ((offset + len) / width > m->len[buffer])
        return refute(p, "rank %u step %u reaches beyond its buffer", rank, step + 1);
    if (writes && buffer == COLL_SRC)
        return refute(p, "rank %u step %u writes to the source", rank, step + 1);
    uint64_t first = m->base[buffer] + offset / width;
    *touch_p = (struct touch){first, first + len / width, step, writes};
    return true;
}

static bool touch(struct proof *p, uint32_t rank, uint32_t step, unsigned buffer, uint64_t offset,
                  bool writes, struct touch *touch_p) {
    uint64_t len = p->member[rank].schedule->step[step].len;
    return touch_bytes(p, rank, step, buffer, offset, len, writes, touch_p);
}

static uint32_t place_in_group(const struct proof *p, uint32_t rank) {
    uint32_t place = 0;
    for (uint32_t r = 0; r < rank; r++) place += same_group(p, r, rank);
    return place;
}

static int touches_of_share(struct proof *p, uint32_t rank, uint32_t index, struct touch t[3]) {
    const struct step *step = &p->member[rank].schedule->step[index];
    uint32_t place = place_in_group(p, rank);
    struct share_extent of = weft__share_extent(step, place);
    bool gives = step->tag == COLL_BCAST && place == step->peer;
    int n = 0;
    if (of.dst && !touch_bytes(p, rank, index, step->to_buffer, step->to, of.dst, !gives, &t[n++]))
        return -1;
    if (of.src &&
        !touch_bytes(p, rank, index, step->left_buffer, step->left, of.src, false, &t[n++]))
        return -1;
    return n;
}

/* The up to three places that a step touches; the count, or -1 when it may not. */
static int touches(struct proof *p, uint32_t rank, uint32_t index, struct touch t[3]) {
    const struct step *step = &p->member[rank].schedule->step[index];
    int n = 0;
    if (step->len == 0) return 0;
    if (step->verb == STEP_SHARE) return touches_of_share(p, rank, index, t);
    bool writes = step->verb != STEP_SEND && step->verb != STEP_PUT;
    if (writes && !touch(p, rank, index, step->to_buffer, step->to, true, &t[n++])) return -1;
    if (step->verb != STEP_RECV &&
        !touch(p, rank, index, step->left_buffer, step->left, false, &t[n++]))
        return -1;
    if (step->verb == STEP_REDUCE &&
        !touch(p, rank, index, step->right_buffer, step->right, false, &t[n++]))
        return -1;
    if (step->verb == STEP_PUT && !touch_bytes(p, rank, index, step->right_buffer, step->right,
                                               COLL_KEY_BYTES, false, &t[n++]))
        return -1;
    return n;
}

static int by_place(const void *a, const void *b) {
    const struct touch *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Two steps that touch the same place, one of them writing, must be ordered: one is among what
 * the other waits for. */
static bool ordered(struct proof *p, uint32_t rank, const struct touch *t, uint32_t n,
                    const uint64_t *past, uint32_t words) {
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = i + 1; k < n && t[k].first < t[i].end; k++) {
            uint32_t a = t[i].step, b = t[k].step;
            if (a == b || !(t[i].writes || t[k].writes)) continue;
            if (past[a * (uint64_t)words + b / 64] >> b % 64 & 1) continue;
            if (past[b * (uint64_t)words + a / 64] >> a % 64 & 1) continue;
            return refute(p, "rank %u: steps %u and %u touch the same bytes in no order", rank,
                          a + 1, b + 1);
        }
    return true;
}

/* Of each step a set of the steps before it, `words` long. NULL: refuted. */
static uint64_t *find_past(struct proof *p, uint32_t rank) {
    const struct schedule *s = p->member[rank].schedule;
    uint32_t n = s->n_steps, words = (n + 63) / 64;
    uint64_t *past = weft__alloc(p->member, ((size_t)n * words + 1) * 8, "past");
    if (!past) refute(p, "no memory");
    for (uint32_t i = 0; past && i < n; i++)
        for (int k = 0; k < 3; k++) {
            uint32_t before = s->step[i].after[k];
            if (!before) continue;
            if (before > i) {
                refute(p, "rank %u step %u waits for a later step", rank, i + 1);
                return NULL;
            }
            for (uint32_t w = 0; w < words; w++)
                past[i * (size_t)words + w] |= past[(before - 1) * (size_t)words + w];
            past[i * (size_t)words + (before - 1) / 64] |= UINT64_C(1) << (before - 1) % 64;
        }
    return past;
}

static bool prove_order(struct proof *p, uint32_t rank) {
    const struct schedule *s = p->member[rank].schedule;
    uint32_t n = s->n_steps, words = (n + 63) / 64, n_touches = 0;
    struct touch *t = weft__alloc(p->member, (3 * (size_t)n + 1) * sizeof *t, "touches");
    if (!t) return refute(p, "no memory");
    uint64_t *past = find_past(p, rank);
    if (!past) return false;
    for (uint32_t i = 0; i < n; i++) {
        int more = touches(p, rank, i, t + n_touches);
        if (more < 0) return false;
        n_touches += (uint32_t)more;
    }
    qsort(t, n_touches, sizeof *t, by_place);
    bool right = ordered(p, rank, t, n_touches, past, words);
    talloc_free(t);
    talloc_free(past);
    return right;
}

/* ---- puts: ordered against what the member does whose memory they write ---------------------- */

static bool is_past(const struct proof *p, uint32_t rank, uint32_t step, uint32_t earlier) {
    const struct member *m = &p->member[rank];
    uint32_t words = (m->schedule->n_steps + 63) / 64;
    return m->past[step * (size_t)words + earlier / 64] >> earlier % 64 & 1;
}

/* Does a put of `from` follow, or precede, a step of `to`, by messages between the two? It follows
 * what is before a message that it waits for, and precedes what waits for a message after it. */
static bool is_ordered(const struct proof *p, uint32_t from, uint32_t put, uint32_t to,
                       uint32_t step) {
    const struct member *m = &p->member[from];
    for (uint32_t i = 0; i < m->schedule->n_steps; i++) {
        const struct step *message = &m->schedule->step[i];
        if (message->peer != to || !m->mate_step[i]) continue;
        uint32_t mate = m->mate_step[i] - 1;
        if (message->verb == STEP_RECV && is_past(p, from, put, i) &&
            (mate == step || is_past(p, to, mate, step)))
            return true;
        if (message->verb == STEP_SEND && is_past(p, from, i, put) &&
            (mate == step || is_past(p, to, step, mate)))
            return true;
    }
    return false;
}

/* A member that gave its key away learns of each put to it before it ends. */
static bool is_learned(const struct proof *p, uint32_t from, uint32_t put, uint32_t to) {
    const struct member *m = &p->member[from];
    for (uint32_t i = 0; i < m->schedule->n_steps; i++)
        if (m->schedule->step[i].verb == STEP_SEND && m->schedule->step[i].peer == to &&
            is_past(p, from, i, put))
            return true;
    return false;
}

static bool prove_put(struct proof *p, uint32_t from, uint32_t index, struct touch *written_p) {
    const struct step *put = &p->member[from].schedule->step[index];
    struct touch t[3];
    if (put->peer >= p->check->shape.size || put->peer == from)
        return refute(p, "rank %u step %u puts to rank %u", from, index + 1, put->peer);
    if (!touch_bytes(p, put->peer, index, put->to_buffer, put->to, put->len, true, written_p))
        return false;
    if (!is_learned(p, from, index, put->peer))
        return refute(p, "rank %u may end before the put of rank %u", put->peer, from);
    for (uint32_t i = 0; i < p->member[put->peer].schedule->n_steps; i++) {
        int n = touches(p, put->peer, i, t);
        for (int k = 0; k < n; k++)
            if (t[k].first < written_p->end && written_p->first < t[k].end &&
                !is_ordered(p, from, index, put->peer, i))
                return refute(p,
                              "rank %u step %u and a put of rank %u touch the same bytes in no "
                              "order",
                              put->peer, i + 1, from);
    }
    return true;
}

/* No two members write the same bytes of a third. */
static bool are_apart(struct proof *p, uint32_t to, struct touch *t, uint32_t n) {
    qsort(t, n, sizeof *t, by_place);
    for (uint32_t i = 1; i < n; i++)
        if (t[i].first < t[i - 1].end)
            return refute(p, "two puts to rank %u write the same bytes", to);
    return true;
}

static bool prove_puts(struct proof *p, uint32_t every) {
    uint32_t size = p->check->shape.size, n_puts = 0;
    for (uint32_t r = 0; r < size; r++)
        for (uint32_t i = 0; i < p->member[r].schedule->n_steps; i++)
            n_puts += p->member[r].schedule->step[i].verb == STEP_PUT;
    if (n_puts == 0) return true;
    for (uint32_t r = 0; r < size; r++)
        if (!(p->member[r].past = find_past(p, r))) return false;
    struct touch *t = weft__alloc(p->member, (n_puts + 1) * sizeof *t, "puts");
    if (!t) return refute(p, "no memory");
    for (uint32_t to = 0; to < size; to += every) {
        uint32_t n = 0;
        for (uint32_t from = 0; from < size; from++)
            for (uint32_t i = 0; i < p->member[from].schedule->n_steps; i++) {
                const struct step *step = &p->member[from].schedule->step[i];
                if (step->verb != STEP_PUT || step->peer != to || !step->len) continue;
                if (!prove_put(p, from, i, &t[n++])) return false;
            }
        if (!are_apart(p, to, t, n)) return false;
    }
    return true;
}

/* ---- running --------------------------------------------------------------------------------- */

static void add_received(struct proof *p, uint64_t *to, const uint64_t *from) {
    for (uint32_t w = 0; w < p->words; w++) to[w] |= from[w];
}

static uint64_t *received_of(struct proof *p, uint32_t rank, uint32_t step) {
    return p->member[rank].received + (uint64_t)step * p->words;
}

static void make_ready(struct proof *p, uint32_t rank, uint32_t step) {
    p->queue[p->tail++] = (uint64_t)rank << 32 | step;
}

/* Done: what waited for it alone is ready. */
static void finish(struct proof *p, uint32_t rank, uint32_t step, const uint32_t *first,
                   const uint32_t *next) {
    p->n_done++;
    for (uint32_t edge = first[step]; edge; edge = next[edge - 1]) {
        uint32_t later = (edge - 1) / 3;
        if (p->words) add_received(p, received_of(p, rank, later), received_of(p, rank, step));
        if (--p->member[rank].waits[later] == 0) make_ready(p, rank, later);
    }
}

/* Successors of every step of every member, as chains through (step, which of its three
 * dependencies). */
struct edges {
    uint32_t *first, *next;
};

static bool chain_edges(struct proof *p, uint32_t rank, struct edges *e) {
    const struct schedule *s = p->member[rank].schedule;
    e->first = weft__alloc(p->member, (s->n_steps + 1) * sizeof *e->first, "first");
    e->next = weft__alloc(p->member, (3 * (size_t)s->n_steps + 1) * sizeof *e->next, "next");
    if (!e->first || !e->next) return refute(p, "no memory");
    for (uint32_t i = 0; i < s->n_steps; i++)
        for (uint32_t k = 0; k < 3; k++) {
            uint32_t before = s->step[i].after[k];
            if (!before) continue;
            e->next[3 * i + k] = e->first[before - 1];
            e->first[before - 1] = 3 * i + k + 1;
            p->member[rank].waits[i]++;
        }
    return true;
}

static int32_t *place(struct proof *p, uint32_t rank, unsigned buffer, uint64_t offset) {
    struct member *m = &p->member[rank];
    return m->memory + m->base[buffer] + offset / p->check->shape.width;
}

static bool reduce_symbols(struct proof *p, uint32_t rank, const struct step *step) {
    int32_t *to = place(p, rank, step->to_buffer, step->to);
    const int32_t *left = place(p, rank, step->left_buffer, step->left);
    const int32_t *right = place(p, rank, step->right_buffer, step->right);
    for (uint64_t i = 0; i < step->len / p->check->shape.width; i++) {
        if (left[i] == NOTHING || right[i] == NOTHING)
            return refute(p, "rank %u reduces what it does not have", rank);
        to[i] = symbol(p, left[i], right[i]);
        if (to[i] < 0) return refute(p, "no memory");
    }
    return true;
}

static void transfer(struct proof *p, uint32_t from, const struct step *send, uint32_t to,
                     const struct step *recv) {
    if (send->len == 0) return;
    memmove(place(p, to, recv->to_buffer, recv->to), place(p, from, send->left_buffer, send->left),
            send->len / p->check->shape.width * sizeof(int32_t));
}

/* ---- through the segment of a group ---------------------------------------------------------- */

static int32_t *at(struct proof *p, uint32_t rank, const struct step *step, bool dst) {
    return dst ? place(p, rank, step->to_buffer, step->to)
               : place(p, rank, step->left_buffer, step->left);
}

/* Rank `to` of place `i` gets what the `n` members of its group gave. */
static bool share_out(struct proof *p, const int32_t *given, const struct step *step, uint32_t to,
                      uint32_t i) {
    uint64_t n = step->right, len = step->len / p->check->shape.width;
    bool root = i == step->peer;
    uint64_t all = step->tag == COLL_SCAN ? i + 1 : n;
    for (uint64_t e = 0; e < len; e++) {
        int32_t sum = given[e];
        bool folds = step->tag == COLL_SCAN || (step->tag == COLL_REDUCE && root);
        for (uint64_t k = 1; folds && k < all; k++) {
            if (sum == NOTHING || given[k * len + e] == NOTHING)
                return refute(p, "rank %u reduces what it does not have", to);
            sum = symbol(p, sum, given[k * len + e]);
        }
        if (folds) at(p, to, step, true)[e] = sum;
        if (step->tag == COLL_BCAST) at(p, to, step, true)[e] = given[step->peer * len + e];
        if (step->tag == COLL_SCATTER) at(p, to, step, true)[e] = given[i * len + e];
        for (uint64_t k = 0; step->tag == COLL_GATHER && root && k < n; k++)
            at(p, to, step, true)[k * len + e] = given[k * len + e];
    }
    return true;
}

static void give(struct proof *p, int32_t *given, const struct step *step, uint32_t from,
                 uint32_t i) {
    uint64_t n = step->right, len = step->len / p->check->shape.width;
    bool root = i == step->peer;
    if (step->tag == COLL_SCATTER && root)
        memcpy(given, at(p, from, step, false), n * len * sizeof *given);
    else if (step->tag == COLL_BCAST && root)
        memcpy(given + i * len, at(p, from, step, true), len * sizeof *given);
    else if (step->tag == COLL_REDUCE || step->tag == COLL_GATHER || step->tag == COLL_SCAN)
        memcpy(given + i * len, at(p, from, step, false), len * sizeof *given);
}

/* Whose beginning a member learns by it: the root all, or all the root. */
static void learn(struct proof *p, const struct step *step, uint32_t root, uint32_t root_step,
                  uint32_t rank, uint32_t index) {
    bool in = step->tag == COLL_FANIN || step->tag == COLL_REDUCE || step->tag == COLL_GATHER;
    bool out = step->tag == COLL_FANOUT || step->tag == COLL_BCAST || step->tag == COLL_SCATTER;
    if (!p->words || rank == root) return;
    if (in) add_received(p, received_of(p, root, root_step), received_of(p, rank, index));
    if (out) add_received(p, received_of(p, rank, index), received_of(p, root, root_step));
}

/* It is done for all when all of the group are ready for it. */
static bool take_share(struct proof *p, uint32_t rank, uint32_t index, struct edges *edges) {
    const struct step *step = &p->member[rank].schedule->step[index];
    uint32_t number = 0, n = (uint32_t)step->right, *who, found = 0;
    while (p->member[rank].share_step[number] != index + 1) number++;
    p->member[rank].ready[index] = true;
    uint64_t len = step->len / p->check->shape.width;
    int32_t *given = weft__alloc(p->member, (n * len + 1) * sizeof *given, "given");
    who = weft__alloc(p->member, n * sizeof *who, "who");
    if (!given || !who) return refute(p, "no memory");
    for (uint32_t r = 0; r < p->check->shape.size; r++)
        if (same_group(p, r, rank)) who[found++] = r;
    bool all = true, right = true;
#define STEP_OF(i) (p->member[who[i]].share_step[number] - 1)
#define OF(i)      (&p->member[who[i]].schedule->step[STEP_OF(i)])
    for (uint32_t i = 0; i < n; i++) all = all && p->member[who[i]].ready[STEP_OF(i)];
    for (uint32_t i = 0; all && i < n; i++) give(p, given, OF(i), who[i], i);
    for (uint32_t i = 0; all && right && i < n; i++) right = share_out(p, given, OF(i), who[i], i);
    for (uint32_t i = 0; all && i < n; i++)
        learn(p, step, who[step->peer], STEP_OF(step->peer), who[i], STEP_OF(i));
    for (uint32_t i = 0; all && right && i < n; i++)
        finish(p, who[i], STEP_OF(i), edges[who[i]].first, edges[who[i]].next);
#undef STEP_OF
#undef OF
    talloc_free(given);
    talloc_free(who);
    return right;
}

/* ---- all steps ------------------------------------------------------------------------------- */

/* A send and its receive are done together, once both are ready: as if nothing in between could
 * hold a message. */
static bool take_step(struct proof *p, uint32_t rank, uint32_t index, struct edges *edges) {
    struct member *m = &p->member[rank];
    const struct step *step = &m->schedule->step[index];
    if (p->words) received_of(p, rank, index)[rank / 64] |= UINT64_C(1) << rank % 64;
    if (step->verb == STEP_REDUCE || step->verb == STEP_COPY) {
        if (step->verb == STEP_COPY)
            transfer(p, rank, step, rank, step);
        else if (!reduce_symbols(p, rank, step))
            return false;
        finish(p, rank, index, edges[rank].first, edges[rank].next);
        return true;
    }
    if (step->verb == STEP_PUT) {
        transfer(p, rank, step, step->peer, step);
        finish(p, rank, index, edges[rank].first, edges[rank].next);
        return true;
    }
    if (step->verb == STEP_SHARE) return take_share(p, rank, index, edges);
    uint32_t peer = step->peer, mate = m->mate_step[index] - 1;
    m->ready[index] = true;
    if (!p->member[peer].ready[mate]) return true;
    bool sends = step->verb == STEP_SEND;
    uint32_t from = sends ? rank : peer, send = sends ? index : mate, to = sends ? peer : rank;
    uint32_t recv = sends ? mate : index;
    transfer(p, from, &p->member[from].schedule->step[send], to,
             &p->member[to].schedule->step[recv]);
    if (p->words) add_received(p, received_of(p, to, recv), received_of(p, from, send));
    finish(p, from, send, edges[from].first, edges[from].next);
    finish(p, to, recv, edges[to].first, edges[to].next);
    return true;
}

static bool name_stuck(struct proof *p) {
    for (uint32_t r = 0; r < p->check->shape.size; r++)
        for (uint32_t i = 0; i < p->member[r].schedule->n_steps; i++)
            if (p->member[r].waits[i])
                return refute(p, "deadlock: rank %u never gets to step %u", r, i + 1);
    return refute(p, "deadlock: %u of %u steps are done", p->n_done, p->n_steps);
}

static bool run(struct proof *p) {
    uint32_t size = p->check->shape.size;
    struct edges *edges = weft__alloc(p->member, size * sizeof *edges, "edges");
    p->queue = weft__alloc(p->member, (p->n_steps + 1) * sizeof *p->queue, "queue");
    if (!edges || !p->queue) return refute(p, "no memory");
    for (uint32_t r = 0; r < size; r++)
        if (!chain_edges(p, r, &edges[r])) return false;
    for (uint32_t r = 0; r < size; r++)
        for (uint32_t i = 0; i < p->member[r].schedule->n_steps; i++)
            if (p->member[r].waits[i] == 0) make_ready(p, r, i);
    while (p->head < p->tail) {
        uint64_t next = p->queue[p->head++];
        if (!take_step(p, (uint32_t)(next >> 32), (uint32_t)next, edges)) return false;
    }
    return p->n_done == p->n_steps || name_stuck(p);
}

/* ---- the result ------------------------------------------------------------------------------ */

/* Leaves of a tree, from the left, must be this element's contributions: of the first `n` ranks,
 * each once. */
static bool each_once(struct proof *p, int32_t root, uint64_t element, uint32_t ranks) {
    uint32_t size = p->check->shape.size, n = 0, depth = 0;
    int32_t *stack = weft__alloc(p->member, (size + 1) * sizeof *stack, "stack");
    bool *seen = weft__alloc(p->member, size, "seen"), right = stack && seen;
    if (right) stack[depth++] = root;
    while (right && depth > 0) {
        const struct symbol *s = &p->symbol[stack[--depth]];
        if (s->left >= 0) {
            right = depth + 2 <= size + 1;
            if (right) stack[depth++] = s->right, stack[depth++] = s->left;
            continue;
        }
        uint32_t rank = (uint32_t)~s->left;
        right = (uint64_t)s->right == element && rank < ranks && !seen[rank] && ++n;
        seen[rank] = true;
    }
    talloc_free(stack);
    talloc_free(seen);
    return right && n == ranks;
}

static int32_t folded(struct proof *p, uint64_t element, uint32_t ranks) {
    int32_t sum = leaf(p, 0, element);
    for (uint32_t r = 1; r < ranks; r++) sum = symbol(p, sum, leaf(p, r, element));
    return sum;
}

/* What stands there is a reduction of the first `n` ranks' contributions. */
static int32_t reduced(struct proof *p, int32_t got, uint64_t element, uint32_t n) {
    if (weft__algorithms[p->check->algorithm].fixed_order) return folded(p, element, n);
    return got != NOTHING && each_once(p, got, element, n) ? got : NOTHING;
}

enum { ANYTHING = -2 };

/* What an element of a DST of blocks must be: the block's number, and the place within it. */
static bool find_block(const struct coll_shape *shape, uint32_t n, uint64_t element,
                       uint32_t *block_p, uint64_t *place_p) {
    if (!shape->dst.count) {
        *block_p = (uint32_t)(element / shape->count);
        *place_p = element % shape->count;
        return true;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct piece block = weft__dst_block(shape, i);
        uint64_t first = block.offset / shape->width;
        if (element < first || element >= first + block.len / shape->width) continue;
        *block_p = i;
        *place_p = element - first;
        return true;
    }
    return false;
}

static uint32_t times_before(const uint32_t *list, uint32_t index) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < index; i++) n += list[i] == list[index];
    return n;
}

static int32_t expected_edge(struct proof *p, uint32_t rank, uint32_t i, uint64_t place) {
    const struct coll_shape *shape = &p->member[rank].shape;
    const struct coll_shape *from = &p->member[shape->source[i]].shape;
    uint32_t k = times_before(shape->source, i);
    for (uint32_t d = 0; d < from->n_destinations; d++)
        if (from->destination[d] == rank && times_before(from->destination, d) == k)
            return leaf(p, shape->source[i],
                        weft__src_block(from, d).offset / shape->width + place);
    return NOTHING;
}

static int32_t expected_block(struct proof *p, uint32_t rank, uint64_t element) {
    const struct coll_shape *shape = &p->member[rank].shape;
    bool edges = shape->kind == COLL_NEIGHBOR_ALLTOALLV;
    uint32_t block = 0;
    uint64_t place = 0;
    if (!find_block(shape, edges ? shape->n_sources : shape->size, element, &block, &place))
        return p->check->in_place ? ANYTHING : NOTHING; /* a gap */
    if (edges) return expected_edge(p, rank, block, place);
    if (shape->kind == COLL_ALLTOALL || shape->kind == COLL_ALLTOALLV)
        place += weft__src_block(&p->member[block].shape, rank).offset / shape->width;
    return leaf(p, block, place);
}

/* The symbol that a member must have for an element of DST. */
static int32_t expected(struct proof *p, uint32_t rank, uint64_t element) {
    const struct coll_shape *shape = &p->member[rank].shape;
    const struct member *m = &p->member[rank], *first = &p->member[0];
    int32_t got = m->memory[m->base[COLL_DST] + element];
    uint64_t of_root = weft__src_block(&p->member[shape->root].shape, rank).offset / shape->width;
    uint64_t of_mine = weft__src_block(shape, rank).offset / shape->width;
    switch (shape->kind) {
    case COLL_BCAST: return leaf(p, shape->root, element);
    case COLL_SCATTER:
    case COLL_SCATTERV: return leaf(p, shape->root, of_root + element);
    case COLL_ALLREDUCE: /* the same tree everywhere */
        if (rank == 0) return reduced(p, got, element, shape->size);
        return first->memory[first->base[COLL_DST] + element];
    case COLL_REDUCE: return reduced(p, got, element, shape->size);
    case COLL_REDUCE_SCATTER:
    case COLL_REDUCE_SCATTERV: return reduced(p, got, of_mine + element, shape->size);
    case COLL_SCAN: return reduced(p, got, element, rank + 1);
    case COLL_EXSCAN: return rank ? reduced(p, got, element, rank) : ANYTHING;
    default: return expected_block(p, rank, element);
    }
}

static bool has_blocks(enum coll_kind kind) {
    return kind == COLL_GATHERV || kind == COLL_ALLGATHERV || kind == COLL_ALLTOALLV ||
           kind == COLL_NEIGHBOR_ALLTOALLV;
}

static bool prove_result(struct proof *p) {
    for (uint32_t r = 0; r < p->check->shape.size; r++) {
        const struct member *m = &p->member[r];
        for (uint64_t i = 0; i < m->len[COLL_DST]; i++) {
            int32_t got = m->memory[m->base[COLL_DST] + i], want = expected(p, r, i);
            bool gap = want == NOTHING && got == NOTHING && has_blocks(m->shape.kind);
            if (want == ANYTHING || gap || (want == got && want != NOTHING)) continue;
            if (want == NOTHING)
                return refute(p, "rank %u: element %llu lacks a contribution or has it twice", r,
                              (unsigned long long)i);
            return refute(p, "rank %u has another result in element %llu", r,
                          (unsigned long long)i);
        }
    }
    return true;
}

/* Who must have begun before a member ends. */
static bool must_have_begun(const struct check *check, uint32_t rank, uint32_t other) {
    if (check->shape.joined || check->shape.kind == COLL_BARRIER) return true;
    if (check->shape.kind == COLL_FANIN) return rank == check->shape.root;
    return check->shape.kind == COLL_FANOUT && other == check->shape.root;
}

static bool prove_joined(struct proof *p, uint32_t rank) {
    uint32_t size = p->check->shape.size;
    for (uint32_t r = 0; r < size; r++) {
        bool known = r == rank || !must_have_begun(p->check, rank, r);
        for (uint32_t i = 0; i < p->member[rank].schedule->n_steps && !known; i++)
            known = received_of(p, rank, i)[r / 64] >> r % 64 & 1;
        if (!known) return refute(p, "rank %u may end before rank %u has begun", rank, r);
    }
    return true;
}

static bool prove(struct proof *p) {
    uint32_t size = p->check->shape.size, every = p->check->every ? p->check->every : 1;
    for (uint32_t r = 0; r < size; r++)
        if (!build(p, r)) return false;
    if (!match(p)) return false;
    for (uint32_t r = 0; r < size; r += every)
        if (!prove_order(p, r)) return false;
    if (!prove_puts(p, every)) return false;
    if (!run(p) || (!p->asking && !prove_result(p))) return false;
    for (uint32_t r = 0; r < size && p->words; r++)
        if (!prove_joined(p, r)) return false;
    return true;
}

/* ---- counts that are asked for --------------------------------------------------------------- */

/* What a member has in scratch memory, as numbers: the counts of others. */
static bool learn_counts(struct proof *asked, uint32_t rank, const void *parent,
                         uint64_t **known_p) {
    const struct member *m = &asked->member[rank];
    uint64_t n = m->len[COLL_SCRATCH];
    uint64_t *known = weft__alloc(parent, (n + 1) * sizeof *known, "known");
    uint64_t *counts = weft__alloc(parent, 3 * (size_t)asked->check->shape.size * 8 + 8, "counts");
    if (!known || !counts) return refute(asked, "no memory");
    known[0] = n;
    for (uint64_t i = 0; i < n; i++) {
        int32_t got = m->memory[m->base[COLL_SCRATCH] + i];
        if (got == NOTHING) return refute(asked, "rank %u was not answered", rank);
        const struct symbol *leaf = &asked->symbol[got];
        asked->asking->counts(&asked->member[~leaf->left].shape, counts);
        known[i + 1] = counts[leaf->right];
    }
    talloc_free(counts);
    *known_p = known;
    return true;
}

static bool prove_asking(struct proof *p, const struct coll_asking *asking) {
    struct check check = *p->check;
    struct proof asked = {.check = &check, .why = p->why, .why_size = p->why_size};
    check.shape.width = 8;
    check.shape.joined = false;
    asked.asking = asking;
    asked.member = weft__alloc(p->member, check.shape.size * sizeof *asked.member, "askers");
    p->known = weft__alloc(p->member, check.shape.size * sizeof *p->known, "known");
    bool right = asked.member && p->known && prove(&asked);
    for (uint32_t r = 0; right && r < check.shape.size; r++)
        right = learn_counts(&asked, r, p->member, &p->known[r]);
    talloc_free(asked.member);
    return right;
}

bool weft__schedule_check(const struct check *check, char *why, size_t size) {
    struct proof p = {.check = check, .why = why, .why_size = size};
    enum coll_kind kind = check->shape.kind;
    if (kind == COLL_BARRIER || kind == COLL_FANIN || kind == COLL_FANOUT || check->shape.joined)
        p.words = (check->shape.size + 63) / 64;
    p.member = weft__alloc(NULL, check->shape.size * sizeof *p.member, "members");
    if (!p.member) return refute(&p, "no memory");
    const struct coll_asking *asking = weft__asking(check->algorithm);
    bool right = (!asking || check->shape.size == 1 || prove_asking(&p, asking)) && prove(&p);
    talloc_free(p.member);
    return right;
}
