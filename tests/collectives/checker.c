#include <collectives/share.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "checker_proof.h"

bool checker_refute(struct proof *p, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(p->why, p->why_size, format, args);
    va_end(args);
    return false;
}

/* ---- setting up ------------------------------------------------------------------------------ */

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
    if (!at) return checker_refute(p, "no memory");
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
    if (!at || !count) return checker_refute(p, "no memory");
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
    if (!m->memory) return checker_refute(p, "no memory");
    for (uint64_t i = 0; i < total; i++) m->memory[i] = NOTHING;
    for (uint64_t i = 0; i < m->len[COLL_SRC]; i++)
        m->memory[m->base[COLL_SRC] + i] = checker_leaf(p, rank, i);
    if (shape->kind == COLL_BCAST && rank == shape->root)
        for (uint64_t i = 0; i < shape->count; i++) m->memory[i] = checker_leaf(p, rank, i);
    return true;
}

static bool build(struct proof *p, uint32_t rank) {
    struct member *m = &p->member[rank];
    if (!make_shape(p, rank)) return false;
    void (*by)(struct schedule *) =
        p->check->build ? p->check->build : weft__algorithms[p->check->algorithm].build;
    if (p->asking) by = p->asking->build;
    weft_status_t status = weft__schedule_build_by(p->member, by, &m->shape, &m->schedule);
    if (status < 0) return checker_refute(p, "rank %u: not built: %d", rank, status);
    uint32_t n = m->schedule->n_steps;
    p->n_steps += n;
    lay_out(m, p->check, p->asking);
    m->waits = weft__alloc(p->member, (n + 1) * sizeof *m->waits, "waits");
    m->mate_step = weft__alloc(p->member, (n + 1) * sizeof *m->mate_step, "mates");
    m->share_step = weft__alloc(p->member, (n + 1) * sizeof *m->share_step, "shares");
    m->ready = weft__alloc(p->member, n + 1, "ready");
    m->received = weft__alloc(p->member, (n * (uint64_t)p->words + 1) * 8, "received");
    if (!m->waits || !m->mate_step || !m->share_step || !m->ready || !m->received)
        return checker_refute(p, "no memory");
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
    uint32_t at = checker_hash((uint64_t)from << 32 | to, tag) & mask;
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
            return checker_refute(p, "rank %u step %u sends to rank %u", rank, i + 1, step->peer);
        struct wire *w = find_wire(table, mask, rank, step->peer, step->tag);
        if (w->step)
            return checker_refute(p, "rank %u sends tag %u to rank %u twice", rank, step->tag,
                                  step->peer);
        *w = (struct wire){rank, step->peer, step->tag, i + 1};
    }
    return true;
}

/* Whether the step with a number, if it is one, waits for another. */
static bool waits_for(const struct schedule *s, uint64_t number, uint32_t before) {
    if (number > s->n_steps) return false;
    const uint32_t *after = s->step[number - 1].after;
    return after[0] == before || after[1] == before || after[2] == before;
}

static bool match_receives(struct proof *p, struct wire *table, uint32_t mask, uint32_t rank) {
    struct member *m = &p->member[rank];
    for (uint32_t i = 0; i < m->schedule->n_steps; i++) {
        const struct step *step = &m->schedule->step[i];
        if (step->verb != STEP_RECV) continue;
        if (step->right && !waits_for(m->schedule, step->right, i + 1))
            return checker_refute(p, "rank %u step %u is read before it is received", rank, i + 1);
        struct wire *w = find_wire(table, mask, step->peer, rank, step->tag);
        if (!w->step)
            return checker_refute(p, "rank %u awaits tag %u from rank %u in vain", rank, step->tag,
                                  step->peer);
        struct member *peer = &p->member[step->peer];
        if (peer->mate_step[w->step - 1])
            return checker_refute(p, "rank %u receives tag %u of rank %u twice", rank, step->tag,
                                  step->peer);
        if (peer->schedule->step[w->step - 1].len != step->len)
            return checker_refute(p, "rank %u step %u: the message is of another length", rank,
                                  i + 1);
        peer->mate_step[w->step - 1] = i + 1;
        m->mate_step[i] = w->step;
    }
    return true;
}

