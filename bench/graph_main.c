/*
 * graph: what a task of a graph costs. Prints ns a task for 100,000 empty tasks, and for the steps
 * of a pipeline of three stages that is run again and again; medians of 21 runs.
 * graph tasks|pipeline|cholesky|cholesky_serial: one of them, as NAME TAB VALUE TAB UNIT; the last
 * two are a factorisation by blocks, in us, and the same steps one after the other.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <weft/weft.h>

#include "cholesky.h"

enum { RUNS = 21, TASKS = 100000, STEPS = 3000 };

static weft_status_t nothing(weft_task_call_t *call) {
    return WEFT_OK;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(double *samples) {
    qsort(samples, RUNS, sizeof *samples, by_size);
    return samples[RUNS / 2];
}

static void must(weft_status_t status) {
    if (status >= 0) return;
    fprintf(stderr, "graph: %s\n", weft_status_name(status));
    exit(1);
}

static double of_tasks(uint32_t n_threads) {
    double ns[RUNS];
    weft_graph_t *graph;
    must(weft_graph_create(&(weft_graph_params_t){.n_threads = n_threads}, &graph));
    for (int i = 0; i < TASKS; i++)
        must(weft_graph_add(graph, &(weft_task_params_t){.fn = nothing}, NULL));
    for (int run = 0; run < RUNS; run++) {
        double begin = now();
        must(weft_graph_run_wait(graph));
        ns[run] = (now() - begin) / TASKS;
    }
    weft_graph_destroy(graph);
    return median(ns);
}

static double of_pipeline(uint32_t n_threads) {
    enum { STAGES = 3 };
    double ns[RUNS];
    weft_graph_t *graph;
    weft_task_t task = WEFT_NO_TASK;
    must(weft_graph_create(&(weft_graph_params_t){.n_threads = n_threads}, &graph));
    for (int i = 0; i < STAGES; i++) {
        weft_task_params_t params = {.fn = nothing, .inputs = &task, .n_inputs = i > 0};
        must(weft_graph_add(graph, &params, &task));
    }
    for (int run = 0; run < RUNS; run++) {
        double begin = now();
        for (int step = 0; step < STEPS; step++) must(weft_graph_run_wait(graph));
        ns[run] = (now() - begin) / STEPS / STAGES;
    }
    weft_graph_destroy(graph);
    return median(ns);
}

/* ---- a factorisation ------------------------------------------------------------------------- */

struct step {
    enum { FACTOR, SOLVE, UPDATE } kind;
    int row, col, k;
};
static struct step steps[BLOCKS * BLOCKS * BLOCKS];
static uint32_t n_steps;
static weft_task_t writer[BLOCKS][BLOCKS]; /* that wrote the block last */

static weft_status_t run_step(weft_task_call_t *call) {
    const struct step *s = call->arg;
    if (s->kind == FACTOR) cholesky_factor(s->k);
    if (s->kind == SOLVE) cholesky_solve(s->row, s->k);
    if (s->kind == UPDATE) cholesky_update(s->row, s->col, s->k);
    return WEFT_OK;
}

static void add(weft_graph_t *graph, struct step step, weft_task_t a, weft_task_t b) {
    weft_task_t all[3] = {writer[step.row][step.col], a, b}, inputs[3];
    weft_task_params_t params = {.fn = run_step, .arg = &steps[n_steps], .inputs = inputs};
    for (int i = 0; i < 3; i++)
        if (all[i] != WEFT_NO_TASK) inputs[params.n_inputs++] = all[i];
    steps[n_steps++] = step;
    must(weft_graph_add(graph, &params, &writer[step.row][step.col]));
}

static double of_cholesky(uint32_t n_threads) {
    double us[RUNS];
    weft_graph_t *graph;
    must(weft_graph_create(&(weft_graph_params_t){.n_threads = n_threads}, &graph));
    memset(writer, 0xff, sizeof writer);
    for (int k = 0; k < BLOCKS; k++) {
        add(graph, (struct step){FACTOR, k, k, k}, WEFT_NO_TASK, WEFT_NO_TASK);
        for (int i = k + 1; i < BLOCKS; i++)
            add(graph, (struct step){SOLVE, i, k, k}, writer[k][k], WEFT_NO_TASK);
        for (int i = k + 1; i < BLOCKS; i++)
            for (int j = k + 1; j <= i; j++)
                add(graph, (struct step){UPDATE, i, j, k}, writer[i][k], writer[j][k]);
    }
    for (int run = 0; run < RUNS; run++) {
        cholesky_fill();
        double begin = now();
        must(weft_graph_run_wait(graph));
        us[run] = (now() - begin) / 1e3;
    }
    weft_graph_destroy(graph);
    return median(us);
}

static double of_cholesky_serial(void) {
    double us[RUNS];
    for (int run = 0; run < RUNS; run++) {
        cholesky_fill();
        double begin = now();
        cholesky_serial();
        us[run] = (now() - begin) / 1e3;
    }
    return median(us);
}

static int print_one(const char *what) {
    bool in_us = strncmp(what, "cholesky", 8) == 0;
    double value = strcmp(what, "tasks") == 0             ? of_tasks(1)
                   : strcmp(what, "pipeline") == 0        ? of_pipeline(1)
                   : strcmp(what, "cholesky") == 0        ? of_cholesky(1)
                   : strcmp(what, "cholesky_serial") == 0 ? of_cholesky_serial()
                                                          : -1;
    printf("%s\t%.1f\t%s\n", what, value, in_us ? "us" : "ns");
    return value < 0;
}

int main(int argc, char **argv) {
    if (argc > 1) return print_one(argv[1]);
    printf("empty tasks, caller and 1 thread: %.0f ns a task\n", of_tasks(1));
    printf("empty tasks, caller and 3 threads: %.0f ns a task\n", of_tasks(3));
    printf("pipeline of 3 stages: %.0f ns a step\n", of_pipeline(1));
    return 0;
}
