/*
 * Random collectives, from a seed, against a plain serial result: operation, type and reduction
 * (any pair that there is), size, root, in place or not, counts of the v-forms, members (all, or
 * some of them, by a tag), persistent or not, algorithm, transport and team. SAMPLER_SEED and
 * SAMPLER_SAMPLES choose others.
 */
#include <base/half.h>
#include <collectives/reductions.h>
#include <collectives/select.h>
#include <float.h>
#include <stdlib.h>

#include "team.h"

static uint64_t state;
static uint32_t any(uint32_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return below ? (uint32_t)((state >> 33) % below) : 0;
}

struct sample {
    enum coll_kind kind;
    weft_datatype_t type;
    weft_reduction_t reduction;
    uint32_t size, root, flags;
    uint32_t start, stride; /* the members that take part; stride 0: all */
    size_t width, count;
    bool in_place, gaps, tagged, persistent;
    uint64_t n[MOST_RANKS][MOST_RANKS]; /* elements from a member to another */
    uint32_t edges[MOST_RANKS];         /* of a graph: bits of those that a member sends to */
};

static bool is_v(enum coll_kind kind) {
    return kind == COLL_GATHERV || kind == COLL_SCATTERV || kind == COLL_ALLGATHERV ||
           kind == COLL_REDUCE_SCATTERV || kind == COLL_ALLTOALLV ||
           kind == COLL_NEIGHBOR_ALLTOALLV;
}

/* ---- the members' memory --------------------------------------------------------------------- */

struct side {
    uint64_t counts[MOST_RANKS], displs[MOST_RANKS], elements;
};
struct memory {
    struct side src, dst;
    uint8_t *from, *to, *want;
    bool has_src, has_dst;
};
static struct memory memory[MOST_RANKS];

static void lay(struct side *side, uint32_t n, const uint64_t *counts, bool gaps) {
    side->elements = 0;
    for (uint32_t i = 0; i < n; i++) {
        side->counts[i] = counts[i];
        side->displs[i] = side->elements += gaps;
        side->elements += counts[i];
    }
}

static void one_block(struct side *side, uint64_t n) {
    side->elements = n;
}

static void lay_out(const struct sample *s, uint32_t r) {
    struct memory *m = &memory[r];
    bool root = r == s->root, v_gaps = s->gaps && is_v(s->kind);
    uint64_t in[MOST_RANKS], out[MOST_RANKS];
    for (uint32_t i = 0; i < s->size; i++) in[i] = s->n[i][r], out[i] = s->n[r][i];
    m->has_src = m->has_dst = true;
    one_block(&m->src, s->n[r][0]);
    one_block(&m->dst, s->n[0][r]);
    switch (s->kind) {
    case COLL_BCAST: m->has_src = false; break;
    case COLL_REDUCE: m->has_dst = root; break;
    case COLL_GATHER:
    case COLL_GATHERV: m->has_dst = root; /* fall through */
    case COLL_ALLGATHER:
    case COLL_ALLGATHERV: lay(&m->dst, s->size, in, v_gaps); break;
    case COLL_SCATTER:
    case COLL_SCATTERV: m->has_src = root; one_block(&m->dst, s->n[s->root][r]); /* fall through */
    case COLL_REDUCE_SCATTER:
    case COLL_REDUCE_SCATTERV:
        lay(&m->src, s->size, out, v_gaps && s->kind == COLL_SCATTERV);
        break;
    case COLL_ALLTOALL:
    case COLL_ALLTOALLV:
    case COLL_NEIGHBOR_ALLTOALLV:
        lay(&m->src, s->size, out, v_gaps);
        lay(&m->dst, s->size, in, v_gaps);
        break;
    default: break;
    }
}

static bool is_half(weft_datatype_t type) {
    return type == WEFT_FLOAT16 || type == WEFT_BFLOAT16;
}

/* Values whose sums and products are exact in any order, in all types; of a fixed order any
 * without an overflow. */
static double a_value(const struct sample *s) {
    if (s->flags & WEFT_COLL_FIXED_ORDER)
        return (double)((int)any(2000) - 1000) * (any(3) || is_half(s->type) ? 1.0 : 1e7) / 3;
    return s->reduction == WEFT_PROD ? 1 + any(2) : any(8);
}

