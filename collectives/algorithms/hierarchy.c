/*
 * Two levels: within groups of ranks (those of one host, say), and between one leader of each. Any
 * algorithm of the fitting collective can be taken for either.
 */
#include "groups.h"

#include <reactor/reactor.h>

void weft__build_BARRIER_hierarchy(struct schedule *s) {
    struct groups g;
    if (!weft__groups_find(s, &g)) return;
    struct coll_part in = weft__part_within(s, &g, COLL_FANIN, ALGORITHM_FANIN_knomial, 1),
                     all = weft__part_between(s, &g, COLL_BARRIER, ALGORITHM_BARRIER_dissemination,
                                              2),
                     out = weft__part_within(s, &g, COLL_FANOUT, ALGORITHM_FANOUT_knomial, 3);
    weft__part_add(s, true, &in);
    weft__part_add(s, g.leads, &all);
    weft__part_add(s, true, &out);
}

void weft__build_BCAST_hierarchy(struct schedule *s) {
    struct groups g;
    if (!weft__groups_find(s, &g)) return;
    struct coll_part all = weft__part_between(s, &g, COLL_BCAST, ALGORITHM_BCAST_binomial, 1),
                     out = weft__part_within(s, &g, COLL_BCAST, ALGORITHM_BCAST_binomial, 2);
    weft__part_add(s, g.leads, &all);
    weft__part_add(s, true, &out);
}

void weft__build_ALLREDUCE_hierarchy(struct schedule *s) {
    struct groups g;
    if (!weft__groups_find(s, &g)) return;
    struct coll_part in = weft__part_within(s, &g, COLL_REDUCE, ALGORITHM_REDUCE_knomial, 1),
                     all =
                         weft__part_between(s, &g, COLL_ALLREDUCE, ALGORITHM_ALLREDUCE_doubling, 2),
                     out = weft__part_within(s, &g, COLL_BCAST, ALGORITHM_BCAST_binomial, 3);
    all.src = AT(DST, 0);
    weft__part_add(s, true, &in);
    weft__part_add(s, g.leads, &all);
    weft__part_add(s, true, &out);
}

/* Leaders other than the root have no DST: their sums are in scratch memory. */
void weft__build_REDUCE_hierarchy(struct schedule *s) {
    struct groups g;
    if (!weft__groups_find(s, &g)) return;
    struct coll_part in = weft__part_within(s, &g, COLL_REDUCE, ALGORITHM_REDUCE_knomial, 1),
                     all = weft__part_between(s, &g, COLL_REDUCE, ALGORITHM_REDUCE_knomial, 2);
    uint64_t bytes = s->shape.count * s->shape.width;
    if (s->shape.rank != s->shape.root) in.dst = AT(SCRATCH, 0);
    all.src = in.dst;
    in.scratch = all.scratch = s->scratch = g.leads && s->shape.rank != s->shape.root ? bytes : 0;
    weft__part_add(s, true, &in);
    weft__part_add(s, g.leads, &all);
}

void weft__build_FANIN_hierarchy(struct schedule *s) {
    struct groups g;
    if (!weft__groups_find(s, &g)) return;
    struct coll_part in = weft__part_within(s, &g, COLL_FANIN, ALGORITHM_FANIN_knomial, 1),
                     all = weft__part_between(s, &g, COLL_FANIN, ALGORITHM_FANIN_knomial, 2);
    weft__part_add(s, true, &in);
    weft__part_add(s, g.leads, &all);
}

void weft__build_FANOUT_hierarchy(struct schedule *s) {
    struct groups g;
    if (!weft__groups_find(s, &g)) return;
    struct coll_part all = weft__part_between(s, &g, COLL_FANOUT, ALGORITHM_FANOUT_knomial, 1),
                     out = weft__part_within(s, &g, COLL_FANOUT, ALGORITHM_FANOUT_knomial, 2);
    weft__part_add(s, g.leads, &all);
    weft__part_add(s, true, &out);
}

/* ---- groups of neighbours, whose blocks are a row of the whole vector ------------------------ */

/* The rows of all groups: counts, then offsets, in elements. NULL: groups are no neighbours, or
 * memory is short (then the schedule's status says so). */
