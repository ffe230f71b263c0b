/* Every algorithm is proved for every team size to 128, and for samples beyond, by running all
 * ranks on symbols. */
#include "checker.h"
#include <collectives/select.h>
#include <reactor/reactor.h>
#include <stdlib.h>
#include <tests/harness.h>

static bool proved(struct check check) {
    char why[160] = "";
    if (weft__schedule_check(&check, why, sizeof why)) return true;
    printf("  %s, %u ranks, root %u, %llu elements%s: %s\n", weft__algorithms[check.algorithm].name,
           check.shape.size, check.shape.root, (unsigned long long)check.shape.count,
           check.in_place ? ", in place" : "", why);
    return false;
}

static struct check of(enum coll_algorithm algorithm, uint32_t size, uint64_t count) {
    return (struct check){.algorithm = algorithm,
                          .shape = {.kind = weft__algorithms[algorithm].kind,
                                    .size = size,
                                    .count = count,
                                    .width = 4,
                                    .segment = 12}};
}

static void prove_to_128(enum coll_algorithm algorithm, const uint64_t *counts, unsigned n_counts) {
    for (uint32_t size = 1; size <= 128; size++)
        for (unsigned i = 0; i < n_counts; i++) {
            struct check check = of(algorithm, size, counts[i]);
            CHECK(proved(check));
            check.in_place = true;
            CHECK(proved(check));
        }
}

static void prove_samples(enum coll_algorithm algorithm, const uint32_t *sizes, unsigned n,
                          uint64_t count) {
    for (unsigned i = 0; i < n; i++) {
        struct check check = of(algorithm, sizes[i], count);
        check.every = sizes[i] / 16 + 1;
        CHECK(proved(check));
    }
}

static const uint32_t beyond[] = {129, 255, 256, 257, 1000, 1023, 1025, 2048, 3000, 4095, 4096};
static const uint32_t some[] = {129, 200, 256, 257, 511};
#define N_OF(array) (sizeof(array) / sizeof *(array))

TEST(barriers_hold_everybody_until_all_have_come) {
    prove_to_128(ALGORITHM_BARRIER_dissemination, (uint64_t[]){0}, 1);
    prove_to_128(ALGORITHM_BARRIER_tree, (uint64_t[]){0}, 1);
    prove_samples(ALGORITHM_BARRIER_dissemination, beyond, N_OF(beyond), 0);
    prove_samples(ALGORITHM_BARRIER_tree, beyond, N_OF(beyond), 0);
}

TEST(bcasts_bring_the_roots_bytes_from_any_root) {
    for (unsigned a = ALGORITHM_BCAST_binomial; a <= ALGORITHM_BCAST_chain; a++) {
        for (uint32_t size = 1; size <= 128; size++)
            for (uint32_t root = 0; root < size; root += size < 20 ? 1 : 1 + size / 5)
                for (uint64_t count = 1; count < 12; count += 5) {
                    struct check check = of((enum coll_algorithm)a, size, count);
                    check.shape.root = root;
                    CHECK(proved(check));
                }
        prove_samples((enum coll_algorithm)a, beyond, N_OF(beyond), 4);
    }
}

TEST(a_joined_bcast_ends_after_everybody_has_begun) {
    for (uint32_t size = 1; size <= 128; size++) {
        struct check check = of(ALGORITHM_BCAST_binomial, size, 2);
        check.shape.joined = true;
        check.shape.root = size / 3;
        CHECK(proved(check));
        check.algorithm = ALGORITHM_BCAST_chain;
        CHECK(proved(check));
    }
}

TEST(allreduce_doubling_reduces_each_contribution_once) {
    prove_to_128(ALGORITHM_ALLREDUCE_doubling, (uint64_t[]){1, 3}, 2);
    prove_samples(ALGORITHM_ALLREDUCE_doubling, beyond, N_OF(beyond), 1);
}

TEST(allreduce_ring_reduces_each_contribution_once) {
    prove_to_128(ALGORITHM_ALLREDUCE_ring, (uint64_t[]){1, 40, 131}, 3);
    prove_samples(ALGORITHM_ALLREDUCE_ring, some, N_OF(some), 300);
}

