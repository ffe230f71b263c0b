/*
 * Hierarchies of the v-forms whose counts only the root knows, or each member for itself. Leaders
 * ask first: a schedule of counts, whose result lies in scratch memory, is run before that of the
 * blocks, which is built with it (`known`). Groups that are no neighbours ask nothing, and take the
 * usual algorithm.
 */
#include "groups.h"

#include <reactor/reactor.h>

enum { COUNT = sizeof(uint64_t) };

static uint64_t *numbers(struct schedule *s, size_t n) {
    uint64_t *memory = weft__alloc(s, (n + 1) * sizeof *memory, "counts");
    if (!memory) s->status = WEFT_ERR_NO_MEMORY;
    return memory;
}

/* Counts in a row: their offsets behind them. */
static struct coll_vector in_a_row(uint64_t *count, uint32_t n) {
    uint64_t at = 0;
    for (uint32_t i = 0; i < n; at += count[i++]) count[n + i] = at;
    return (struct coll_vector){count, count + n};
}

static uint64_t sum_of(struct coll_vector v, uint32_t n) {
    return n ? v.offset[n - 1] + v.count[n - 1] : 0;
}

static bool is_of_roots_group(const struct coll_shape *shape) {
    return weft__group_of(shape, shape->rank) == weft__group_of(shape, shape->root);
}

/* The counts of this leader's mates, as `known` has them. */
static bool row_of_mates(struct schedule *s, const struct groups *g, struct coll_vector *row_p) {
    uint64_t *count = numbers(s, 2 * (size_t)g->n_mine);
    if (!count) return false;
    for (uint32_t i = 0; i < g->n_mine; i++) count[i] = g->leads ? s->shape.known[i] : 0;
    *row_p = in_a_row(count, g->n_mine);
    return true;
}

/* The blocks of the root's own group, where they lie in the root's vector. */
static struct coll_vector own_blocks(const struct groups *g, struct coll_vector v) {
    uint32_t first = g->first[g->turn];
    return (struct coll_vector){v.count + first, v.offset + first};
}

/* Between groups nothing goes to or from the root's own. */
static struct coll_vector without_own(const struct groups *g, const struct row *row) {
    row->groups_count[g->turn] = 0;
    return (struct coll_vector){row->groups_count, row->groups_offset};
}

static bool is_own(const struct groups *g, uint32_t rank) {
    return rank >= g->first[g->turn] && rank - g->first[g->turn] < g->n_mine;
}

/* ---- gatherv --------------------------------------------------------------------------------- */

static uint32_t counts_GATHERV(const struct coll_shape *shape, uint64_t *count) {
    if (count) count[0] = shape->count;
    return 1;
}

/* The root knows its group. */
static void ask_GATHERV_hierarchy(struct schedule *s) {
    struct groups g;
    if (!weft__groups_find(s, &g) || !g.rows || is_of_roots_group(&s->shape)) return;
    struct coll_part in = weft__part_within(s, &g, COLL_GATHER, ALGORITHM_GATHER_knomial, 1);
    in.shape.count = 1;
    in.shape.width = COUNT;
    in.shape.src = in.shape.dst = (struct coll_vector){0};
    in.dst = AT(SCRATCH, 0);
    in.scratch = s->scratch = g.leads ? (uint64_t)g.n_mine * COUNT : 0;
    weft__part_add(s, true, &in);
}

/* The root has the rows of the other groups in scratch memory. */
static void gather_at_root(struct schedule *s, const struct groups *g) {
    struct row row;
    uint64_t width = s->shape.width;
    if (!weft__groups_row(s, g, s->shape.dst, &row)) return;
    struct coll_part in = weft__part_within(s, g, COLL_GATHERV, ALGORITHM_GATHERV_linear, 1),
                     all = weft__part_between(s, g, COLL_GATHERV, ALGORITHM_GATHERV_linear, 2);
    in.shape.dst = own_blocks(g, s->shape.dst);
    all.dst = AT(SCRATCH, 0);
    all.shape.count = 0;
    all.shape.dst = without_own(g, &row);
    in.scratch = all.scratch = s->scratch = row.total * width;
    weft__part_add(s, true, &in);
    weft__part_add(s, true, &all);
    for (uint32_t r = 0; r < s->shape.size; r++)
        if (!is_own(g, r))
            weft__add_copy(s, AT(DST, weft__dst_block(&s->shape, r).offset),
                           AT(SCRATCH, row.offset[r] * width), row.count[r] * width, AFTER(0));
}

