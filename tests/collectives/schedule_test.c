/* Every algorithm is proved for every team size to 128, and for samples beyond, by running all ranks on symbols. */
#include "checker.h"
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
    return (struct check){
        .algorithm = algorithm,
        .shape = {
            .kind = weft__algorithms[algorithm].kind, .size = size, .count = count, .width = 4, .segment = 12}};
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

static void prove_samples(enum coll_algorithm algorithm, const uint32_t *sizes, unsigned n, uint64_t count) {
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
    for (enum coll_algorithm a = ALGORITHM_BCAST_binomial; a <= ALGORITHM_BCAST_chain; a++) {
        for (uint32_t size = 1; size <= 128; size++)
            for (uint32_t root = 0; root < size; root += size < 20 ? 1 : 1 + size / 5)
                for (uint64_t count = 1; count < 12; count += 5) {
                    struct check check = of(a, size, count);
                    check.shape.root = root;
                    CHECK(proved(check));
                }
        prove_samples(a, beyond, N_OF(beyond), 4);
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
    prove_to_128(ALGORITHM_ALLREDUCE_ring, (uint64_t[]){1, 131}, 2);
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
    for (enum coll_algorithm a = ALGORITHM_ALLGATHER_bruck; a <= ALGORITHM_ALLGATHER_neighbours; a++) {
        prove_to_128(a, (uint64_t[]){1, 3}, 2);
        prove_samples(a, some, N_OF(some), 1);
    }
    uint32_t large[] = {1000, 2049, 4096};
    prove_samples(ALGORITHM_ALLGATHER_bruck, large, N_OF(large), 1);
}

/* ---- the checker itself: a proof that cannot fail proves nothing ---------------------------------------------------- */

static enum coll_algorithm spoilt;
static void (*spoil)(struct schedule *s);
static void build_spoilt(struct schedule *s) {
    weft__algorithms[spoilt].build(s);
    spoil(s);
}

/* One change to an algorithm's schedules, and a word of what the checker must say to it. */
static bool refuted(enum coll_algorithm algorithm, void (*how)(struct schedule *), const char *reason) {
    struct check check = of(algorithm, 5, 11);
    char why[160] = "nothing";
    check.build = build_spoilt;
    spoilt = algorithm;
    spoil = how;
    if (!weft__schedule_check(&check, why, sizeof why) && strstr(why, reason)) return true;
    printf("  refuted by: %s\n", why);
    return false;
}

static struct step *first_of(struct schedule *s, enum step_verb verb) {
    for (uint32_t i = 0; i < s->n_steps; i++)
        if (s->step[i].verb == verb) return &s->step[i];
    return NULL;
}
static void drop_dependency(struct schedule *s) {
    if (s->shape.rank == 2) first_of(s, STEP_REDUCE)->after[0] = 0;
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

TEST(the_checker_refutes_what_is_wrong) {
    CHECK(refuted(ALGORITHM_ALLREDUCE_ring, drop_dependency, "in no order"));
    CHECK(refuted(ALGORITHM_ALLREDUCE_ring, own_twice, "lacks a contribution or has it twice"));
    CHECK(refuted(ALGORITHM_ALLREDUCE_ring, wrong_tag, "in vain"));
    CHECK(refuted(ALGORITHM_ALLREDUCE_ring, shorter, "another length"));
    CHECK(refuted(ALGORITHM_ALLREDUCE_ring, into_source, "writes to the source"));
    CHECK(refuted(ALGORITHM_ALLREDUCE_ring, wait_for_the_answer, "deadlock"));
    CHECK(refuted(ALGORITHM_ALLREDUCE_pipeline, swap_operands, "another result"));
}
