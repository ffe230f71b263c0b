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

static void *pool_new_on(int device, unsigned handle_types) {
    unsigned (*create)(void **, const struct pool_properties *);
    struct pool_properties properties = {
        .kind = 1, .handle_types = handle_types, .location = {1, device}};
    void *pool = NULL;
    gpu_load();
    *(void **)&create = gpu_symbol(RTLD_DEFAULT, "cuMemPoolCreate");
    *(void **)&pool_free = gpu_symbol(RTLD_DEFAULT, "cuMemFreeAsync");
    CHECK_EQ(create(&pool, &properties), 0);
    return pool;
}
static void *pool_new(unsigned handle_types) {
    return pool_new_on(0, handle_types);
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

/* The peer's earlier allocations are given back, and the driver would wait for the stream then. */
TEST(memory_of_a_peer_stays_open_while_an_operation_holds_back_a_stream) {
    struct side s;
    struct tally held = {0};
    weft_request_t *request = NULL;
    side_up(&s);
    const unsigned *pools = dlsym(RTLD_DEFAULT, "double_pools");
    receive(&s, 0, 1);
    char *other = gpu_alloc(64);
    weft_op_t op = {.done = tally, .arg = &held, .request_p = &request, .stream = s.stream};
    CHECK_EQ(weft_tag_recv(s.ipc.worker, 99, ~0ull, &(weft_iov_t){other, 64}, 1, NULL, &op),
             WEFT_IN_PROGRESS);
    for (unsigned i = 1; i < ROUNDS; i++) receive(&s, i, (uint64_t)i + 1);
    if (pools) CHECK_EQ(*pools, 1 + ROUNDS);
    CHECK_EQ(held.calls, 0);
    weft_request_cancel(request);
    IPC_UNTIL(&s.ipc, held.calls);
    CHECK_EQ(held.status, WEFT_ERR_CANCELLED);
    ipc_region_serves(&s.ipc, s.at, LEN);
    if (pools) CHECK(*pools <= 3); /* those of the earlier ones are closed */
    gpu.release(other);
    side_down(&s);
    if (pools) CHECK_EQ(*pools, 0);
}

/* ---- the context of the copies --------------------------------------------------------------- */

static void *primary_retain(int device) {
    unsigned (*retain)(void **, int);
    void *context = NULL;
    *(void **)&retain = gpu_symbol(RTLD_DEFAULT, "cuDevicePrimaryCtxRetain");
    CHECK_EQ(retain(&context, device), 0);
    return context;
}
static void primary_release(int device) {
    unsigned (*release)(int);
    *(void **)&release = gpu_symbol(RTLD_DEFAULT, "cuDevicePrimaryCtxRelease_v2");
    CHECK_EQ(release(device), 0);
}

/* Both ways between that memory and memory of a context: short and long. */
static void cross(const char *transport, char *at) {
    static const size_t len[] = {100, LEN};
    struct two t;
    two_up(&t, transport);
    char *other = gpu_alloc(LEN);
    for (unsigned i = 0; i < 4; i++) {
        struct tally sent = {0}, received = {0};
        char *from = i % 2 ? other : at, *to = i % 2 ? at : other;
        weft_iov_t out = {from, len[i / 2]}, in = {to, len[i / 2]};
        device_fill(from, len[i / 2], i);
        weft_status_t st = weft_tag_recv(two_b(&t), 1, ~0ull, &in, 1, NULL, OP(&received));
        CHECK_EQ(st, WEFT_IN_PROGRESS);
        st = weft_tag_send(t.ep, 1, &out, 1, OP(&sent));
        CHECK(st >= 0);
        UNTIL(&t, received.calls && (st == WEFT_OK || sent.calls));
        CHECK(received.status == WEFT_OK && (st == WEFT_OK || sent.status == WEFT_OK));
        CHECK(device_holds(to, len[i / 2], i));
    }
    gpu.release(other);
    two_down(&t);
}
static void cross_pool_of(const char *transport, int device) {
    void *context = primary_retain(device), *stream = NULL, *current = NULL;
    unsigned (*get_current)(void **);
    *(void **)&get_current = gpu_symbol(RTLD_DEFAULT, "cuCtxGetCurrent");
    CHECK_EQ(get_current(&current), 0);
    CHECK_EQ(gpu.set_current(context), 0);
    void *pool = pool_new_on(device, BY_FILE);
    CHECK_EQ(gpu.stream_create(&stream, 1), 0);
    char *at = pool_alloc(pool, stream);
    CHECK_EQ(gpu.set_current(current), 0);
    cross(transport, at);
    CHECK_EQ(gpu.set_current(context), 0);
    pool_give_back(at, stream);
    CHECK_EQ(gpu.stream_destroy(stream), 0);
    pool_end(pool);
    CHECK_EQ(gpu.set_current(current), 0);
    primary_release(device);
}

TEST_EACH(memory_of_a_pool_needs_no_current_context) {
    gpu_load();
    CHECK_EQ(gpu.set_current(NULL), 0);
    cross_pool_of(transport, 0);
    if (!gpu.context_create) CHECK_EQ(gpu.set_current(gpu.context), 0);
}

/* Its pool gives no other device access. */
TEST_EACH(memory_of_a_pool_is_copied_by_its_device_whatever_context_is_current) {
    gpu_load();
    if (!gpu.context_create) SKIP("only the double of the CUDA driver fails at will");
    CHECK_EQ(gpu.set_current(gpu.context), 0);
    cross_pool_of(transport, 1);
    CHECK_EQ(gpu.set_current(NULL), 0);
}

/* The same of memory that is mapped. */
TEST_EACH(mapped_memory_is_copied_by_a_device_that_has_access) {
    void *(*context_create_on)(int);
    gpu_load();
    *(void **)&context_create_on = dlsym(RTLD_DEFAULT, "double_context_create_on");
    if (!context_create_on) SKIP("only the double of the CUDA driver fails at will");
    struct mapped m = mapped_new(BY_FILE, 1); /* of the first device */
    (void)primary_retain(0);
    CHECK_EQ(gpu.set_current(context_create_on(1)), 0);
    cross(transport, mapped_at(&m));
    CHECK_EQ(gpu.set_current(NULL), 0);
    primary_release(0);
    mapped_end(&m);
}

/* A copy would be an illegal access, which would break the context. */
TEST(memory_that_no_context_has_access_to_is_refused) {
    struct two t;
    void *(*context_create_on)(int);
    gpu_load();
    *(void **)&context_create_on = dlsym(RTLD_DEFAULT, "double_context_create_on");
    if (!context_create_on) SKIP("only the double of the CUDA driver fails at will");
    void *away = context_create_on(1);
    struct mapped m = mapped_new(BY_FILE, 1);
    weft_iov_t iov = {mapped_at(&m), LEN};
    two_up(&t, "self");
    CHECK_EQ(gpu.set_current(away), 0);
    CHECK_EQ(weft_tag_send(t.ep, 1, &iov, 1, NULL), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_tag_recv(two_b(&t), 1, ~0ull, &iov, 1, NULL, NULL), WEFT_ERR_UNSUPPORTED);
    char *there = gpu.alloc(away, 64, false);
    CHECK_EQ(weft__cuda_write((struct cuda_place){.context = away}, there, "fine", 5), WEFT_OK);
    CHECK_EQ(gpu.set_current(NULL), 0);
    gpu.release(there);
    two_down(&t);
    mapped_end(&m);
}