static void put_element(const struct sample *s, uint8_t *at) {
    double d = a_value(s), e = s->reduction == WEFT_PROD ? 0 : any(8);
    uint64_t bits = any(100);
    switch (s->type) {
    case WEFT_FLOAT32: memcpy(at, &(float){(float)d}, 4); break;
    case WEFT_FLOAT64: memcpy(at, &d, 8); break;
    case WEFT_LONG_DOUBLE: memcpy(at, &(long double){d}, sizeof(long double)); break;
    case WEFT_COMPLEX_FLOAT32: memcpy(at, (float[]){(float)d, (float)e}, 8); break;
    case WEFT_COMPLEX_FLOAT64: memcpy(at, (double[]){d, e}, 16); break;
    case WEFT_FLOAT32_INT32:
        memcpy(at, &(weft_float32_int32_t){(float)d, (int32_t)bits}, s->width);
        break;
    case WEFT_FLOAT64_INT32: memcpy(at, &(weft_float64_int32_t){d, (int32_t)bits}, s->width); break;
    case WEFT_INT32_INT32:
        memcpy(at, &(weft_int32_int32_t){(int32_t)d, (int32_t)bits}, s->width);
        break;
    case WEFT_INT64_INT32:
        memcpy(at, &(weft_int64_int32_t){(int64_t)d, (int32_t)bits}, s->width);
        break;
    case WEFT_FLOAT16: memcpy(at, &(uint16_t){float16_of_float((float)d)}, 2); break;
    case WEFT_BFLOAT16: memcpy(at, &(uint16_t){bfloat16_of_float((float)d)}, 2); break;
    default: memcpy(at, &bits, s->width); break;
    }
}

static void fill(const struct sample *s, uint8_t *to, uint64_t elements) {
    for (uint64_t i = 0; i < elements; i++) put_element(s, to + i * s->width);
}

/* Bytes of an element that belong to its value: the rest is padding. */
static size_t value_bytes(const struct sample *s) {
    switch (s->type) {
    case WEFT_LONG_DOUBLE: return LDBL_MANT_DIG == 64 ? 10 : s->width;
    case WEFT_FLOAT64_INT32:
    case WEFT_INT64_INT32: return 12;
    default: return s->width;
    }
}
static bool are_equal(const struct sample *s, const uint8_t *a, const uint8_t *b, uint64_t n) {
    for (uint64_t i = 0; i < n; i++)
        if (memcmp(a + i * s->width, b + i * s->width, value_bytes(s)) != 0) return false;
    return true;
}

static void make_memory(const struct sample *s, uint32_t r) {
    struct memory *m = &memory[r];
    lay_out(s, r);
    m->from = calloc(m->src.elements + 1, s->width);
    m->to = malloc((m->dst.elements + 1) * s->width);
    m->want = malloc((m->dst.elements + 1) * s->width);
    fill(s, m->from, m->src.elements);
    memset(m->to, 0xab, (m->dst.elements + 1) * s->width);
    if (s->kind == COLL_BCAST && r == s->root) fill(s, m->to, m->dst.elements);
    memcpy(m->want, m->to, (m->dst.elements + 1) * s->width);
}

/* ---- what must come of it -------------------------------------------------------------------- */

static void fold_of(const struct sample *s, uint8_t *to, uint64_t first, uint64_t n,
                    uint32_t ranks) {
    reduce_fn reduce = weft__reduction_baseline(s->type, s->reduction);
    if (ranks > 0) memcpy(to, memory[0].from + first * s->width, n * s->width);
    for (uint32_t r = 1; r < ranks; r++) reduce(to, to, memory[r].from + first * s->width, n);
    if (s->reduction == WEFT_AVG) weft__scale(s->type)(to, n, s->size);
}

