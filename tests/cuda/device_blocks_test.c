/* Memory of virtual memory management (cuMemCreate) of another process, by its file descriptor. */
#include <fcntl.h>
#include <tests/cuda/ipc_region.h>
#include <tests/cuda/mapped.h>
#include <transports/cuda/peer_memory.h>

enum { LEN = 1500007, ROUNDS = 3 };

/* ---- between two processes ------------------------------------------------------------------- */

/* Keeps a region, or sends from one block, then from others at whatever address. */
static void child_serves(weft_worker_t *worker, const struct child *child) {
    CHECK_EQ(gpu.set_current(gpu.context), 0); /* for copies of memory that has no context */
    if (getenv("WEFT_TEST_REGION")) {
        struct mapped block = mapped_new(1, 1);
        child_keeps_region(worker, child, mapped_at(&block), LEN);
        return;
    }
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct mapped block = mapped_new(1, 1);
        if (!child_sends(worker, child, mapped_at(&block), LEN, i)) return;
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
        ipc_receive(&p, mapped_at(&to), LEN, i);
        CHECK_EQ(weft_worker_count(p.worker, "cuda.fetched"), (uint64_t)i + 1);
        /* this one, and the peer's, of which one goes when another comes at its address */
        if (blocks) CHECK(*blocks >= 2 && *blocks <= 2 + i);
    }
    CHECK_EQ(kill(p.child, SIGKILL), 0);
    ipc_down(&p);
    mapped_end(&to);
    if (blocks) CHECK_EQ(*blocks, 0);
    if (gpu.context_create) CHECK_EQ(gpu.set_current(NULL), 0);
}

TEST(a_region_of_a_block_is_put_to_and_got_from) {
    struct ipc p;
    setenv("WEFT_TEST_REGION", "1", 1);
    ipc_up(&p);
    unsetenv("WEFT_TEST_REGION");
    CHECK_EQ(gpu.set_current(gpu.context), 0);
    struct mapped here = mapped_new(1, 1);
    ipc_region_serves(&p, mapped_at(&here), LEN);
    CHECK_EQ(kill(p.child, SIGKILL), 0);
    ipc_down(&p);
    mapped_end(&here);
    if (gpu.context_create) CHECK_EQ(gpu.set_current(NULL), 0);
}

TEST(without_memory_to_map_a_block_the_bytes_are_asked_for) {
    struct ipc p;
    gpu_load();
    if (!gpu.fail_alloc) SKIP("only the double of the CUDA driver fails at will");
    ipc_up(&p);
    CHECK_EQ(gpu.set_current(gpu.context), 0);
    struct mapped to = mapped_new(1, 1);
    *gpu.fail_alloc = 1;
    ipc_receive(&p, mapped_at(&to), LEN, 0);
    CHECK_EQ(*gpu.fail_alloc, 0);
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