static bool all_matched(struct proof *p, uint32_t rank) {
    struct member *m = &p->member[rank];
    for (uint32_t i = 0; i < m->schedule->n_steps; i++)
        if (m->schedule->step[i].verb == STEP_SEND && !m->mate_step[i])
            return checker_refute(p, "rank %u step %u is a send without a receive", rank, i + 1);
    return true;
}

/* The `number`-th steps through a segment of a group's members are one collective. */
bool checker_same_group(const struct proof *p, uint32_t a, uint32_t b) {
    return weft__group_of(&p->check->shape, a) == weft__group_of(&p->check->shape, b);
}

static bool match_shares(struct proof *p, uint32_t rank) {
    uint32_t first = 0, n = 0;
    while (!checker_same_group(p, first, rank)) first++;
    for (uint32_t r = 0; r < p->check->shape.size; r++) n += checker_same_group(p, r, rank);
    const struct member *m = &p->member[rank], *other = &p->member[first];
    if (m->n_shared != other->n_shared)
        return checker_refute(p, "rank %u has another number of steps through its segment", rank);
    for (uint32_t k = 0; k < m->n_shared; k++) {
        const struct step *a = &m->schedule->step[m->share_step[k] - 1],
                          *b = &other->schedule->step[other->share_step[k] - 1];
        if (a->tag != b->tag || a->peer != b->peer || a->len != b->len || a->right != n ||
            a->peer >= n ||
            !weft__slots_fit(a->tag, a->len, p->check->shape.width, n, p->check->shape.slot))
            return checker_refute(p, "rank %u step %u is another collective than its group's", rank,
                                  m->share_step[k]);
    }
    return true;
}

static bool match(struct proof *p) {
    uint32_t size = p->check->shape.size, room = 64;
    while (room < p->n_steps + 1) room *= 2;
    struct wire *table = weft__alloc(p->member, room * sizeof *table, "wires");
    if (!table) return checker_refute(p, "no memory");
    for (uint32_t r = 0; r < size; r++)
        if (!enter_sends(p, table, room - 1, r)) return false;
    for (uint32_t r = 0; r < size; r++)
        if (!match_receives(p, table, room - 1, r)) return false;
    for (uint32_t r = 0; r < size; r++)
        if (!all_matched(p, r) || !match_shares(p, r)) return false;
    talloc_free(table);
    return true;
}

/* ---- running --------------------------------------------------------------------------------- */

static void add_received(struct proof *p, uint64_t *to, const uint64_t *from) {
    for (uint32_t w = 0; w < p->words; w++) to[w] |= from[w];
}