static void expect(const struct sample *s, uint32_t r) {
    struct memory *m = &memory[r];
    size_t w = s->width;
    bool root = r == s->root;
    switch (s->kind) {
    case COLL_BCAST: memcpy(m->want, memory[s->root].to, s->count * w); break;
    case COLL_REDUCE:
        if (root) fold_of(s, m->want, 0, s->count, s->size);
        break;
    case COLL_ALLREDUCE: fold_of(s, m->want, 0, s->count, s->size); break;
    case COLL_SCAN: fold_of(s, m->want, 0, s->count, r + 1); break;
    case COLL_EXSCAN: fold_of(s, m->want, 0, s->count, r); break;
    case COLL_REDUCE_SCATTER:
    case COLL_REDUCE_SCATTERV:
        fold_of(s, m->want, m->src.displs[r], m->src.counts[r], s->size);
        break;
    case COLL_SCATTER:
    case COLL_SCATTERV: {
        struct memory *from = &memory[s->root];
        memcpy(m->want, from->from + from->src.displs[r] * w, m->dst.elements * w);
        break;
    }
    case COLL_GATHER:
    case COLL_GATHERV:
        if (!root) break;
        /* fall through */
    case COLL_ALLGATHER:
    case COLL_ALLGATHERV:
        for (uint32_t i = 0; i < s->size; i++)
            memcpy(m->want + m->dst.displs[i] * w, memory[i].from, m->dst.counts[i] * w);
        break;
    case COLL_ALLTOALL:
    case COLL_ALLTOALLV:
    case COLL_NEIGHBOR_ALLTOALLV:
        for (uint32_t i = 0; i < s->size; i++)
            memcpy(m->want + m->dst.displs[i] * w, memory[i].from + memory[i].src.displs[r] * w,
                   m->dst.counts[i] * w);
        break;
    default: break;
    }
}

/* ---- one sample ------------------------------------------------------------------------------ */

static bool reduces(enum coll_kind kind) {
    return kind == COLL_REDUCE || kind == COLL_ALLREDUCE || kind == COLL_REDUCE_SCATTER ||
           kind == COLL_REDUCE_SCATTERV || kind == COLL_SCAN || kind == COLL_EXSCAN;
}
static bool signals_only(enum coll_kind kind) {
    return kind == COLL_BARRIER || kind == COLL_FANIN || kind == COLL_FANOUT;
}

/* Any type, and any reduction that it has. */
static void draw_type(struct sample *s) {
    bool prefix = s->kind == COLL_SCAN || s->kind == COLL_EXSCAN, real, large;
    do {
        s->type = (weft_datatype_t)any(WEFT_N_DATATYPES);
        s->reduction = (weft_reduction_t)any(WEFT_N_REDUCTIONS);
    } while (!weft__reduction(s->type, s->reduction) || (prefix && s->reduction == WEFT_AVG));
    real = s->type >= WEFT_FLOAT16 && s->type <= WEFT_LONG_DOUBLE;
    large = s->type == WEFT_FLOAT64 || s->type == WEFT_LONG_DOUBLE;
    bool may_fix = real && (large || s->reduction != WEFT_PROD);
    s->flags = may_fix && any(2) ? WEFT_COLL_FIXED_ORDER : 0;
    s->width = weft_datatype_size(s->type);
}

/* Few elements, or about as many bytes as where another way is taken. */
static size_t draw_count(const struct sample *s) {
    static const size_t counts[] = {0, 1, 2, 3, 12, 13, 64, 65, 1023, 1025, 4097};
    if (s->size > 5 || any(4)) return counts[any(sizeof counts / sizeof *counts)];
    return ((size_t)2048 << any(7)) / s->width + any(3) - 1;
}

/* All members; or, by a tag, all or some. */
static void draw_members(struct sample *s, uint32_t size) {
    s->size = size;
    s->tagged = any(4) == 0;
    if (!s->tagged || any(2) || s->kind == COLL_NEIGHBOR_ALLTOALLV) return;
    s->start = any(size);
    s->stride = 1 + any(3);
    s->size = 1 + any((size - 1 - s->start) / s->stride + 1);
}
static uint32_t rank_in_team(const struct sample *s, uint32_t i) {
    return s->stride ? s->start + i * s->stride : i;
}