void weft__build_GATHERV_hierarchy(struct schedule *s) {
    struct groups g;
    struct coll_vector row;
    if (!weft__groups_find(s, &g)) return;
    if (!g.rows || s->shape.rank == s->shape.root) {
        g.rows ? gather_at_root(s, &g) : weft__build_GATHERV_linear(s);
        return;
    }
    struct coll_part in = weft__part_within(s, &g, COLL_GATHERV, ALGORITHM_GATHERV_linear, 1),
                     all = weft__part_between(s, &g, COLL_GATHERV, ALGORITHM_GATHERV_linear, 2);
    if (g.leads && !row_of_mates(s, &g, &row)) return;
    in.dst = all.src = AT(SCRATCH, 0);
    if (g.leads) in.shape.dst = row;
    if (g.leads) all.shape.count = sum_of(row, g.n_mine);
    in.scratch = all.scratch = s->scratch = g.leads ? all.shape.count * s->shape.width : 0;
    weft__part_add(s, true, &in);
    weft__part_add(s, g.leads, &all);
}

/* ---- scatterv -------------------------------------------------------------------------------- */

static uint32_t counts_SCATTERV(const struct coll_shape *shape, uint64_t *count) {
    uint32_t n = shape->rank == shape->root ? shape->size : 0;
    for (uint32_t r = 0; count && r < n; r++) count[r] = shape->src.count[r];
    return n;
}

/* Leaders get the counts of their groups; the root's own is not sent any. */
static void ask_SCATTERV_hierarchy(struct schedule *s) {
    struct groups g;
    if (!weft__groups_find(s, &g) || !g.rows || !g.leads) return;
    uint64_t *groups = numbers(s, 2 * (size_t)g.n_leaders);
    if (!groups) return;
    for (uint32_t i = 0; i < g.n_leaders; i++) {
        uint32_t end = i + 1 < g.n_leaders ? g.first[i + 1] : s->shape.size;
        groups[i] = g.leader[i] == s->shape.root ? 0 : end - g.first[i];
        groups[g.n_leaders + i] = g.first[i];
    }
    struct coll_part all = weft__part_between(s, &g, COLL_SCATTERV, ALGORITHM_SCATTERV_linear, 1);
    all.shape.count = groups[g.turn];
    all.shape.width = COUNT;
    all.shape.src = (struct coll_vector){groups, groups + g.n_leaders};
    all.dst = AT(SCRATCH, 0);
    all.scratch = s->scratch = all.shape.count * COUNT;
    weft__part_add(s, true, &all);
}

static void scatter_at_root(struct schedule *s, const struct groups *g) {
    struct row row;
    uint64_t width = s->shape.width;
    if (!weft__groups_row(s, g, s->shape.src, &row)) return;
    struct coll_part all = weft__part_between(s, g, COLL_SCATTERV, ALGORITHM_SCATTERV_linear, 1),
                     out = weft__part_within(s, g, COLL_SCATTERV, ALGORITHM_SCATTERV_linear, 2);
    out.shape.src = own_blocks(g, s->shape.src);
    all.src = AT(SCRATCH, 0);
    all.shape.count = 0;
    all.shape.src = without_own(g, &row);
    all.scratch = out.scratch = s->scratch = row.total * width;
    for (uint32_t r = 0; r < s->shape.size; r++)
        if (!is_own(g, r))
            weft__add_copy(s, AT(SCRATCH, row.offset[r] * width),
                           AT(SRC, weft__src_block(&s->shape, r).offset), row.count[r] * width,
                           AFTER(0));
    weft__add_gate(s);
    weft__part_add(s, true, &all);
    weft__part_add(s, true, &out);
}

void weft__build_SCATTERV_hierarchy(struct schedule *s) {
    struct groups g;
    struct coll_vector row;
    if (!weft__groups_find(s, &g)) return;
    if (!g.rows || s->shape.rank == s->shape.root) {
        g.rows ? scatter_at_root(s, &g) : weft__build_SCATTERV_linear(s);
        return;
    }
    struct coll_part all = weft__part_between(s, &g, COLL_SCATTERV, ALGORITHM_SCATTERV_linear, 1),
                     out = weft__part_within(s, &g, COLL_SCATTERV, ALGORITHM_SCATTERV_linear, 2);
    if (g.leads && !row_of_mates(s, &g, &row)) return;
    all.dst = out.src = AT(SCRATCH, 0);
    if (g.leads) out.shape.src = row;
    if (g.leads) all.shape.count = sum_of(row, g.n_mine);
    all.scratch = out.scratch = s->scratch = g.leads ? all.shape.count * s->shape.width : 0;
    weft__part_add(s, g.leads, &all);
    weft__part_add(s, true, &out);
}

