/*
 * The processes of a program and what each has, under any launcher: alone, under weft-run -n 4, or
 * under mpirun -n 4.
 */
#include <stdio.h>
#include <stdlib.h>
#include <weft/logger.h>
#include <weft/weft.h>

static void must(weft_status_t status, const char *what) {
    char text[512];
    if (status >= 0) return;
    weft_status_describe(status, text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
    exit(1);
}

static weft_status_t print_goodbye(weft_finalizer_t *finalizer, void *logger) {
    (void)finalizer;
    weft_logger_write(logger, WEFT_LOG_INFO, "the view ends");
    return WEFT_OK;
}

static void print_set(weft_logger_t *logger, const weft_resource_set_t *set) {
    weft_logger_write(logger, WEFT_LOG_INFO,
                      "rank %u: host %s, pid %d, %u cores, %u NUMA nodes, %.1f of %.1f GiB free, "
                      "%u GPUs, %u network devices",
                      set->rank, set->host, set->pid, set->n_cores, set->n_numa_nodes,
                      (double)set->ram_free / (1 << 30), (double)set->ram_total / (1 << 30),
                      set->n_gpus, set->n_network_devices);
}

int main(int argc, char **argv) {
    weft_view_t *view;
    weft_logger_t *logger;
    must(weft_view_create_wait(&(weft_view_params_t){.argc = &argc, .argv = &argv}, &view), "view");
    must(weft_logger_create(view, NULL, &logger), "logger");
    must(weft_view_push_finalizer(view, print_goodbye, logger, NULL, NULL), "finalizer");

    uint64_t mine = weft_view_rank(view) + 1, sum;
    weft_team_t *team = weft_view_team(view);
    must(weft_allreduce_wait(team, &mine, &sum, 1, WEFT_UINT64, WEFT_SUM), "allreduce");
    weft_logger_write(logger, WEFT_LOG_INFO, "engine %s%s, %u processes, sum %llu",
                      weft_view_engine(view), weft_view_did_start(view) ? " (started)" : "",
                      weft_view_size(view), (unsigned long long)sum);

    const weft_resource_set_t *set;
    uint32_t sharers;
    for (uint32_t rank = 0; rank < weft_view_size(view) && weft_view_rank(view) == 0; rank++) {
        must(weft_view_at_wait(view, rank, false, &set), "resource set");
        print_set(logger, set);
    }
    if (weft_view_rank(view) == 0) {
        must(weft_view_count_ram_wait(view, weft_view_mine(view), &sharers), "sharers");
        weft_logger_write(logger, WEFT_LOG_INFO, "%u processes share rank 0's memory", sharers);
    }
    must(weft_barrier_wait(team), "barrier");
    must(weft_view_release_wait(view), "release");
    weft_logger_destroy(logger);
    return 0;
}
