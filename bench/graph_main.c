/* graph: what a task of a graph costs. Prints ns a task for 100,000 empty tasks, and for the steps
 * of a pipeline of three stages that is run again and again; medians of 21 runs. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <weft/weft.h>

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

int main(void) {
    printf("empty tasks, caller and 1 thread: %.0f ns a task\n", of_tasks(1));
    printf("empty tasks, caller and 3 threads: %.0f ns a task\n", of_tasks(3));
    printf("pipeline of 3 stages: %.0f ns a step\n", of_pipeline(1));
    return 0;
}