static uint64_t *rows_of(struct schedule *s, const struct groups *g) {
    uint32_t size = s->shape.size;
    uint64_t count = s->shape.count;
    if (!g->rows) return NULL;
    uint64_t *rows = weft__alloc(s, 2 * (size_t)size * sizeof *rows, "rows");
    if (!rows) s->status = WEFT_ERR_NO_MEMORY;
    for (uint32_t i = 0; rows && i < g->n_leaders; i++) {
        uint32_t next = i + 1 < g->n_leaders ? g->first[i + 1] : size;
        rows[i] = (next - g->first[i]) * count;
        rows[size + i] = g->first[i] * count;
    }
    return rows;
}

/* A group's row comes together in its leader's scratch memory, the root's in DST itself. */
void weft__build_GATHER_hierarchy(struct schedule *s) {
    struct groups g;
    if (!weft__groups_find(s, &g)) return;
    uint64_t *rows = rows_of(s, &g), width = s->shape.width;
    if (!rows) {
        weft__build_GATHER_knomial(s);
        return;
    }
    uint64_t row = rows[g.turn] * width;
    bool root = s->shape.rank == s->shape.root;
    struct coll_part in = weft__part_within(s, &g, COLL_GATHER, ALGORITHM_GATHER_knomial, 1),
                     all = weft__part_between(s, &g, COLL_GATHERV, ALGORITHM_GATHERV_linear, 2);
    in.dst = root ? AT(DST, rows[s->shape.size + g.turn] * width) : AT(SCRATCH, 0);
    all.src = in.dst;
    in.scratch = all.scratch = s->scratch = root || !g.leads ? 0 : row;
    all.shape.count = rows[g.turn];
    all.shape.dst = (struct coll_vector){rows, rows + s->shape.size};
    weft__part_add(s, true, &in);
    weft__part_add(s, g.leads, &all);
}

void weft__build_SCATTER_hierarchy(struct schedule *s) {
    struct groups g;
    if (!weft__groups_find(s, &g)) return;
    uint64_t *rows = rows_of(s, &g), width = s->shape.width;
    if (!rows) {
        weft__build_SCATTER_knomial(s);
        return;
    }
    struct coll_part all = weft__part_between(s, &g, COLL_SCATTERV, ALGORITHM_SCATTERV_linear, 1),
                     out = weft__part_within(s, &g, COLL_SCATTER, ALGORITHM_SCATTER_knomial, 2);
    all.dst = out.src = AT(SCRATCH, 0);
    all.scratch = out.scratch = s->scratch = g.leads ? rows[g.turn] * width : 0;
    all.shape.count = rows[g.turn];
    all.shape.src = (struct coll_vector){rows, rows + s->shape.size};
    weft__part_add(s, g.leads, &all);
    weft__part_add(s, true, &out);
}

/* Leaders have the sums of their groups, then their row of the sum of all, in scratch memory. */
void weft__build_REDUCE_SCATTER_hierarchy(struct schedule *s) {
    struct groups g;
    s->shape.root = 0;
    if (!weft__groups_find(s, &g)) return;
    uint64_t *rows = rows_of(s, &g), width = s->shape.width;
    if (!rows) {
        weft__build_REDUCE_SCATTER_ring(s);
        return;
    }
    uint64_t whole = g.leads ? s->shape.size * s->shape.count * width : 0;
    uint64_t row = g.leads ? rows[g.turn] * width : 0;
    struct coll_part in = weft__part_within(s, &g, COLL_REDUCE, ALGORITHM_REDUCE_knomial, 1),
                     all = weft__part_between(s, &g, COLL_REDUCE_SCATTERV,
                                              ALGORITHM_REDUCE_SCATTERV_ring, 2),
                     out = weft__part_within(s, &g, COLL_SCATTER, ALGORITHM_SCATTER_knomial, 3);
    in.dst = all.src = AT(SCRATCH, 0);
    all.dst = out.src = AT(SCRATCH, whole);
    in.scratch = all.scratch = out.scratch = s->scratch = whole + row;
    in.shape.count = s->shape.size * s->shape.count;
    all.shape.count = rows[g.turn];
    all.shape.src = (struct coll_vector){rows, rows + s->shape.size};
    weft__part_add(s, true, &in);
    weft__part_add(s, g.leads, &all);
    weft__part_add(s, true, &out);
}

