/* A range of several mappings of another process (cuMemMap, one handle after another), by the table
 * of their files. */
#include <fcntl.h>
#include <sys/mman.h>
#include <tests/cuda/ipc_region.h>
#include <tests/cuda/mapped.h>
#include <transports/cuda/peer_memory.h>

enum { MAPPINGS = 3, BEFORE = MAPPED_ROOM - 4096, LEN = MAPPED_ROOM + 50007, ROUNDS = 3 };

/* A buffer that lies in all three. */
static char *buffer_of(const struct mapped *range) {
    return mapped_at(range) + BEFORE;
}

/* ---- between two processes ------------------------------------------------------------------- */

/* Sends from a range, of which it then replaces a mapping; and keeps a region of it. */
static void child_serves(weft_worker_t *worker, const struct child *child) {
    CHECK_EQ(gpu.set_current(gpu.context), 0); /* for copies of memory that has no context */
    struct mapped range = mapped_new(1, MAPPINGS);
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (!child_sends(worker, child, buffer_of(&range), LEN, i)) return;
        mapped_unmap(&range, 1);
        mapped_map(&range, 1);
    }
    child_keeps_region(worker, child, buffer_of(&range), LEN);
}

TEST(ranges_of_another_process_are_copied_by_the_files_of_their_mappings) {
    struct ipc p;
    ipc_up(&p);
    const unsigned *blocks = dlsym(RTLD_DEFAULT, "double_blocks");
    CHECK_EQ(gpu.set_current(gpu.context), 0);
    struct mapped to = mapped_new(1, MAPPINGS);
    for (unsigned i = 0; i < ROUNDS; i++) {
        ipc_receive(&p, buffer_of(&to), LEN, i);
        CHECK_EQ(weft_worker_count(p.worker, "cuda.fetched"), (uint64_t)i + 1);
        if (blocks) CHECK_EQ(*blocks, 2 * MAPPINGS); /* these, and the peer's that are mapped */
    }
    CHECK_EQ(kill(p.child, SIGKILL), 0);
    ipc_down(&p);
    mapped_end(&to);
    if (blocks) CHECK_EQ(*blocks, 0);
    if (gpu.context_create) CHECK_EQ(gpu.set_current(NULL), 0);
}

TEST(a_region_over_three_mappings_serves_puts_and_gets) {
    struct ipc p;
    ipc_up(&p);
    CHECK_EQ(gpu.set_current(gpu.context), 0);
    struct mapped here = mapped_new(1, MAPPINGS);
    for (unsigned i = 0; i < ROUNDS; i++) ipc_receive(&p, buffer_of(&here), LEN, i);
    ipc_region_serves(&p, buffer_of(&here), LEN);
    CHECK_EQ(kill(p.child, SIGKILL), 0);
    ipc_down(&p);
    mapped_end(&here);
    if (gpu.context_create) CHECK_EQ(gpu.set_current(NULL), 0);
}

/* Whichever mapping the driver has no memory for: those before it are unmapped again. */
TEST(without_memory_for_a_mapping_the_bytes_are_asked_for) {
    struct ipc p;
    gpu_load();
    if (!gpu.fail_alloc) SKIP("only the double of the CUDA driver fails at will");
    ipc_up(&p);
    const unsigned *blocks = gpu_symbol(RTLD_DEFAULT, "double_blocks");
    CHECK_EQ(gpu.set_current(gpu.context), 0);
    struct mapped to = mapped_new(1, MAPPINGS);
    for (unsigned i = 0; i < ROUNDS; i++) {
        *gpu.fail_alloc = 1 + i;
        ipc_receive(&p, buffer_of(&to), LEN, i);
        CHECK_EQ(*gpu.fail_alloc, 0);
        CHECK_EQ(weft_worker_count(p.worker, "cuda.fetched"), 0);
        CHECK_EQ(*blocks, MAPPINGS);
    }
    CHECK_EQ(kill(p.child, SIGKILL), 0);
    ipc_down(&p);
    mapped_end(&to);
    CHECK_EQ(gpu.set_current(NULL), 0);
}

/* ---- what is exported ------------------------------------------------------------------------ */