TEST(allreduce_fold_keeps_the_order_of_ranks) {
    prove_to_128(ALGORITHM_ALLREDUCE_fold, (uint64_t[]){2}, 1);
    prove_samples(ALGORITHM_ALLREDUCE_fold, some, N_OF(some), 1);
}

TEST(allreduce_pipeline_keeps_the_order_of_ranks) {
    prove_to_128(ALGORITHM_ALLREDUCE_pipeline, (uint64_t[]){1, 7, 31}, 3);
    prove_samples(ALGORITHM_ALLREDUCE_pipeline, beyond, N_OF(beyond), 7);
}

TEST(allgathers_put_every_block_in_its_place) {
    for (enum coll_algorithm a = ALGORITHM_ALLGATHER_bruck; a <= ALGORITHM_ALLGATHER_neighbours;
         a++) {
        prove_to_128(a, (uint64_t[]){1, 3}, 2);
        prove_samples(a, some, N_OF(some), 1);
    }
    uint32_t large[] = {1000, 2049, 4096};
    prove_samples(ALGORITHM_ALLGATHER_bruck, large, N_OF(large), 1);
}

/* ---- all the others: every kind the same way ----------------------------------------------- */

static bool is_rooted(enum coll_kind kind) {
    return kind == COLL_BCAST || kind == COLL_FANIN || kind == COLL_FANOUT || kind == COLL_GATHER ||
           kind == COLL_GATHERV || kind == COLL_SCATTER || kind == COLL_SCATTERV ||
           kind == COLL_REDUCE;
}

/* With some root, some radix and some groups: other ones for every size. */
static void prove_one(enum coll_algorithm a, uint32_t size, uint32_t root, uint64_t count) {
    struct check check = of(a, size, count);
    check.shape.root = is_rooted(check.shape.kind) ? root % size : 0;
    check.shape.radix = size % 5;
    check.shape.per_group = size % 7;
    check.every = size > 32 ? size / 3 : size / 8 + 1;
    bool can = check.shape.kind != COLL_NEIGHBOR_ALLTOALLV && check.shape.kind != COLL_BCAST;
    if (size > 32) check.in_place = can && size % 2; /* the one or the other */
    CHECK(proved(check));
    check.in_place = can;
    if (check.in_place && size <= 32) CHECK(proved(check));
}

/* Vectors that are cut into pieces are longer than the team, for some sizes. */
static uint64_t some_count(enum coll_kind kind, uint32_t size) {
    bool cut = kind == COLL_ALLREDUCE || kind == COLL_BCAST;
    if (cut && size % 8 == 0) return 2 * size + 3;
    return size > 32 ? 1 : size % 4 + 1;
}

/* Exchanges of all with all have as many steps as messages: every fifth size beyond 64. */
static uint32_t large_step(enum coll_kind kind, uint32_t size) {
    return kind >= COLL_ALLGATHERV && kind <= COLL_ALLTOALLV && size > 64 ? 5 : 1;
}

/* Every root of every size takes minutes: SCHEDULE_ROOTS asks for them. One each otherwise. */
static void prove_roots(enum coll_algorithm a, uint32_t size) {
    enum coll_kind kind = weft__algorithms[a].kind;
    uint64_t count = some_count(kind, size);
    if (!getenv("SCHEDULE_ROOTS") || !is_rooted(kind)) {
        prove_one(a, size, size * 5 / 3, count);
        return;
    }
    for (uint32_t root = 0; root < size; root++) prove_one(a, size, root, count);
}

static void prove_all(enum coll_kind first, enum coll_kind last) {
    for (unsigned a = 0; a < N_ALGORITHMS; a++) {
        enum coll_kind kind = weft__algorithms[a].kind;
        if (kind < first || kind > last) continue;
        for (uint32_t size = 1; size <= 128; size += large_step(kind, size))
            prove_roots((enum coll_algorithm)a, size);
        for (uint32_t size = 2; size <= 17; size++)
            for (uint32_t root = 0; root < (is_rooted(kind) ? size : 1); root++)
                for (uint64_t count = 0; count < 4; count++)
                    prove_one((enum coll_algorithm)a, size, root, count);
    }
}

