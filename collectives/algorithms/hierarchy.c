/*
 * Two levels: within groups of ranks (those of one host, say), and between one leader of each. Any
 * algorithm of the fitting collective can be taken for either.
 */
#include <collectives/select.h>
#include <collectives/share.h>
#include <reactor/reactor.h>
#include <string.h>

struct groups {
    uint32_t *mine, n_mine, place, head; /* this rank's group, it and its leader in that */
    uint32_t *leader, n_leaders, turn;   /* and its leader among all */
    uint32_t *first;                     /* of each group, of neighbours only: its first rank */
    bool leads, rows;                    /* rows: each group's ranks are neighbours */
};

static void add_leader(const struct coll_shape *shape, struct groups *g, uint32_t rank) {
    uint32_t group = weft__group_of(shape, rank);
    for (uint32_t i = g->n_leaders; i-- > 0;)
        if (weft__group_of(shape, g->leader[i]) == group) {
            g->rows = g->rows && i + 1 == g->n_leaders;
            return;
        }
    g->first[g->n_leaders] = rank;
    g->leader[g->n_leaders++] = rank;
}

/* The root leads its group; the others are led by their first. */
static void find_leaders(const struct coll_shape *shape, struct groups *g) {
    uint32_t own = weft__group_of(shape, shape->rank), roots = weft__group_of(shape, shape->root);
    for (uint32_t r = 0; r < shape->size; r++) {
        add_leader(shape, g, r);
        if (weft__group_of(shape, r) != own) continue;
        if (r == shape->rank) g->place = g->n_mine;
        if (r == shape->root) g->head = g->n_mine;
        g->mine[g->n_mine++] = r;
    }
    for (uint32_t i = 0; i < g->n_leaders; i++) {
        uint32_t group = weft__group_of(shape, g->leader[i]);
        if (group == roots) g->leader[i] = shape->root;
        if (group == own) g->turn = i;
    }
    g->leads = g->place == g->head;
}

static bool find_groups(struct schedule *s, struct groups *g) {
    uint32_t *memory = weft__alloc(s, 3 * (size_t)s->shape.size * sizeof *memory, "groups");
    if (!memory) {
        s->status = WEFT_ERR_NO_MEMORY;
        return false;
    }
    *g = (struct groups){.mine = memory,
                         .leader = memory + s->shape.size,
                         .first = memory + 2 * (size_t)s->shape.size,
                         .rows = true};
    find_leaders(&s->shape, g);
    return true;
}

typedef void (*build_fn)(struct schedule *);

static void build_shared(struct schedule *s) {
    weft__add_share(s);
}

/* What the table says about a part. `slot`: of the segment that its ranks share. In a v-form they
 * know different numbers of bytes, so they take the usual one. */
static unsigned choice_of(const struct coll_shape *part, uint64_t slot, unsigned usual) {
    uint64_t bytes = part->count * part->width;
    struct question question = {
        .kind = part->kind,
        .bytes = bytes,
        .ranks = part->size,
        .per_core = part->per_core,
        .slots = slot && weft__slots_fit(part->kind, bytes, part->width, part->size, slot)};
    return part->choices && weft__coll_is_even(part->kind) ? weft__choose(part->choices, &question)
                                                           : usual;
}

/* One that is a schedule; keys are of whole buffers. */
static bool is_of(unsigned id, enum coll_kind kind) {
    return id < N_ALGORITHMS && weft__algorithms[id].kind == kind && id != ALGORITHM_BCAST_direct;
}

static build_fn chosen(const struct coll_shape *part, unsigned given, uint64_t slot,
                       enum coll_algorithm usual) {
    if (given && is_of(given - 1, part->kind)) return weft__algorithms[given - 1].build;
    unsigned choice = choice_of(part, slot, usual);
    if (choice == ALGORITHM_SLOTS) return build_shared;
    bool fits =
        is_of(choice, part->kind) && strcmp(weft__algorithms[choice].name, "hierarchy") != 0;
    return weft__algorithms[fits ? choice : usual].build;
}

