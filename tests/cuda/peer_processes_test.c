/* Collectives of device memory between processes: over CUDA IPC of the double. */
#include <tests/collectives/processes.h>
#include <tests/cuda/device.h>

enum { COUNT = 3000, LARGE = 90000, RANKS = 3 };

static int32_t sum_at(uint32_t size, int64_t i) {
    return (int32_t)(size * (size - 1) / 2 * 1000 + size * i);
}

/* Each has rank x 1000 + i at place i. */
static char *own_values(const struct process *p, size_t n) {
    int32_t *host = malloc(n * 4);
    char *device = gpu_alloc(n * 4);
    for (size_t i = 0; i < n; i++) host[i] = (int32_t)(p->rank * 1000 + i);
    gpu.write(device, host, n * 4);
    free(host);
    return device;
}

static void reduce(struct process *p, size_t n, int error) {
    int32_t *host = malloc(n * 4);
    char *src = own_values(p, n), *dst = gpu_alloc(n * 4);
    if (weft_allreduce_wait(p->team, src, dst, n, WEFT_INT32, WEFT_SUM) < 0) _exit(error);
    gpu.read(host, dst, n * 4);
    for (size_t i = 0; i < n; i++)
        if (host[i] != sum_at(p->size, (int64_t)i)) _exit(error + 1);
    /* Freed at once: no other member reads it any more. */
    gpu.release(src);
    gpu.release(dst);
    free(host);
}

static void note_ways(struct process *p) {
    p->page->number[p->rank] = weft_worker_count(p->worker, "coll.peer");
    p->page->lines[p->rank] = weft_worker_count(p->worker, "coll.staged");
}

static void reduce_often(struct process *p) {
    gpu_load();
    for (int i = 0; i < 10; i++) reduce(p, COUNT, 60);
    reduce(p, LARGE, 62);
    char *src = own_values(p, COUNT * p->size), *dst = gpu_alloc(COUNT * p->size * 4);
    int32_t *host = malloc(COUNT * p->size * 4);
    if (weft_alltoall_wait(p->team, src, dst, COUNT, WEFT_INT32) < 0) _exit(64);
    gpu.read(host, dst, COUNT * p->size * 4);
    for (uint32_t r = 0; r < p->size; r++)
        for (uint32_t i = 0; i < COUNT; i++)
            if (host[r * COUNT + i] != (int32_t)(r * 1000 + p->rank * COUNT + i)) _exit(65);
    note_ways(p);
    if (!gpu_has_kernels()) p->page->lines[p->rank] = 0; /* reductions went by the host */
    free(host);
}

TEST(processes_read_each_others_device_memory) {
    struct page *page;
    for (uint32_t size = 2; size <= 4; size++) {
        CHECK_EQ(run_all(size, "self,shm", reduce_often, &page), 0);
        for (uint32_t r = 0; r < size; r++) CHECK_EQ(page->number[r], 12);
        for (uint32_t r = 0; r < size; r++) CHECK_EQ(page->lines[r], 0);
        munmap(page, sizeof *page);
    }
}

/* One cannot map the others' memory: all learn that, and all go by the host. */
static void reduce_with_one_that_cannot_map(struct process *p) {
    gpu_load();
    unsigned *fail = gpu.fail_copy ? dlsym(RTLD_DEFAULT, "double_fail_alloc") : NULL;
    if (weft_barrier_wait(p->team) < 0) _exit(70);
    char *src = own_values(p, COUNT), *dst = gpu_alloc(COUNT * 4);
    if (weft_allreduce_wait(p->team, src, dst, 1, WEFT_INT32, WEFT_SUM) < 0) _exit(71);
    char *other = own_values(p, COUNT);
    if (fail && p->rank == 1) *fail = 1;
    if (weft_allreduce_wait(p->team, other, dst, COUNT, WEFT_INT32, WEFT_SUM) < 0) _exit(72);
    int32_t host[COUNT];
    gpu.read(host, dst, sizeof host);
    for (int i = 0; i < COUNT; i++)
        if (host[i] != sum_at(p->size, i)) _exit(73);
    note_ways(p);
}

TEST(all_go_by_the_host_if_one_cannot_map) {
    struct page *page;
    const char *which = getenv("WEFT_TEST_CUDA");
    if (which && strcmp(which, "driver") == 0) SKIP("only the double of the driver fails at will");
    CHECK_EQ(run_all(RANKS, "self,shm", reduce_with_one_that_cannot_map, &page), 0);
    for (uint32_t r = 0; r < RANKS; r++) CHECK(page->lines[r] >= 1 && page->lines[r] <= 2);
    munmap(page, sizeof *page);
}

/* A member is killed in a collective. The others get one outcome, and their memory. */
static void reduce_with_one_that_dies(struct process *p) {
    gpu_load();
    reduce(p, COUNT, 80);
    char *src = own_values(p, COUNT), *dst = gpu_alloc(COUNT * 4);
    if (p->rank == 1) {
        weft_allreduce(p->team, src, dst, COUNT, WEFT_INT32, WEFT_SUM, NULL);
        kill(getpid(), SIGKILL);
    }
    weft_status_t st = WEFT_OK;
    for (int i = 0; i < 50 && st == WEFT_OK; i++)
        st = weft_allreduce_wait(p->team, src, dst, COUNT, WEFT_INT32, WEFT_SUM);
    p->page->outcome[p->rank] = st;
    gpu.release(src);
    gpu.release(dst);
}

TEST(a_member_that_dies_ends_it_for_all) {
    struct page *page;
    CHECK_EQ(run_all(RANKS, "self,shm", reduce_with_one_that_dies, &page), 0);
    CHECK_EQ(page->outcome[0], WEFT_ERR_PEER_FAILED);
    CHECK_EQ(page->outcome[2], WEFT_ERR_PEER_FAILED);
    munmap(page, sizeof *page);
}