uint64_t *checker_received(struct proof *p, uint32_t rank, uint32_t step) {
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
        if (p->words)
            add_received(p, checker_received(p, rank, later), checker_received(p, rank, step));
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
    if (!e->first || !e->next) return checker_refute(p, "no memory");
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

static bool is_operand(const struct step *got, unsigned buffer, uint64_t offset) {
    return got->to_buffer == buffer && got->to == offset;
}

/*
 * A reduction that alone reads what a receive brought may take it from the message. So the bytes of
 * the receive are exactly one operand, and are nothing afterwards unless the result is there.
 */
static bool drop_read(struct proof *p, uint32_t rank, const struct step *reduction) {
    const struct schedule *s = p->member[rank].schedule;
    for (int k = 0; k < 3; k++) {
        const struct step *got = reduction->after[k] ? &s->step[reduction->after[k] - 1] : NULL;
        if (!got || got->verb != STEP_RECV || got->right != (uint64_t)(reduction - s->step) + 1)
            continue;
        if (got->len != reduction->len ||
            is_operand(got, reduction->left_buffer, reduction->left) ==
                is_operand(got, reduction->right_buffer, reduction->right))
            return checker_refute(p, "rank %u does not reduce what it received", rank);
        if (is_operand(got, reduction->to_buffer, reduction->to)) continue;
        int32_t *dropped = place(p, rank, got->to_buffer, got->to);
        for (uint64_t i = 0; i < got->len / p->check->shape.width; i++) dropped[i] = NOTHING;
    }
    return true;
}

static bool reduce_symbols(struct proof *p, uint32_t rank, const struct step *step) {
    int32_t *to = place(p, rank, step->to_buffer, step->to);
    const int32_t *left = place(p, rank, step->left_buffer, step->left);
    const int32_t *right = place(p, rank, step->right_buffer, step->right);
    for (uint64_t i = 0; i < step->len / p->check->shape.width; i++) {
        if (left[i] == NOTHING || right[i] == NOTHING)
            return checker_refute(p, "rank %u reduces what it does not have", rank);
        to[i] = checker_symbol(p, left[i], right[i]);
        if (to[i] < 0) return checker_refute(p, "no memory");
    }
    return drop_read(p, rank, step);
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
                return checker_refute(p, "rank %u reduces what it does not have", to);
            sum = checker_symbol(p, sum, given[k * len + e]);
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
    if (in) add_received(p, checker_received(p, root, root_step), checker_received(p, rank, index));
    if (out)
        add_received(p, checker_received(p, rank, index), checker_received(p, root, root_step));
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
    if (!given || !who) return checker_refute(p, "no memory");
    for (uint32_t r = 0; r < p->check->shape.size; r++)
        if (checker_same_group(p, r, rank)) who[found++] = r;
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
    if (p->words) checker_received(p, rank, index)[rank / 64] |= UINT64_C(1) << rank % 64;
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
    if (p->words) add_received(p, checker_received(p, to, recv), checker_received(p, from, send));
    finish(p, from, send, edges[from].first, edges[from].next);
    finish(p, to, recv, edges[to].first, edges[to].next);
    return true;
}

static bool name_stuck(struct proof *p) {
    for (uint32_t r = 0; r < p->check->shape.size; r++)
        for (uint32_t i = 0; i < p->member[r].schedule->n_steps; i++)
            if (p->member[r].waits[i])
                return checker_refute(p, "deadlock: rank %u never gets to step %u", r, i + 1);
    return checker_refute(p, "deadlock: %u of %u steps are done", p->n_done, p->n_steps);
}

static bool run(struct proof *p) {
    uint32_t size = p->check->shape.size;
    struct edges *edges = weft__alloc(p->member, size * sizeof *edges, "edges");
    p->queue = weft__alloc(p->member, (p->n_steps + 1) * sizeof *p->queue, "queue");
    if (!edges || !p->queue) return checker_refute(p, "no memory");
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

static bool prove(struct proof *p) {
    uint32_t size = p->check->shape.size, every = p->check->every ? p->check->every : 1;
    for (uint32_t r = 0; r < size; r++)
        if (!build(p, r)) return false;
    if (!match(p)) return false;
    for (uint32_t r = 0; r < size; r += every)
        if (!checker_prove_order(p, r)) return false;
    if (!checker_prove_puts(p, every)) return false;
    if (!run(p) || (!p->asking && !checker_prove_result(p))) return false;
    for (uint32_t r = 0; r < size && p->words; r++)
        if (!checker_prove_joined(p, r)) return false;
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
    if (!known || !counts) return checker_refute(asked, "no memory");
    known[0] = n;
    for (uint64_t i = 0; i < n; i++) {
        int32_t got = m->memory[m->base[COLL_SCRATCH] + i];
        if (got == NOTHING) return checker_refute(asked, "rank %u was not answered", rank);
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
    if (!p.member) return checker_refute(&p, "no memory");
    const struct coll_asking *asking = weft__asking(check->algorithm);
    bool right = (!asking || check->shape.size == 1 || prove_asking(&p, asking)) && prove(&p);
    talloc_free(p.member);
    return right;
}