/* Groups that are no neighbours take the ring. */
void weft__build_ALLGATHER_hierarchy(struct schedule *s) {
    struct groups g;
    s->shape.root = 0;
    if (!weft__groups_find(s, &g)) return;
    uint64_t *rows = rows_of(s, &g);
    if (!rows) {
        weft__build_ALLGATHERV_ring(s);
        return;
    }
    struct coll_part in = weft__part_within(s, &g, COLL_GATHER, ALGORITHM_GATHER_knomial, 1),
                     all = weft__part_between(s, &g, COLL_ALLGATHERV, ALGORITHM_ALLGATHERV_ring, 2),
                     out = weft__part_within(s, &g, COLL_BCAST, ALGORITHM_BCAST_binomial, 3);
    in.dst = all.src = AT(DST, rows[s->shape.size + g.turn] * s->shape.width);
    all.shape.count = rows[g.turn];
    all.shape.dst = (struct coll_vector){rows, rows + s->shape.size};
    out.shape.count = s->shape.size * s->shape.count;
    weft__part_add(s, true, &in);
    weft__part_add(s, g.leads, &all);
    weft__part_add(s, true, &out);
}

/* ---- blocks that differ, of which every member knows all ------------------------------------- */

static struct coll_vector own_row(const struct groups *g, const struct row *row, bool from_here) {
    uint32_t first = g->first[g->turn];
    for (uint32_t i = 0; from_here && i < g->n_mine; i++)
        row->offset[first + i] -= row->groups_offset[g->turn];
    return (struct coll_vector){row->count + first, row->offset + first};
}

/* All blocks in a row in scratch memory: groups that are no neighbours take the ring. */
void weft__build_ALLGATHERV_hierarchy(struct schedule *s) {
    struct groups g;
    struct row row;
    s->shape.root = 0;
    if (!weft__groups_find(s, &g)) return;
    if (!weft__groups_row(s, &g, s->shape.dst, &row)) {
        weft__build_ALLGATHERV_ring(s);
        return;
    }
    uint64_t width = s->shape.width, whole = row.total * width;
    struct coll_part in = weft__part_within(s, &g, COLL_GATHERV, ALGORITHM_GATHERV_linear, 1),
                     all = weft__part_between(s, &g, COLL_ALLGATHERV, ALGORITHM_ALLGATHERV_ring, 2),
                     out = weft__part_within(s, &g, COLL_BCAST, ALGORITHM_BCAST_binomial, 3);
    in.shape.count = row.count[s->shape.rank];
    in.shape.dst = own_row(&g, &row, false);
    in.dst = all.dst = out.dst = AT(SCRATCH, 0);
    all.src = AT(SCRATCH, row.groups_offset[g.turn] * width);
    all.shape.count = row.groups_count[g.turn];
    all.shape.dst = (struct coll_vector){row.groups_count, row.groups_offset};
    out.shape.count = row.total;
    in.scratch = all.scratch = out.scratch = s->scratch = whole;
    weft__part_add(s, true, &in);
    weft__part_add(s, g.leads, &all);
    weft__part_add(s, true, &out);
    for (uint32_t r = 0; r < s->shape.size; r++)
        weft__add_copy(s, AT(DST, weft__dst_block(&s->shape, r).offset),
                       AT(SCRATCH, row.offset[r] * width), row.count[r] * width, AFTER(0));
}

