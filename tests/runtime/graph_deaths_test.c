/* Task graphs over processes of which some die: what is pure runs again elsewhere. */
#include "view_processes.h"
#include <stdatomic.h>
#include <sys/mman.h>

enum { RANKS = 4, TASKS = 120, PURE = 3 };

/* Shared by the processes of a test. */
static struct shared {
    _Atomic uint32_t n_ran; /* of the tasks that count them */
    uint32_t dies_at;       /* which of those kills the process that runs it */
} * shared;
static uint32_t own_rank, victims; /* a bit each */
static bool read_in_place;         /* no result is sent, and most are transient */

static weft_status_t add(weft_task_call_t *call) {
    uint64_t sum = (uintptr_t)call->arg;
    uint32_t nth = ++shared->n_ran;
    if (victims >> own_rank & 1 && nth >= shared->dies_at) _exit(0);
    for (uint32_t i = 0; i < call->n_inputs; i++) sum += *(const uint64_t *)call->inputs[i];
    *(uint64_t *)call->result = sum;
    return WEFT_OK;
}

static uint64_t serial[TASKS];

/* The same tasks at every member: some name a rank, most have inputs. */
static void add_tasks(weft_graph_t *graph, uint32_t size, uint32_t pure) {
    uint32_t seed = 11;
    for (uint32_t i = 0; i < TASKS; i++) {
        weft_task_t inputs[3];
        uint32_t n = i ? rand_r(&seed) % 4 : 0;
        serial[i] = i;
        for (uint32_t k = 0; k < n; k++) {
            inputs[k] = rand_r(&seed) % i;
            serial[i] += serial[inputs[k]];
        }
        weft_task_params_t params = {.fn = add,
                                     .arg = (void *)(uintptr_t)i,
                                     .inputs = inputs,
                                     .n_inputs = n,
                                     .result_size = 8,
                                     .name = "adds",
                                     .transient = read_in_place && i % 4,
                                     .retries = pure,
                                     .on_rank = 1,
                                     .rank = rand_r(&seed) % size};
        CHECK_EQ(weft_graph_add(graph, &params, NULL), WEFT_OK);
    }
}

/* Every task has its result at a member that is left: they count together. */
static void check_results(weft_graph_t *graph, _Atomic uint8_t *found) {
    for (uint32_t i = 0; i < TASKS; i++) {
        const void *data;
        size_t len;
        if (weft_graph_result(graph, i, &data, &len) < 0) continue;
        CHECK(len == 8 && *(const uint64_t *)data == serial[i]);
        found[i] = 1;
    }
}

static _Atomic uint8_t *found;