TEST(every_algorithm_of_the_first_kinds_is_right_for_1_to_128_ranks) {
    prove_all(COLL_BARRIER, COLL_ALLGATHER);
}
TEST(every_fanin_gather_and_scatter_is_right_for_1_to_128_ranks) {
    prove_all(COLL_FANIN, COLL_SCATTERV);
}
TEST(every_reduction_is_right_for_1_to_128_ranks) {
    prove_all(COLL_REDUCE, COLL_REDUCE_SCATTERV);
}
TEST(every_exchange_is_right_for_1_to_64_ranks_and_samples_to_128) {
    prove_all(COLL_ALLGATHERV, COLL_ALLTOALLV);
}
TEST(every_scan_and_neighbour_exchange_is_right_for_1_to_128_ranks) {
    prove_all(COLL_SCAN, COLL_NEIGHBOR_ALLTOALLV);
}

TEST(trees_and_scans_are_right_for_thousands_of_ranks) {
    static const uint32_t sizes[] = {4096, 1025};
    static const enum coll_algorithm tree[] = {
        ALGORITHM_BARRIER_knomial,       ALGORITHM_BARRIER_hierarchy,
        ALGORITHM_BCAST_knomial,         ALGORITHM_BCAST_double_tree,
        ALGORITHM_BCAST_hierarchy,       ALGORITHM_ALLREDUCE_rabenseifner,
        ALGORITHM_ALLREDUCE_tree,        ALGORITHM_ALLREDUCE_hierarchy,
        ALGORITHM_GATHER_knomial,        ALGORITHM_SCATTER_knomial,
        ALGORITHM_REDUCE_knomial,        ALGORITHM_REDUCE_chain,
        ALGORITHM_REDUCE_hierarchy,      ALGORITHM_SCAN_doubling,
        ALGORITHM_EXSCAN_doubling,       ALGORITHM_NEIGHBOR_ALLTOALLV_linear,
        ALGORITHM_REDUCE_SCATTER_halving};
    for (unsigned i = 0; i < N_OF(tree); i++)
        for (unsigned k = 0; k < N_OF(sizes); k++) {
            bool much = tree[i] == ALGORITHM_REDUCE_SCATTER_halving;
            if (much ? k == 0 : i % 2 != k) continue; /* one size of each */
            struct check check = of(tree[i], sizes[k], 2);
            check.every = sizes[k] / 8;
            check.shape.per_group = 16;
            CHECK(proved(check));
        }
}

/* The hierarchy whose leaders do a collective of this kind, plus one. */
static const enum coll_algorithm between_leaders[N_COLL_KINDS] = {
    [COLL_BARRIER] = ALGORITHM_BARRIER_hierarchy + 1,
    [COLL_FANIN] = ALGORITHM_FANIN_hierarchy + 1,
    [COLL_FANOUT] = ALGORITHM_FANOUT_hierarchy + 1,
    [COLL_BCAST] = ALGORITHM_BCAST_hierarchy + 1,
    [COLL_REDUCE] = ALGORITHM_REDUCE_hierarchy + 1,
    [COLL_ALLREDUCE] = ALGORITHM_ALLREDUCE_hierarchy + 1,
    [COLL_GATHERV] = ALGORITHM_GATHER_hierarchy + 1,
    [COLL_SCATTERV] = ALGORITHM_SCATTER_hierarchy + 1,
    [COLL_REDUCE_SCATTERV] = ALGORITHM_REDUCE_SCATTER_hierarchy + 1,
    [COLL_ALLGATHERV] = ALGORITHM_ALLGATHER_hierarchy + 1,
    [COLL_ALLTOALLV] = ALGORITHM_ALLTOALL_hierarchy + 1,
    [COLL_EXSCAN] = ALGORITHM_SCAN_hierarchy + 1,
};

/* Any algorithm within the groups, any between them; groups that are no neighbours, too. */
TEST(a_hierarchy_is_of_any_two) {
    uint32_t group[40];
    for (uint32_t r = 0; r < 40; r++) group[r] = r * r % 7;
    for (unsigned in = 0; in < N_ALGORITHMS; in++)
        for (unsigned out = 0; out < N_ALGORITHMS; out++)
            for (uint32_t size = 12; size < 40; size += 13) {
                enum coll_kind kind = weft__algorithms[out].kind;
                if (weft__algorithms[in].kind > COLL_REDUCE || !between_leaders[kind]) continue;
                enum coll_algorithm a = between_leaders[kind] - 1;
                struct check check = of(a, size, 3);
                check.shape.inner = in + 1;
                check.shape.outer = out + 1;
                check.shape.root = is_rooted(check.shape.kind) ? size / 2 : 0;
                if (size == 25)
                    check.shape.per_group = 4;
                else
                    check.shape.group_of = group;
                CHECK(proved(check));
            }
}

