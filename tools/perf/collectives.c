/* Collectives back to back. The root of a broadcast rotates, so that no rank runs ahead. */
#include "perf.h"
#include <string.h>

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

static weft_status_t start_collectives(struct perf *p, size_t size, uint64_t i,
                                       const weft_op_t *op) {
    bool floats = size % sizeof(float) == 0;
    size_t count = floats ? size / sizeof(float) : size;
    uint32_t root = (uint32_t)(i % p->size);
    weft_datatype_t type = floats ? WEFT_FLOAT32 : WEFT_UINT8;
    switch (p->options.test) {
    case TEST_ALLREDUCE: return weft_allreduce(p->team, p->out, p->in, count, type, WEFT_SUM, op);
    case TEST_BCAST: return weft_bcast(p->team, p->out, size, WEFT_UINT8, root, op);
    case TEST_ALLGATHER: return weft_allgather(p->team, p->out, p->in, size, WEFT_UINT8, op);
    case TEST_REDUCE: return weft_reduce(p->team, p->out, p->in, count, type, WEFT_SUM, root, op);
    case TEST_GATHER: return weft_gather(p->team, p->out, p->in, size, WEFT_UINT8, root, op);
    case TEST_SCATTER: return weft_scatter(p->team, p->out, p->in, size, WEFT_UINT8, root, op);
    case TEST_ALLTOALL: return weft_alltoall(p->team, p->out, p->in, size, WEFT_UINT8, op);
    case TEST_REDUCE_SCATTER:
        return weft_reduce_scatter(p->team, p->out, p->in, count, type, WEFT_SUM, op);
    default: return weft_barrier(p->team, op);
    }
}

static void one(struct perf *p, size_t size, uint64_t i) {
    done = false;
    weft_status_t st = start_collectives(p, size, i, &(weft_op_t){.done = on_done});
    perf_must(st, "collective");
    if (st == WEFT_OK) return;
    while (!done) perf_turn(p);
}

static uint64_t run_collectives(struct perf *p, size_t size, uint64_t n, uint64_t batch) {
    uint64_t at = perf_now(), i = 0;
    while (i < n) {
        uint64_t end = i + batch < n ? i + batch : n, weight = end - i;
        for (; i < end; i++) one(p, size, i);
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
    one(p, sizeof(float), 0);
    if (y[0] != (float)p->size) perf_die("the sum is wrong", WEFT_ERR_INTERNAL);
    x[0] = 0;
}

static void measure_collectives(struct perf *p, size_t size, struct perf_result *result_p) {
    uint64_t plan[2]; /* operations, and in how large batches: rank 0 decides */
    if (p->options.test == TEST_ALLREDUCE) check_sum(p);
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
}

extern const struct perf_family perf_collectives;
const struct perf_family perf_collectives = {.measure = measure_collectives};