static void draw_blocks(struct sample *s) {
    uint32_t size = s->size;
    bool whole = s->kind == COLL_REDUCE_SCATTERV || s->kind == COLL_SCATTERV;
    bool graph = s->kind == COLL_NEIGHBOR_ALLTOALLV;
    for (uint32_t i = 0; i < size; i++) {
        s->edges[i] = any(1u << size);
        for (uint32_t k = 0; k < size; k++) {
            bool mirrored = s->in_place && k < i && s->kind == COLL_ALLTOALLV;
            s->n[i][k] = mirrored        ? s->n[k][i]
                         : is_v(s->kind) ? any((uint32_t)s->count + 1)
                                         : s->count;
            if (whole && i > 0) s->n[i][k] = s->n[0][k];
            if ((s->kind == COLL_GATHERV || s->kind == COLL_ALLGATHERV) && k > 0)
                s->n[i][k] = s->n[i][0];
            if (graph && !(s->edges[i] >> k & 1)) s->n[i][k] = 0;
        }
    }
}

static void draw(struct sample *s, uint32_t size) {
    memset(s, 0, sizeof *s);
    s->kind = (enum coll_kind)any(N_COLL_KINDS);
    draw_type(s);
    draw_members(s, size);
    s->root = any(s->size);
    s->count = draw_count(s);
    s->in_place = any(2) && s->kind != COLL_NEIGHBOR_ALLTOALLV && s->kind != COLL_BCAST;
    s->gaps = any(2);
    s->persistent = any(4) == 0;
    draw_blocks(s);
}

/* In place, the data is put where the result goes. */
static void put_in_place(const struct sample *s, uint32_t r, weft_coll_args_t *args) {
    struct memory *m = &memory[r];
    size_t w = s->width;
    bool root = r == s->root;
    switch (s->kind) {
    case COLL_REDUCE:
        if (!root) return;
        /* fall through */
    case COLL_ALLREDUCE:
    case COLL_SCAN:
    case COLL_EXSCAN: memcpy(m->to, m->from, s->count * w); break;
    case COLL_ALLTOALL:
    case COLL_ALLTOALLV: memcpy(m->to, m->from, m->src.elements * w); break;
    case COLL_GATHER:
    case COLL_GATHERV:
        if (!root) return;
        /* fall through */
    case COLL_ALLGATHER:
    case COLL_ALLGATHERV:
        memcpy(m->to + m->dst.displs[r] * w, m->from, m->dst.counts[r] * w);
        break;
    default: return; /* the others' place is in src: see below */
    }
    args->src = WEFT_IN_PLACE;
}

/* The edges of a graph at one member: those that are there, with what goes along them. */
static struct edges {
    uint32_t rank[2][MOST_RANKS], n[2];
    struct side side[2]; /* to others, and from them */
} edges_of[MOST_RANKS];

static void add_edge(struct edges *e, unsigned way, uint32_t rank, const struct side *all) {
    uint32_t i = e->n[way]++;
    e->rank[way][i] = rank;
    e->side[way].counts[i] = all->counts[rank];
    e->side[way].displs[i] = all->displs[rank];
}

static void describe_graph(const struct sample *s, uint32_t r, weft_coll_args_t *args) {
    static weft_neighbors_t graph[MOST_RANKS];
    struct edges *e = &edges_of[r];
    e->n[0] = e->n[1] = 0;
    for (uint32_t i = 0; i < s->size; i++) {
        if (s->edges[r] >> i & 1) add_edge(e, 0, i, &memory[r].src);
        if (s->edges[i] >> r & 1) add_edge(e, 1, i, &memory[r].dst);
    }
    graph[r] = (weft_neighbors_t){e->rank[1], e->rank[0], e->n[1], e->n[0]};
    args->graph = &graph[r];
    args->src_counts = e->side[0].counts;
    args->dst_counts = e->side[1].counts;
    args->src_displs = s->gaps ? e->side[0].displs : NULL;
    args->dst_displs = s->gaps ? e->side[1].displs : NULL;
}

