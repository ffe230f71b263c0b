/* weft-perf: what all of its files share. */
#ifndef WEFT_TOOLS_PERF_H
#define WEFT_TOOLS_PERF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <weft/weft.h>

#include "histogram.h"

enum perf_test {
    TEST_AM_LAT,
    TEST_AM_RATE,
    TEST_AM_BW,
    TEST_TAG_LAT,
    TEST_TAG_BW,
    TEST_ALLREDUCE,
    TEST_BARRIER,
    TEST_BCAST,
    TEST_ALLGATHER,
    N_TESTS
};
extern const char *const perf_test_names[N_TESTS];
static inline bool perf_is_collective(enum perf_test test) {
    return test >= TEST_ALLREDUCE;
}
static inline bool perf_is_latency(enum perf_test test) {
    return test == TEST_AM_LAT || test == TEST_TAG_LAT;
}

struct perf_options {
    enum perf_test test;
    size_t size_lo, size_hi; /* swept by doubling */
    const char *transport;   /* auto, self, shm, tcp */
    bool sleep;
    uint32_t ranks;
    double seconds; /* measured, for each size */
    bool json;
    const char *plot, *listen, *connect;
    int core; /* -1: by rank */
};

/* One process's part. */
struct perf {
    struct perf_options options;
    weft_context_t *context;
    weft_worker_t *worker;
    weft_team_t *team; /* NULL with --listen, --connect and the self transport */
    weft_ep_t *ep;     /* to the peer of point-to-point tests */
    uint32_t rank, size;
    bool crowded;   /* more processes than cores: yield between looks */
    void *out, *in; /* size_hi bytes each, and more for collectives */
    struct histogram histogram;
};

struct perf_result {
    enum perf_test test;
    size_t size;
    const char *transport, *mode;
    uint32_t ranks;
    double p50_us, p99_us, avg_us, mmsg_s, gb_s, cpu_pct;
};

_Noreturn void perf_die(const char *what, weft_status_t status);
static inline void perf_must(weft_status_t status, const char *what) {
    if (status < 0) perf_die(what, status);
}

/* One look, or one sleep, by the mode. */
void perf_turn(struct perf *p);

/* The clock, ns, and the processor time of this process. */
uint64_t perf_now(void);
double perf_cpu_s(void);

/* How many operations to time at once: reading the clock costs some 30 ns, which must not count. */
uint64_t perf_batch(double ns_each);

/* Point to point: one side asks, the other answers until it is told to leave. */
void perf_p2p_prepare(struct perf *p); /* before peers connect */
void perf_p2p_measure(struct perf *p, size_t size, struct perf_result *result_p);
void perf_p2p_serve(struct perf *p);
void perf_p2p_bye(struct perf *p);

/* Collectives: every rank calls it, rank 0 gets the result. */
void perf_collective_measure(struct perf *p, size_t size, struct perf_result *result_p);

/* Percentiles and rates from the histogram. `scale`: operations' times are multiplied by it (½ for round trips). */
void perf_fill(const struct perf *p, double scale, double wall_s, double cpu_s, uint64_t n, struct perf_result *r);

void perf_print_json(FILE *to, const struct perf_result *r);
void perf_print_header(FILE *to);
void perf_print_row(FILE *to, const struct perf_result *r);
/* A picture of one sweep; false after a message. */
bool perf_plot(const char *file, const struct perf_result *results, size_t n);

#endif
