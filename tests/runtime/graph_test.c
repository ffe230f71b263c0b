/* Task graphs: order, results, errors, retries, cancel, threads, traces. */
#define _GNU_SOURCE
#include "../harness.h"
#include <base/status.h>
#include <locale.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <weft/weft.h>

static weft_graph_t *graph_of(uint32_t n_threads) {
    weft_graph_t *graph = NULL;
    CHECK_EQ(weft_graph_create(&(weft_graph_params_t){.n_threads = n_threads, .trace = 1}, &graph),
             WEFT_OK);
    return graph;
}

/* The sum of its inputs, and `arg`. */
static weft_status_t add(weft_task_call_t *call) {
    uint64_t sum = (uintptr_t)call->arg;
    for (uint32_t i = 0; i < call->n_inputs; i++) {
        if (call->input_lens[i] != sizeof sum) return WEFT_ERR_INTERNAL;
        sum += *(const uint64_t *)call->inputs[i];
    }
    *(uint64_t *)call->result = sum;
    return WEFT_OK;
}

static weft_task_t add_task(weft_graph_t *graph, uint64_t value, const weft_task_t *inputs,
                            uint32_t n) {
    weft_task_t task;
    weft_task_params_t params = {.fn = add,
                                 .arg = (void *)(uintptr_t)value,
                                 .inputs = inputs,
                                 .n_inputs = n,
                                 .result_size = sizeof(uint64_t)};
    CHECK_EQ(weft_graph_add(graph, &params, &task), WEFT_OK);
    return task;
}

static uint64_t result_of(weft_graph_t *graph, weft_task_t task) {
    const void *data = NULL;
    size_t len = 0;
    CHECK_EQ(weft_graph_result(graph, task, &data, &len), WEFT_OK);
    CHECK_EQ(len, sizeof(uint64_t));
    return *(const uint64_t *)data;
}

TEST(results_go_by_reference_through_a_diamond) {
    weft_graph_t *graph = graph_of(2);
    weft_task_t a = add_task(graph, 1, NULL, 0), b = add_task(graph, 2, &a, 1),
                c = add_task(graph, 3, &a, 1), d = add_task(graph, 4, (weft_task_t[]){b, c, b}, 3);
    for (int run = 0; run < 100; run++) {
        CHECK_EQ(weft_graph_run_wait(graph), WEFT_OK);
        CHECK_EQ(result_of(graph, d), 4 + 3 + 4 + 3);
    }
    weft_graph_destroy(graph);
}

TEST(a_graph_without_tasks_is_done) {
    weft_graph_t *graph = graph_of(1);
    CHECK_EQ(weft_graph_run_wait(graph), WEFT_OK);
    weft_graph_destroy(graph);
    weft_graph_destroy(NULL);
}

struct call {
    atomic_int calls;
    weft_status_t status;
    pthread_t by;
};

static void note_call(weft_status_t status, void *arg) {
    struct call *call = arg;
    call->status = status;
    call->by = pthread_self();
    atomic_fetch_add(&call->calls, 1);
}

TEST(a_graph_without_tasks_is_done_behind_the_call) {
    weft_graph_t *graph = graph_of(2);
    for (int run = 1; run <= 100; run++) {
        struct call call = {0};
        weft_status_t st;
        while ((st = weft_graph_run(graph, NULL, note_call, &call)) == WEFT_ERR_BUSY) sched_yield();
        CHECK_EQ(st, WEFT_IN_PROGRESS);
        while (!atomic_load(&call.calls)) sched_yield();
        CHECK_EQ(call.status, WEFT_OK);
        CHECK(!pthread_equal(call.by, pthread_self()));
    }
    struct call last = {0};
    CHECK_EQ(weft_graph_run(graph, NULL, note_call, &last), WEFT_IN_PROGRESS);
    weft_graph_destroy(graph);
    CHECK_EQ(atomic_load(&last.calls), 1);
}

