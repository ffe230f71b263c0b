/* graph-cholesky [TRACE]: the Cholesky factorisation of a matrix by blocks, as a task graph. Checks
 * that L times its transpose is the matrix, and, where LAPACK is installed, that L is what its
 * dpotrf computes; prints the longest chain of tasks; writes a trace. */
#include "cholesky_check.h"

#include <math.h>
#include <stdio.h>
#include <weft/weft.h>

enum { BLOCKS = 8, B = 48, N = BLOCKS * B };
static double matrix[N][N], lower[N][N];

/* One block of work: factor, solve or update block (row, col) with column block `k`. */
struct step {
    enum { FACTOR, SOLVE, UPDATE } kind;
    int row, col, k;
};
static struct step steps[BLOCKS * BLOCKS * BLOCKS];

static void factor(int k0) {
    for (int j = k0; j < k0 + B; j++)
        for (int i = j; i < k0 + B; i++) {
            double sum = lower[i][j];
            for (int k = k0; k < j; k++) sum -= lower[i][k] * lower[j][k];
            lower[i][j] = i == j ? sqrt(sum) : sum / lower[j][j];
        }
}
static void solve(int i0, int k0) {
    for (int i = i0; i < i0 + B; i++)
        for (int j = k0; j < k0 + B; j++) {
            double sum = lower[i][j];
            for (int k = k0; k < j; k++) sum -= lower[i][k] * lower[j][k];
            lower[i][j] = sum / lower[j][j];
        }
}
static void update(int i0, int j0, int k0) {
    for (int i = i0; i < i0 + B; i++)
        for (int j = j0; j < j0 + B; j++)
            for (int k = k0; k < k0 + B; k++) lower[i][j] -= lower[i][k] * lower[j][k];
}

static weft_status_t run_step(weft_task_call_t *call) {
    const struct step *s = call->arg;
    if (s->kind == FACTOR) factor(s->k * B);
    if (s->kind == SOLVE) solve(s->row * B, s->k * B);
    if (s->kind == UPDATE) update(s->row * B, s->col * B, s->k * B);
    return WEFT_OK;
}

/* Tasks that wrote blocks so far; a step waits for those of the blocks that it uses. */
static weft_task_t writer[BLOCKS][BLOCKS];
static weft_status_t add(weft_graph_t *graph, struct step step, weft_task_t a, weft_task_t b) {
    static int n_steps;
    static const char *const names[] = {"factor", "solve", "update"};
    weft_task_t inputs[3], *own = &writer[step.row][step.col];
    uint32_t n = 0;
    if (*own != WEFT_NO_TASK) inputs[n++] = *own;
    if (a != WEFT_NO_TASK) inputs[n++] = a;
    if (b != WEFT_NO_TASK) inputs[n++] = b;
    steps[n_steps] = step;
    weft_task_params_t params = {.fn = run_step,
                                 .arg = &steps[n_steps++],
                                 .inputs = inputs,
                                 .n_inputs = n,
                                 .name = names[step.kind]};
    return weft_graph_add(graph, &params, own);
}

int main(int argc, char **argv) {
    weft_graph_t *graph;
    weft_status_t st = weft_graph_create(&(weft_graph_params_t){.trace = 1}, &graph);
    for (int i = 0; i < N; i++)
        for (int j = 0; j <= i; j++) lower[i][j] = matrix[i][j] = i == j ? N : 1.0 / (1 + i + j);
    for (int i = 0; i < BLOCKS * BLOCKS; i++) writer[i / BLOCKS][i % BLOCKS] = WEFT_NO_TASK;
    for (int k = 0; k < BLOCKS && st == WEFT_OK; k++) {
        st = add(graph, (struct step){FACTOR, k, k, k}, WEFT_NO_TASK, WEFT_NO_TASK);
        for (int i = k + 1; i < BLOCKS && st == WEFT_OK; i++)
            st = add(graph, (struct step){SOLVE, i, k, k}, writer[k][k], WEFT_NO_TASK);
        for (int i = k + 1; i < BLOCKS; i++)
            for (int j = k + 1; j <= i && st == WEFT_OK; j++)
                st = add(graph, (struct step){UPDATE, i, j, k}, writer[i][k], writer[j][k]);
    }
    if (st == WEFT_OK) st = weft_graph_run_wait(graph);
    if (st < 0) return fprintf(stderr, "graph-cholesky: %s\n", weft_status_name(st)), 1;

    double worst = largest_error(N, &lower[0][0], &matrix[0][0]);
    uint32_t n = 0;
    uint64_t ns = 0;
    (void)weft_graph_critical_path(graph, NULL, &n, &ns);
    printf("largest error %.1e, longest chain %u tasks\n", worst, n);
    double difference = difference_from_lapack(N, &lower[0][0], &matrix[0][0]);
    if (difference < 0)
        printf("LAPACK is not installed\n");
    else
        printf("largest difference from LAPACK %.1e\n", difference);
    if (argc > 1) st = weft_graph_write_trace(graph, argv[1]);
    weft_graph_destroy(graph);
    return st < 0 || worst > 1e-9 || difference > 1e-9;
}