static void survive(const char *store, uint32_t rank, uint32_t size) {
    weft_graph_t *graph;
    if (read_in_place) setenv("WEFT_GRAPH_INLINE", "0", 1);
    weft_view_t *view = join(store, rank, size);
    own_rank = rank;
    weft_graph_params_t params = {.n_threads = 1, .team = weft_view_team(view)};
    CHECK_EQ(weft_graph_create(&params, &graph), WEFT_OK);
    add_tasks(graph, size, PURE);
    CHECK_EQ(weft_graph_run_wait(graph), WEFT_OK);
    check_results(graph, found);
    CHECK_EQ(weft_graph_run_wait(graph), WEFT_OK); /* and again, by those that are left */
    check_results(graph, found);
    weft_graph_destroy(graph);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

static void with_deaths(uint32_t who, uint32_t at) {
    shared = mmap(NULL, sizeof *shared + TASKS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                  -1, 0);
    found = (_Atomic uint8_t *)(shared + 1);
    shared->dies_at = at;
    victims = who;
    in_processes(RANKS, survive);
    for (uint32_t i = 0; i < TASKS; i++) CHECK(found[i] || (read_in_place && i % 4));
    munmap(shared, sizeof *shared + TASKS);
}

TEST(pure_tasks_of_a_process_that_dies_run_elsewhere) {
    static const uint32_t at[] = {1, 17, 60, 100};
    for (uint32_t i = 0; i < 4; i++) with_deaths(1u << i, at[i]);
}

TEST(two_of_four_die) {
    with_deaths(1u << 1 | 1u << 3, 30);
}

TEST(one_is_left_and_does_all) {
    with_deaths(1u << 1 | 1u << 2 | 1u << 3, 25);
}

TEST(results_that_lay_in_a_process_that_dies_are_made_again) {
    static const uint32_t at[] = {5, 40, 90};
    read_in_place = true;
    for (uint32_t i = 0; i < 3; i++) with_deaths(1u << (i + 1), at[i]);
    with_deaths(1u << 0 | 1u << 2, 60);
    read_in_place = false;
}

/* ---- two graphs of one team ------------------------------------------------------------------ */

static void note_end(weft_status_t status, void *arg) {
    *(weft_status_t *)arg = status;
}

/* Their tasks end in another order at each member, and a process dies in one of them. */
static void survive_twice(const char *store, uint32_t rank, uint32_t size) {
    weft_graph_t *graph[2];
    weft_status_t outcome[2] = {WEFT_IN_PROGRESS, WEFT_IN_PROGRESS};
    weft_view_t *view = join(store, rank, size);
    weft_worker_t *worker = weft_view_worker(view);
    own_rank = rank;
    for (int i = 0; i < 2; i++) {
        weft_graph_params_t params = {.n_threads = 1, .team = weft_view_team(view)};
        CHECK_EQ(weft_graph_create(&params, &graph[i]), WEFT_OK);
        add_tasks(graph[i], size, PURE);
    }
    for (int again = 0; again < 2; again++) {
        for (int i = 0; i < 2; i++) {
            outcome[i] = WEFT_IN_PROGRESS;
            CHECK_EQ(weft_graph_run(graph[i], worker, note_end, &outcome[i]), WEFT_IN_PROGRESS);
        }
        while (outcome[0] == WEFT_IN_PROGRESS || outcome[1] == WEFT_IN_PROGRESS)
            weft_worker_wait(worker, 100);
        for (int i = 0; i < 2; i++) {
            CHECK_EQ(outcome[i], WEFT_OK);
            check_results(graph[i], found + i * TASKS);
        }
    }
    for (int i = 0; i < 2; i++) weft_graph_destroy(graph[i]);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

static void two_graphs(uint32_t who, uint32_t at) {
    size_t bytes = sizeof *shared + (size_t)2 * TASKS;
    shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    found = (_Atomic uint8_t *)(shared + 1);
    shared->dies_at = at;
    victims = who;
    in_processes(RANKS, survive_twice);
    for (uint32_t i = 0; i < 2 * TASKS; i++) CHECK(found[i]);
    munmap(shared, bytes);
}

TEST(two_graphs_of_one_team_run_at_once) {
    two_graphs(0, 0);
}

TEST(two_graphs_of_one_team_recover_at_once) {
    static const uint32_t at[] = {1, 50, 150, 230};
    for (uint32_t i = 0; i < 4; i++) two_graphs(1u << i, at[i]);
    two_graphs(1u << 0 | 1u << 2, 100);
}

static void end_by_name(const char *store, uint32_t rank, uint32_t size) {
    weft_graph_t *graph;
    const char *name = NULL;
    weft_status_t status = WEFT_OK;
    weft_task_t first = 0;
    weft_view_t *view = join(store, rank, size);
    own_rank = rank;
    weft_graph_params_t params = {.n_threads = 1, .team = weft_view_team(view)};
    CHECK_EQ(weft_graph_create(&params, &graph), WEFT_OK);
    weft_task_params_t writes = {
        .fn = add, .result_size = 8, .name = "writes a file", .on_rank = 1, .rank = 1};
    CHECK_EQ(weft_graph_add(graph, &writes, NULL), WEFT_OK);
    weft_task_params_t reads = {.fn = add,
                                .inputs = &first,
                                .n_inputs = 1,
                                .result_size = 8,
                                .retries = PURE,
                                .on_rank = 1,
                                .rank = 2};
    CHECK_EQ(weft_graph_add(graph, &reads, NULL), WEFT_OK);
    weft_status_t st = weft_graph_run_wait(graph);
    CHECK(st == WEFT_ERR_PEER_FAILED);
    CHECK_EQ(weft_graph_failed(graph, &name, &status), 0);
    CHECK(strcmp(name, "writes a file") == 0 && status == WEFT_ERR_PEER_FAILED);
    weft_graph_destroy(graph);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(a_task_that_is_not_pure_ends_the_run_by_its_name) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared->dies_at = 1;
    victims = 1u << 1;
    in_processes(3, end_by_name);
}

static weft_status_t never(weft_task_call_t *call) {
    return call->gpu == WEFT_NO_GPU ? WEFT_OK : WEFT_ERR_INTERNAL;
}

/* Rank 1 alone has a GPU, and dies. `gpu_use` decides whether another takes its task over. */
static int gpu_use;
static void lose_the_gpu(const char *store, uint32_t rank, uint32_t size) {
    weft_graph_t *graph;
    const char *name = NULL;
    weft_task_t first = 0;
    weft_view_t *view = join(store, rank, size);
    own_rank = rank;
    weft_graph_params_t params = {
        .n_threads = 1, .team = weft_view_team(view), .n_gpus = rank == 1};
    CHECK_EQ(weft_graph_create(&params, &graph), WEFT_OK);
    weft_task_params_t dies = {
        .fn = add, .result_size = 8, .retries = PURE, .on_rank = 1, .rank = 1};
    CHECK_EQ(weft_graph_add(graph, &dies, NULL), WEFT_OK);
    weft_task_params_t wishes = dies;
    wishes.fn = never;
    wishes.inputs = &first;
    wishes.n_inputs = 1;
    wishes.on_gpu = gpu_use;
    wishes.name = "on a GPU";
    CHECK_EQ(weft_graph_add(graph, &wishes, NULL), WEFT_OK);
    bool may = gpu_use == WEFT_GPU_PREFERRED;
    CHECK_EQ(weft_graph_run_wait(graph), may ? WEFT_OK : WEFT_ERR_NOT_FOUND);
    CHECK_EQ(weft_graph_failed(graph, &name, NULL), may ? WEFT_NO_TASK : 1);
    CHECK(may || strcmp(name, "on a GPU") == 0);
    weft_graph_destroy(graph);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(a_task_that_needs_the_gpu_of_a_lost_member_ends_the_run_by_its_name) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared->dies_at = 1;
    victims = 1u << 1;
    for (gpu_use = WEFT_GPU_REQUIRED; gpu_use <= WEFT_GPU_PREFERRED; gpu_use++) {
        atomic_store(&shared->n_ran, 0);
        in_processes(3, lose_the_gpu);
    }
}
