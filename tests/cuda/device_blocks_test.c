/* Memory of virtual memory management (cuMemCreate) of another process, by its file descriptor. */
#include <fcntl.h>
#include <tests/cuda/ipc_child.h>
#include <tests/cuda/mapped.h>
#include <tests/support/rma_peers.h>
#include <transports/cuda/peer_memory.h>

enum { LEN = 1500007, ROUNDS = 3 };
static char expected[LEN], got[LEN];

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
    struct mapped block = mapped_new(1, 1);
    weft_mem_params_t params = {.rights = WEFT_MEM_READ | WEFT_MEM_WRITE};
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    struct tally sent = {0};
    weft_mem_t *mem;
    fill_block(mapped_at(&block), 60);
    if (weft_mem_register(worker, mapped_at(&block), LEN, &params, &mem) ||
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
        struct mapped block = mapped_new(1, 1);
        struct tally sent = {0};
        fill_block(mapped_at(&block), 40 + i);
        if (weft_tag_send(child->ep, 1, &(weft_iov_t){mapped_at(&block), LEN}, 1, OP(&sent)) < 0)
            return;
        child_waits(worker, child, &sent);
        mapped_end(&block);
    }
    while (!child->lost) weft_worker_wait(worker, 20);
}

TEST(blocks_of_another_process_are_copied_by_their_files) {
    struct ipc p;
    ipc_up(&p);
    const unsigned *blocks = dlsym(RTLD_DEFAULT, "double_blocks");
    CHECK_EQ(gpu.set_current(gpu.context), 0);
    struct mapped to = mapped_new(1, 1);
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct tally received = {0};
        weft_iov_t in = {mapped_at(&to), LEN};
        CHECK_EQ(weft_tag_recv(p.worker, 1, ~0ull, &in, 1, NULL, OP(&received)), WEFT_IN_PROGRESS);
        IPC_UNTIL(&p, received.calls);
        CHECK_EQ(received.status, WEFT_OK);
        CHECK(block_holds(mapped_at(&to), 40 + i));
        CHECK_EQ(weft_worker_count(p.worker, "cuda.fetched"), (uint64_t)i + 1);
        if (blocks) CHECK_EQ(*blocks, 2); /* this one, and the peer's that is mapped */
    }
    CHECK_EQ(kill(p.child, SIGKILL), 0);
    ipc_down(&p);
    mapped_end(&to);
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
    struct mapped here = mapped_new(1, 1);
    CHECK(weft_tag_recv(p.worker, KEYS, ~0ull, &(weft_iov_t){key, sizeof key}, 1, &tag,
                        OP(&came)) >= 0);
    IPC_UNTIL(&p, came.calls);
    CHECK_EQ(weft_rkey_unpack(p.ep, key, tag.len, &rkey), 0);
    IPC_UNTIL(&p, rkey->key->status != WEFT_NO_RESOURCE);
    CHECK_EQ(weft_rkey_describe(rkey, &info), 0);
    CHECK(strcmp(info.put, "cuda ipc") == 0 && strcmp(info.get, "cuda ipc") == 0);
    CHECK(weft_get(p.ep, mapped_at(&here), LEN, info.base, rkey, OP(&got_it)) >= 0);
    IPC_UNTIL(&p, got_it.calls);
    CHECK(got_it.status == WEFT_OK && block_holds(mapped_at(&here), 60));
    fill_block(mapped_at(&here), 61);
    CHECK(weft_put(p.ep, mapped_at(&here), LEN, info.base, rkey, OP(&put)) >= 0);
    IPC_UNTIL(&p, put.calls);
    fill_block(mapped_at(&here), 62);
    CHECK(weft_get(p.ep, mapped_at(&here), LEN, info.base, rkey, OP(&again)) >= 0);
    IPC_UNTIL(&p, again.calls);
    CHECK(put.status == WEFT_OK && again.status == WEFT_OK && block_holds(mapped_at(&here), 61));
    CHECK_EQ(weft_worker_count(p.worker, "rma.messages"), 0);
    weft_rkey_release(rkey);
    CHECK_EQ(kill(p.child, SIGKILL), 0);
    ipc_down(&p);
    mapped_end(&here);
    if (gpu.context_create) CHECK_EQ(gpu.set_current(NULL), 0);
}