static weft_coll_args_t describe(const struct sample *s, uint32_t r) {
    struct memory *m = &memory[r];
    weft_coll_args_t args = {.kind = (weft_coll_kind_t)s->kind,
                             .type = s->type,
                             .reduction = s->reduction,
                             .root = rank_in_team(s, s->root),
                             .src = m->has_src ? m->from : NULL,
                             .dst = m->has_dst ? m->to : NULL,
                             .count = s->kind == COLL_GATHERV    ? m->src.elements
                                      : s->kind == COLL_SCATTERV ? m->dst.elements
                                                                 : s->count};
    if (is_v(s->kind)) {
        args.src_counts = m->src.counts;
        args.dst_counts = m->dst.counts;
        args.src_displs = s->gaps ? m->src.displs : NULL;
        args.dst_displs = s->gaps ? m->dst.displs : NULL;
    }
    if (s->kind == COLL_NEIGHBOR_ALLTOALLV) describe_graph(s, r, &args);
    if (s->tagged) {
        args.flags = WEFT_COLL_TAGGED;
        args.tag = 77;
        if (s->stride) args.members.start = s->start;
        if (s->stride) args.members.stride = s->stride, args.members.size = s->size;
    }
    if (s->in_place) put_in_place(s, r, &args);
    return args;
}

/* The result of an operation in place of src: its block there. */
static const uint8_t *result_at(const struct sample *s, uint32_t r, weft_coll_args_t *args) {
    struct memory *m = &memory[r];
    bool scatters = s->kind == COLL_SCATTER || s->kind == COLL_SCATTERV;
    bool sums_up = s->kind == COLL_REDUCE_SCATTER || s->kind == COLL_REDUCE_SCATTERV;
    if (!s->in_place || !(sums_up || (scatters && r == s->root))) return m->to;
    if (scatters) {
        args->dst = WEFT_IN_PLACE;
    } else {
        args->src = WEFT_IN_PLACE;
        args->dst = m->from;
    }
    return m->from + m->src.displs[r] * s->width;
}

static void print_outcome(const struct sample *s, uint32_t r, const char *setting) {
    printf("  %s, %u members%s, root %u, %zu elements of type %d, reduction %d, flags %u%s%s%s, at "
           "member %u, %s\n",
           weft__coll_name(s->kind), s->size,
           s->stride   ? " of more"
           : s->tagged ? " by a tag"
                       : "",
           s->root, s->count, s->type, s->reduction, s->flags, s->in_place ? ", in place" : "",
           s->gaps ? ", with gaps" : "", s->persistent ? ", persistent" : "", r, setting);
}

static weft_status_t begin(const struct sample *s, struct rank *me, const weft_coll_args_t *args,
                           weft_coll_t **coll_p) {
    weft_op_t op = {.done = on_outcome, .arg = me, .flags = s->flags};
    if (!s->persistent) return weft_coll(me->team, args, &op);
    weft_status_t st = weft_coll_init(me->team, args, s->flags, coll_p);
    op.flags = 0;
    return st < 0 ? st : weft_coll_start(*coll_p, &op);
}

static bool all_through(struct crew *c, const struct sample *s) {
    for (uint32_t i = 0; i < s->size; i++)
        if (!c->rank[rank_in_team(s, i)].outcome_calls) return false;
    return true;
}

static void run_sample(struct crew *c, const struct sample *s, weft_coll_args_t *args) {
    weft_coll_t *coll[MOST_RANKS] = {NULL};
    for (uint32_t i = 0; i < s->size; i++) expect_outcome(&c->rank[rank_in_team(s, i)]);
    for (uint32_t i = 0; i < s->size; i++) {
        struct rank *me = &c->rank[rank_in_team(s, i)];
        posted(me, begin(s, me, &args[i], &coll[i]));
    }
    UNTIL(c, all_through(c, s));
    for (uint32_t i = 0; i < s->size; i++)
        if (coll[i]) CHECK_EQ(weft_coll_free(coll[i]), WEFT_OK);
}

static void try(struct crew *c, const struct sample *s, const char *setting) {
    const uint8_t *got[MOST_RANKS];
    weft_coll_args_t args[MOST_RANKS];
    for (uint32_t r = 0; r < s->size; r++) make_memory(s, r);
    for (uint32_t r = 0; r < s->size; r++) expect(s, r);
    for (uint32_t r = 0; r < s->size; r++) {
        args[r] = describe(s, r);
        got[r] = result_at(s, r, &args[r]);
    }
    run_sample(c, s, args);
    for (uint32_t r = 0; r < s->size; r++) {
        struct memory *m = &memory[r];
        weft_status_t outcome = c->rank[rank_in_team(s, r)].outcome;
        bool untouched = s->kind == COLL_EXSCAN && r == 0;
        bool gap = s->in_place && s->gaps && is_v(s->kind);
        if (outcome != WEFT_OK) print_outcome(s, r, setting);
        CHECK_EQ(outcome, WEFT_OK);
        bool looks = m->has_dst && !signals_only(s->kind) && !untouched && !gap;
        if (looks && !are_equal(s, got[r], m->want, m->dst.elements)) {
            print_outcome(s, r, setting);
            CHECK(!"the result is another");
        }
        free(m->from);
        free(m->to);
        free(m->want);
    }
}