/* ---- groups that share a segment ------------------------------------------------------------- */

static const enum coll_algorithm hierarchies[] = {
    ALGORITHM_BARRIER_hierarchy,         ALGORITHM_FANIN_hierarchy,
    ALGORITHM_FANOUT_hierarchy,          ALGORITHM_BCAST_hierarchy,
    ALGORITHM_REDUCE_hierarchy,          ALGORITHM_ALLREDUCE_hierarchy,
    ALGORITHM_GATHER_hierarchy,          ALGORITHM_SCATTER_hierarchy,
    ALGORITHM_REDUCE_SCATTER_hierarchy,  ALGORITHM_ALLGATHER_hierarchy,
    ALGORITHM_ALLTOALL_hierarchy,        ALGORITHM_SCAN_hierarchy,
    ALGORITHM_EXSCAN_hierarchy,          ALGORITHM_ALLGATHERV_hierarchy,
    ALGORITHM_REDUCE_SCATTERV_hierarchy, ALGORITHM_GATHERV_hierarchy,
    ALGORITHM_SCATTERV_hierarchy,        ALGORITHM_ALLTOALLV_hierarchy};
static const struct choices usual_choices;

static struct check hosted(enum coll_algorithm a, uint32_t size, uint32_t per_group) {
    struct check check = of(a, size, 3);
    check.shape.choices = &usual_choices;
    check.shape.per_core = 1 + size % 2;
    check.shape.per_group = per_group;
    check.shape.slot = 4096;
    check.shape.root = is_rooted(check.shape.kind) ? size / 2 : 0;
    return check;
}

TEST(groups_that_share_a_segment_use_it_in_every_hierarchy) {
    for (unsigned i = 0; i < N_OF(hierarchies); i++)
        for (uint32_t size = 2; size <= 40; size += size < 20 ? 1 : 5) {
            struct check check = hosted(hierarchies[i], size, 1 + size % 6);
            if (size == 40) check.shape.slot = 64; /* not all fit */
            CHECK(proved(check));
            check.in_place =
                check.shape.kind != COLL_BCAST && check.shape.kind != COLL_NEIGHBOR_ALLTOALLV;
            CHECK(proved(check));
        }
    uint32_t group[40];
    for (uint32_t r = 0; r < 40; r++) group[r] = r % 3;
    for (unsigned i = 0; i < N_OF(hierarchies); i++) {
        struct check check = hosted(hierarchies[i], 40, 0);
        check.shape.group_of = group;
        CHECK(proved(check));
    }
}

/* 4,096 ranks in groups of 16 that share a segment, or do not. What has as many blocks as ranks at
 * every rank is proved for 256. */
TEST(hierarchies_are_right_for_thousands_of_ranks) {
    static uint32_t group[4096];
    for (uint32_t r = 0; r < 4096; r++) group[r] = r / 16;
    for (unsigned i = 0; i < N_OF(hierarchies); i++) {
        enum coll_kind kind = weft__algorithms[hierarchies[i]].kind;
        bool square = kind == COLL_ALLTOALL || kind == COLL_ALLGATHER || kind == COLL_ALLGATHERV ||
                      kind == COLL_REDUCE_SCATTER || kind == COLL_REDUCE_SCATTERV ||
                      kind == COLL_ALLTOALLV;
        struct check check = hosted(hierarchies[i], square ? 256 : 4096, 0);
        check.shape.group_of = group;
        check.every = check.shape.size / 4 + 1;
        if (square) check.shape.count = 1;
        if (i % 2) check.shape.slot = 0;
        CHECK(proved(check));
    }
}

/* ---- scratch memory -------------------------------------------------------------------------- */