TEST(without_memory_to_map_a_block_the_bytes_are_asked_for) {
    struct ipc p;
    struct tally received = {0};
    gpu_load();
    if (!gpu.fail_alloc) SKIP("only the double of the CUDA driver fails at will");
    ipc_up(&p);
    CHECK_EQ(gpu.set_current(gpu.context), 0);
    struct mapped to = mapped_new(1, 1);
    weft_iov_t in = {mapped_at(&to), LEN};
    *gpu.fail_alloc = 1;
    CHECK_EQ(weft_tag_recv(p.worker, 1, ~0ull, &in, 1, NULL, OP(&received)), WEFT_IN_PROGRESS);
    IPC_UNTIL(&p, received.calls);
    CHECK_EQ(*gpu.fail_alloc, 0);
    CHECK_EQ(received.status, WEFT_OK);
    CHECK(block_holds(mapped_at(&to), 40));
    CHECK_EQ(weft_worker_count(p.worker, "cuda.fetched"), 0);
    CHECK_EQ(kill(p.child, SIGKILL), 0);
    ipc_down(&p);
    mapped_end(&to);
    CHECK_EQ(gpu.set_current(NULL), 0);
}

/* ---- its file -------------------------------------------------------------------------------- */

TEST(a_file_is_open_as_long_as_its_memory_is_there) {
    struct mapped block = mapped_new(1, 1);
    struct cuda_export made, again;
    CHECK_EQ(weft__cuda_export(mapped_at(&block) + 5, 100, &made), WEFT_OK);
    CHECK_EQ(weft__cuda_export(mapped_at(&block) + 9, 100, &again), WEFT_OK);
    CHECK(made.file.process == getpid() && made.file.fd == again.file.fd);
    weft__cuda_files_close();
    CHECK(fcntl(made.file.fd, F_GETFD) >= 0);
    mapped_end(&block);
    weft__cuda_files_close();
    CHECK(fcntl(made.file.fd, F_GETFD) < 0);
}

static struct cuda_file file_of(int process, int fd, enum cuda_file_kind kind) {
    return (struct cuda_file){.process = process, .fd = (unsigned)fd & 0xffffff, .kind = kind};
}

/* What a peer says of its memory may be wrong: no file, no memory, more than there is. */
TEST(a_file_that_is_none_is_refused) {
    int other = open("/dev/null", O_RDONLY);
    struct cuda_pool_pointer nothing = {{0}};
    struct cuda_mapped mapped;
    gpu_load();
    CHECK_EQ(gpu.set_current(gpu.context), 0);
    for (enum cuda_file_kind kind = CUDA_FILE_MAPPING; kind <= CUDA_FILE_POOL + 1; kind++) {
        struct cuda_file wrong[] = {file_of(getpid(), 9999, kind), file_of(getpid(), -1, kind),
                                    file_of(0x7fffffff, 3, kind), file_of(-1, 3, kind),
                                    file_of(getpid(), other, kind)};
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
            CHECK_EQ(weft__cuda_file_map(&wrong[i], &nothing, MAPPED_ROOM, &mapped),
                     WEFT_ERR_UNSUPPORTED);
    }
    struct mapped block = mapped_new(1, 1);
    struct cuda_export made;
    CHECK_EQ(weft__cuda_export(mapped_at(&block), 100, &made), WEFT_OK);
    CHECK_EQ(weft__cuda_file_map(&made.file, &nothing, 2 * MAPPED_ROOM, &mapped),
             WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft__cuda_file_map(&made.file, &nothing, MAPPED_ROOM, &mapped), WEFT_OK);
    weft__cuda_file_unmap(&mapped);
    mapped_end(&block);
    weft__cuda_files_close();
    close(other);
    if (gpu.context_create) CHECK_EQ(gpu.set_current(NULL), 0);
}
