/* A range of several mappings of another process (cuMemMap, one handle after another), by the table
 * of their files. */
#include <fcntl.h>
#include <sys/mman.h>
#include <tests/cuda/ipc_child.h>
#include <tests/cuda/mapped.h>
#include <tests/support/rma_peers.h>
#include <transports/cuda/peer_memory.h>

enum { MAPPINGS = 3, BEFORE = MAPPED_ROOM - 4096, LEN = MAPPED_ROOM + 50007, ROUNDS = 3, KEYS = 7 };
static char expected[LEN], got[LEN];

/* A buffer that lies in all three. */
static char *buffer_of(const struct mapped *range) {
    return mapped_at(range) + BEFORE;
}
static void fill_range(const struct mapped *range, unsigned seed) {
    pattern(expected, LEN, seed);
    gpu.write(buffer_of(range), expected, LEN);
}
static bool range_holds(const struct mapped *range, unsigned seed) {
    pattern(expected, LEN, seed);
    gpu.read(got, buffer_of(range), LEN);
    return memcmp(got, expected, LEN) == 0;
}

/* ---- between two processes ------------------------------------------------------------------- */

/* Sends from a range, of which it then replaces a mapping; and keeps a region of it. */
static void child_serves(weft_worker_t *worker, const struct child *child) {
    weft_mem_params_t params = {.rights = WEFT_MEM_READ | WEFT_MEM_WRITE};
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    struct tally key_sent = {0};
    weft_mem_t *mem;
    CHECK_EQ(gpu.set_current(gpu.context), 0); /* for copies of memory that has no context */
    struct mapped range = mapped_new(1, MAPPINGS);
    for (unsigned i = 0; i < ROUNDS && !child->lost; i++) {
        struct tally sent = {0};
        fill_range(&range, 40 + i);
        if (weft_tag_send(child->ep, 1, &(weft_iov_t){buffer_of(&range), LEN}, 1, OP(&sent)) < 0)
            return;
        child_waits(worker, child, &sent);
        mapped_unmap(&range, 1);
        mapped_map(&range, 1);
    }
    fill_range(&range, 60);
    if (weft_mem_register(worker, buffer_of(&range), LEN, &params, &mem) ||
        weft_mem_pack(mem, key, &len))
        _exit(3);
    if (weft_tag_send(child->ep, KEYS, &(weft_iov_t){key, len}, 1, OP(&key_sent)) ==
        WEFT_IN_PROGRESS)
        child_waits(worker, child, &key_sent);
    while (!child->lost) weft_worker_wait(worker, 20);
}

static void receive(struct ipc *p, const struct mapped *to, unsigned i) {
    struct tally received = {0};
    weft_iov_t in = {buffer_of(to), LEN};
    CHECK_EQ(weft_tag_recv(p->worker, 1, ~0ull, &in, 1, NULL, OP(&received)), WEFT_IN_PROGRESS);
    IPC_UNTIL(p, received.calls);
    CHECK_EQ(received.status, WEFT_OK);
    CHECK(range_holds(to, 40 + i));
}

TEST(ranges_of_another_process_are_copied_by_the_files_of_their_mappings) {
    struct ipc p;
    ipc_up(&p);
    const unsigned *blocks = dlsym(RTLD_DEFAULT, "double_blocks");
    CHECK_EQ(gpu.set_current(gpu.context), 0);
    struct mapped to = mapped_new(1, MAPPINGS);
    for (unsigned i = 0; i < ROUNDS; i++) {
        receive(&p, &to, i);
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
    struct tally came = {0}, got_it = {0}, put = {0}, again = {0};
    char key[WEFT_RKEY_MAX];
    weft_tag_info_t tag;
    weft_rkey_t *rkey;
    weft_rkey_info_t info;
    ipc_up(&p);
    CHECK_EQ(gpu.set_current(gpu.context), 0);
    struct mapped here = mapped_new(1, MAPPINGS);
    for (unsigned i = 0; i < ROUNDS; i++) receive(&p, &here, i);
    CHECK(weft_tag_recv(p.worker, KEYS, ~0ull, &(weft_iov_t){key, sizeof key}, 1, &tag,
                        OP(&came)) >= 0);
    IPC_UNTIL(&p, came.calls);
    CHECK_EQ(weft_rkey_unpack(p.ep, key, tag.len, &rkey), 0);
    IPC_UNTIL(&p, rkey->key->status != WEFT_NO_RESOURCE);
    CHECK_EQ(weft_rkey_describe(rkey, &info), 0);
    CHECK(strcmp(info.put, "cuda ipc") == 0 && strcmp(info.get, "cuda ipc") == 0);
    CHECK(weft_get(p.ep, buffer_of(&here), LEN, info.base, rkey, OP(&got_it)) >= 0);
    IPC_UNTIL(&p, got_it.calls);
    CHECK(got_it.status == WEFT_OK && range_holds(&here, 60));
    fill_range(&here, 61);
    CHECK(weft_put(p.ep, buffer_of(&here), LEN, info.base, rkey, OP(&put)) >= 0);
    IPC_UNTIL(&p, put.calls);
    fill_range(&here, 62);
    CHECK(weft_get(p.ep, buffer_of(&here), LEN, info.base, rkey, OP(&again)) >= 0);
    IPC_UNTIL(&p, again.calls);
    CHECK(put.status == WEFT_OK && again.status == WEFT_OK && range_holds(&here, 61));
    CHECK_EQ(weft_worker_count(p.worker, "rma.messages"), 0);
    weft_rkey_release(rkey);
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
        receive(&p, &to, i);
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