/* A part within the group, its root the leader. */
static struct coll_part within(const struct schedule *s, const struct groups *g,
                               enum coll_kind kind, enum coll_algorithm usual, uint32_t number) {
    struct coll_part part = {.usual = usual,
                             .shape = s->shape,
                             .map = g->mine,
                             .number = number,
                             .src = AT(SRC, 0),
                             .dst = AT(DST, 0)};
    part.shape.kind = kind;
    part.shape.size = g->n_mine;
    part.shape.rank = g->place;
    part.shape.root = g->head;
    part.shape.group_of = NULL;
    part.shape.per_group = part.shape.inner = part.shape.outer = 0;
    part.shape.slot = 0;
    return part;
}

/* A part between leaders; its root is the leader of the root's group. */
static struct coll_part between(const struct schedule *s, const struct groups *g,
                                enum coll_kind kind, enum coll_algorithm usual, uint32_t number) {
    struct coll_part part = within(s, g, kind, usual, number);
    part.across = true;
    part.map = g->leader;
    part.shape.size = g->n_leaders;
    part.shape.rank = g->turn;
    part.shape.root = 0;
    for (uint32_t i = 0; i < g->n_leaders; i++)
        if (g->leader[i] == s->shape.root) part.shape.root = i;
    return part;
}

static void add_if(struct schedule *s, bool takes_part, struct coll_part *part) {
    const struct coll_shape *shape = &s->shape;
    part->build = chosen(&part->shape, part->across ? shape->outer : shape->inner,
                         part->across ? 0 : shape->slot, part->usual);
    if (takes_part) weft__add_part(s, part);
    weft__add_gate(s);
}

void weft__build_BARRIER_hierarchy(struct schedule *s) {
    struct groups g;
    if (!find_groups(s, &g)) return;
    struct coll_part in = within(s, &g, COLL_FANIN, ALGORITHM_FANIN_knomial, 1),
                     all = between(s, &g, COLL_BARRIER, ALGORITHM_BARRIER_dissemination, 2),
                     out = within(s, &g, COLL_FANOUT, ALGORITHM_FANOUT_knomial, 3);
    add_if(s, true, &in);
    add_if(s, g.leads, &all);
    add_if(s, true, &out);
}

void weft__build_BCAST_hierarchy(struct schedule *s) {
    struct groups g;
    if (!find_groups(s, &g)) return;
    struct coll_part all = between(s, &g, COLL_BCAST, ALGORITHM_BCAST_binomial, 1),
                     out = within(s, &g, COLL_BCAST, ALGORITHM_BCAST_binomial, 2);
    add_if(s, g.leads, &all);
    add_if(s, true, &out);
}

void weft__build_ALLREDUCE_hierarchy(struct schedule *s) {
    struct groups g;
    if (!find_groups(s, &g)) return;
    struct coll_part in = within(s, &g, COLL_REDUCE, ALGORITHM_REDUCE_knomial, 1),
                     all = between(s, &g, COLL_ALLREDUCE, ALGORITHM_ALLREDUCE_doubling, 2),
                     out = within(s, &g, COLL_BCAST, ALGORITHM_BCAST_binomial, 3);
    all.src = AT(DST, 0);
    add_if(s, true, &in);
    add_if(s, g.leads, &all);
    add_if(s, true, &out);
}

/* Leaders other than the root have no DST: their sums are in scratch memory. */
void weft__build_REDUCE_hierarchy(struct schedule *s) {
    struct groups g;
    if (!find_groups(s, &g)) return;
    struct coll_part in = within(s, &g, COLL_REDUCE, ALGORITHM_REDUCE_knomial, 1),
                     all = between(s, &g, COLL_REDUCE, ALGORITHM_REDUCE_knomial, 2);
    uint64_t bytes = s->shape.count * s->shape.width;
    if (s->shape.rank != s->shape.root) in.dst = AT(SCRATCH, 0);
    all.src = in.dst;
    in.scratch = all.scratch = s->scratch = bytes;
    add_if(s, true, &in);
    add_if(s, g.leads, &all);
}

