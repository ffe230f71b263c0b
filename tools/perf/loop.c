/* Operations one after the other, timed in batches. */
#include "perf.h"

uint64_t perf_batch(double ns_each) {
    const double ns_batch = 5000;
    return ns_each > 0 && ns_each < ns_batch ? (uint64_t)(ns_batch / ns_each) : 1;
}

/* Batches for `seconds`, into the histogram; returns how many operations that were. */
static uint64_t run_for(struct perf *p, const struct perf_loop *loop, double seconds,
                        uint64_t batch) {
    uint64_t n = 0, at = perf_now(), end = at + (uint64_t)(seconds * 1e9);
    while (at < end) {
        loop->ops(p, batch);
        uint64_t now = perf_now();
        histogram_add(&p->histogram, (double)(now - at) / (double)batch, batch);
        n += batch;
        at = now;
    }
    return n;
}

void perf_loop(struct perf *p, size_t size, const struct perf_loop *loop,
               struct perf_result *result_p) {
    histogram_clear(&p->histogram);
    uint64_t warm = run_for(p, loop, p->options.seconds / 5, 1);
    uint64_t batch = perf_batch(histogram_mean(&p->histogram));
    if (batch < loop->least_batch) batch = loop->least_batch;

    histogram_clear(&p->histogram);
    double cpu = perf_cpu_s();
    uint64_t begin = perf_now();
    uint64_t n = run_for(p, loop, p->options.seconds, batch);
    if (loop->finish) loop->finish(p);
    struct perf_order order = {.command = PERF_END, .size = size, .count = warm + n};
    uint64_t got = perf_ask(p, &order)->count; /* streams end when the last has arrived */
    double wall = (double)(perf_now() - begin) / 1e9;
    if (got != warm + n) perf_die("operations are missing", WEFT_ERR_INTERNAL);
    perf_fill(p, perf_tests[p->options.test].flags & PERF_HALF_ROUND_TRIP ? 0.5 : 1, wall,
              perf_cpu_s() - cpu, n, result_p);
}

void perf_fill(const struct perf *p, double scale, double wall_s, double cpu_s, uint64_t n,
               struct perf_result *r) {
    r->p50_us = scale * histogram_percentile(&p->histogram, 0.50) / 1e3;
    r->p99_us = scale * histogram_percentile(&p->histogram, 0.99) / 1e3;
    r->avg_us = scale * wall_s * 1e6 / (double)n;
    r->mmsg_s = (double)n / wall_s / 1e6 / scale; /* a round trip is two messages */
    r->gb_s = r->mmsg_s * 1e6 * (double)r->size / 1e9;
    r->cpu_pct = 100 * cpu_s / wall_s;
}

void perf_note(struct perf_result *r, const char *key, double value) {
    if (r->n_notes == sizeof r->notes / sizeof r->notes[0]) return;
    r->notes[r->n_notes++] = (struct perf_note){key, value};
}