static atomic_uint n_calls;
static weft_status_t count_call(weft_task_call_t *call) {
    atomic_fetch_add(&n_calls, 1);
    return WEFT_OK;
}

TEST(each_of_many_tasks_is_called_once) {
    enum { N = 100000 };
    weft_graph_t *graph = graph_of(3);
    atomic_store(&n_calls, 0);
    for (int i = 0; i < N; i++)
        CHECK_EQ(weft_graph_add(graph, &(weft_task_params_t){.fn = count_call}, NULL), WEFT_OK);
    for (unsigned run = 1; run <= 3; run++) {
        CHECK_EQ(weft_graph_run_wait(graph), WEFT_OK);
        CHECK_EQ(atomic_load(&n_calls), run * N);
    }
    weft_graph_destroy(graph);
}

/* A task's inputs are drawn at random from those before it. */
TEST(random_graphs_give_what_a_serial_run_gives) {
    enum { N = 400, MOST_INPUTS = 6 };
    static uint64_t expected[N];
    uint32_t seed = 1;
    for (unsigned round = 0; round < 60; round++) {
        weft_graph_t *graph = graph_of(1 + round % 4);
        for (uint32_t i = 0; i < N; i++) {
            weft_task_t inputs[MOST_INPUTS];
            uint32_t n = 0;
            expected[i] = i % 5;
            for (uint32_t k = 0; i > 0 && k < MOST_INPUTS; k++) {
                seed = seed * 1664525 + 1013904223;
                if (seed >> 16 & 1) continue;
                inputs[n] = (seed >> 17) % i;
                expected[i] += expected[inputs[n++]];
            }
            add_task(graph, i % 5, inputs, n);
        }
        for (int run = 0; run < 3; run++) {
            CHECK_EQ(weft_graph_run_wait(graph), WEFT_OK);
            for (uint32_t i = 0; i < N; i++) CHECK_EQ(result_of(graph, i), expected[i]);
        }
        weft_graph_destroy(graph);
    }
}

/* ---- errors ---------------------------------------------------------------------------------- */

static weft_status_t fail_first(weft_task_call_t *call) {
    atomic_uint *left = call->arg;
    if (atomic_load(left) == 0) return WEFT_OK;
    atomic_fetch_sub(left, 1);
    return WEFT_ERR_TRUNCATED;
}

TEST(an_error_ends_the_graph_and_names_the_task) {
    const char *name;
    const void *data;
    size_t len;
    weft_status_t status;
    weft_task_t bad, after;
    atomic_uint left = 1;
    weft_graph_t *graph = graph_of(2);
    weft_task_t first = add_task(graph, 1, NULL, 0);
    weft_task_params_t params = {
        .fn = fail_first, .arg = &left, .inputs = &first, .n_inputs = 1, .name = "the \"bad\" one"};
    CHECK_EQ(weft_graph_add(graph, &params, &bad), WEFT_OK);
    after = add_task(graph, 1, (weft_task_t[]){first, first}, 2);
    weft_task_params_t last = {
        .fn = count_call, .inputs = (weft_task_t[]){bad, after}, .n_inputs = 2};
    weft_task_t end;
    CHECK_EQ(weft_graph_add(graph, &last, &end), WEFT_OK);
    CHECK_EQ(weft_graph_run_wait(graph), WEFT_ERR_TRUNCATED);
    CHECK_EQ(weft_graph_failed(graph, &name, &status), bad);
    CHECK(name && strcmp(name, "the \"bad\" one") == 0 && status == WEFT_ERR_TRUNCATED);
    CHECK_EQ(weft_graph_result(graph, end, &data, &len), WEFT_ERR_NOT_FOUND);
    CHECK_EQ(weft_graph_result(graph, bad, &data, &len), WEFT_ERR_NOT_FOUND);
    CHECK_EQ(weft_graph_run_wait(graph), WEFT_OK); /* it fails once */
    CHECK_EQ(weft_graph_failed(graph, &name, &status), WEFT_NO_TASK);
    CHECK(!name && status == WEFT_OK);
    weft_graph_destroy(graph);
}

