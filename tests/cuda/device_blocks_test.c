/* Memory of virtual memory management (cuMemCreate) of another process, by its file descriptor. */
#include <fcntl.h>
#include <tests/cuda/ipc_child.h>
#include <tests/support/rma_peers.h>
#include <transports/cuda/peer_memory.h>

enum { LEN = 1500007, ROOM = 2 * 1024 * 1024, ROUNDS = 3 };
static char expected[LEN], got[LEN];

/* ---- as a program makes such memory ---------------------------------------------------------- */

struct location {
    unsigned kind;
    int id;
};
struct properties { /* CUmemAllocationProp */
    unsigned kind, handle_types;
    struct location location;
    void *win32;
    unsigned char flags[16];
};
struct access {
    struct location location;
    unsigned flags;
};
struct block {
    unsigned long long handle, at;
};

static struct block block_of(unsigned handle_types) {
    unsigned (*create)(unsigned long long *, size_t, const struct properties *, unsigned long long);
    unsigned (*reserve)(unsigned long long *, size_t, size_t, unsigned long long,
                        unsigned long long);
    unsigned (*map)(unsigned long long, size_t, size_t, unsigned long long, unsigned long long);
    unsigned (*set_access)(unsigned long long, size_t, const struct access *, size_t);
    struct properties properties = {1, handle_types, {1, 0}, NULL, {0}};
    struct access access = {{1, 0}, 3};
    struct block b;
    gpu_load();
    *(void **)&create = gpu_symbol(RTLD_DEFAULT, "cuMemCreate");
    *(void **)&reserve = gpu_symbol(RTLD_DEFAULT, "cuMemAddressReserve");
    *(void **)&map = gpu_symbol(RTLD_DEFAULT, "cuMemMap");
    *(void **)&set_access = gpu_symbol(RTLD_DEFAULT, "cuMemSetAccess");
    CHECK_EQ(create(&b.handle, ROOM, &properties, 0), 0);
    CHECK_EQ(reserve(&b.at, ROOM, 0, 0, 0), 0);
    CHECK_EQ(map(b.at, ROOM, 0, b.handle, 0), 0);
    CHECK_EQ(set_access(b.at, ROOM, &access, 1), 0);
    return b;
}
static void end_block(const struct block *b) {
    unsigned (*unmap)(unsigned long long, size_t), (*free_address)(unsigned long long, size_t),
        (*release)(unsigned long long);
    *(void **)&unmap = gpu_symbol(RTLD_DEFAULT, "cuMemUnmap");
    *(void **)&free_address = gpu_symbol(RTLD_DEFAULT, "cuMemAddressFree");
    *(void **)&release = gpu_symbol(RTLD_DEFAULT, "cuMemRelease");
    CHECK_EQ(unmap(b->at, ROOM), 0);
    CHECK_EQ(free_address(b->at, ROOM), 0);
    CHECK_EQ(release(b->handle), 0);
}
static char *memory_of(const struct block *b) {
    return (char *)(uintptr_t)b->at;
}

static void fill_block(char *at, unsigned seed) {
    pattern(expected, LEN, seed);
    gpu.write(at, expected, LEN);
}
static bool block_holds(const char *at, unsigned seed) {
    pattern(expected, LEN, seed);
    gpu.read(got, at, LEN);
    return memcmp(got, expected, LEN) == 0;
}

/* ---- between two processes ------------------------------------------------------------------- */

enum { KEYS = 7 };

/* Keeps a region for puts and gets. */
static void child_keeps_a_region(weft_worker_t *worker, const struct child *child) {
    struct block block = block_of(1);
    weft_mem_params_t params = {.rights = WEFT_MEM_READ | WEFT_MEM_WRITE};
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    struct tally sent = {0};
    weft_mem_t *mem;
    fill_block(memory_of(&block), 60);
    if (weft_mem_register(worker, memory_of(&block), LEN, &params, &mem) ||
        weft_mem_pack(mem, key, &len))
        _exit(3);
    if (weft_tag_send(child->ep, KEYS, &(weft_iov_t){key, len}, 1, OP(&sent)) == WEFT_IN_PROGRESS)
        child_waits(worker, child, &sent);
    while (!child->lost) weft_worker_wait(worker, 20);
}

