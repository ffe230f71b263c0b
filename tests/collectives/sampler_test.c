/*
 * Random collectives, from a seed, against a plain serial result: operation, type, reduction, size,
 * root, in place or not, counts of the v-forms, algorithm, transport and team. SAMPLER_SEED and
 * SAMPLER_SAMPLES choose others.
 */
#include <collectives/reductions.h>
#include <collectives/select.h>
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
    size_t width, count;
    bool in_place, gaps;
    uint64_t n[MOST_RANKS][MOST_RANKS]; /* elements from a rank to another */
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

static void fill(const struct sample *s, uint8_t *to, uint64_t elements) {
    for (uint64_t i = 0; i < elements; i++) {
        double wild = (double)((int)any(2000) - 1000) * (any(3) ? 1.0 : 1e7) / 3;
        bool exact = !(s->flags & WEFT_COLL_FIXED_ORDER);
        uint64_t bits = any(100);
        float f = exact ? (float)bits : (float)wild;
        double d = exact ? (double)bits : wild;
        if (s->type == WEFT_FLOAT32)
            memcpy(to + i * 4, &f, 4);
        else if (s->type == WEFT_FLOAT64)
            memcpy(to + i * 8, &d, 8);
        else
            memcpy(to + i * s->width, &bits, s->width);
    }
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

static const struct {
    weft_datatype_t type;
    weft_reduction_t reduction;
    uint32_t flags;
} sums[] = {{WEFT_INT32, WEFT_SUM, 0},
            {WEFT_UINT8, WEFT_BXOR, 0},
            {WEFT_INT64, WEFT_MAX, 0},
            {WEFT_UINT16, WEFT_LOR, 0},
            {WEFT_FLOAT64, WEFT_SUM, 0},
            {WEFT_FLOAT32, WEFT_SUM, WEFT_COLL_FIXED_ORDER},
            {WEFT_FLOAT64, WEFT_PROD, WEFT_COLL_FIXED_ORDER},
            {WEFT_INT32, WEFT_MIN, 0}};

static void draw(struct sample *s, uint32_t size) {
    static const size_t counts[] = {0, 1, 2, 3, 12, 13, 64, 65, 1023, 1025, 4097};
    memset(s, 0, sizeof *s);
    s->kind = (enum coll_kind)any(N_COLL_KINDS);
    unsigned sum = any(sizeof sums / sizeof *sums);
    s->type = sums[sum].type;
    s->reduction = sums[sum].reduction;
    s->flags = sums[sum].flags;
    s->size = size;
    s->root = any(size);
    s->width = weft_datatype_size(s->type);
    s->count = counts[any(sizeof counts / sizeof *counts)];
    s->in_place = any(2) && s->kind != COLL_NEIGHBOR_ALLTOALLV && s->kind != COLL_BCAST;
    s->gaps = any(2);
    bool whole = s->kind == COLL_REDUCE_SCATTERV || s->kind == COLL_SCATTERV;
    for (uint32_t i = 0; i < size; i++)
        for (uint32_t k = 0; k < size; k++) {
            bool mirrored = s->in_place && k < i && s->kind == COLL_ALLTOALLV;
            s->n[i][k] = mirrored        ? s->n[k][i]
                         : is_v(s->kind) ? any((uint32_t)s->count + 1)
                                         : s->count;
            if (whole && i > 0) s->n[i][k] = s->n[0][k];
            if ((s->kind == COLL_GATHERV || s->kind == COLL_ALLGATHERV) && k > 0)
                s->n[i][k] = s->n[i][0];
        }
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

static weft_coll_args_t describe(const struct sample *s, uint32_t r) {
    static uint32_t everybody[MOST_RANKS];
    static weft_neighbors_t graph;
    struct memory *m = &memory[r];
    for (uint32_t i = 0; i < MOST_RANKS; i++) everybody[i] = i;
    graph = (weft_neighbors_t){everybody, everybody, s->size, s->size};
    weft_coll_args_t args = {.kind = (weft_coll_kind_t)s->kind,
                             .type = s->type,
                             .reduction = s->reduction,
                             .root = s->root,
                             .src = m->has_src ? m->from : NULL,
                             .dst = m->has_dst ? m->to : NULL,
                             .count = s->kind == COLL_GATHERV    ? m->src.elements
                                      : s->kind == COLL_SCATTERV ? m->dst.elements
                                                                 : s->count,
                             .graph = &graph};
    if (is_v(s->kind)) {
        args.src_counts = m->src.counts;
        args.dst_counts = m->dst.counts;
        args.src_displs = s->gaps ? m->src.displs : NULL;
        args.dst_displs = s->gaps ? m->dst.displs : NULL;
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
    printf(
        "  %s, %u ranks, root %u, %zu elements of type %d, reduction %d, flags %u%s%s, at rank %u, "
        "%s\n",
        weft__coll_name(s->kind), s->size, s->root, s->count, s->type, s->reduction, s->flags,
        s->in_place ? ", in place" : "", s->gaps ? ", with gaps" : "", r, setting);
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
    EVERYBODY(c, weft_coll(me->team, &args[r],
                           &(weft_op_t){.done = on_outcome, .arg = me, .flags = s->flags}));
    for (uint32_t r = 0; r < s->size; r++) {
        struct memory *m = &memory[r];
        bool untouched = s->kind == COLL_EXSCAN && r == 0;
        bool gap = s->in_place && s->gaps && is_v(s->kind);
        if (c->rank[r].outcome != WEFT_OK) print_outcome(s, r, setting);
        CHECK_EQ(c->rank[r].outcome, WEFT_OK);
        bool looks = m->has_dst && s->kind != COLL_BARRIER && s->kind != COLL_FANIN &&
                     s->kind != COLL_FANOUT && !untouched && !gap;
        if (looks && memcmp(got[r], m->want, m->dst.elements * s->width) != 0) {
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

static void sample(const char *transports, unsigned teams, uint32_t most) {
    const char *seed = getenv("SAMPLER_SEED"), *more = getenv("SAMPLER_SAMPLES");
    state = seed ? strtoull(seed, NULL, 0) : 20260101;
    unsigned samples = more ? (unsigned)strtoul(more, NULL, 0) : 40;
    for (unsigned i = 0; i < teams; i++) sample_team(transports, 1 + any(most), samples);
}

TEST(random_collectives_over_shm_have_the_serial_result) {
    sample("self,shm", 24, 9);
    sample("self,shm", 2, MOST_RANKS);
}
/* By any algorithm each. */
TEST(vectors_of_64_mib_have_the_serial_result) {
    static const enum coll_kind kinds[] = {COLL_ALLREDUCE, COLL_BCAST, COLL_REDUCE};
    char setting[1500] = "";
    for (unsigned i = 0; i < 3; i++) {
        struct sample s = {.kind = kinds[i],
                           .type = WEFT_INT32,
                           .reduction = WEFT_SUM,
                           .size = 2,
                           .root = any(2),
                           .width = 4,
                           .count = (64 << 20) / 4};
        for (uint32_t a = 0; a < 2; a++)
            for (uint32_t b = 0; b < 2; b++) s.n[a][b] = s.count;
        struct crew c;
        draw_setting(setting, sizeof setting);
        crew_up(&c, 2, "self,shm", "coll.algorithms", setting);
        try(&c, &s, setting);
        crew_down(&c);
    }
}
TEST(random_collectives_over_tcp_have_the_serial_result) {
    sample("self,tcp", 8, 7);
}
