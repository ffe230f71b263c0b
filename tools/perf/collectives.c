/* Collectives back to back. The root of a broadcast rotates, so that no rank runs ahead. */
#include <collectives/schedule.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "perf.h"

enum { WARM_UP = 20 };
/*
 * An operation whose peers came first is short, and the next one waits: neither is what one costs.
 */
enum { LEAST_BATCH = 16 };

static bool done;

static void on_done(weft_status_t status, void *arg) {
    (void)arg;
    perf_must(status, "collective");
    done = true;
}

/* ---- the operations -------------------------------------------------------------------------- */

enum who { NONE, EACH, ROOT };
enum blocks { ONE, FOR_EACH, FOR_NEIGHBORS };
enum result { COPY, SUM, SUM_TO_HERE, SUM_BELOW };

/* Who gives and who takes, and in how many blocks; and what is taken of equal parts of all. */
struct collective {
    weft_coll_kind_t kind;
    enum who gives, takes;
    enum blocks given, taken;
    enum result result;
};
static const struct collective collectives[N_TESTS] = {
    [TEST_BARRIER] = {WEFT_COLL_BARRIER, NONE, NONE, ONE, ONE, COPY},
    [TEST_FANIN] = {WEFT_COLL_FANIN, NONE, NONE, ONE, ONE, COPY},
    [TEST_FANOUT] = {WEFT_COLL_FANOUT, NONE, NONE, ONE, ONE, COPY},
    [TEST_BCAST] = {WEFT_COLL_BCAST, ROOT, EACH, ONE, ONE, COPY},
    [TEST_ALLGATHER] = {WEFT_COLL_ALLGATHER, EACH, EACH, ONE, FOR_EACH, COPY},
    [TEST_ALLGATHERV] = {WEFT_COLL_ALLGATHERV, EACH, EACH, ONE, FOR_EACH, COPY},
    [TEST_GATHER] = {WEFT_COLL_GATHER, EACH, ROOT, ONE, FOR_EACH, COPY},
    [TEST_GATHERV] = {WEFT_COLL_GATHERV, EACH, ROOT, ONE, FOR_EACH, COPY},
    [TEST_SCATTER] = {WEFT_COLL_SCATTER, ROOT, EACH, FOR_EACH, ONE, COPY},
    [TEST_SCATTERV] = {WEFT_COLL_SCATTERV, ROOT, EACH, FOR_EACH, ONE, COPY},
    [TEST_ALLTOALL] = {WEFT_COLL_ALLTOALL, EACH, EACH, FOR_EACH, FOR_EACH, COPY},
    [TEST_ALLTOALLV] = {WEFT_COLL_ALLTOALLV, EACH, EACH, FOR_EACH, FOR_EACH, COPY},
    [TEST_NEIGHBOR_ALLTOALLV] = {WEFT_COLL_NEIGHBOR_ALLTOALLV, EACH, EACH, FOR_NEIGHBORS,
                                 FOR_NEIGHBORS, COPY},
    [TEST_ALLREDUCE] = {WEFT_COLL_ALLREDUCE, EACH, EACH, ONE, ONE, SUM},
    [TEST_REDUCE] = {WEFT_COLL_REDUCE, EACH, ROOT, ONE, ONE, SUM},
    [TEST_REDUCE_SCATTER] = {WEFT_COLL_REDUCE_SCATTER, EACH, EACH, FOR_EACH, ONE, SUM},
    [TEST_REDUCE_SCATTERV] = {WEFT_COLL_REDUCE_SCATTERV, EACH, EACH, FOR_EACH, ONE, SUM},
    [TEST_SCAN] = {WEFT_COLL_SCAN, EACH, EACH, ONE, ONE, SUM_TO_HERE},
    [TEST_EXSCAN] = {WEFT_COLL_EXSCAN, EACH, EACH, ONE, ONE, SUM_BELOW},
};

static const struct collective *collective_of(const struct perf *p) {
    return &collectives[p->options.test];
}

enum { NEIGHBORS = 2 };

static uint32_t n_blocks(const struct perf *p, enum blocks blocks) {
    return blocks == ONE ? 1 : blocks == FOR_NEIGHBORS ? NEIGHBORS : p->size;
}

/* Of a v-form: equal blocks, so that it is compared with the form without counts. */
static const uint64_t *equal_counts(const struct perf *p, size_t count) {
    static uint64_t counts[PERF_RANKS];
    if (weft__coll_is_even((enum coll_kind)collective_of(p)->kind)) return NULL;
    uint32_t n = p->size > NEIGHBORS ? p->size : NEIGHBORS;
    for (uint32_t r = 0; r < n; r++) counts[r] = count;
    return counts;
}

