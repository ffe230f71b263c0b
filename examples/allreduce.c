/* The mean of the values of all processes: `weft-run -n 4 allreduce`. Alone it is a team of 1. */
#include <stdio.h>
#include <weft/weft.h>

static int must(weft_status_t status, const char *what) {
    char text[512];
    if (status >= 0) return 1;
    weft_status_describe(status, text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
    return 0;
}

/* Here with the blocking forms; a server would give callbacks and go on with its work. */
static int mean_of_all(weft_team_t *team) {
    enum { N = 1000 };
    static double x[N];
    double size = weft_team_size(team), rank = weft_team_rank(team);
    for (int i = 0; i < N; i++) x[i] = rank + i;
    if (!must(weft_allreduce_wait(team, x, x, N, WEFT_FLOAT64, WEFT_SUM), "allreduce")) return 1;

    int wrong = 0;
    for (int i = 0; i < N; i++) wrong += x[i] != size * (size - 1) / 2 + size * i;
    if (rank == 0)
        printf("%d numbers of %g processes: mean of the first %g, %d wrong\n", N, size, x[0] / size,
               wrong);
    return wrong > 0;
}

int main(void) {
    weft_context_t *context;
    weft_worker_t *worker;
    weft_team_t *team;
    const weft_exchange_t *exchange = weft_run_exchange();
    if (!exchange) return 1;
    if (!must(weft_context_create(NULL, &context), "context")) return 1;
    if (!must(weft_worker_create(context, NULL, &worker), "worker")) return 1;
    if (!must(weft_team_create_wait(worker, exchange, &team), "team")) return 1;

    int failed = mean_of_all(team);
    if (!must(weft_barrier_wait(team), "barrier")) failed = 1;
    if (!must(weft_team_close_wait(team), "close")) failed = 1;
    weft_worker_destroy(worker);
    weft_context_destroy(context);
    return failed;
}
