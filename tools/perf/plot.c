/* One sweep as an SVG: sizes from left to right, both axes logarithmic. */
#include "perf.h"
#include <math.h>
#include <string.h>

enum { WIDTH = 720, HEIGHT = 420, LEFT = 80, RIGHT = 30, TOP = 50, BOTTOM = 60 };

struct axis {
    double lo, hi;   /* log10 */
    double from, to; /* pixels */
};

static double place_plot(const struct axis *a, double value) {
    double part = a->hi > a->lo ? (log10(value) - a->lo) / (a->hi - a->lo) : 0.5;
    return a->from + part * (a->to - a->from);
}

struct shown {
    const char *label, *unit;
    double (*value)(const struct perf_result *r);
};
static double p50_of(const struct perf_result *r) {
    return r->p50_us;
}
static double p99_of(const struct perf_result *r) {
    return r->p99_us;
}
static double rate_of(const struct perf_result *r) {
    return r->mmsg_s;
}
static double bandwidth_of(const struct perf_result *r) {
    return r->gb_s;
}

static size_t choose_plot(enum perf_test test, struct shown shown[2]) {
    if (perf_tests[test].shown == PERF_RATE) {
        shown[0] = (struct shown){"rate", "million/s", rate_of};
        return 1;
    }
    if (perf_tests[test].shown == PERF_BANDWIDTH) {
        shown[0] = (struct shown){"bandwidth", "GB/s", bandwidth_of};
        return 1;
    }
    shown[0] = (struct shown){"p50", "µs", p50_of};
    shown[1] = (struct shown){"p99", "µs", p99_of};
    return 2;
}

static void draw_grid(FILE *f, const struct axis *x, const struct axis *y, const char *unit) {
    for (double e = ceil(y->lo); e <= floor(y->hi) + 1e-9; e++) {
        double at = place_plot(y, pow(10, e));
        fprintf(f,
                "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" "
                "text-anchor=\"end\">%g</text>\n",
                LEFT, at, WIDTH - RIGHT, LEFT - 8, at + 4, pow(10, e));
    }
    for (double size = 1; size <= pow(10, x->hi) * 1.001; size *= 4) {
        if (size < pow(10, x->lo) * 0.999) continue;
        const char *suffix = size >= 1 << 20 ? "M" : size >= 1 << 10 ? "k" : "";
        double shown = size >= 1 << 20   ? size / (1 << 20)
                       : size >= 1 << 10 ? size / (1 << 10)
                                         : size;
        fprintf(f, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g%s</text>\n",
                place_plot(x, size), HEIGHT - BOTTOM + 20, shown, suffix);
    }
    fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">bytes</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 18);
    fprintf(f, "<text x=\"18\" y=\"%d\">%s</text>\n", TOP - 14, unit);
}

static void draw_line(FILE *f, const struct shown *shown, const char *color,
                      const struct perf_result *r, size_t n, const struct axis *x,
                      const struct axis *y) {
    fprintf(f, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"2\" d=\"", color);
    const char *step = "M";
    for (size_t i = 0; i < n; i++) {
        if (!(shown->value(&r[i]) > 0)) continue;
        fprintf(f, "%s%.1f %.1f", step, place_plot(x, r[i].size ? (double)r[i].size : 1),
                place_plot(y, shown->value(&r[i])));
        step = "L";
    }
    fputs("\"/>\n", f);
    for (size_t i = 0; i < n; i++) {
        double value = shown->value(&r[i]);
        if (!(value > 0)) continue;
        fprintf(f,
                "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"><title>%zu B: %.4g "
                "%s</title></circle>\n",
                place_plot(x, r[i].size ? (double)r[i].size : 1), place_plot(y, value), color,
                r[i].size, value, shown->unit);
    }
}

static void stretch(struct axis *a, double value) {
    if (!(value > 0)) return;
    double at = log10(value);
    if (at < a->lo) a->lo = at;
    if (at > a->hi) a->hi = at;
}

bool perf_plot(const char *file, const struct perf_result *r, size_t n) {
    static const char *const colors[] = {"#1565c0", "#c62828"};
    struct shown shown[2];
    struct axis x = {INFINITY, -INFINITY, LEFT, WIDTH - RIGHT},
                y = {INFINITY, -INFINITY, HEIGHT - BOTTOM, TOP};
    if (n == 0) return true;
    size_t lines = choose_plot(r[0].test, shown);
    for (size_t i = 0; i < n; i++) {
        stretch(&x, r[i].size ? (double)r[i].size : 1);
        for (size_t k = 0; k < lines; k++) stretch(&y, shown[k].value(&r[i]));
    }
    y.lo = floor(y.lo);
    y.hi = ceil(y.hi + 1e-9);

    FILE *f = fopen(file, "w");
    if (!f) {
        perror(file);
        return false;
    }
    fprintf(
        f,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d "
        "%d\">\n"
        "<style>text{font:12px sans-serif;fill:#333}.grid{stroke:#ddd}</style>\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
        "<text x=\"%d\" y=\"22\" style=\"font-size:15px\">%s over %s, %s, %u processes</text>\n",
        WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT, perf_tests[r[0].test].name, r[0].transport, r[0].mode,
        r[0].ranks);
    draw_grid(f, &x, &y, shown[0].unit);
    for (size_t k = 0; k < lines; k++) {
        draw_line(f, &shown[k], colors[k], r, n, &x, &y);
        fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\" style=\"fill:%s\">%s</text>\n",
                WIDTH - RIGHT, TOP - 14 + 16 * (int)k, colors[k], shown[k].label);
    }
    fputs("</svg>\n", f);
    bool ok = !ferror(f);
    ok &= fclose(f) == 0;
    if (!ok) perror(file);
    return ok;
}