void weft__build_FANIN_hierarchy(struct schedule *s) {
    struct groups g;
    if (!find_groups(s, &g)) return;
    struct coll_part in = within(s, &g, COLL_FANIN, ALGORITHM_FANIN_knomial, 1),
                     all = between(s, &g, COLL_FANIN, ALGORITHM_FANIN_knomial, 2);
    add_if(s, true, &in);
    add_if(s, g.leads, &all);
}

void weft__build_FANOUT_hierarchy(struct schedule *s) {
    struct groups g;
    if (!find_groups(s, &g)) return;
    struct coll_part all = between(s, &g, COLL_FANOUT, ALGORITHM_FANOUT_knomial, 1),
                     out = within(s, &g, COLL_FANOUT, ALGORITHM_FANOUT_knomial, 2);
    add_if(s, g.leads, &all);
    add_if(s, true, &out);
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
    if (!find_groups(s, &g)) return;
    uint64_t *rows = rows_of(s, &g), width = s->shape.width;
    if (!rows) {
        weft__build_GATHER_knomial(s);
        return;
    }
    uint64_t row = rows[g.turn] * width;
    bool root = s->shape.rank == s->shape.root;
    struct coll_part in = within(s, &g, COLL_GATHER, ALGORITHM_GATHER_knomial, 1),
                     all = between(s, &g, COLL_GATHERV, ALGORITHM_GATHERV_linear, 2);
    in.dst = root ? AT(DST, rows[s->shape.size + g.turn] * width) : AT(SCRATCH, 0);
    all.src = in.dst;
    in.scratch = all.scratch = s->scratch = root || !g.leads ? 0 : row;
    all.shape.count = rows[g.turn];
    all.shape.dst = (struct coll_vector){rows, rows + s->shape.size};
    add_if(s, true, &in);
    add_if(s, g.leads, &all);
}

void weft__build_SCATTER_hierarchy(struct schedule *s) {
    struct groups g;
    if (!find_groups(s, &g)) return;
    uint64_t *rows = rows_of(s, &g), width = s->shape.width;
    if (!rows) {
        weft__build_SCATTER_knomial(s);
        return;
    }
    struct coll_part all = between(s, &g, COLL_SCATTERV, ALGORITHM_SCATTERV_linear, 1),
                     out = within(s, &g, COLL_SCATTER, ALGORITHM_SCATTER_knomial, 2);
    all.dst = out.src = AT(SCRATCH, 0);
    all.scratch = out.scratch = s->scratch = g.leads ? rows[g.turn] * width : 0;
    all.shape.count = rows[g.turn];
    all.shape.src = (struct coll_vector){rows, rows + s->shape.size};
    add_if(s, g.leads, &all);
    add_if(s, true, &out);
}

/* Leaders have the sums of their groups, then their row of the sum of all, in scratch memory. */
void weft__build_REDUCE_SCATTER_hierarchy(struct schedule *s) {
    struct groups g;
    s->shape.root = 0;
    if (!find_groups(s, &g)) return;
    uint64_t *rows = rows_of(s, &g), width = s->shape.width;
    if (!rows) {
        weft__build_REDUCE_SCATTER_ring(s);
        return;
    }
    uint64_t whole = g.leads ? s->shape.size * s->shape.count * width : 0;
    uint64_t row = g.leads ? rows[g.turn] * width : 0;
    struct coll_part in = within(s, &g, COLL_REDUCE, ALGORITHM_REDUCE_knomial, 1),
                     all = between(s, &g, COLL_REDUCE_SCATTERV, ALGORITHM_REDUCE_SCATTERV_ring, 2),
                     out = within(s, &g, COLL_SCATTER, ALGORITHM_SCATTER_knomial, 3);
    in.dst = all.src = AT(SCRATCH, 0);
    all.dst = out.src = AT(SCRATCH, whole);
    in.scratch = all.scratch = out.scratch = s->scratch = whole + row;
    in.shape.count = s->shape.size * s->shape.count;
    all.shape.count = rows[g.turn];
    all.shape.src = (struct coll_vector){rows, rows + s->shape.size};
    add_if(s, true, &in);
    add_if(s, g.leads, &all);
    add_if(s, true, &out);
}

