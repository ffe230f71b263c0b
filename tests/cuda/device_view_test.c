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