/* ---- teams ----------------------------------------------------------------------------------- */

/* One algorithm of each kind, any; those of a fixed order come in where they are needed. */
static void draw_setting(char *to, size_t size) {
    size_t n = 0;
    for (unsigned kind = 0; kind < N_COLL_KINDS; kind++) {
        unsigned of_kind[N_ALGORITHMS], count = 0;
        for (unsigned a = 0; a < N_ALGORITHMS; a++)
            if (weft__algorithms[a].kind == kind) of_kind[count++] = a;
        bool lines = weft__oneshot_has((enum coll_kind)kind);
        unsigned pick = any(count + 3 + lines); /* or none is named */
        const char *name = pick < count        ? weft__algorithms[of_kind[pick]].name
                           : pick == count     ? "single_copy"
                           : pick == count + 1 ? "slots"
                           : pick == count + 3 ? "oneshot"
                                               : NULL;
        if (name)
            n += (size_t)snprintf(to + n, size - n, "%s%s=%s", n ? "," : "",
                                  weft__coll_name((enum coll_kind)kind), name);
    }
}

static void sample_team(const char *transports, uint32_t size, unsigned samples) {
    char setting[1500] = "";
    struct crew c;
    draw_setting(setting, sizeof setting);
    weft_setting_t settings[] = {{"coll.algorithms", setting},
                                 {"coll.segment", any(2) ? "64" : "64k"},
                                 {"coll.slot", any(3) ? "8k" : "0"}};
    crew_workers(&c, size, transports, settings, 3);
    crew_teams(&c);
    for (unsigned i = 0; i < samples; i++) {
        struct sample s;
        draw(&s, size);
        try(&c, &s, setting);
    }
    crew_down(&c);
}

static void seed_samples(void) {
    const char *seed = getenv("SAMPLER_SEED");
    state = seed ? strtoull(seed, NULL, 0) : 20260101;
}

static void sample(const char *transports, unsigned teams, uint32_t most) {
    const char *more = getenv("SAMPLER_SAMPLES");
    seed_samples();
    unsigned samples = more ? (unsigned)strtoul(more, NULL, 0) : 40;
    for (unsigned i = 0; i < teams; i++) sample_team(transports, 1 + any(most), samples);
}

TEST(random_collectives_over_shm_have_the_serial_result) {
    sample("self,shm", 24, 9);
    sample("self,shm", 2, MOST_RANKS);
}

TEST(random_collectives_over_tcp_have_the_serial_result) {
    sample("self,tcp", 8, 7);
}

/* Of two members: 60 MiB in one vector, or in all the blocks of a member. Some algorithms need four
 * times as much scratch memory, of which there is less than 256 MiB. */
static void draw_large(struct sample *s) {
    enum { BYTES = 60 << 20 };
    do draw(s, 2);
    while (signals_only(s->kind) || s->size < 2 || s->width < 4);
    bool blocks = is_v(s->kind) || (!reduces(s->kind) && s->kind != COLL_BCAST) ||
                  s->kind == COLL_REDUCE_SCATTER;
    s->count = BYTES / s->width / (blocks ? 2 : 1);
    for (uint32_t i = 0; i < 2; i++) {
        s->edges[i] = 3;
        for (uint32_t k = 0; k < 2; k++) s->n[i][k] = s->count;
    }
}

TEST(vectors_of_60_mib_have_the_serial_result) {
    char setting[1500] = "";
    seed_samples();
    for (unsigned i = 0; i < 3; i++) {
        struct sample s;
        struct crew c;
        draw_large(&s);
        draw_setting(setting, sizeof setting);
        crew_up(&c, 2, any(3) ? "self,shm" : "self,tcp", "coll.algorithms", setting);
        try(&c, &s, setting);
        crew_down(&c);
    }
}
