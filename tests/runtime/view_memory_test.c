/* One allocation fails in the life of a view, and of a graph: each in turn. What was asked for ends
 * as NO_MEMORY or well, and nothing is left. */
#include "view_processes.h"
#include <base/alloc.h>
#include <tests/support/descriptors.h>
#include <weft/graph.h>
#include <weft/logger.h>

/* What is done while an allocation fails. */
typedef void (*life_fn)(weft_worker_t *worker, const char *store);

static bool is_fair(weft_status_t st) {
    return st == WEFT_OK || st == WEFT_ERR_NO_MEMORY;
}

/* Each allocation of it fails once. */
static void each_allocation_fails(life_fn live) {
    weft_context_t *context;
    weft_worker_t *worker;
    char store[64];
    int reserved = store_address(store);
    uint64_t n = 0;
    CHECK_EQ(weft_context_create(NULL, &context), WEFT_OK);
    CHECK_EQ(weft_worker_create(context, NULL, &worker), WEFT_OK);
    live(worker, store); /* what is made once and kept is there */
    weft_worker_wait(worker, 1);
    talloc_enable_null_tracking();
    size_t of_worker = talloc_total_blocks(worker), of_none = talloc_total_blocks(NULL);
    int descriptors = n_descriptors();
    for (bool failed = true; failed;) {
        weft__alloc_fail_at(++n);
        live(worker, store);
        failed = weft__alloc_fail_at(0) >= n;
        weft_worker_wait(worker, 1); /* what is freed later */
        CHECK(talloc_total_blocks(worker) <= of_worker);
        CHECK(talloc_total_blocks(NULL) <= of_none);
        CHECK_EQ(n_descriptors(), descriptors);
    }
    talloc_disable_null_tracking();
    printf("  %d allocations\n", (int)n - 1);
    CHECK(n > 5);
    weft_worker_destroy(worker);
    CHECK_EQ(weft_context_destroy(context), WEFT_OK);
    close(reserved);
}

/* ---- a view and what it has ------------------------------------------------------------------ */

static weft_status_t nothing(weft_finalizer_t *finalizer, void *arg) {
    ++*(int *)arg;
    return WEFT_OK;
}

static size_t number_size(const void *object, void *arg) {
    return sizeof(int);
}
static void number_pack(const void *object, void *bytes, void *arg) {
    memcpy(bytes, object, sizeof(int));
}
static weft_status_t number_unpack(void *object, const void *bytes, size_t len, void *arg) {
    if (len != sizeof(int)) return WEFT_ERR_PROTOCOL;
    memcpy(object, bytes, sizeof(int));
    return WEFT_OK;
}
static const weft_serializer_t number = {number_size, number_pack, number_unpack, NULL};

static void use_view(weft_view_t *view) {
    int mine = 7, got = 0, n_finalized = 0;
    void *objects[] = {&got};
    const weft_resource_set_t *set = NULL;
    weft_blocks_t *blocks = NULL;
    weft_logger_t *logger = NULL;
    weft_view_t *part = NULL;
    weft_status_t pushed = weft_view_push_finalizer(view, nothing, &n_finalized, NULL, NULL);
    CHECK(is_fair(pushed));
    CHECK(is_fair(weft_logger_create(
        view, &(weft_logger_params_t){.scope = WEFT_LOGGER_PROCESS, .sink = WEFT_LOGGER_STDOUT},
        &logger)));
    weft_logger_destroy(logger);
    CHECK(is_fair(weft_view_at_wait(view, 0, false, &set)));
    weft_status_t st = weft_view_gatherv_wait(view, NULL, &mine, sizeof mine, &blocks);
    CHECK(st < 0 || *(const int *)blocks->data[0] == 7);
    weft_blocks_free(blocks);
    if (st == WEFT_OK) {
        st = weft_view_gather_objects_wait(view, NULL, &number, &mine, objects);
        CHECK(st < 0 || got == 7);
    }
    if (st == WEFT_OK) st = weft_view_partition_wait(view, WEFT_BY_HOST, &part);
    if (st == WEFT_OK) {
        CHECK_EQ(weft_view_size(part), 1);
        CHECK_EQ(weft_view_release_wait(part), WEFT_OK);
    }
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
    CHECK_EQ(n_finalized, pushed == WEFT_OK);
}