/* Vectors of `count` elements, or blocks of half of that, of two members. */
static uint64_t scratch_of_two(enum coll_algorithm a, uint32_t rank, uint32_t root, uint64_t count,
                               bool in_place) {
    enum coll_kind kind = weft__algorithms[a].kind;
    bool reduces = kind == COLL_REDUCE || kind == COLL_ALLREDUCE || kind == COLL_SCAN ||
                   kind == COLL_EXSCAN || kind == COLL_BCAST;
    const uint64_t counts[2] = {count / 2, count / 2}, offsets[2] = {0, count / 2};
    struct coll_shape shape = of(a, 2, reduces ? count : count / 2).shape;
    shape.rank = rank;
    shape.root = is_rooted(kind) ? root : 0;
    shape.segment = 64 << 10;
    shape.in_place = in_place;
    if (!weft__coll_is_even(kind)) shape.src = shape.dst = (struct coll_vector){counts, offsets};
    if (kind == COLL_NEIGHBOR_ALLTOALLV || weft__asking(a)) return 0;
    struct schedule *s;
    CHECK_EQ(weft__schedule_build(NULL, a, &shape, &s), WEFT_OK);
    uint64_t scratch = s->scratch;
    talloc_free(s);
    return scratch;
}

static uint64_t most_scratch_of_two(enum coll_algorithm a, uint64_t count) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < 8; i++) {
        uint64_t scratch = scratch_of_two(a, i & 1, i >> 1 & 1, count, i >> 2);
        if (scratch > most) most = scratch;
    }
    return most;
}

TEST(two_members_reserve_no_more_scratch_memory_than_they_use) {
    enum { COUNT = 1 << 20 };
    static const enum coll_algorithm once[] = {
        ALGORITHM_REDUCE_linear,          ALGORITHM_REDUCE_knomial,
        ALGORITHM_ALLREDUCE_doubling,     ALGORITHM_SCAN_linear,
        ALGORITHM_EXSCAN_linear,          ALGORITHM_ALLREDUCE_tree,
        ALGORITHM_REDUCE_SCATTER_halving, ALGORITHM_ALLREDUCE_rabenseifner};
    const uint64_t bytes = COUNT * of(once[0], 2, 1).shape.width;
    for (unsigned i = 0; i < N_OF(once); i++) CHECK(most_scratch_of_two(once[i], COUNT) <= bytes);
    /* The sampler's large vectors rely on it. */
    for (unsigned a = 0; a < N_ALGORITHMS; a++)
        CHECK(most_scratch_of_two((enum coll_algorithm)a, COUNT) <= 4 * bytes);
}

TEST(scratch_memory_of_a_linear_reduce_grows_with_the_team_up_to_five_vectors) {
    enum { COUNT = 1000 };
    for (uint32_t size = 2; size < 12; size++)
        for (uint32_t root = 0; root < size; root++) {
            struct coll_shape shape = of(ALGORITHM_REDUCE_linear, size, COUNT).shape;
            struct schedule *s;
            shape.rank = shape.root = root;
            CHECK_EQ(weft__schedule_build(NULL, ALGORITHM_REDUCE_linear, &shape, &s), WEFT_OK);
            CHECK_EQ(s->scratch, (size < 6 ? size - 1 : 5) * COUNT * shape.width);
            talloc_free(s);
        }
}

/* The root gets as many segments as there are by tags that differ, more than a million of them. */
TEST(a_chain_of_more_than_a_million_segments_has_a_tag_for_each) {
    enum { SEGMENT = 64, SEGMENTS = (1 << 20) + 3 };
    struct coll_shape shape = of(ALGORITHM_REDUCE_chain, 2, SEGMENTS).shape;
    struct schedule *s;
    uint32_t next = 0;
    shape.width = shape.segment = SEGMENT;
    CHECK_EQ(weft__schedule_build(NULL, ALGORITHM_REDUCE_chain, &shape, &s), WEFT_OK);
    for (uint32_t i = 0; i < s->n_steps; i++)
        if (s->step[i].verb == STEP_RECV) CHECK_EQ(s->step[i].tag, next++);
    CHECK_EQ(next, SEGMENTS);
    talloc_free(s);
}

/* ---- the checker itself: a proof that cannot fail proves nothing ----------------------------- */

