#include "histogram.h"
#include <string.h>

void histogram_clear(struct histogram *h) {
    memset(h, 0, sizeof *h);
}

/*
 * Values below 64 units have a slot each; above, the six bits behind the leading one choose the
 * step.
 */
static unsigned slot_of(double ns) {
    double units = ns * HISTOGRAM_STEPS;
    uint64_t v = units < 0 ? 0 : units > 1e18 ? (uint64_t)1e18 : (uint64_t)units;
    if (v < HISTOGRAM_STEPS) return (unsigned)v;
    unsigned shift = 63 - (unsigned)__builtin_clzll(v) - 6;
    unsigned slot = (shift + 1) * HISTOGRAM_STEPS + (unsigned)((v >> shift) - HISTOGRAM_STEPS);
    return slot < HISTOGRAM_SLOTS ? slot : HISTOGRAM_SLOTS - 1;
}

/* The middle of a slot, ns. */
static double middle_of(unsigned slot) {
    if (slot < HISTOGRAM_STEPS) return (slot + 0.5) / HISTOGRAM_STEPS;
    unsigned shift = slot / HISTOGRAM_STEPS - 1;
    double width = (double)(UINT64_C(1) << shift);
    return (HISTOGRAM_STEPS + slot % HISTOGRAM_STEPS + 0.5) * width / HISTOGRAM_STEPS;
}

void histogram_add(struct histogram *h, double ns, uint64_t weight) {
    h->slot[slot_of(ns)] += weight;
    h->n += weight;
    h->sum += ns * (double)weight;
}

double histogram_percentile(const struct histogram *h, double fraction) {
    double wanted = fraction * (double)h->n, seen = 0;
    for (unsigned i = 0; h->n > 0 && i < HISTOGRAM_SLOTS; i++) {
        seen += (double)h->slot[i];
        if (h->slot[i] > 0 && seen >= wanted) return middle_of(i);
    }
    return 0;
}

double histogram_mean(const struct histogram *h) {
    return h->n ? h->sum / (double)h->n : 0;
}
