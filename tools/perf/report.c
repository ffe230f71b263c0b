#include "perf.h"

#include "../json/json.h"

const char *const perf_test_names[N_TESTS] = {"am_lat",    "am_rate", "am_bw", "tag_lat",  "tag_bw",
                                              "allreduce", "barrier", "bcast", "allgather"};

void perf_fill(const struct perf *p, double scale, double wall_s, double cpu_s, uint64_t n, struct perf_result *r) {
    r->p50_us = scale * histogram_percentile(&p->histogram, 0.50) / 1e3;
    r->p99_us = scale * histogram_percentile(&p->histogram, 0.99) / 1e3;
    r->avg_us = scale * wall_s * 1e6 / (double)n;
    r->mmsg_s = (double)n / wall_s / 1e6 / scale; /* a round trip is two messages */
    r->gb_s = r->mmsg_s * 1e6 * (double)r->size / 1e9;
    r->cpu_pct = 100 * cpu_s / wall_s;
}

void perf_print_json(FILE *to, const struct perf_result *r) {
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"p50_us", r->p50_us}, {"p99_us", r->p99_us}, {"avg_us", r->avg_us},
                   {"mmsg_s", r->mmsg_s}, {"gb_s", r->gb_s},     {"cpu_pct", r->cpu_pct}};
    fputs("{\"test\":", to);
    json_text(to, perf_test_names[r->test]);
    fprintf(to, ",\"size\":%zu,\"transport\":", r->size);
    json_text(to, r->transport);
    fputs(",\"mode\":", to);
    json_text(to, r->mode);
    fprintf(to, ",\"ranks\":%u", r->ranks);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        fprintf(to, ",\"%s\":", numbers[i].key);
        json_number(to, numbers[i].value, 5);
    }
    fputs("}\n", to);
    fflush(to);
}

void perf_print_header(FILE *to) {
    fprintf(to, "%-10s %10s %-6s %-5s %5s %10s %10s %10s %10s %10s %6s\n", "test", "size", "over", "mode", "ranks",
            "p50 us", "p99 us", "avg us", "Mmsg/s", "GB/s", "cpu %");
}

void perf_print_row(FILE *to, const struct perf_result *r) {
    fprintf(to, "%-10s %10zu %-6s %-5s %5u %10.3f %10.3f %10.3f %10.4g %10.4g %6.0f\n", perf_test_names[r->test],
            r->size, r->transport, r->mode, r->ranks, r->p50_us, r->p99_us, r->avg_us, r->mmsg_s, r->gb_s,
            r->cpu_pct);
    fflush(to);
}