/* Sends from one block, then from others at whatever address. */
static void child_serves(weft_worker_t *worker, const struct child *child) {
    CHECK_EQ(gpu.set_current(gpu.context), 0); /* for copies of memory that has no context */
    if (getenv("WEFT_TEST_REGION")) {
        child_keeps_a_region(worker, child);
        return;
    }
    for (unsigned i = 0; i < ROUNDS && !child->lost; i++) {
        struct block block = block_of(1);
        struct tally sent = {0};
        fill_block(memory_of(&block), 40 + i);
        if (weft_tag_send(child->ep, 1, &(weft_iov_t){memory_of(&block), LEN}, 1, OP(&sent)) < 0)
            return;
        child_waits(worker, child, &sent);
        end_block(&block);
    }
    while (!child->lost) weft_worker_wait(worker, 20);
}

TEST(blocks_of_another_process_are_copied_by_their_files) {
    struct ipc p;
    ipc_up(&p);
    const unsigned *blocks = dlsym(RTLD_DEFAULT, "double_blocks");
    CHECK_EQ(gpu.set_current(gpu.context), 0);
    struct block to = block_of(1);
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct tally received = {0};
        weft_iov_t in = {memory_of(&to), LEN};
        CHECK_EQ(weft_tag_recv(p.worker, 1, ~0ull, &in, 1, NULL, OP(&received)), WEFT_IN_PROGRESS);
        IPC_UNTIL(&p, received.calls);
        CHECK_EQ(received.status, WEFT_OK);
        CHECK(block_holds(memory_of(&to), 40 + i));
        CHECK_EQ(weft_worker_count(p.worker, "cuda.fetched"), (uint64_t)i + 1);
        if (blocks) CHECK_EQ(*blocks, 2); /* this one, and the peer's that is mapped */
    }
    CHECK_EQ(kill(p.child, SIGKILL), 0);
    ipc_down(&p);
    end_block(&to);
    if (blocks) CHECK_EQ(*blocks, 0);
    if (gpu.context_create) CHECK_EQ(gpu.set_current(NULL), 0);
}

TEST(a_region_of_a_block_is_put_to_and_got_from) {
    struct ipc p;
    struct tally came = {0}, got_it = {0}, put = {0}, again = {0};
    char key[WEFT_RKEY_MAX];
    weft_tag_info_t tag;
    weft_rkey_t *rkey;
    weft_rkey_info_t info;
    setenv("WEFT_TEST_REGION", "1", 1);
    ipc_up(&p);
    unsetenv("WEFT_TEST_REGION");
    CHECK_EQ(gpu.set_current(gpu.context), 0);
    struct block here = block_of(1);
    CHECK(weft_tag_recv(p.worker, KEYS, ~0ull, &(weft_iov_t){key, sizeof key}, 1, &tag,
                        OP(&came)) >= 0);
    IPC_UNTIL(&p, came.calls);
    CHECK_EQ(weft_rkey_unpack(p.ep, key, tag.len, &rkey), 0);
    IPC_UNTIL(&p, rkey->key->status != WEFT_NO_RESOURCE);
    CHECK_EQ(weft_rkey_describe(rkey, &info), 0);
    CHECK(strcmp(info.put, "cuda ipc") == 0 && strcmp(info.get, "cuda ipc") == 0);
    CHECK(weft_get(p.ep, memory_of(&here), LEN, info.base, rkey, OP(&got_it)) >= 0);
    IPC_UNTIL(&p, got_it.calls);
    CHECK(got_it.status == WEFT_OK && block_holds(memory_of(&here), 60));
    fill_block(memory_of(&here), 61);
    CHECK(weft_put(p.ep, memory_of(&here), LEN, info.base, rkey, OP(&put)) >= 0);
    IPC_UNTIL(&p, put.calls);
    fill_block(memory_of(&here), 62);
    CHECK(weft_get(p.ep, memory_of(&here), LEN, info.base, rkey, OP(&again)) >= 0);
    IPC_UNTIL(&p, again.calls);
    CHECK(put.status == WEFT_OK && again.status == WEFT_OK && block_holds(memory_of(&here), 61));
    weft_rkey_release(rkey);
    CHECK_EQ(kill(p.child, SIGKILL), 0);
    ipc_down(&p);
    end_block(&here);
    if (gpu.context_create) CHECK_EQ(gpu.set_current(NULL), 0);
}

