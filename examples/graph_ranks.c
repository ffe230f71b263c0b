/*
 * A task graph over all processes of a program: each integrates a strip of 4 / (1 + x^2) from 0 to
 * 1, and tasks in pairs add the strips up. Alone, or under weft-run -n 4 or mpirun.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <weft/weft.h>

enum { STRIPS = 32, POINTS = 200000 };

static void must(weft_status_t status, const char *what) {
    char text[512];
    if (status >= 0) return;
    weft_status_describe(status, text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
    exit(1);
}

static weft_status_t integrate(weft_task_call_t *call) {
    double sum = 0, width = 1.0 / STRIPS / POINTS;
    double from = (double)(uintptr_t)call->arg / STRIPS;
    for (int i = 0; i < POINTS; i++) {
        double x = from + (i + 0.5) * width;
        sum += 4 / (1 + x * x) * width;
    }
    *(double *)call->result = sum;
    return WEFT_OK;
}

/* The results of its inputs lie here, whichever rank made them. */
static weft_status_t add(weft_task_call_t *call) {
    *(double *)call->result = *(const double *)call->inputs[0] + *(const double *)call->inputs[1];
    return WEFT_OK;
}

/* The same tasks at every process. */
static weft_task_t add_tasks(weft_graph_t *graph, uint32_t size) {
    weft_task_t row[STRIPS];
    for (uint32_t i = 0; i < STRIPS; i++)
        must(weft_graph_add(graph,
                            &(weft_task_params_t){.fn = integrate,
                                                  .arg = (void *)(uintptr_t)i,
                                                  .result_size = sizeof(double),
                                                  .on_rank = 1,
                                                  .rank = i % size},
                            &row[i]),
             "task");
    for (uint32_t n = STRIPS; n > 1; n /= 2)
        for (uint32_t i = 0; i < n / 2; i++) {
            weft_task_t pair[2] = {row[2 * i], row[2 * i + 1]};
            must(weft_graph_add(graph,
                                &(weft_task_params_t){.fn = add,
                                                      .inputs = pair,
                                                      .n_inputs = 2,
                                                      .result_size = sizeof(double),
                                                      .on_rank = n == 2},
                                &row[i]),
                 "task");
        }
    return row[0];
}

int main(int argc, char **argv) {
    weft_view_t *view;
    weft_graph_t *graph;
    must(weft_view_create_wait(&(weft_view_params_t){.argc = &argc, .argv = &argv}, &view), "view");
    uint32_t size = weft_view_size(view);
    must(weft_graph_create(&(weft_graph_params_t){.team = weft_view_team(view)}, &graph), "graph");
    weft_task_t last = add_tasks(graph, size);
    must(weft_graph_run_wait(graph), "run");
    if (weft_view_rank(view) == 0) { /* the last addition has .rank = 0 */
        const void *pi;
        size_t len;
        must(weft_graph_result(graph, last, &pi, &len), "result");
        printf("pi is %.10f, by %u processes\n", *(const double *)pi, size);
        if (fabs(*(const double *)pi - 3.14159265358979) > 1e-9) return 1;
    }
    weft_graph_destroy(graph);
    must(weft_view_release_wait(view), "release");
    return 0;
}