void weft__build_REDUCE_SCATTERV_hierarchy(struct schedule *s) {
    struct groups g;
    struct row row;
    s->shape.root = 0;
    if (!weft__groups_find(s, &g)) return;
    if (!weft__groups_row(s, &g, s->shape.src, &row)) {
        weft__build_REDUCE_SCATTERV_ring(s);
        return;
    }
    uint64_t width = s->shape.width, whole = g.leads ? row.total * width : 0;
    struct coll_part in = weft__part_within(s, &g, COLL_REDUCE, ALGORITHM_REDUCE_knomial, 1),
                     all = weft__part_between(s, &g, COLL_REDUCE_SCATTERV,
                                              ALGORITHM_REDUCE_SCATTERV_ring, 2),
                     out = weft__part_within(s, &g, COLL_SCATTERV, ALGORITHM_SCATTERV_linear, 3);
    in.dst = all.src = AT(SCRATCH, 0);
    all.dst = out.src = AT(SCRATCH, whole);
    in.shape.count = row.total;
    all.shape.count = row.groups_count[g.turn];
    all.shape.src = (struct coll_vector){row.groups_count, row.groups_offset};
    out.shape.count = row.count[s->shape.rank];
    out.shape.src = own_row(&g, &row, true);
    in.scratch = all.scratch = out.scratch = s->scratch =
        g.leads ? whole + row.groups_count[g.turn] * width : 0;
    weft__part_add(s, true, &in);
    weft__part_add(s, g.leads, &all);
    weft__part_add(s, true, &out);
}

/* ---- everybody to everybody ------------------------------------------------------------------ */

/*
 * A leader has two vectors of all blocks of its group in scratch memory. It packs the first by
 * groups of receivers into the second; what comes into the first lies by senders, and is packed by
 * receivers into the second. Groups that are no neighbours go pairwise.
 */
static void pack_by_groups(struct schedule *s, const struct groups *g, const uint64_t *rows,
                           uint64_t half) {
    uint64_t width = s->shape.width, all = s->shape.size * s->shape.count * width;
    for (uint32_t j = 0; j < g->n_leaders && g->leads; j++) {
        uint64_t bytes = rows[j] * width, first = rows[s->shape.size + j] * width;
        for (uint32_t i = 0; i < g->n_mine; i++)
            weft__add_copy(s, AT(SCRATCH, half + first * g->n_mine + i * bytes),
                           AT(SCRATCH, i * all + first), bytes, AFTER(0));
    }
    weft__add_gate(s);
}

static void pack_by_receivers(struct schedule *s, const struct groups *g, uint64_t half) {
    uint32_t size = s->shape.size;
    uint64_t bytes = s->shape.count * s->shape.width;
    for (uint32_t r = 0; r < size && g->leads; r++)
        for (uint32_t i = 0; i < g->n_mine; i++)
            weft__add_copy(s, AT(SCRATCH, half + ((uint64_t)i * size + r) * bytes),
                           AT(SCRATCH, ((uint64_t)r * g->n_mine + i) * bytes), bytes, AFTER(0));
    weft__add_gate(s);
}

/* Counts and offsets of the blocks between groups, as long as the team's rows. */
static uint64_t *blocks_between(struct schedule *s, const struct groups *g, const uint64_t *rows) {
    uint32_t size = s->shape.size;
    uint64_t *blocks = weft__alloc(s, 2 * (size_t)size * sizeof *blocks, "blocks");
    if (!blocks) s->status = WEFT_ERR_NO_MEMORY;
    for (uint32_t i = 0; blocks && i < g->n_leaders; i++) {
        blocks[i] = rows[i] * g->n_mine;
        blocks[size + i] = rows[size + i] * g->n_mine;
    }
    return blocks;
}

void weft__build_ALLTOALL_hierarchy(struct schedule *s) {
    struct groups g;
    s->shape.root = 0;
    if (!weft__groups_find(s, &g)) return;
    uint64_t *rows = rows_of(s, &g);
    if (!rows) {
        weft__build_ALLTOALL_pairwise(s);
        return;
    }
    uint64_t *blocks = blocks_between(s, &g, rows);
    if (!blocks) return;
    uint64_t all_of = s->shape.size * s->shape.count,
             half = g.leads ? g.n_mine * all_of * s->shape.width : 0;
    struct coll_part in = weft__part_within(s, &g, COLL_GATHER, ALGORITHM_GATHER_knomial, 1),
                     all =
                         weft__part_between(s, &g, COLL_ALLTOALLV, ALGORITHM_ALLTOALLV_pairwise, 2),
                     out = weft__part_within(s, &g, COLL_SCATTER, ALGORITHM_SCATTER_knomial, 3);
    in.shape.count = out.shape.count = all_of;
    in.shape.in_place = all.shape.in_place = out.shape.in_place = false;
    in.dst = all.dst = AT(SCRATCH, 0);
    all.src = out.src = AT(SCRATCH, half);
    all.shape.src = all.shape.dst = (struct coll_vector){blocks, blocks + s->shape.size};
    in.scratch = all.scratch = out.scratch = s->scratch = 2 * half;
    weft__part_add(s, true, &in);
    pack_by_groups(s, &g, rows, half);
    weft__part_add(s, g.leads, &all);
    pack_by_receivers(s, &g, half);
    weft__part_add(s, true, &out);
}

