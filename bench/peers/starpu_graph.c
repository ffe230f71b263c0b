/*
 * starpu_graph tasks|pipeline|cholesky: what bench/graph_main.c measures, by StarPU with its
 * default scheduler. Prints NAME TAB VALUE TAB UNIT, the median of 21 runs.
 */
#include <starpu.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../cholesky.h"

enum { RUNS = 21, TASKS = 20000, STEPS = 1000 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}
static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void nothing(void *buffers[], void *arg) {}
struct step {
    int kind, row, col, k;
};
static void run_step(void *buffers[], void *arg) {
    const struct step *s = arg;
    if (s->kind == 0) cholesky_factor(s->k);
    if (s->kind == 1) cholesky_solve(s->row, s->k);
    if (s->kind == 2) cholesky_update(s->row, s->col, s->k);
}

static struct starpu_codelet empty = {.cpu_funcs = {nothing}, .nbuffers = 0};
static struct starpu_codelet on_one = {.cpu_funcs = {nothing}, .nbuffers = 1, .modes = {STARPU_RW}};
static struct starpu_codelet factor = {
    .cpu_funcs = {run_step}, .nbuffers = 1, .modes = {STARPU_RW}};
static struct starpu_codelet solve = {
    .cpu_funcs = {run_step}, .nbuffers = 2, .modes = {STARPU_RW, STARPU_R}};
static struct starpu_codelet update = {
    .cpu_funcs = {run_step}, .nbuffers = 3, .modes = {STARPU_RW, STARPU_R, STARPU_R}};

static void submit(struct starpu_task *task) {
    if (starpu_task_submit(task) != 0) exit(1);
}

static double tasks(void) {
    double begin = now();
    for (int i = 0; i < TASKS; i++) {
        struct starpu_task *task = starpu_task_create();
        task->cl = &empty;
        submit(task);
    }
    starpu_task_wait_for_all();
    return (now() - begin) / TASKS;
}

static starpu_data_handle_t handle[BLOCKS][BLOCKS];
static double pipeline(void) {
    double begin = now();
    for (int step = 0; step < STEPS; step++) {
        for (int stage = 0; stage < 3; stage++) {
            struct starpu_task *task = starpu_task_create();
            task->cl = &on_one;
            task->handles[0] = handle[0][0];
            submit(task);
        }
        starpu_task_wait_for_all();
    }
    return (now() - begin) / STEPS / 3;
}

static struct step steps[BLOCKS * BLOCKS * BLOCKS];
static int n_steps;
static void add(struct starpu_codelet *cl, struct step step, starpu_data_handle_t *handles) {
    struct starpu_task *task = starpu_task_create();
    task->cl = cl;
    steps[n_steps] = step;
    task->cl_arg = &steps[n_steps++];
    task->cl_arg_size = sizeof step;
    memcpy(task->handles, handles, (size_t)cl->nbuffers * sizeof *handles);
    submit(task);
}
static double cholesky(void) {
    cholesky_fill();
    n_steps = 0;
    double begin = now();
    for (int k = 0; k < BLOCKS; k++) {
        add(&factor, (struct step){0, k, k, k}, &handle[k][k]);
        for (int i = k + 1; i < BLOCKS; i++)
            add(&solve, (struct step){1, i, k, k},
                (starpu_data_handle_t[]){handle[i][k], handle[k][k]});
        for (int i = k + 1; i < BLOCKS; i++)
            for (int j = k + 1; j <= i; j++)
                add(&update, (struct step){2, i, j, k},
                    (starpu_data_handle_t[]){handle[i][j], handle[i][k], handle[j][k]});
    }
    starpu_task_wait_for_all();
    return (now() - begin) / 1e3;
}

int main(int argc, char **argv) {
    double sample[RUNS];
    double (*measure)(void) = argc < 2                           ? NULL
                              : strcmp(argv[1], "tasks") == 0    ? tasks
                              : strcmp(argv[1], "pipeline") == 0 ? pipeline
                              : strcmp(argv[1], "cholesky") == 0 ? cholesky
                                                                 : NULL;
    if (!measure || starpu_init(NULL) != 0) return 1;
    for (int i = 0; i < BLOCKS * BLOCKS;
         i++) /* names of the blocks; their memory is the program's */
        starpu_void_data_register(&handle[i / BLOCKS][i % BLOCKS]);
    for (int run = 0; run < RUNS; run++) sample[run] = measure();
    qsort(sample, RUNS, sizeof *sample, by_size);
    printf("%s\t%.1f\t%s\n", argv[1], sample[RUNS / 2], measure == cholesky ? "us" : "ns");
    for (int i = 0; i < BLOCKS * BLOCKS; i++)
        starpu_data_unregister(handle[i / BLOCKS][i % BLOCKS]);
    starpu_shutdown();
    return 0;
}