TEST(an_export_is_of_the_mappings_that_hold_the_buffer) {
    struct mapped range = mapped_new(1, MAPPINGS);
    struct cuda_export one, all, again, other;
    char *at = mapped_at(&range);
    CHECK_EQ(weft__cuda_export(at + MAPPED_ROOM + 5, 100, &one), WEFT_OK);
    CHECK(one.file.kind == CUDA_FILE_MAPPING && one.size == MAPPED_ROOM &&
          one.base == (uintptr_t)at + MAPPED_ROOM);
    CHECK_EQ(weft__cuda_export(at + 5, 3 * (size_t)MAPPED_ROOM - 5, &all), WEFT_OK);
    CHECK(all.file.kind == CUDA_FILE_TABLE && all.size == 3 * (size_t)MAPPED_ROOM &&
          all.base == (uintptr_t)at);
    CHECK_EQ(weft__cuda_export(at + BEFORE, LEN, &again), WEFT_OK);
    CHECK(again.file.fd == all.file.fd && again.buffer == all.buffer);
    /* what is reserved behind them is no memory */
    CHECK_EQ(weft__cuda_export(at + 5, 3 * (size_t)MAPPED_ROOM, &other), WEFT_ERR_UNSUPPORTED);
    mapped_unmap(&range, 1);
    CHECK_EQ(weft__cuda_export(at + BEFORE, LEN, &other), WEFT_ERR_UNSUPPORTED);
    mapped_map(&range, 1);
    CHECK_EQ(weft__cuda_export(at + BEFORE, LEN, &other), WEFT_OK);
    CHECK(other.file.kind == CUDA_FILE_TABLE && other.buffer != all.buffer);
    mapped_end(&range);
    weft__cuda_files_close();
    CHECK(fcntl((int)other.file.fd, F_GETFD) < 0);
}

TEST(more_mappings_than_a_table_has_are_not_exported) {
    enum { MOST = 64 };
    struct mapped range = mapped_new(1, MOST + 1);
    struct cuda_export made;
    CHECK_EQ(weft__cuda_export(mapped_at(&range), (size_t)MAPPED_ROOM * (MOST + 1), &made),
             WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft__cuda_export(mapped_at(&range), (size_t)MAPPED_ROOM * MOST, &made), WEFT_OK);
    CHECK_EQ(made.size, (size_t)MAPPED_ROOM * MOST);
    mapped_end(&range);
    weft__cuda_files_close();
}

/* ---- a peer may write what it likes ---------------------------------------------------------- */

struct line {
    uint64_t len;
    uint32_t fd, zero;
};

static struct cuda_file table_of(const struct line *line, size_t bytes) {
    int fd = memfd_create("table", MFD_CLOEXEC);
    CHECK(fd >= 0 && write(fd, line, bytes) == (ssize_t)bytes);
    return (struct cuda_file){
        .process = getpid(), .fd = (unsigned)fd & 0xffffff, .kind = CUDA_FILE_TABLE};
}

static weft_status_t map_table(const struct line *line, size_t bytes, uint64_t size) {
    static const struct cuda_pool_pointer nothing;
    struct cuda_mapped mapped;
    struct cuda_file file = table_of(line, bytes);
    weft_status_t st = weft__cuda_file_map(&file, &nothing, size, &mapped);
    if (st == WEFT_OK) weft__cuda_file_unmap(&mapped);
    close((int)file.fd);
    return st;
}

TEST(a_table_that_does_not_fit_is_refused_and_leaves_nothing) {
    enum { SIZE = MAPPED_ROOM };
    struct mapped range = mapped_new(1, 1);
    struct cuda_export made;
    struct line many[65];
    CHECK_EQ(gpu.set_current(gpu.context), 0);
    CHECK_EQ(weft__cuda_export(mapped_at(&range), 10, &made), WEFT_OK);
    uint32_t fd = made.file.fd;
    const unsigned *blocks = dlsym(RTLD_DEFAULT, "double_blocks");
    struct line good[] = {{SIZE, fd, 0}, {SIZE, fd, 0}},
                large[] = {{SIZE, fd, 0}, {2 * SIZE, fd, 0}}, empty[] = {{SIZE, fd, 0}, {0, fd, 0}},
                none[] = {{SIZE, fd, 0}, {SIZE, 9999, 0}},
                over[] = {{SIZE, fd, 0}, {UINT64_MAX, fd, 0}};
    for (int i = 0; i < 65; i++) many[i] = (struct line){SIZE, fd, 0};
    CHECK_EQ(map_table(good, sizeof good, 2 * SIZE), WEFT_OK);
    CHECK_EQ(map_table(good, sizeof good, 3 * SIZE), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(map_table(good, sizeof good - 1, 2 * SIZE), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(map_table(good, 0, 2 * SIZE), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(map_table(large, sizeof large, 3 * SIZE), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(map_table(empty, sizeof empty, SIZE), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(map_table(none, sizeof none, 2 * SIZE), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(map_table(over, sizeof over, SIZE - 1), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(map_table(many, sizeof many, 65 * (uint64_t)SIZE), WEFT_ERR_UNSUPPORTED);
    if (blocks) CHECK_EQ(*blocks, 1);
    mapped_end(&range);
    weft__cuda_files_close();
    if (gpu.context_create) CHECK_EQ(gpu.set_current(NULL), 0);
}