/* ---- prefixes -------------------------------------------------------------------------------- */

/* Its last member leads a group: it has the sum of the whole. */
static void let_last_lead(const struct coll_shape *shape, struct groups *g) {
    for (uint32_t i = 0; i < g->n_leaders; i++)
        g->leader[i] = (i + 1 < g->n_leaders ? g->first[i + 1] : shape->size) - 1;
    g->head = g->n_mine - 1;
    g->leads = g->place == g->head;
}

/* A sum up to each member of the group, at `sum`; those of the groups before it, at `before`. */
static void add_prefixes(struct schedule *s, const struct groups *g, struct coll_ref sum,
                         struct coll_ref before, uint64_t scratch) {
    struct coll_part in = weft__part_within(s, g, COLL_SCAN, ALGORITHM_SCAN_doubling, 1),
                     all = weft__part_between(s, g, COLL_EXSCAN, ALGORITHM_EXSCAN_doubling, 2),
                     out = weft__part_within(s, g, COLL_BCAST, ALGORITHM_BCAST_binomial, 3);
    in.dst = all.src = sum;
    all.dst = out.dst = before;
    in.scratch = all.scratch = out.scratch = s->scratch = scratch;
    weft__part_add(s, true, &in);
    weft__part_add(s, g->leads, &all);
    weft__part_add(s, g->turn > 0, &out);
}

/* The order of ranks is that of groups and of places in them, where groups are of neighbours. */
void weft__build_SCAN_hierarchy(struct schedule *s) {
    struct groups g;
    uint64_t bytes = s->shape.count * s->shape.width;
    s->shape.root = 0;
    if (!weft__groups_find(s, &g)) return;
    if (!g.rows) {
        weft__build_SCAN_doubling(s);
        return;
    }
    let_last_lead(&s->shape, &g);
    add_prefixes(s, &g, AT(DST, 0), AT(SCRATCH, 0), bytes);
    if (g.turn > 0) weft__add_reduce(s, AT(DST, 0), AT(SCRATCH, 0), AT(DST, 0), bytes, AFTER(0));
}

/* A member has the sum below it from its neighbour. */
void weft__build_EXSCAN_hierarchy(struct schedule *s) {
    struct groups g;
    uint64_t bytes = s->shape.count * s->shape.width;
    s->shape.root = 0;
    if (!weft__groups_find(s, &g)) return;
    if (!g.rows) {
        weft__build_EXSCAN_doubling(s);
        return;
    }
    let_last_lead(&s->shape, &g);
    add_prefixes(s, &g, AT(SCRATCH, 0), AT(SCRATCH, bytes), 2 * bytes);
    uint32_t got = 0;
    if (g.place + 1 < g.n_mine)
        weft__add_send(s, g.mine[g.place + 1], 0, AT(SCRATCH, 0), bytes, AFTER(0));
    if (g.place > 0) got = weft__add_recv(s, g.mine[g.place - 1], 0, AT(DST, 0), bytes, AFTER(0));
    if (g.turn > 0 && g.place > 0)
        weft__add_reduce(s, AT(DST, 0), AT(SCRATCH, bytes), AT(DST, 0), bytes, AFTER(got));
    else if (g.turn > 0)
        weft__add_copy(s, AT(DST, 0), AT(SCRATCH, bytes), bytes, AFTER(0));
}