static void live_as(weft_worker_t *worker, const char *engine, const char *store) {
    weft_view_t *view = NULL;
    weft_view_params_t params = {
        .worker = worker, .engine = engine, .store = store, .size = 1, .deadline_ms = 20000};
    weft_status_t st = weft_view_create_wait(&params, &view);
    if (st == WEFT_OK) use_view(view);
}

static void live_alone(weft_worker_t *worker, const char *store) {
    live_as(worker, "single", NULL);
}
static void live_at_a_store(weft_worker_t *worker, const char *store) {
    live_as(worker, "store", store);
}

TEST(a_view_of_one_survives_each_allocation_that_fails) {
    each_allocation_fails(live_alone);
}
TEST(a_view_at_its_own_store_survives_each_allocation_that_fails) {
    each_allocation_fails(live_at_a_store);
}

/* ---- a graph --------------------------------------------------------------------------------- */

static weft_status_t make_one(weft_task_call_t *call) {
    *(uint64_t *)call->result = 1 + (call->n_inputs ? *(const uint64_t *)call->inputs[0] : 0);
    return WEFT_OK;
}

static void use_graph(weft_graph_t *graph, size_t result_size) {
    weft_task_t first, second, path[2];
    weft_task_params_t params = {
        .fn = make_one, .result_size = result_size, .name = "one", .retries = 1, .transient = 1};
    const void *data = NULL;
    size_t len;
    uint64_t ns;
    uint32_t n = 2;
    weft_status_t st = weft_graph_add(graph, &params, &first);
    params.inputs = &first, params.n_inputs = 1;
    if (st == WEFT_OK) st = weft_graph_add(graph, &params, &second);
    CHECK(is_fair(st));
    if (st < 0) return;
    st = weft_graph_run_wait(graph);
    CHECK(is_fair(st));
    if (st < 0) st = weft_graph_run_wait(graph);
    CHECK_EQ(st, WEFT_OK);
    CHECK_EQ(weft_graph_result(graph, second, &data, &len), WEFT_OK);
    CHECK_EQ(*(const uint64_t *)data, 2);
    CHECK(is_fair(weft_graph_critical_path(graph, path, &n, &ns)));
}

static void live_with_a_graph(weft_worker_t *worker, const char *store) {
    weft_graph_t *graph = NULL;
    weft_status_t st =
        weft_graph_create(&(weft_graph_params_t){.n_threads = 2, .trace = 1}, &graph);
    CHECK(is_fair(st));
    if (st == WEFT_OK) use_graph(graph, sizeof(uint64_t));
    weft_graph_destroy(graph);
}

/* Its results lie in a region. */
static void live_with_a_graph_of_a_team(weft_worker_t *worker, const char *store) {
    weft_graph_t *graph = NULL;
    weft_team_t *team = NULL;
    weft_status_t st = weft_team_create_wait(worker, weft_self_exchange(), &team);
    CHECK(is_fair(st));
    if (st < 0) return;
    st =
        weft_graph_create(&(weft_graph_params_t){.n_threads = 1, .trace = 1, .team = team}, &graph);
    CHECK(is_fair(st));
    if (st == WEFT_OK) use_graph(graph, 3 * 4096);
    weft_graph_destroy(graph);
    CHECK_EQ(weft_team_close_wait(team), WEFT_OK);
}

TEST(a_graph_survives_each_allocation_that_fails) {
    each_allocation_fails(live_with_a_graph);
}
TEST(a_graph_over_a_team_survives_each_allocation_that_fails) {
    each_allocation_fails(live_with_a_graph_of_a_team);
}