/* ---- alltoallv ------------------------------------------------------------------------------- */

static uint32_t counts_ALLTOALLV(const struct coll_shape *shape, uint64_t *count) {
    for (uint32_t r = 0; count && r < shape->size; r++) {
        count[r] = shape->src.count[r];
        count[shape->size + r] = shape->dst.count[r];
    }
    return 2 * shape->size;
}

static void ask_ALLTOALLV_hierarchy(struct schedule *s) {
    struct groups g;
    s->shape.root = 0;
    if (!weft__groups_find(s, &g) || !g.rows) return;
    struct coll_part in = weft__part_within(s, &g, COLL_GATHER, ALGORITHM_GATHER_knomial, 1);
    in.shape.count = 2 * (uint64_t)s->shape.size;
    in.shape.width = COUNT;
    in.shape.in_place = false;
    in.shape.src = in.shape.dst = (struct coll_vector){0};
    in.dst = AT(SCRATCH, 0);
    in.scratch = s->scratch = g.leads ? g.n_mine * in.shape.count * COUNT : 0;
    weft__part_add(s, true, &in);
}

/*
 * Scratch memory of a member has its blocks in a row, then those that it gets. A leader has two
 * vectors behind them. The first gets the rows of its mates, which it packs by groups of receivers
 * into the second; what comes into the first lies by groups and senders, and is packed by receivers
 * into the second.
 */
struct exchange {
    const struct groups *g;
    uint64_t width, *out, *in;           /* of each mate: counts, then offsets */
    uint64_t *groups_out, *groups_in;    /* of each group: the same */
    uint64_t own_out, own_in;            /* elements of this member */
    uint64_t first_vector, other_vector; /* bytes */
};

static uint64_t count_to(const struct schedule *s, uint32_t mate, uint32_t rank) {
    return s->shape.known[2 * (uint64_t)mate * s->shape.size + rank];
}
static uint64_t count_from(const struct schedule *s, uint32_t mate, uint32_t rank) {
    return s->shape.known[(2 * (uint64_t)mate + 1) * s->shape.size + rank];
}

static uint32_t end_of(const struct schedule *s, const struct groups *g, uint32_t group) {
    return group + 1 < g->n_leaders ? g->first[group + 1] : s->shape.size;
}

static void add_counts(const struct schedule *s, struct exchange *x) {
    const struct groups *g = x->g;
    for (uint32_t j = 0; j < g->n_leaders; j++)
        for (uint32_t r = g->first[j]; r < end_of(s, g, j); r++)
            for (uint32_t i = 0; i < g->n_mine; i++) {
                x->out[i] += count_to(s, i, r);
                x->in[i] += count_from(s, i, r);
                x->groups_out[j] += count_to(s, i, r);
                x->groups_in[j] += count_from(s, i, r);
            }
}

static bool plan_exchange(struct schedule *s, const struct groups *g, struct exchange *x) {
    const struct coll_shape *shape = &s->shape;
    *x = (struct exchange){.g = g, .width = shape->width};
    for (uint32_t r = 0; r < shape->size; r++) {
        x->own_out += shape->src.count[r];
        x->own_in += shape->dst.count[r];
    }
    x->first_vector = x->other_vector = s->scratch = (x->own_out + x->own_in) * x->width;
    if (!g->leads) return true;
    x->out = numbers(s, 4 * ((size_t)g->n_mine + g->n_leaders));
    if (!x->out) return false;
    x->in = x->out + 2 * (size_t)g->n_mine;
    x->groups_out = x->in + 2 * (size_t)g->n_mine;
    x->groups_in = x->groups_out + 2 * (size_t)g->n_leaders;
    add_counts(s, x);
    uint64_t out = sum_of(in_a_row(x->out, g->n_mine), g->n_mine),
             in = sum_of(in_a_row(x->in, g->n_mine), g->n_mine), most = out > in ? out : in;
    in_a_row(x->groups_out, g->n_leaders);
    in_a_row(x->groups_in, g->n_leaders);
    x->other_vector += most * x->width;
    s->scratch += 2 * most * x->width;
    return true;
}

static void pack_own(struct schedule *s) {
    uint64_t at = 0;
    for (uint32_t r = 0; r < s->shape.size; r++) {
        struct piece block = weft__src_block(&s->shape, r);
        weft__add_copy(s, AT(SCRATCH, at), AT(SRC, block.offset), block.len, AFTER(0));
        at += block.len;
    }
    weft__add_gate(s);
}