/* A ring: each rank has the one below it and the one above it. */
static const weft_neighbors_t *ring(const struct perf *p) {
    static uint32_t below_above[NEIGHBORS], above_below[NEIGHBORS];
    static const weft_neighbors_t graph = {below_above, above_below, NEIGHBORS, NEIGHBORS};
    below_above[0] = above_below[1] = (p->rank + p->size - 1) % p->size;
    below_above[1] = above_below[0] = (p->rank + 1) % p->size;
    return &graph;
}

static bool are_floats(const struct perf *p, size_t size) {
    return collective_of(p)->result != COPY && size % sizeof(float) == 0;
}

static weft_coll_args_t args_of(const struct perf *p, size_t size, uint32_t root) {
    const struct collective *it = collective_of(p);
    bool floats = are_floats(p, size);
    size_t count = floats ? size / sizeof(float) : size;
    const uint64_t *counts = equal_counts(p, count);
    if (it->gives == NONE) return (weft_coll_args_t){.kind = it->kind, .root = root};
    return (weft_coll_args_t){.kind = it->kind,
                              .src_counts = counts,
                              .dst_counts = counts,
                              .graph = it->given == FOR_NEIGHBORS ? ring(p) : NULL,
                              .src = it->kind == WEFT_COLL_BCAST ? NULL : p->out,
                              .dst = it->kind == WEFT_COLL_BCAST ? p->out : p->in,
                              .count = count,
                              .type = floats ? WEFT_FLOAT32 : WEFT_UINT8,
                              .reduction = WEFT_SUM,
                              .root = root};
}

/* ---- fresh: a rank writes what it gives before each operation -------------------------------- */

/* Of this rank, in an operation of that number. */
static size_t bytes_of(const struct perf *p, enum who who, enum blocks blocks, size_t size,
                       uint64_t i) {
    if (who == ROOT && i % p->size != p->rank) return 0;
    return size * n_blocks(p, blocks);
}

/* The same value in all ranks, another one in the next operation, and never zero. */
static unsigned value_of(uint64_t i) {
    return 1 + (unsigned)(i % 97);
}

_Static_assert(sizeof(wchar_t) == sizeof(float), "wmemset writes floats");

static void write_given(const struct perf *p, size_t size, uint64_t i) {
    const struct collective *it = collective_of(p);
    size_t len = bytes_of(p, it->gives, it->given, size, i);
    if (!are_floats(p, size)) {
        memset(p->out, (int)value_of(i), len);
        return;
    }
    float value = (float)value_of(i);
    wchar_t bits;
    memcpy(&bits, &value, sizeof bits);
    wmemset(p->out, bits, len / sizeof bits); /* as fast as memset: the writing is in the times */
}

/* How many parts are in each of the results. */
static uint32_t n_parts(const struct perf *p) {
    switch (collective_of(p)->result) {
    case SUM: return p->size;
    case SUM_TO_HERE: return p->rank + 1;
    case SUM_BELOW: return p->rank;
    default: return 1;
    }
}

/* What the last operation brought is what all wrote before it, or the sum of that. */
static void check_taken(const struct perf *p, size_t size, uint64_t i) {
    const struct collective *it = collective_of(p);
    if (it->result == SUM_BELOW && p->rank == 0) return; /* it takes nothing */
    size_t len = bytes_of(p, it->takes, it->taken, size, i);
    unsigned expected = value_of(i) * n_parts(p);
    const unsigned char *bytes = it->kind == WEFT_COLL_BCAST ? p->out : p->in;
    const float *values = p->in;
    bool right = true;
    if (are_floats(p, size))
        for (size_t k = 0; k < len / sizeof *values; k++) right &= values[k] == (float)expected;
    else
        for (size_t k = 0; k < len; k++) right &= bytes[k] == (unsigned char)expected;
    if (!right) perf_die("what was received is not what was written", WEFT_ERR_INTERNAL);
}

/* ---- persistent: a handle for each root ------------------------------------------------------ */

static weft_coll_t **kept; /* with --persistent, while a size is measured */

static void init_persistent(struct perf *p, size_t size) {
    kept = calloc(p->size, sizeof *kept);
    if (!kept) perf_die("handles", WEFT_ERR_NO_MEMORY);
    for (uint32_t root = 0; root < p->size; root++) {
        weft_coll_args_t args = args_of(p, size, root);
        perf_must(weft_coll_init(p->team, &args, 0, &kept[root]), "weft_coll_init");
    }
}

