/* weft-perf --tune: measures every algorithm of every collective here, and writes the best ones. */
#include <collectives/select.h>
#include <collectives/share.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "perf.h"

enum { SIZES_MOST = 32, COMMAND_MOST = 4400 };

struct best {
    size_t size;
    double us;
    const char *algorithm;
};

/* Where a way through the segment cannot be had, another one is measured in its place. */
static bool is_had(enum coll_kind kind, unsigned algorithm, uint64_t bytes, uint32_t ranks) {
    switch (algorithm) {
    case ALGORITHM_SLOTS: return weft__slots_fit(kind, 0, 1, ranks, SEGMENT_LINE);
    case ALGORITHM_ONESHOT: return weft__oneshot_fit(kind, bytes, ranks);
    case ALGORITHM_SINGLE_COPY: return weft__single_copy_has(kind);
    default: return weft__algorithms[algorithm].kind == kind;
    }
}

/* What one algorithm takes for each size; smaller figures are kept. */
static void measure_one(const char *command, enum coll_kind kind, unsigned algorithm,
                        uint32_t ranks, struct best *best, unsigned *n_p) {
    char line[1024];
    unsigned n = 0;
    FILE *in = popen(command, "re");
    while (in && fgets(line, sizeof line, in) && n < SIZES_MOST) {
        const char *size = strstr(line, "\"size\":"), *us = strstr(line, "\"p50_us\":");
        if (!size || !us) continue;
        struct best one = {strtoull(size + 7, NULL, 10), strtod(us + 9, NULL),
                           weft__algorithm_name(algorithm)};
        if (n >= *n_p)
            best[(*n_p)++] = one;
        else if (one.us < best[n].us && is_had(kind, algorithm, one.size, ranks))
            best[n] = one;
        n++;
    }
    if (in) pclose(in);
}

/* Sizes between two that were measured take the smaller one's. */
static void write_rows(FILE *out, const char *kind, uint32_t ranks, const struct best *best,
                       unsigned n) {
    for (unsigned i = 0, from = 0; i < n; i++) {
        if (i + 1 < n && !strcmp(best[i + 1].algorithm, best[i].algorithm)) continue;
        fprintf(out, "%s@%u-%u:", kind, ranks, ranks);
        if (from > 0) fprintf(out, "%zu", best[from].size);
        fputc('-', out);
        if (i + 1 < n) fprintf(out, "%zu", best[i + 1].size - 1);
        fprintf(out, "=%s # %.2f us\n", best[i].algorithm, best[i].us);
        from = i + 1;
    }
}

/* The members of a v-form take one way for all sizes: that which is the best at most of them. */
static void write_row(FILE *out, const char *kind, uint32_t ranks, const struct best *best,
                      unsigned n) {
    unsigned most = 0, first = 0;
    for (unsigned i = 0; i < n; i++) {
        unsigned wins = 0;
        for (unsigned k = 0; k < n; k++) wins += !strcmp(best[k].algorithm, best[i].algorithm);
        if (wins > most) most = wins, first = i;
    }
    fprintf(out, "%s@%u-%u=%s # at %u of %u sizes\n", kind, ranks, ranks, best[first].algorithm,
            most, n);
}

static bool tune_one(FILE *out, const char *exe, const struct perf_kind *test, enum coll_kind kind,
                     const struct perf_options *o) {
    struct best best[SIZES_MOST];
    unsigned n = 0;
    const char *sizes = test->flags & PERF_SIZELESS ? "" : "--size 8-1m";
    uint32_t ranks = o->ranks ? o->ranks : 2;
    for (unsigned a = 0; a <= ALGORITHM_SINGLE_COPY; a++) {
        char command[COMMAND_MOST];
        if (!is_had(kind, a, 0, ranks)) continue;
        snprintf(command, sizeof command,
                 "WEFT_COLL_TUNING= WEFT_COLL_ALGORITHMS=%s=%s '%s' --test %s --ranks %u "
                 "--seconds %g %s --json 2>/dev/null",
                 test->name, weft__algorithm_name(a), exe, test->name, ranks, o->seconds, sizes);
        measure_one(command, kind, a, ranks, best, &n);
    }
    if (n > 0) (weft__coll_is_even(kind) ? write_rows : write_row)(out, test->name, ranks, best, n);
    fflush(out);
    return n > 0;
}

/* Neighbours have one algorithm. */
static bool has_choice(enum coll_kind kind) {
    return kind != COLL_NEIGHBOR_ALLTOALLV;
}

/* The test that measures a collective has its name. */
static const struct perf_kind *test_of(enum coll_kind kind) {
    for (unsigned i = 0; i < N_TESTS; i++)
        if (!strcmp(perf_tests[i].name, weft__coll_name(kind))) return &perf_tests[i];
    return NULL;
}

bool perf_may_tune(enum perf_test test) {
    for (unsigned kind = 0; kind < N_COLL_KINDS; kind++)
        if (has_choice(kind) && test_of(kind) == &perf_tests[test]) return true;
    return false;
}

int perf_tune(const struct perf_options *o) {
    char exe[4096];
    ssize_t len = readlink("/proc/self/exe", exe, sizeof exe - 1);
    FILE *out = fopen(o->tune, "we");
    if (!out) {
        fprintf(stderr, "weft-perf: --tune %s: %s\n", o->tune, strerror(errno));
        return 1;
    }
    bool all = len > 0;
    if (len > 0) exe[len] = 0;
    if (all) fputs("# weft-perf --tune: the setting coll.tuning names this file\n", out);
    for (unsigned kind = 0; all && kind < N_COLL_KINDS; kind++) {
        const struct perf_kind *test = has_choice(kind) ? test_of(kind) : NULL;
        if (test && (o->test == N_TESTS || &perf_tests[o->test] == test))
            all = tune_one(out, exe, test, kind, o);
    }
    bool written = !ferror(out);
    written &= fclose(out) == 0;
    if (!all) fprintf(stderr, "weft-perf: --tune %s: not everything was measured\n", o->tune);
    if (!written) fprintf(stderr, "weft-perf: --tune %s: could not be written\n", o->tune);
    return all && written ? 0 : 1;
}
