/* Views of processes with a GPU, which is a double: sets, sharers, parts, and operations rooted on
 * device memory. */
#include <tests/cuda/device.h>
#include <tests/runtime/view_processes.h>

enum { COUNT = 5000 };

static const weft_resource_set_t *set_of(weft_view_t *view, uint32_t rank) {
    const weft_resource_set_t *set = NULL;
    CHECK_EQ(weft_view_at_wait(view, rank, false, &set), WEFT_OK);
    return set;
}

static void look_at_gpus(const char *store, uint32_t rank, uint32_t size) {
    weft_view_t *part = NULL;
    uint32_t sharers = 0;
    if (rank > 0) gpu_load(); /* rank 0 has none */
    weft_view_t *view = join(store, rank, size);
    const weft_resource_set_t *first = set_of(view, 0), *last = set_of(view, size - 1);
    if (first->n_gpus > 0) SKIP("only the double of the CUDA driver fails at will");
    CHECK(last->n_gpus >= 1);
    CHECK(strcmp(last->gpu[0].name, "a double") == 0 && last->gpu[0].memory > 0);
    CHECK_EQ(weft_view_count_gpu_wait(view, last, 0, &sharers), WEFT_OK);
    CHECK_EQ(sharers, size - 1);
    CHECK_EQ(weft_view_count_gpu_wait(view, first, 0, &sharers), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_view_partition_wait(view, WEFT_BY_GPU, &part), WEFT_OK);
    CHECK_EQ(weft_view_size(part), rank > 0 ? size - 1 : 0);
    CHECK_EQ(weft_view_release_wait(part), WEFT_OK);
    CHECK_EQ(weft_view_barrier_wait(view), WEFT_OK);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(processes_that_share_a_gpu_are_counted) {
    in_processes(3, look_at_gpus);
}

/* Rank 0 has no GPU; ranks 1 and 4 see GPU 0 first, ranks 2 and 3 GPU 1. A part per GPU. */
static void part_by_gpus(const char *store, uint32_t rank, uint32_t size) {
    static const int first[] = {-1, 0, 1, 1, 0};
    weft_view_t *part = NULL;
    uint32_t ranks[2] = {0}, sharers = 0;
    if (first[rank] >= 0) gpu_load();
    if (first[rank] > 0)
        *(unsigned *)gpu_symbol(RTLD_DEFAULT, "double_first_device") = (unsigned)first[rank];
    weft_view_t *view = join(store, rank, size);
    const weft_resource_set_t *mine = set_of(view, rank);
    CHECK_EQ(mine->n_gpus, first[rank] < 0 ? 0 : 2);
    CHECK_EQ(weft_view_partition_wait(view, WEFT_BY_GPU, &part), WEFT_OK);
    if (rank == 0) CHECK(part == NULL);
    if (rank > 0) {
        CHECK_EQ(weft_view_size(part), 2);
        CHECK_EQ(weft_view_gather_wait(part, NULL, &rank, sizeof rank, ranks), WEFT_OK);
        CHECK(first[ranks[0]] == first[rank] && first[ranks[1]] == first[rank]);
        CHECK(ranks[0] < ranks[1] && ranks[weft_view_rank(part)] == rank);
        /* every process sees both */
        CHECK_EQ(weft_view_count_gpu_wait(view, mine, 0, &sharers), WEFT_OK);
        CHECK_EQ(sharers, 4);
    }
    CHECK_EQ(weft_view_release_wait(part), WEFT_OK);
    CHECK_EQ(weft_view_barrier_wait(view), WEFT_OK);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(parts_by_gpu_are_the_processes_whose_first_gpu_is_the_same) {
    const char *which = getenv("WEFT_TEST_CUDA");
    if (which && strcmp(which, "driver") == 0)
        SKIP("only the double of the CUDA driver fails at will");
    in_processes(5, part_by_gpus);
}

/* ---- a graph --------------------------------------------------------------------------------- */

enum { SUMS = 6 };

/* Adds up COUNT numbers that go through device memory, if it has a GPU. */
static weft_status_t add_up(weft_task_call_t *call) {
    static __thread int32_t numbers[COUNT];
    int64_t sum = 0;
    for (int i = 0; i < COUNT; i++) numbers[i] = i + (int32_t)(intptr_t)call->arg;
    if (call->gpu != WEFT_NO_GPU) {
        void *device = gpu.alloc(gpu.context, sizeof numbers, false);
        if (!device) return WEFT_ERR_NO_MEMORY;
        gpu.write(device, numbers, sizeof numbers);
        memset(numbers, 0, sizeof numbers);
        gpu.read(numbers, device, sizeof numbers);
        gpu.release(device);
    }
    for (int i = 0; i < COUNT; i++) sum += numbers[i];
    ((int64_t *)call->result)[0] = sum;
    ((int64_t *)call->result)[1] = call->gpu == WEFT_NO_GPU;
    return WEFT_OK;
}

static void graph_with_gpus(const char *store, uint32_t rank, uint32_t size) {
    weft_graph_t *graph = NULL;
    if (rank > 0) gpu_load();
    weft_view_t *view = join(store, rank, size);
    weft_graph_params_t params = {
        .n_threads = 2, .team = weft_view_team(view), .n_gpus = weft_view_mine(view)->n_gpus};
    CHECK_EQ(params.n_gpus, rank > 0 ? 2 : 0);
    CHECK_EQ(weft_graph_create(&params, &graph), WEFT_OK);
    for (uint32_t i = 0; i < SUMS; i++) {
        weft_task_params_t task = {.fn = add_up,
                                   .arg = (void *)(intptr_t)i,
                                   .result_size = 16,
                                   .on_rank = 1,
                                   .rank = i % size,
                                   .on_gpu = WEFT_GPU_PREFERRED};
        CHECK_EQ(weft_graph_add(graph, &task, NULL), WEFT_OK);
    }
    CHECK_EQ(weft_graph_run_wait(graph), WEFT_OK);
    for (uint32_t i = rank; i < SUMS; i += size) {
        const void *data = NULL;
        size_t len;
        CHECK_EQ(weft_graph_result(graph, i, &data, &len), WEFT_OK);
        CHECK_EQ(((const int64_t *)data)[0], (int64_t)COUNT * (COUNT - 1) / 2 + (int64_t)i * COUNT);
        CHECK_EQ(((const int64_t *)data)[1], rank == 0);
    }
    weft_graph_destroy(graph);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(tasks_use_the_gpu_of_their_process_or_do_without) {
    const char *which = getenv("WEFT_TEST_CUDA");
    if (which && strcmp(which, "driver") == 0)
        SKIP("only the double of the CUDA driver fails at will");
    in_processes(2, graph_with_gpus);
}

/* What lies on the device, in elements. */
static int32_t seen[4 * COUNT];
static const int32_t *look(const void *device, size_t n) {
    gpu.read(seen, device, n * sizeof *seen);
    return seen;
}

static void rooted(const char *store, uint32_t rank, uint32_t size) {
    static int32_t mine[4 * COUNT];
    const size_t bytes = sizeof mine;
    char *src = gpu_alloc(bytes), *dst = gpu_alloc(bytes);
    weft_view_t *view = join(store, rank, size);
    for (uint32_t root = 0; root < size; root++) {
        const weft_resource_set_t *at = set_of(view, root);
        for (int i = 0; i < 4 * COUNT; i++) mine[i] = (int32_t)rank * 100000 + i;
        gpu.write(src, mine, bytes);
        CHECK_EQ(weft_view_gather_wait(view, at, src, COUNT * 4, dst), WEFT_OK);
        if (rank == root)
            for (uint32_t r = 0; r < size; r++)
                CHECK_EQ(look(dst, size * COUNT)[r * COUNT + 7], (int32_t)r * 100000 + 7);
        CHECK_EQ(weft_view_reduce_wait(view, at, src, dst, COUNT, WEFT_INT32, WEFT_MAX), WEFT_OK);
        if (rank == root) CHECK_EQ(look(dst, COUNT)[9], (int32_t)(size - 1) * 100000 + 9);
        CHECK_EQ(weft_view_scatter_wait(view, at, src, COUNT * 4, dst), WEFT_OK);
        CHECK_EQ(look(dst, COUNT)[5], (int32_t)(root * 100000 + rank * COUNT + 5));
        CHECK_EQ(weft_view_bcast_wait(view, at, src, bytes), WEFT_OK);
        CHECK_EQ(look(src, 4 * COUNT)[4 * COUNT - 1], (int32_t)root * 100000 + 4 * COUNT - 1);
    }
    CHECK(gpu_context_is_as_before());
    CHECK_EQ(weft_view_barrier_wait(view), WEFT_OK);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
    gpu.release(src);
    gpu.release(dst);
}

TEST(rooted_operations_begin_and_end_on_the_memory_of_a_gpu) {
    in_processes(3, rooted);
}

static void one_to_one(const char *store, uint32_t rank, uint32_t size) {
    static int32_t mine[COUNT];
    char *device = gpu_alloc(sizeof mine);
    weft_view_t *view = join(store, rank, size);
    const weft_resource_set_t *other = set_of(view, 1 - rank);
    for (int i = 0; i < COUNT; i++) mine[i] = i * 3;
    if (rank == 0) {
        gpu.write(device, mine, sizeof mine);
        CHECK_EQ(weft_view_send_wait(view, other, device, sizeof mine, 4), WEFT_OK);
    } else {
        CHECK_EQ(weft_view_receive_wait(view, other, device, sizeof mine, 4), WEFT_OK);
        CHECK_EQ(look(device, COUNT)[COUNT - 1], (COUNT - 1) * 3);
    }
    CHECK_EQ(weft_view_barrier_wait(view), WEFT_OK);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
    gpu.release(device);
}

TEST(a_process_sends_from_its_gpu_to_that_of_another) {
    in_processes(2, one_to_one);
}

static void unequal(const char *store, uint32_t rank, uint32_t size) {
    static int32_t mine[COUNT];
    char *device = gpu_alloc(sizeof mine);
    weft_blocks_t *blocks = NULL;
    weft_view_t *view = join(store, rank, size);
    for (int i = 0; i < COUNT; i++) mine[i] = i + (int)rank;
    gpu.write(device, mine, sizeof mine);
    CHECK_EQ(weft_view_gatherv_wait(view, set_of(view, 1), device, (rank + 1) * 4, &blocks),
             WEFT_OK);
    CHECK_EQ(blocks != NULL, rank == 1);
    if (blocks) CHECK_EQ(((const int32_t *)blocks->data[2])[2], 4); /* blocks are host memory */
    weft_blocks_free(blocks);
    CHECK_EQ(weft_view_barrier_wait(view), WEFT_OK);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
    gpu.release(device);
}

TEST(blocks_of_unequal_lengths_come_from_gpus) {
    in_processes(3, unequal);
}