static enum coll_algorithm poisoned;
static void (*spoil)(struct schedule *s);
static void build_poisoned(struct schedule *s) {
    weft__algorithms[poisoned].build(s);
    spoil(s);
}

/* One change to an algorithm's schedules, and a word of what the checker must say to it. */
static bool refuted_check(struct check check, void (*how)(struct schedule *), const char *reason) {
    char why[160] = "nothing";
    check.build = build_poisoned;
    poisoned = check.algorithm;
    spoil = how;
    if (!weft__schedule_check(&check, why, sizeof why) && strstr(why, reason)) return true;
    printf("  refuted by: %s\n", why);
    return false;
}

static bool refuted(enum coll_algorithm algorithm, void (*how)(struct schedule *),
                    const char *reason) {
    return refuted_check(of(algorithm, 5, 11), how, reason);
}
static struct step *first_of(struct schedule *s, enum step_verb verb) {
    for (uint32_t i = 0; i < s->n_steps; i++)
        if (s->step[i].verb == verb) return &s->step[i];
    return NULL;
}
static void drop_marks(struct schedule *s) {
    for (uint32_t i = 0; i < s->n_steps; i++)
        if (s->step[i].verb == STEP_RECV) s->step[i].right = 0;
}
static void drop_dependency(struct schedule *s) {
    drop_marks(s);
    if (s->shape.rank == 2) first_of(s, STEP_REDUCE)->after[0] = 0;
}
/* Each receive into scratch goes ahead while a reduction may still read there. */
static void receive_into_what_is_reduced(struct schedule *s) {
    for (uint32_t i = 0; i < s->n_steps; i++)
        if (s->step[i].verb == STEP_RECV && s->step[i].to_buffer == COLL_SCRATCH)
            s->step[i].after[0] = 0;
}
static void swap_operands(struct schedule *s) {
    if (s->shape.rank != 3) return;
    struct step *step = first_of(s, STEP_REDUCE);
    uint64_t left = step->left;
    uint8_t buffer = step->left_buffer;
    step->left = step->right;
    step->left_buffer = step->right_buffer;
    step->right = left;
    step->right_buffer = buffer;
}
static void own_twice(struct schedule *s) {
    if (s->shape.rank != 3) return;
    struct step *step = first_of(s, STEP_REDUCE);
    step->left = step->right;
    step->left_buffer = step->right_buffer;
    drop_marks(s);
}
/* Marks of weft__reads_alone: at another reduction, and at one that reads something else. */
static void read_by_another(struct schedule *s) {
    for (uint32_t i = 0; i < s->n_steps; i++)
        if (s->step[i].verb == STEP_RECV && s->step[i].right) s->step[i].right = i + 1;
}
static void read_with_others(struct schedule *s) {
    for (uint32_t i = 0; i < s->n_steps; i++)
        if (s->step[i].verb == STEP_RECV && s->step[i].right) {
            uint32_t reader = (uint32_t)s->step[i].right - 1;
            s->step[reader].right = s->step[reader].left;
            s->step[reader].right_buffer = s->step[reader].left_buffer;
        }
}
/* What two reductions read is said to be the first one's alone. */
static void read_again(struct schedule *s) {
    for (uint32_t i = 0; i < s->n_steps; i++) {
        struct step *got = &s->step[i];
        uint32_t readers = 0, first = 0;
        for (uint32_t k = s->n_steps; got->verb == STEP_RECV && k-- > i + 1;)
            if (s->step[k].verb == STEP_REDUCE && s->step[k].after[0] == i + 1) {
                readers++;
                first = k + 1;
            }
        if (readers > 1) got->right = first;
    }
}
static void wrong_tag(struct schedule *s) {
    if (s->shape.rank == 1) first_of(s, STEP_RECV)->tag = 77;
}
static void shorter(struct schedule *s) {
    if (s->shape.rank == 1) first_of(s, STEP_SEND)->len -= 4;
}
static void into_source(struct schedule *s) {
    if (s->shape.rank == 1) first_of(s, STEP_REDUCE)->to_buffer = COLL_SRC;
}
static void wait_for_the_answer(struct schedule *s) {
    first_of(s, STEP_SEND)->after[0] = 0;
    for (uint32_t i = 0; i < s->n_steps; i++)
        if (s->step[i].verb == STEP_RECV) {
            struct step recv = s->step[i], send = s->step[0];
            s->step[0] = recv;
            s->step[i] = send;
            s->step[i].after[0] = 1;
            for (uint32_t k = 0; k < s->n_steps; k++)
                for (int d = 0; d < 3; d++)
                    if (k != i && s->step[k].after[d] == i + 1) s->step[k].after[d] = 1;
            return;
        }
}

