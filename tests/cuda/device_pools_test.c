/* Memory of pools (cuMemAllocFromPoolAsync, cudaMallocAsync) of another process, by the file of the
 * pool. */
#include <fcntl.h>
#include <tests/cuda/ipc_region.h>
#include <tests/cuda/mapped.h>
#include <transports/cuda/peer_memory.h>

enum { LEN = 1500007, ROUNDS = 3, BY_FILE = 1 };

/* ---- as a program makes such memory ---------------------------------------------------------- */

struct pool_properties { /* CUmemPoolProps */
    unsigned kind, handle_types;
    struct mapped_location location;
    void *win32;
    size_t most;
    unsigned char rest[56];
};
static unsigned (*pool_free)(unsigned long long, void *);

static void *pool_new(unsigned handle_types) {
    unsigned (*create)(void **, const struct pool_properties *);
    struct pool_properties properties = {
        .kind = 1, .handle_types = handle_types, .location = {1, 0}};
    void *pool = NULL;
    gpu_load();
    *(void **)&create = gpu_symbol(RTLD_DEFAULT, "cuMemPoolCreate");
    *(void **)&pool_free = gpu_symbol(RTLD_DEFAULT, "cuMemFreeAsync");
    CHECK_EQ(create(&pool, &properties), 0);
    return pool;
}
static void pool_end(void *pool) {
    unsigned (*destroy)(void *);
    *(void **)&destroy = gpu_symbol(RTLD_DEFAULT, "cuMemPoolDestroy");
    CHECK_EQ(destroy(pool), 0);
}
static char *pool_alloc(void *pool, void *stream) {
    unsigned (*alloc)(unsigned long long *, size_t, void *, void *);
    unsigned long long at = 0;
    *(void **)&alloc = gpu_symbol(RTLD_DEFAULT, "cuMemAllocFromPoolAsync");
    CHECK_EQ(alloc(&at, LEN, pool, stream), 0);
    CHECK_EQ(gpu.stream_wait(stream), 0);
    return (char *)(uintptr_t)at;
}
static void pool_give_back(char *at, void *stream) {
    CHECK_EQ(pool_free((uintptr_t)at, stream), 0);
    CHECK_EQ(gpu.stream_wait(stream), 0);
}

/* ---- between two processes ------------------------------------------------------------------- */

/* Sends from allocations of a pool, with files unless the test forbids it; then keeps a region. */
static void child_serves(weft_worker_t *worker, const struct child *child) {
    CHECK_EQ(gpu.set_current(gpu.context), 0); /* for copies of memory that has no context */
    void *pool = pool_new(getenv("WEFT_TEST_NO_FILES") ? 0 : BY_FILE), *stream = gpu_stream();
    for (unsigned i = 0; i < ROUNDS; i++) {
        char *at = pool_alloc(pool, stream);
        if (!child_sends(worker, child, at, LEN, i)) return;
        pool_give_back(at, stream);
    }
    child_keeps_region(worker, child, pool_alloc(pool, stream), LEN);
}

struct side {
    struct ipc ipc;
    void *pool, *stream;
    char *at;
};

static void side_up(struct side *s) {
    ipc_up(&s->ipc);
    CHECK_EQ(gpu.set_current(gpu.context), 0);
    s->pool = pool_new(BY_FILE);
    s->stream = gpu_stream();
    CHECK_EQ(gpu.set_current(gpu.context), 0);
    s->at = pool_alloc(s->pool, s->stream);
}
static void side_down(struct side *s) {
    CHECK_EQ(kill(s->ipc.child, SIGKILL), 0);
    ipc_down(&s->ipc);
    pool_give_back(s->at, s->stream);
    pool_end(s->pool);
    CHECK_EQ(gpu.stream_destroy(s->stream), 0);
    if (gpu.context_create) CHECK_EQ(gpu.set_current(NULL), 0);
}

/* `n`: messages that are copied from the sender's memory so far. */
static void receive(struct side *s, unsigned i, uint64_t n) {
    ipc_receive(&s->ipc, s->at, LEN, i);
    CHECK_EQ(weft_worker_count(s->ipc.worker, "cuda.fetched"), n);
}

TEST(memory_of_a_pool_of_another_process_is_copied_by_the_pools_file) {
    struct side s;
    side_up(&s);
    const unsigned *pools = dlsym(RTLD_DEFAULT, "double_pools");
    for (unsigned i = 0; i < ROUNDS; i++) {
        receive(&s, i, (uint64_t)i + 1);
        if (pools) CHECK(*pools >= 2 && *pools <= 2 + i); /* this one, and the peer's */
    }
    side_down(&s);
    if (pools) CHECK_EQ(*pools, 0);
}

TEST(a_region_of_a_pool_is_put_to_and_got_from) {
    struct side s;
    side_up(&s);
    for (unsigned i = 0; i < ROUNDS; i++) receive(&s, i, (uint64_t)i + 1);
    ipc_region_serves(&s.ipc, s.at, LEN);
    side_down(&s);
}

TEST(a_pool_without_files_is_sent_by_messages) {
    struct side s;
    setenv("WEFT_TEST_NO_FILES", "1", 1);
    side_up(&s);
    unsetenv("WEFT_TEST_NO_FILES");
    for (unsigned i = 0; i < ROUNDS; i++) receive(&s, i, 0);
    side_down(&s);
}

TEST(without_memory_for_a_pool_the_bytes_are_asked_for) {
    struct side s;
    gpu_load();
    if (!gpu.fail_alloc) SKIP("only the double of the CUDA driver fails at will");
    side_up(&s);
    *gpu.fail_alloc = 1;
    receive(&s, 0, 0);
    CHECK_EQ(*gpu.fail_alloc, 0);
    receive(&s, 1, 1);
    side_down(&s);
}

TEST(the_file_of_a_pool_is_open_as_long_as_the_allocation_is_there) {
    gpu_load();
    CHECK_EQ(gpu.set_current(gpu.context), 0);
    void *pool = pool_new(BY_FILE), *stream = gpu_stream();
    CHECK_EQ(gpu.set_current(gpu.context), 0);
    char *at = pool_alloc(pool, stream);
    struct cuda_export made, again;
    CHECK_EQ(weft__cuda_export(at + 5, 100, &made), WEFT_OK);
    CHECK_EQ(weft__cuda_export(at + 9, 100, &again), WEFT_OK);
    CHECK(made.file.kind == CUDA_FILE_POOL && made.file.fd == again.file.fd);
    CHECK(memcmp(&made.handle, &again.handle, sizeof made.handle) == 0);
    weft__cuda_files_close();
    CHECK(fcntl((int)made.file.fd, F_GETFD) >= 0);
    pool_give_back(at, stream);
    weft__cuda_files_close();
    CHECK(fcntl((int)made.file.fd, F_GETFD) < 0);
    pool_end(pool);
    CHECK_EQ(gpu.stream_destroy(stream), 0);
    if (gpu.context_create) CHECK_EQ(gpu.set_current(NULL), 0);
}