static void free_persistent(const struct perf *p) {
    for (uint32_t root = 0; kept && root < p->size; root++)
        perf_must(weft_coll_free(kept[root]), "weft_coll_free");
    free(kept);
    kept = NULL;
}

/* ---- one operation --------------------------------------------------------------------------- */

static weft_coll_args_t described; /* once: the description is not what is measured */

static uint32_t to_root(const struct perf *p, uint64_t i) {
    return described.root = (uint32_t)(i % p->size);
}

static weft_status_t start_collectives(struct perf *p, uint64_t i, const weft_op_t *op) {
    uint32_t root = to_root(p, i);
    return kept ? weft_coll_start(kept[root], op) : weft_coll(p->team, &described, op);
}

/* The form that waits. */
static void one_waiting(struct perf *p, uint64_t i) {
    uint32_t root = to_root(p, i);
    perf_must(kept ? weft_coll_start_wait(kept[root]) : weft_coll_wait(p->team, &described),
              "collective");
}

static void one(struct perf *p, uint64_t i) {
    if (p->mode == MODE_WAIT) {
        one_waiting(p, i);
        return;
    }
    done = false;
    weft_status_t st = start_collectives(p, i, &(weft_op_t){.done = on_done});
    perf_must(st, "collective");
    if (st == WEFT_OK) return;
    while (!done) perf_turn(p);
}

/* Rank 0 of a scan waits for no other, and would run ahead of what it measures. */
static bool runs_ahead(const struct perf *p) {
    enum result result = collective_of(p)->result;
    return result == SUM_TO_HERE || result == SUM_BELOW;
}

static void meet(struct perf *p) {
    done = false;
    weft_status_t st = weft_barrier(p->team, &(weft_op_t){.done = on_done});
    perf_must(st, "barrier");
    while (st == WEFT_IN_PROGRESS && !done) perf_turn(p);
}

static uint64_t run_collectives(struct perf *p, size_t size, uint64_t n, uint64_t batch) {
    uint64_t at = perf_now(), i = 0;
    while (i < n) {
        uint64_t end = i + batch < n ? i + batch : n, weight = end - i;
        for (; i < end; i++) {
            if (p->options.fresh) write_given(p, size, i);
            one(p, i);
        }
        if (runs_ahead(p)) meet(p);
        uint64_t now = perf_now();
        histogram_add(&p->histogram, (double)(now - at) / (double)weight, weight);
        at = now;
    }
    return i;
}

/* Zeros in, zeros out would prove nothing: sums of ones are the number of ranks. Memory of a device
 * is not looked at. */
static void check_sum(struct perf *p) {
    if (p->options.cuda == PERF_CUDA_DEVICE) return;
    float *x = p->out, *y = p->in;
    x[0] = 1;
    described = args_of(p, sizeof(float), 0);
    one(p, 0);
    if (y[0] != (float)p->size) perf_die("the sum is wrong", WEFT_ERR_INTERNAL);
    x[0] = 0;
}

static void measure_collectives(struct perf *p, size_t size, struct perf_result *result_p) {
    uint64_t plan[2]; /* operations, and in how large batches: rank 0 decides */
    if (p->options.test == TEST_ALLREDUCE) check_sum(p);
    if (p->options.persistent) init_persistent(p, size);
    described = args_of(p, size, 0);
    histogram_clear(&p->histogram);
    run_collectives(p, size, WARM_UP, WARM_UP);
    double each = histogram_mean(&p->histogram);
    plan[0] = (uint64_t)(p->options.seconds * 1e9 / (each > 1 ? each : 1)) + WARM_UP;
    plan[1] = perf_batch(each);
    if (plan[1] < LEAST_BATCH) plan[1] = LEAST_BATCH;
    perf_must(weft_bcast_wait(p->team, plan, 2, WEFT_UINT64, 0), "plan");

    histogram_clear(&p->histogram);
    double cpu = perf_cpu_s();
    uint64_t begin = perf_now();
    uint64_t n = run_collectives(p, size, plan[0], plan[1]);
    perf_fill(p, 1, (double)(perf_now() - begin) / 1e9, perf_cpu_s() - cpu, n, result_p);
    if (p->options.fresh) check_taken(p, size, n - 1);
    free_persistent(p);
}

extern const struct perf_family perf_collectives;
const struct perf_family perf_collectives = {.measure = measure_collectives};