TEST(a_pure_task_is_called_again) {
    for (unsigned errors = 0; errors < 4; errors++) {
        atomic_uint left = errors;
        weft_graph_t *graph = graph_of(2);
        weft_task_params_t params = {.fn = fail_first, .arg = &left, .retries = 2};
        CHECK_EQ(weft_graph_add(graph, &params, NULL), WEFT_OK);
        CHECK_EQ(weft_graph_run_wait(graph), errors <= 2 ? WEFT_OK : WEFT_ERR_TRUNCATED);
        weft_graph_destroy(graph);
    }
}

static weft_graph_t *to_cancel;
static weft_status_t cancel_graph(weft_task_call_t *call) {
    weft_graph_cancel(to_cancel);
    return WEFT_OK;
}

TEST(a_cancel_skips_what_has_not_begun) {
    weft_task_t first, second;
    const void *data;
    size_t len;
    weft_graph_t *graph = to_cancel = graph_of(2);
    CHECK_EQ(weft_graph_add(graph, &(weft_task_params_t){.fn = cancel_graph}, &first), WEFT_OK);
    second = 1;
    weft_task_params_t after = {.fn = count_call, .inputs = &first, .n_inputs = 1};
    CHECK_EQ(weft_graph_add(graph, &after, &second), WEFT_OK);
    atomic_store(&n_calls, 0);
    CHECK_EQ(weft_graph_run_wait(graph), WEFT_ERR_CANCELLED);
    CHECK_EQ(atomic_load(&n_calls), 0);
    CHECK_EQ(weft_graph_failed(graph, NULL, NULL), WEFT_NO_TASK);
    CHECK_EQ(weft_graph_result(graph, first, &data, &len), WEFT_OK);
    CHECK_EQ(weft_graph_result(graph, second, &data, &len), WEFT_ERR_NOT_FOUND);
    weft_graph_cancel(graph); /* no effect */
    weft_graph_destroy(graph);
}

static weft_status_t take_50_ms(weft_task_call_t *call) {
    struct timespec time = {0, 50000000};
    nanosleep(&time, NULL);
    return WEFT_OK;
}

TEST(a_deadline_skips_what_has_not_begun) {
    weft_graph_t *graph = graph_of(1);
    const void *data;
    size_t len;
    weft_task_t first, second;
    weft_task_params_t params = {.fn = take_50_ms};
    CHECK_EQ(weft_graph_add(graph, &params, &first), WEFT_OK);
    params.inputs = &first, params.n_inputs = 1;
    CHECK_EQ(weft_graph_add(graph, &params, &second), WEFT_OK);
    CHECK_EQ(weft_graph_set_deadline(NULL, 1), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_graph_set_deadline(graph, 10), WEFT_OK);
    for (int run = 0; run < 2; run++) {
        CHECK_EQ(weft_graph_run_wait(graph), WEFT_ERR_TIMED_OUT);
        CHECK_EQ(weft_graph_result(graph, second, &data, &len), WEFT_ERR_NOT_FOUND);
        CHECK_EQ(weft_graph_failed(graph, NULL, NULL), WEFT_NO_TASK);
    }
    CHECK_EQ(weft_graph_set_deadline(graph, 0), WEFT_OK);
    CHECK_EQ(weft_graph_run_wait(graph), WEFT_OK);
    CHECK_EQ(weft_graph_result(graph, second, &data, &len), WEFT_OK);
    weft_graph_destroy(graph);
}