/* Puts: without the key, behind the word that it is done, and into what their target uses. */
static void without_the_key(struct schedule *s) {
    if (s->shape.rank == 2) first_of(s, STEP_PUT)->after[0] = 0;
}
static void done_too_early(struct schedule *s) {
    for (uint32_t i = 0; i < s->n_steps; i++)
        for (int k = 0; k < 3; k++)
            if (s->step[i].after[k] && s->step[s->step[i].after[k] - 1].verb == STEP_PUT)
                s->step[i].after[k] = 0;
}
static void into_anothers_place(struct schedule *s) {
    if (s->shape.rank == 2) first_of(s, STEP_PUT)->to += s->shape.count * s->shape.width;
}
static void own_into_anothers_place(struct schedule *s) {
    if (s->shape.rank == 2) first_of(s, STEP_COPY)->to -= s->shape.count * s->shape.width;
}

/* Steps through a segment. */
static struct coll_shape grouped(struct coll_shape shape) {
    shape.choices = &usual_choices;
    shape.slot = 4096;
    shape.per_group = 5;
    return shape;
}
static void another_root(struct schedule *s) {
    if (s->shape.rank == 3) first_of(s, STEP_SHARE)->peer = 1;
}
static void beyond_the_result(struct schedule *s) {
    if (s->shape.rank == 3) first_of(s, STEP_SHARE)->to += 8;
}

static bool refuted_hosted(enum coll_algorithm algorithm, void (*how)(struct schedule *),
                           const char *reason) {
    struct check check = of(algorithm, 10, 11);
    check.shape = grouped(check.shape);
    return refuted_check(check, how, reason);
}

TEST(the_checker_refutes_what_is_wrong) {
    CHECK(refuted_hosted(ALGORITHM_BCAST_hierarchy, another_root, "than its group's"));
    CHECK(refuted_hosted(ALGORITHM_BCAST_hierarchy, beyond_the_result, "beyond its buffer"));
    CHECK(refuted(ALGORITHM_ALLGATHER_direct, own_into_anothers_place, "in no order"));
    CHECK(refuted(ALGORITHM_ALLTOALL_direct, done_too_early, "may end before the put"));
    CHECK(refuted(ALGORITHM_ALLTOALL_direct, into_anothers_place, "in no order"));
    CHECK(refuted(ALGORITHM_ALLGATHER_direct, into_anothers_place, "in no order"));
    CHECK(refuted(ALGORITHM_ALLTOALL_direct, without_the_key, "in no order"));
    CHECK(refuted(ALGORITHM_ALLREDUCE_ring, drop_dependency, "in no order"));
    CHECK(refuted(ALGORITHM_ALLREDUCE_ring, receive_into_what_is_reduced, "in no order"));
    CHECK(refuted(ALGORITHM_ALLREDUCE_ring, own_twice, "lacks a contribution or has it twice"));
    CHECK(refuted(ALGORITHM_ALLREDUCE_ring, read_by_another, "read before it is received"));
    CHECK(refuted(ALGORITHM_ALLREDUCE_ring, read_with_others, "does not reduce what it received"));
    CHECK(refuted(ALGORITHM_EXSCAN_doubling, read_again, "reduces what it does not have"));
    CHECK(refuted(ALGORITHM_ALLREDUCE_ring, wrong_tag, "in vain"));
    CHECK(refuted(ALGORITHM_ALLREDUCE_ring, shorter, "another length"));
    CHECK(refuted(ALGORITHM_ALLREDUCE_ring, into_source, "writes to the source"));
    CHECK(refuted(ALGORITHM_ALLREDUCE_ring, wait_for_the_answer, "deadlock"));
    CHECK(refuted(ALGORITHM_ALLREDUCE_pipeline, swap_operands, "another result"));
}