TEST(without_memory_to_map_a_block_the_bytes_are_asked_for) {
    struct ipc p;
    struct tally received = {0};
    gpu_load();
    if (!gpu.fail_alloc) SKIP("only the double of the CUDA driver fails at will");
    ipc_up(&p);
    CHECK_EQ(gpu.set_current(gpu.context), 0);
    struct block to = block_of(1);
    weft_iov_t in = {memory_of(&to), LEN};
    *gpu.fail_alloc = 1;
    CHECK_EQ(weft_tag_recv(p.worker, 1, ~0ull, &in, 1, NULL, OP(&received)), WEFT_IN_PROGRESS);
    IPC_UNTIL(&p, received.calls);
    CHECK_EQ(*gpu.fail_alloc, 0);
    CHECK_EQ(received.status, WEFT_OK);
    CHECK(block_holds(memory_of(&to), 40));
    CHECK_EQ(weft_worker_count(p.worker, "cuda.fetched"), 0);
    CHECK_EQ(kill(p.child, SIGKILL), 0);
    ipc_down(&p);
    end_block(&to);
    CHECK_EQ(gpu.set_current(NULL), 0);
}

/* ---- its file -------------------------------------------------------------------------------- */

TEST(a_file_is_open_as_long_as_its_memory_is_there) {
    struct block block = block_of(1);
    struct cuda_export made, again;
    CHECK_EQ(weft__cuda_export(memory_of(&block) + 5, 100, &made), WEFT_OK);
    CHECK_EQ(weft__cuda_export(memory_of(&block) + 9, 100, &again), WEFT_OK);
    CHECK(made.file.process == getpid() && made.file.fd == again.file.fd);
    weft__cuda_files_close();
    CHECK(fcntl(made.file.fd, F_GETFD) >= 0);
    end_block(&block);
    weft__cuda_files_close();
    CHECK(fcntl(made.file.fd, F_GETFD) < 0);
}

/* What a peer says of its memory may be wrong: no file, no memory, more than there is. */
TEST(a_file_that_is_none_is_refused) {
    int other = open("/dev/null", O_RDONLY);
    struct cuda_file wrong[] = {
        {getpid(), 9999}, {getpid(), -1}, {0x7fffffff, 3}, {-1, 3}, {getpid(), other}};
    cuda_pointer at;
    gpu_load();
    CHECK_EQ(gpu.set_current(gpu.context), 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_EQ(weft__cuda_file_map(&wrong[i], ROOM, &at), WEFT_ERR_UNSUPPORTED);
    struct block block = block_of(1);
    struct cuda_export made;
    CHECK_EQ(weft__cuda_export(memory_of(&block), 100, &made), WEFT_OK);
    CHECK_EQ(weft__cuda_file_map(&made.file, 2 * ROOM, &at), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft__cuda_file_map(&made.file, ROOM, &at), WEFT_OK);
    weft__cuda_file_unmap(at, ROOM);
    end_block(&block);
    weft__cuda_files_close();
    close(other);
    if (gpu.context_create) CHECK_EQ(gpu.set_current(NULL), 0);
}