TEST(wrong_calls_are_refused) {
    weft_graph_t *graph = graph_of(1), *other;
    weft_task_t early = 0, bad[] = {7};
    uint64_t ns;
    uint32_t n = 0;
    const void *data;
    size_t len;
    CHECK_EQ(weft_graph_create(NULL, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_graph_create(&(weft_graph_params_t){.n_threads = 1u << 20}, &other),
             WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_graph_add(graph, &(weft_task_params_t){0}, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_graph_add(graph, &(weft_task_params_t){.function = "unknown"}, NULL),
             WEFT_ERR_NOT_FOUND);
    weft_task_params_t cycle = {.fn = add, .inputs = &early, .n_inputs = 1};
    CHECK_EQ(weft_graph_add(graph, &cycle, NULL), WEFT_ERR_INVALID_PARAM);
    weft_task_params_t beyond = {.fn = add, .inputs = bad, .n_inputs = 1};
    CHECK_EQ(weft_graph_add(graph, &beyond, NULL), WEFT_ERR_INVALID_PARAM);
    weft_task_params_t unbound = {.fn = add, .on_cpu = 1, .cpu = 0};
    CHECK_EQ(weft_graph_add(graph, &unbound, NULL), WEFT_ERR_NOT_FOUND);
    weft_task_params_t odd = {.fn = add, .on_gpu = WEFT_GPU_PREFERRED + 1};
    CHECK_EQ(weft_graph_add(graph, &odd, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_graph_create(&(weft_graph_params_t){.progress_bar = 3}, &other),
             WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_graph_result(graph, 0, &data, &len), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_graph_run(graph, NULL, NULL, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_graph_write_trace(graph, "/no-such-folder/trace"), WEFT_ERR_IO);
    CHECK_EQ(weft_graph_create(NULL, &other), WEFT_OK);
    CHECK_EQ(weft_graph_write_trace(other, "/dev/null"), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_graph_critical_path(other, NULL, &n, &ns), WEFT_ERR_UNSUPPORTED);
    weft_graph_destroy(other);
    weft_graph_destroy(graph);
}

TEST(functions_have_names) {
    weft_graph_t *graph = graph_of(1);
    CHECK_EQ(weft_graph_register("graph_test.count", count_call), WEFT_OK);
    CHECK_EQ(weft_graph_register("graph_test.count", count_call), WEFT_OK);
    CHECK_EQ(weft_graph_register("graph_test.count", add), WEFT_ERR_EXISTS);
    CHECK_EQ(weft_graph_register(NULL, add), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_graph_add(graph, &(weft_task_params_t){.function = "graph_test.count"}, NULL),
             WEFT_OK);
    atomic_store(&n_calls, 0);
    CHECK_EQ(weft_graph_run_wait(graph), WEFT_OK);
    CHECK_EQ(atomic_load(&n_calls), 1);
    weft_graph_destroy(graph);
}

/* ---- asynchronously -------------------------------------------------------------------------- */

struct end {
    atomic_int calls;
    weft_status_t status;
};
static void on_done(weft_status_t status, void *arg) {
    struct end *end = arg;
    end->status = status;
    atomic_fetch_add(&end->calls, 1);
}

static weft_status_t sleep_a_little(weft_task_call_t *call) {
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    return WEFT_OK;
}

enum { RACERS = 4, RACES = 300 };
static char race_name[RACES][16];
static pthread_barrier_t race;
static weft_status_t race_a(weft_task_call_t *call) {
    return WEFT_OK;
}
static weft_status_t race_b(weft_task_call_t *call) {
    return WEFT_ERR_IO;
}

/* How often its function got the name. */
static void *race_for_names(void *number) {
    weft_task_fn fn = (uintptr_t)number % 2 ? race_a : race_b;
    uintptr_t n = 0;
    for (int i = 0; i < RACES; i++) {
        pthread_barrier_wait(&race);
        n += weft_graph_register(race_name[i], fn) == WEFT_OK;
    }
    return (void *)n;
}

TEST(of_threads_that_register_one_name_those_of_one_function_succeed) {
    pthread_t thread[RACERS];
    uintptr_t n = 0;
    CHECK_EQ(pthread_barrier_init(&race, NULL, RACERS), 0);
    for (int i = 0; i < RACES; i++) snprintf(race_name[i], sizeof race_name[i], "race %d", i);
    for (uintptr_t i = 0; i < RACERS; i++)
        CHECK_EQ(pthread_create(&thread[i], NULL, race_for_names, (void *)i), 0);
    for (int i = 0; i < RACERS; i++) {
        void *own;
        CHECK_EQ(pthread_join(thread[i], &own), 0);
        n += (uintptr_t)own;
    }
    CHECK_EQ(n, RACES * RACERS / 2);
    pthread_barrier_destroy(&race);
}

static weft_context_t *context;
static weft_worker_t *worker;
static void open_worker(void) {
    CHECK_EQ(weft_context_create(NULL, &context), WEFT_OK);
    CHECK_EQ(weft_worker_create(context, &(weft_worker_params_t){.transports = "self"}, &worker),
             WEFT_OK);
}
static void close_worker(void) {
    weft_worker_destroy(worker);
    CHECK_EQ(weft_context_destroy(context), WEFT_OK);
}

TEST(the_end_is_reported_in_the_turn_of_a_worker) {
    struct end end = {0};
    open_worker();
    weft_graph_t *graph = graph_of(1);
    CHECK_EQ(weft_graph_add(graph, &(weft_task_params_t){.fn = sleep_a_little}, NULL), WEFT_OK);
    for (int run = 1; run <= 5; run++) {
        CHECK_EQ(weft_graph_run(graph, worker, on_done, &end), WEFT_IN_PROGRESS);
        if (atomic_load(&end.calls) < run) CHECK_EQ(atomic_load(&end.calls), run - 1);
        while (atomic_load(&end.calls) < run) weft_worker_wait(worker, 100);
        CHECK_EQ(end.status, WEFT_OK);
    }
    weft_graph_destroy(graph);
    close_worker();
}

static weft_status_t fail_always(weft_task_call_t *call) {
    return WEFT_ERR_TRUNCATED;
}
static char described[256];
static void describe_end(weft_status_t status, void *arg) {
    weft_status_describe(status, described, sizeof described);
    on_done(status, arg);
}

TEST(the_end_of_a_run_is_described_by_its_own_failure) {
    struct end end = {0};
    open_worker();
    weft_graph_t *graph = graph_of(1);
    CHECK_EQ(weft_graph_add(graph, &(weft_task_params_t){.fn = count_call}, NULL), WEFT_OK);
    CHECK_EQ(weft_graph_add(graph, &(weft_task_params_t){.fn = fail_always}, NULL), WEFT_OK);
    for (int waits = 0; waits < 2; waits++) {
        (void)weft__fail(WEFT_ERR_TRUNCATED, "an earlier failure");
        if (waits) {
            CHECK_EQ(weft_graph_run_wait(graph), WEFT_ERR_TRUNCATED);
            weft_status_describe(WEFT_ERR_TRUNCATED, described, sizeof described);
        } else {
            CHECK_EQ(weft_graph_run(graph, worker, describe_end, &end), WEFT_IN_PROGRESS);
            while (atomic_load(&end.calls) == 0) weft_worker_wait(worker, 100);
        }
        CHECK(strstr(described, "task 1") && !strstr(described, "an earlier failure"));
    }
    weft_graph_destroy(graph);
    close_worker();
}

TEST(a_graph_that_runs_is_busy_and_its_destruction_waits) {
    struct end end = {0};
    weft_graph_t *graph = graph_of(1);
    weft_task_t task = WEFT_NO_TASK;
    for (int i = 0; i < 100; i++) {
        weft_task_params_t params = {.fn = sleep_a_little, .inputs = &task, .n_inputs = i > 0};
        CHECK_EQ(weft_graph_add(graph, &params, &task), WEFT_OK);
    }
    CHECK_EQ(weft_graph_run(graph, NULL, on_done, &end), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_graph_run(graph, NULL, on_done, &end), WEFT_ERR_BUSY);
    CHECK_EQ(weft_graph_run_wait(graph), WEFT_ERR_BUSY);
    CHECK_EQ(weft_graph_add(graph, &(weft_task_params_t){.fn = add}, NULL), WEFT_ERR_BUSY);
    weft_graph_destroy(graph);
    CHECK_EQ(atomic_load(&end.calls), 1);
    CHECK_EQ(end.status, WEFT_ERR_CANCELLED);
}

/* ---- threads --------------------------------------------------------------------------------- */

static weft_status_t note_cpu(weft_task_call_t *call) {
    *(int *)call->result = sched_getcpu();
    return call->thread > 0 ? WEFT_OK : WEFT_ERR_WRONG_THREAD;
}

TEST(a_task_runs_on_the_processor_that_it_names) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CHECK_EQ(sched_getaffinity(0, sizeof cpus, &cpus), 0);
    weft_graph_t *graph = NULL;
    weft_graph_params_t pinned = {.n_threads = (uint32_t)CPU_COUNT(&cpus), .pin = 1};
    CHECK_EQ(weft_graph_create(&pinned, &graph), WEFT_OK);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        weft_task_t task;
        weft_task_params_t params = {
            .fn = note_cpu, .result_size = sizeof(int), .on_cpu = 1, .cpu = cpu};
        weft_status_t st = weft_graph_add(graph, &params, &task);
        CHECK_EQ(st, CPU_ISSET(cpu, &cpus) ? WEFT_OK : WEFT_ERR_NOT_FOUND);
        if (st < 0) continue;
        CHECK_EQ(weft_graph_run_wait(graph), WEFT_OK);
        const void *data;
        size_t len;
        CHECK_EQ(weft_graph_result(graph, task, &data, &len), WEFT_OK);
        CHECK_EQ(*(const int *)data, cpu);
    }
    weft_graph_destroy(graph);
}

struct progress {
    uint32_t last, total, calls;
    bool fell;
};
static void on_progress(uint32_t done, uint32_t total, void *arg) {
    struct progress *p = arg;
    p->fell |= done <= p->last;
    p->last = done;
    p->total = total;
    p->calls++;
}

TEST(progress_grows_and_ends_with_all) {
    enum { N = 5000 };
    struct progress p = {0};
    weft_graph_t *graph = NULL;
    weft_graph_params_t params = {.n_threads = 3, .on_progress = on_progress, .arg = &p};
    CHECK_EQ(weft_graph_create(&params, &graph), WEFT_OK);
    for (int i = 0; i < N; i++)
        CHECK_EQ(weft_graph_add(graph, &(weft_task_params_t){.fn = count_call}, NULL), WEFT_OK);
    for (int run = 0; run < 5; run++) {
        p = (struct progress){0};
        CHECK_EQ(weft_graph_run_wait(graph), WEFT_OK);
        CHECK(!p.fell && p.last == N && p.total == N && p.calls >= 1);
    }
    weft_graph_destroy(graph);
}

/* ---- traces ---------------------------------------------------------------------------------- */

/* Longer than a processor is taken away from the other task. */
static weft_status_t sleep_long(weft_task_call_t *call) {
    nanosleep(&(struct timespec){.tv_nsec = 400000000}, NULL);
    return WEFT_OK;
}

TEST(the_longest_chain_is_found) {
    weft_graph_t *graph = graph_of(2);
    weft_task_t slow, quick, end, path[3];
    uint64_t ns = 0;
    uint32_t n = 3, one = 1;
    CHECK_EQ(weft_graph_add(graph, &(weft_task_params_t){.fn = count_call}, &quick), WEFT_OK);
    CHECK_EQ(weft_graph_add(graph, &(weft_task_params_t){.fn = sleep_long}, &slow), WEFT_OK);
    weft_task_params_t last = {
        .fn = count_call, .inputs = (weft_task_t[]){quick, slow}, .n_inputs = 2};
    CHECK_EQ(weft_graph_add(graph, &last, &end), WEFT_OK);
    CHECK_EQ(weft_graph_run_wait(graph), WEFT_OK);
    CHECK_EQ(weft_graph_critical_path(graph, path, &n, &ns), WEFT_OK);
    CHECK(n == 2 && path[0] == slow && path[1] == end && ns >= 400000000);
    ns = 7;
    CHECK_EQ(weft_graph_critical_path(graph, path, &one, &ns), WEFT_ERR_TRUNCATED);
    CHECK(one == 2 && ns == 7);
    weft_graph_destroy(graph);
}

TEST(a_forked_child_gets_nothing_of_a_run) {
    weft_graph_t *graph = graph_of(1);
    uint64_t ns;
    uint32_t n = 0;
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(weft_graph_critical_path(graph, NULL, &n, &ns) != WEFT_ERR_FORKED ||
              weft_graph_write_trace(graph, "/dev/null") != WEFT_ERR_FORKED);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    weft_graph_destroy(graph);
}

TEST(a_trace_names_each_task_that_ran) {
    char path[] = "/tmp/weft-trace-XXXXXX", text[4096] = "";
    int fd = mkstemp(path);
    weft_graph_t *graph = graph_of(1);
    weft_task_params_t named = {.fn = count_call, .name = "a \"quoted\"\tname"};
    CHECK_EQ(weft_graph_add(graph, &named, NULL), WEFT_OK);
    CHECK_EQ(weft_graph_add(graph, &(weft_task_params_t){.fn = count_call}, NULL), WEFT_OK);
    CHECK_EQ(weft_graph_run_wait(graph), WEFT_OK);
    CHECK_EQ(weft_graph_write_trace(graph, path), WEFT_OK);
    CHECK(read(fd, text, sizeof text - 1) > 0);
    CHECK(strstr(text, "\"a \\\"quoted\\\"\\u0009name\"") && strstr(text, "\"task 1\""));
    CHECK(strstr(text, "{\"traceEvents\":[") == text && strstr(text, "]}\n"));
    close(fd);
    unlink(path);
    weft_graph_destroy(graph);
}

TEST(a_trace_is_the_same_in_every_locale) {
    char folder[] = "/tmp/weft-trace-XXXXXX", path[64], make[160], text[1024] = "";
    double us = -1;
    CHECK(mkdtemp(folder));
    snprintf(make, sizeof make, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1",
             folder);
    (void)!system(make);
    setenv("LOCPATH", folder, 1);
    snprintf(path, sizeof path, "%s/trace", folder);
    weft_graph_t *graph = graph_of(1);
    CHECK_EQ(weft_graph_add(graph, &(weft_task_params_t){.fn = sleep_long}, NULL), WEFT_OK);
    CHECK_EQ(weft_graph_run_wait(graph), WEFT_OK);
    bool is_there =
        setlocale(LC_NUMERIC, "de_DE.UTF-8") && strcmp(localeconv()->decimal_point, ",") == 0;
    CHECK_EQ(weft_graph_write_trace(graph, path), WEFT_OK);
    setlocale(LC_NUMERIC, "C");
    unsetenv("LOCPATH");
    weft_graph_destroy(graph);
    FILE *file = fopen(path, "r");
    CHECK(file && fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    snprintf(make, sizeof make, "rm -r %s", folder);
    CHECK_EQ(system(make), 0);
    if (!is_there) SKIP("no locale with another decimal point can be made here");
    CHECK(strstr(text, "\"ts\":0.000,"));
    CHECK_EQ(sscanf(strstr(text, "\"dur\":"), "\"dur\":%lf,\"args\"", &us), 1);
    CHECK(us >= 400000);
}

/* ---- wishes ---------------------------------------------------------------------------------- */

enum { GPUS = 2 };
static _Atomic int busy[GPUS], gpu_errors, n_on_gpu;

static weft_status_t use_gpu(weft_task_call_t *call) {
    struct timespec some = {0, 100000};
    gpu_errors += call->gpu >= GPUS || call->thread != call->gpu + 1 || busy[call->gpu]++ != 0;
    nanosleep(&some, NULL);
    busy[call->gpu]--;
    n_on_gpu++;
    return WEFT_OK;
}

TEST(a_gpu_has_one_task_at_a_time) {
    weft_graph_t *graph = NULL;
    weft_task_t task = 0;
    CHECK_EQ(weft_graph_create(&(weft_graph_params_t){.n_threads = 1, .n_gpus = GPUS}, &graph),
             WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_graph_create(&(weft_graph_params_t){.n_threads = 3, .n_gpus = GPUS}, &graph),
             WEFT_OK);
    for (int i = 0; i < 40; i++)
        CHECK_EQ(
            weft_graph_add(graph,
                           &(weft_task_params_t){
                               .fn = use_gpu, .on_gpu = 1, .inputs = &task, .n_inputs = i % 3 == 1},
                           &task),
            WEFT_OK);
    CHECK_EQ(weft_graph_run_wait(graph), WEFT_OK);
    CHECK(n_on_gpu == 40 && gpu_errors == 0);
    weft_graph_destroy(graph);
}

static _Atomic int n_on_node, on_caller;
static weft_status_t use_node(weft_task_call_t *call) {
    on_caller += call->thread == 0;
    n_on_node++;
    return WEFT_OK;
}

TEST(a_task_runs_beside_its_numa_node_or_anywhere_if_there_is_none) {
    weft_graph_t *graph = NULL;
    weft_view_t *view = NULL;
    CHECK_EQ(weft_view_create_wait(&(weft_view_params_t){.engine = "single"}, &view), WEFT_OK);
    int node = weft_view_mine(view)->numa_node;
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
    CHECK_EQ(weft_graph_create(&(weft_graph_params_t){.n_threads = 2, .pin = 1}, &graph), WEFT_OK);
    for (int i = 0; i < 40; i++)
        CHECK_EQ(weft_graph_add(graph,
                                &(weft_task_params_t){.fn = use_node, .on_node = 1, .node = node},
                                NULL),
                 WEFT_OK);
    CHECK_EQ(weft_graph_run_wait(graph), WEFT_OK);
    CHECK(n_on_node == 40 && (on_caller == 0 || node < 0)); /* the caller is bound to none */
    weft_task_params_t absent = {.fn = use_node, .on_node = 1, .node = 999};
    CHECK_EQ(weft_graph_add(graph, &absent, NULL), WEFT_OK);
    CHECK_EQ(weft_graph_run_wait(graph), WEFT_OK);
    CHECK_EQ(n_on_node, 81);
    weft_graph_destroy(graph);
}

TEST(wishes_that_cannot_be_are_refused) {
    weft_graph_t *graph = NULL;
    CHECK_EQ(weft_graph_create(NULL, &graph), WEFT_OK);
    weft_task_params_t gpu = {.fn = use_node, .on_gpu = 1};
    weft_task_params_t two = {.fn = use_node, .on_gpu = 1, .on_node = 1};
    weft_task_params_t host = {.fn = use_node, .on_host = 1};
    weft_task_params_t no_cpu = {.fn = use_node, .on_cpu = 1, .cpu = -1}; /* as of no thread */
    CHECK_EQ(weft_graph_add(graph, &gpu, NULL), WEFT_ERR_NOT_FOUND);
    CHECK_EQ(weft_graph_add(graph, &two, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_graph_add(graph, &host, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_graph_add(graph, &no_cpu, NULL), WEFT_ERR_NOT_FOUND);
    weft_graph_destroy(graph);
}