/* Groups that are no neighbours take the ring. */
void weft__build_ALLGATHER_hierarchy(struct schedule *s) {
    struct groups g;
    s->shape.root = 0;
    if (!find_groups(s, &g)) return;
    uint64_t *rows = rows_of(s, &g);
    if (!rows) {
        weft__build_ALLGATHERV_ring(s);
        return;
    }
    struct coll_part in = within(s, &g, COLL_GATHER, ALGORITHM_GATHER_knomial, 1),
                     all = between(s, &g, COLL_ALLGATHERV, ALGORITHM_ALLGATHERV_ring, 2),
                     out = within(s, &g, COLL_BCAST, ALGORITHM_BCAST_binomial, 3);
    in.dst = all.src = AT(DST, rows[s->shape.size + g.turn] * s->shape.width);
    all.shape.count = rows[g.turn];
    all.shape.dst = (struct coll_vector){rows, rows + s->shape.size};
    out.shape.count = s->shape.size * s->shape.count;
    add_if(s, true, &in);
    add_if(s, g.leads, &all);
    add_if(s, true, &out);
}

/* ---- blocks that differ, of which every member knows all ------------------------------------- */

/* Of each rank, and then of each group: counts, and where they begin in a row, in elements. */
struct row {
    uint64_t *count, *offset, *groups_count, *groups_offset, total;
};

static bool row_of(struct schedule *s, const struct groups *g, struct coll_vector blocks,
                   struct row *row) {
    size_t size = s->shape.size;
    if (!g->rows) return false;
    uint64_t *memory = weft__alloc(s, 4 * size * sizeof *memory, "row");
    if (!memory) {
        s->status = WEFT_ERR_NO_MEMORY;
        return false;
    }
    *row = (struct row){memory, memory + size, memory + 2 * size, memory + 3 * size, 0};
    for (uint32_t r = 0, group = 0; r < size; r++) {
        if (group + 1 < g->n_leaders && r == g->first[group + 1]) group++;
        if (r == g->first[group]) row->groups_offset[group] = row->total;
        row->count[r] = weft__block(&s->shape, blocks, r).len / s->shape.width;
        row->offset[r] = row->total;
        row->groups_count[group] += row->count[r];
        row->total += row->count[r];
    }
    return true;
}

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
    if (!find_groups(s, &g)) return;
    if (!row_of(s, &g, s->shape.dst, &row)) {
        weft__build_ALLGATHERV_ring(s);
        return;
    }
    uint64_t width = s->shape.width, whole = row.total * width;
    struct coll_part in = within(s, &g, COLL_GATHERV, ALGORITHM_GATHERV_linear, 1),
                     all = between(s, &g, COLL_ALLGATHERV, ALGORITHM_ALLGATHERV_ring, 2),
                     out = within(s, &g, COLL_BCAST, ALGORITHM_BCAST_binomial, 3);
    in.shape.count = row.count[s->shape.rank];
    in.shape.dst = own_row(&g, &row, false);
    in.dst = all.dst = out.dst = AT(SCRATCH, 0);
    all.src = AT(SCRATCH, row.groups_offset[g.turn] * width);
    all.shape.count = row.groups_count[g.turn];
    all.shape.dst = (struct coll_vector){row.groups_count, row.groups_offset};
    out.shape.count = row.total;
    in.scratch = all.scratch = out.scratch = s->scratch = whole;
    add_if(s, true, &in);
    add_if(s, g.leads, &all);
    add_if(s, true, &out);
    for (uint32_t r = 0; r < s->shape.size; r++)
        weft__add_copy(s, AT(DST, weft__dst_block(&s->shape, r).offset),
                       AT(SCRATCH, row.offset[r] * width), row.count[r] * width, AFTER(0));
}

