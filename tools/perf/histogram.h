/* Times in a log-linear histogram: 64 steps to each doubling, so a percentile is right to 1.6 %. */
#ifndef WEFT_TOOLS_PERF_HISTOGRAM_H
#define WEFT_TOOLS_PERF_HISTOGRAM_H

#include <stdint.h>

enum { HISTOGRAM_STEPS = 64, HISTOGRAM_SLOTS = 60 * HISTOGRAM_STEPS };

struct histogram {
    uint64_t n;                     /* samples, each weighted by the operations it stands for */
    double sum;                     /* of ns */
    uint64_t slot[HISTOGRAM_SLOTS]; /* in units of 1/64 ns */
};

void histogram_clear(struct histogram *h);
/* `weight` operations took `ns` each. */
void histogram_add(struct histogram *h, double ns, uint64_t weight);
/* The time that `fraction` of the operations did not exceed, ns; 0 when there are none. */
double histogram_percentile(const struct histogram *h, double fraction);
double histogram_mean(const struct histogram *h);

#endif