static void unpack_own(struct schedule *s, const struct exchange *x) {
    uint64_t at = x->own_out * x->width;
    for (uint32_t r = 0; r < s->shape.size; r++) {
        struct piece block = weft__dst_block(&s->shape, r);
        weft__add_copy(s, AT(DST, block.offset), AT(SCRATCH, at), block.len, AFTER(0));
        at += block.len;
    }
}

static void add_packing(struct schedule *s, const struct exchange *x, uint64_t to, uint64_t from,
                        uint64_t count) {
    weft__add_copy(s, AT(SCRATCH, x->other_vector + to * x->width),
                   AT(SCRATCH, x->first_vector + from * x->width), count * x->width, AFTER(0));
}

static void pack_for_groups(struct schedule *s, const struct exchange *x) {
    const struct groups *g = x->g;
    uint64_t to = 0;
    for (uint32_t j = 0; j < g->n_leaders; j++)
        for (uint32_t i = 0; i < g->n_mine; i++) {
            uint64_t from = x->out[g->n_mine + i], count = 0;
            for (uint32_t r = 0; r < g->first[j]; r++) from += count_to(s, i, r);
            for (uint32_t r = g->first[j]; r < end_of(s, g, j); r++) count += count_to(s, i, r);
            add_packing(s, x, to, from, count);
            to += count;
        }
    weft__add_gate(s);
}

/* A sender's blocks for the group are in the order of mates. */
static void pack_for_mates(struct schedule *s, const struct exchange *x) {
    const struct groups *g = x->g;
    uint64_t from = 0;
    for (uint32_t r = 0; r < s->shape.size; r++)
        for (uint32_t i = 0; i < g->n_mine; i++) {
            uint64_t count = count_from(s, i, r);
            add_packing(s, x, x->in[g->n_mine + i], from, count);
            x->in[g->n_mine + i] += count; /* where this mate's next one belongs */
            from += count;
        }
    in_a_row(x->in, g->n_mine);
    weft__add_gate(s);
}

void weft__build_ALLTOALLV_hierarchy(struct schedule *s) {
    struct groups g;
    struct exchange x;
    s->shape.root = 0;
    if (!weft__groups_find(s, &g)) return;
    if (!g.rows) {
        weft__build_ALLTOALLV_pairwise(s);
        return;
    }
    if (!plan_exchange(s, &g, &x)) return;
    struct coll_part in = weft__part_within(s, &g, COLL_GATHERV, ALGORITHM_GATHERV_linear, 1),
                     all =
                         weft__part_between(s, &g, COLL_ALLTOALLV, ALGORITHM_ALLTOALLV_pairwise, 2),
                     out = weft__part_within(s, &g, COLL_SCATTERV, ALGORITHM_SCATTERV_linear, 3);
    in.shape.count = x.own_out;
    out.shape.count = x.own_in;
    in.shape.in_place = all.shape.in_place = out.shape.in_place = false;
    in.shape.dst = (struct coll_vector){x.out, x.out + g.n_mine};
    out.shape.src = (struct coll_vector){x.in, x.in + g.n_mine};
    all.shape.src = (struct coll_vector){x.groups_out, x.groups_out + g.n_leaders};
    all.shape.dst = (struct coll_vector){x.groups_in, x.groups_in + g.n_leaders};
    in.src = AT(SCRATCH, 0);
    in.dst = all.dst = AT(SCRATCH, x.first_vector);
    all.src = out.src = AT(SCRATCH, x.other_vector);
    out.dst = AT(SCRATCH, x.own_out * x.width);
    in.scratch = all.scratch = out.scratch = s->scratch;
    pack_own(s);
    weft__part_add(s, true, &in);
    if (g.leads) pack_for_groups(s, &x);
    weft__part_add(s, g.leads, &all);
    if (g.leads) pack_for_mates(s, &x);
    weft__part_add(s, true, &out);
    unpack_own(s, &x);
}

/* ---- which of them ask ----------------------------------------------------------------------- */

const struct coll_asking *weft__asking(unsigned algorithm) {
    static const struct coll_asking gatherv = {ask_GATHERV_hierarchy, counts_GATHERV},
                                    scatterv = {ask_SCATTERV_hierarchy, counts_SCATTERV},
                                    alltoallv = {ask_ALLTOALLV_hierarchy, counts_ALLTOALLV};
    switch (algorithm) {
    case ALGORITHM_GATHERV_hierarchy: return &gatherv;
    case ALGORITHM_SCATTERV_hierarchy: return &scatterv;
    case ALGORITHM_ALLTOALLV_hierarchy: return &alltoallv;
    default: return NULL;
    }
}