void weft__build_REDUCE_SCATTERV_hierarchy(struct schedule *s) {
    struct groups g;
    struct row row;
    s->shape.root = 0;
    if (!find_groups(s, &g)) return;
    if (!row_of(s, &g, s->shape.src, &row)) {
        weft__build_REDUCE_SCATTERV_ring(s);
        return;
    }
    uint64_t width = s->shape.width, whole = g.leads ? row.total * width : 0;
    struct coll_part in = within(s, &g, COLL_REDUCE, ALGORITHM_REDUCE_knomial, 1),
                     all = between(s, &g, COLL_REDUCE_SCATTERV, ALGORITHM_REDUCE_SCATTERV_ring, 2),
                     out = within(s, &g, COLL_SCATTERV, ALGORITHM_SCATTERV_linear, 3);
    in.dst = all.src = AT(SCRATCH, 0);
    all.dst = out.src = AT(SCRATCH, whole);
    in.shape.count = row.total;
    all.shape.count = row.groups_count[g.turn];
    all.shape.src = (struct coll_vector){row.groups_count, row.groups_offset};
    out.shape.count = row.count[s->shape.rank];
    out.shape.src = own_row(&g, &row, true);
    in.scratch = all.scratch = out.scratch = s->scratch =
        g.leads ? whole + row.groups_count[g.turn] * width : 0;
    add_if(s, true, &in);
    add_if(s, g.leads, &all);
    add_if(s, true, &out);
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
    if (!find_groups(s, &g)) return;
    uint64_t *rows = rows_of(s, &g);
    if (!rows) {
        weft__build_ALLTOALL_pairwise(s);
        return;
    }
    uint64_t *blocks = blocks_between(s, &g, rows);
    if (!blocks) return;
    uint64_t all_of = s->shape.size * s->shape.count,
             half = g.leads ? g.n_mine * all_of * s->shape.width : 0;
    struct coll_part in = within(s, &g, COLL_GATHER, ALGORITHM_GATHER_knomial, 1),
                     all = between(s, &g, COLL_ALLTOALLV, ALGORITHM_ALLTOALLV_pairwise, 2),
                     out = within(s, &g, COLL_SCATTER, ALGORITHM_SCATTER_knomial, 3);
    in.shape.count = out.shape.count = all_of;
    in.shape.in_place = all.shape.in_place = out.shape.in_place = false;
    in.dst = all.dst = AT(SCRATCH, 0);
    all.src = out.src = AT(SCRATCH, half);
    all.shape.src = all.shape.dst = (struct coll_vector){blocks, blocks + s->shape.size};
    in.scratch = all.scratch = out.scratch = s->scratch = 2 * half;
    add_if(s, true, &in);
    pack_by_groups(s, &g, rows, half);
    add_if(s, g.leads, &all);
    pack_by_receivers(s, &g, half);
    add_if(s, true, &out);
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
    struct coll_part in = within(s, g, COLL_SCAN, ALGORITHM_SCAN_doubling, 1),
                     all = between(s, g, COLL_EXSCAN, ALGORITHM_EXSCAN_doubling, 2),
                     out = within(s, g, COLL_BCAST, ALGORITHM_BCAST_binomial, 3);
    in.dst = all.src = sum;
    all.dst = out.dst = before;
    in.scratch = all.scratch = out.scratch = s->scratch = scratch;
    add_if(s, true, &in);
    add_if(s, g->leads, &all);
    add_if(s, g->turn > 0, &out);
}

/* The order of ranks is that of groups and of places in them, where groups are of neighbours. */
void weft__build_SCAN_hierarchy(struct schedule *s) {
    struct groups g;
    uint64_t bytes = s->shape.count * s->shape.width;
    s->shape.root = 0;
    if (!find_groups(s, &g)) return;
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
    if (!find_groups(s, &g)) return;
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
