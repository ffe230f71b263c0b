/* Tasks that need several cores: they have as many threads of the graph to themselves. */
#include "../harness.h"
#include <stdatomic.h>
#include <time.h>
#include <weft/graph.h>

enum { THREADS = 4 };

/* How many threads are taken now: those that run, and those that are reserved. */
static atomic_uint taken, most_taken, n_wide;

static void nap(void) {
    struct timespec us = {0, 200000};
    nanosleep(&us, NULL);
}

static weft_status_t use(weft_task_call_t *call) {
    unsigned now = atomic_fetch_add(&taken, call->n_cores) + call->n_cores;
    unsigned most = atomic_load(&most_taken);
    while (now > most && !atomic_compare_exchange_weak(&most_taken, &most, now)) {
    }
    if (call->n_cores > 1) atomic_fetch_add(&n_wide, 1);
    nap();
    atomic_fetch_sub(&taken, call->n_cores);
    return call->n_cores == (uintptr_t)call->arg ? WEFT_OK : WEFT_ERR_INTERNAL;
}

static weft_graph_t *graph_of(uint32_t n_threads, int pin) {
    weft_graph_t *graph;
    weft_graph_params_t params = {.n_threads = n_threads, .pin = pin};
    CHECK_EQ(weft_graph_create(&params, &graph), WEFT_OK);
    return graph;
}

static void note_end(weft_status_t status, void *arg) {
    atomic_store((atomic_int *)arg, status);
}

/* Without the caller's thread, so that only the graph's own run tasks. */
static weft_status_t run_by_own_threads(weft_graph_t *graph) {
    atomic_int outcome = WEFT_IN_PROGRESS;
    CHECK_EQ(weft_graph_run(graph, NULL, note_end, &outcome), WEFT_IN_PROGRESS);
    while (atomic_load(&outcome) == WEFT_IN_PROGRESS) nap();
    return (weft_status_t)atomic_load(&outcome);
}

TEST(a_task_has_as_many_threads_to_itself_as_it_wants) {
    static const uint32_t cores[] = {1, 2, 3, 4, 2, 1, 4, 1};
    weft_graph_t *graph = graph_of(THREADS, 0);
    for (uint32_t i = 0; i < 160; i++) {
        uintptr_t n = cores[i % 8];
        weft_task_params_t params = {.fn = use, .arg = (void *)n, .cores = (uint32_t)n};
        CHECK_EQ(weft_graph_add(graph, &params, NULL), WEFT_OK);
    }
    for (int again = 0; again < 3; again++) {
        atomic_store(&n_wide, 0);
        atomic_store(&most_taken, 0);
        CHECK_EQ(run_by_own_threads(graph), WEFT_OK);
        CHECK(atomic_load(&most_taken) == THREADS); /* never more than there are */
        CHECK_EQ(atomic_load(&n_wide), 160 / 8 * 5);
    }
    CHECK_EQ(weft_graph_run_wait(graph), WEFT_OK); /* the caller runs the narrow ones, too */
    weft_graph_destroy(graph);
}

static weft_status_t check_cpus(weft_task_call_t *call) {
    for (uint32_t i = 0; i < call->n_cores; i++)
        if (call->cpus[i] < 0) return WEFT_ERR_INTERNAL;
    return call->n_cores == 2 ? WEFT_OK : WEFT_ERR_INTERNAL;
}

TEST(a_task_knows_the_processors_of_its_threads) {
    weft_graph_t *graph = graph_of(2, 1);
    weft_task_params_t params = {.fn = check_cpus, .cores = 2};
    CHECK_EQ(weft_graph_add(graph, &params, NULL), WEFT_OK);
    CHECK_EQ(weft_graph_run_wait(graph), WEFT_OK);
    weft_graph_destroy(graph);
}

static weft_status_t fail_once(weft_task_call_t *call) {
    int *calls = call->arg;
    return ++*calls == 1 ? WEFT_ERR_IO : WEFT_OK;
}

TEST(threads_are_free_again_after_an_error_and_a_cancel) {
    weft_graph_t *graph = graph_of(THREADS, 0);
    int calls = 0;
    weft_task_params_t fails = {.fn = fail_once, .arg = &calls, .cores = THREADS, .retries = 1};
    CHECK_EQ(weft_graph_add(graph, &fails, NULL), WEFT_OK);
    for (uint32_t i = 0; i < 40; i++) {
        weft_task_params_t params = {.fn = use, .arg = (void *)3, .cores = 3};
        CHECK_EQ(weft_graph_add(graph, &params, NULL), WEFT_OK);
    }
    CHECK_EQ(run_by_own_threads(graph), WEFT_OK); /* called again, with all its threads */
    CHECK_EQ(calls, 2);
    calls = -1;
    atomic_int outcome = WEFT_IN_PROGRESS;
    CHECK_EQ(weft_graph_run(graph, NULL, note_end, &outcome), WEFT_IN_PROGRESS);
    weft_graph_cancel(graph);
    while (atomic_load(&outcome) == WEFT_IN_PROGRESS) nap();
    CHECK_EQ(atomic_load(&outcome), WEFT_ERR_CANCELLED);
    calls = 1;
    CHECK_EQ(run_by_own_threads(graph), WEFT_OK);
    weft_graph_destroy(graph);
}

TEST(more_cores_than_threads_are_refused) {
    weft_graph_t *graph = graph_of(2, 1);
    weft_task_params_t many = {.fn = use, .cores = 3};
    weft_task_params_t both = {.fn = use, .cores = 2, .on_cpu = 1};
    CHECK_EQ(weft_graph_add(graph, &many, NULL), WEFT_ERR_NOT_FOUND);
    CHECK_EQ(weft_graph_add(graph, &both, NULL), WEFT_ERR_INVALID_PARAM);
    weft_graph_destroy(graph);
}
