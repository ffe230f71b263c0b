#include "perf.h"

#include "../json/json.h"

void perf_print_json(FILE *to, const struct perf_result *r) {
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"p50_us", r->p50_us}, {"p99_us", r->p99_us}, {"avg_us", r->avg_us},
                   {"mmsg_s", r->mmsg_s}, {"gb_s", r->gb_s},     {"cpu_pct", r->cpu_pct}};
    fputs("{\"test\":", to);
    json_text(to, perf_tests[r->test].name);
    fprintf(to, ",\"size\":%zu,\"transport\":", r->size);
    json_text(to, r->transport);
    fputs(",\"mode\":", to);
    json_text(to, r->mode);
    fprintf(to, ",\"ranks\":%u", r->ranks);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        fprintf(to, ",\"%s\":", numbers[i].key);
        json_number(to, numbers[i].value, 5);
    }
    for (size_t i = 0; i < r->n_notes; i++) {
        fprintf(to, ",\"%s\":", r->notes[i].key);
        json_number(to, r->notes[i].value, 7);
    }
    fputs("}\n", to);
    fflush(to);
}

void perf_print_header(FILE *to) {
    fprintf(to, "%-12s %10s %-6s %-5s %5s %10s %10s %10s %10s %10s %6s\n", "test", "size", "over",
            "mode", "ranks", "p50 us", "p99 us", "avg us", "Mmsg/s", "GB/s", "cpu %");
}

void perf_print_row(FILE *to, const struct perf_result *r) {
    fprintf(to, "%-12s %10zu %-6s %-5s %5u %10.3f %10.3f %10.3f %10.4g %10.4g %6.0f",
            perf_tests[r->test].name, r->size, r->transport, r->mode, r->ranks, r->p50_us,
            r->p99_us, r->avg_us, r->mmsg_s, r->gb_s, r->cpu_pct);
    for (size_t i = 0; i < r->n_notes; i++)
        fprintf(to, "  %s %.5g", r->notes[i].key, r->notes[i].value);
    fputc('\n', to);
    fflush(to);
}
