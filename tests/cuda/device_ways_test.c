/* The ways of puts and gets of device memory that are no plain copy: strides by a key, pieces, keys
 * that the host alone serves, pinned memory. */
#include <tests/cuda/device.h>
#include <tests/support/rma_peers.h>
#include <weft/layout.h>
#include <weft/rma.h>

enum { BLOCK = 700, STRIDE = 1000, COUNT = 300, ROOM = STRIDE * COUNT, ALL = BLOCK * COUNT };
static char expected[ROOM], got[ROOM];

static char *new_pattern(unsigned seed) {
    char *device = gpu_alloc(ROOM);
    pattern(expected, ROOM, seed);
    gpu.write(device, expected, ROOM);
    return device;
}
/* The bytes of `got` from `at` on, without what lies between the blocks of `expected`. */
static bool has_blocks(size_t at) {
    for (size_t i = 0; i < COUNT; i++)
        if (memcmp(got + at + i * BLOCK, expected + i * STRIDE, BLOCK) != 0) return false;
    return true;
}
static unsigned copies_so_far(void) {
    return gpu.copies ? __atomic_load_n(gpu.copies, __ATOMIC_ACQUIRE) : 0;
}

/* A worker turns, and what it has posted does not end while the device's streams are held. */
static void held_turns(struct two *t, const struct tally *posted) {
    for (int i = 0; i < 20; i++) two_turn(t);
    if (!gpu.hold) return;
    CHECK_EQ(posted->calls, 0);
    gpu.hold(false);
}

/* ---- strides by a key ------------------------------------------------------------------------ */

TEST(blocks_at_a_stride_are_one_copy_between_devices) {
    struct rma r;
    weft_mem_t *mem;
    struct tally put = {0}, again = {0};
    weft_mem_params_t params = {.rights = WEFT_MEM_READ | WEFT_MEM_WRITE};
    weft_layout_t blocks = {WEFT_LAYOUT_STRIDED, BLOCK, STRIDE, COUNT, NULL, {0}};
    weft_op_t put_op = {.done = tally, .arg = &put, .layout = &blocks, .flags = WEFT_RMA_REMOTE};
    weft_op_t get_op = {.done = tally, .arg = &again, .layout = &blocks};
    gpu_load();
    rma_up(&r, "shm", false, ROOM, WEFT_MEM_ALL, NULL, 0);
    char *target = gpu_alloc(ROOM), *out = new_pattern(31), *in = new_pattern(32);
    CHECK_EQ(weft_mem_register(two_b(&r.t), target, ROOM, &params, &mem), 0);
    weft_rkey_t *key = rma_key(&r, mem);
    UNTIL(&r.t, key->key->status != WEFT_NO_RESOURCE);
    uint64_t at = (uint64_t)(uintptr_t)target + 8, before = weft_worker_count(r.t.a, "rma.native");
    unsigned copies = copies_so_far();
    if (gpu.hold) gpu.hold(true);
    CHECK_EQ(weft_put(r.t.ep, out, 0, at, key, &put_op), WEFT_IN_PROGRESS);
    held_turns(&r.t, &put);
    UNTIL(&r.t, put.calls);
    CHECK_EQ(put.status, WEFT_OK);
    if (gpu.copies) CHECK_EQ(copies_so_far() - copies, 1);
    pattern(expected, ROOM, 31);
    gpu.read(got, target, ROOM);
    CHECK(has_blocks(8));
    CHECK_EQ(weft_get(r.t.ep, in, 0, at, key, &get_op), WEFT_IN_PROGRESS);
    UNTIL(&r.t, again.calls);
    CHECK_EQ(again.status, WEFT_OK);
    CHECK_EQ(weft_worker_count(r.t.a, "rma.native") - before, 2);
    static char came[ROOM];
    pattern(came, ROOM, 32);
    for (size_t i = 0; i < COUNT; i++) memcpy(came + i * STRIDE, expected + i * STRIDE, BLOCK);
    gpu.read(got, in, ROOM);
    CHECK(memcmp(got, came, ROOM) == 0);
    CHECK(gpu_context_is_as_before());
    weft_rkey_release(key);
    rma_down(&r);
    gpu.release(out);
    gpu.release(in);
    gpu.release(target);
}

/* A mapped region, and one that the host alone copies to: through a buffer of the host; and by
 * messages. */
TEST_WAYS(a_worker_goes_on_while_a_device_is_put_to_memory_of_the_host) {
    struct rma r;
    struct tally put = {0}, again = {0};
    weft_layout_t blocks = {WEFT_LAYOUT_STRIDED, BLOCK, STRIDE, COUNT, NULL, {0}};
    weft_op_t put_op = {.done = tally, .arg = &put, .layout = &blocks, .flags = WEFT_RMA_REMOTE};
    weft_op_t get_op = {.done = tally, .arg = &again, .layout = &blocks};
    gpu_load();
    rma_up(&r, transport, messages, ROOM, WEFT_MEM_ALL, (weft_setting_t[]){{"cuda.chunk", "64k"}},
           1);
    char *out = new_pattern(31), *in = new_pattern(31);
    if (gpu.hold) gpu.hold(true);
    CHECK_EQ(weft_put(r.t.ep, out, 0, rma_at(&r, 8), r.rkey, &put_op), WEFT_IN_PROGRESS);
    held_turns(&r.t, &put);
    UNTIL(&r.t, put.calls);
    CHECK_EQ(put.status, WEFT_OK);
    memcpy(got, r.target, ROOM);
    CHECK(has_blocks(8));
    pattern(r.target + 8, ALL, 33);
    if (gpu.hold) gpu.hold(true);
    CHECK_EQ(weft_get(r.t.ep, in, 0, rma_at(&r, 8), r.rkey, &get_op), WEFT_IN_PROGRESS);
    held_turns(&r.t, &again);
    UNTIL(&r.t, again.calls);
    CHECK_EQ(again.status, WEFT_OK);
    for (size_t i = 0; i < COUNT; i++)
        memcpy(expected + i * STRIDE, r.target + 8 + i * BLOCK, BLOCK);
    gpu.read(got, in, ROOM);
    CHECK(memcmp(got, expected, ROOM) == 0);
    CHECK(gpu_context_is_as_before());
    gpu.release(out);
    gpu.release(in);
    rma_down(&r);
}

/* By a key of mapped memory the target does nothing, though a device's blocks pass the host. */
TEST(blocks_of_a_device_reach_memory_of_a_target_that_is_not_driven) {
    struct rma r;
    struct tally put = {0};
    weft_layout_t blocks = {WEFT_LAYOUT_STRIDED, BLOCK, STRIDE, COUNT, NULL, {0}};
    weft_op_t op = {.done = tally, .arg = &put, .layout = &blocks};
    gpu_load();
    rma_up(&r, "shm", false, ROOM, WEFT_MEM_ALL, NULL, 0);
    char *out = new_pattern(31);
    CHECK_EQ(weft_put(r.t.ep, out, 0, rma_at(&r, 8), r.rkey, &op), WEFT_IN_PROGRESS);
    double end = test_now() + test_timeout(60);
    while (!put.calls && test_now() < end) (void)weft_worker_progress(r.t.a, 0);
    CHECK(put.calls && put.status == WEFT_OK);
    memcpy(got, r.target, ROOM);
    CHECK(has_blocks(8));
    CHECK_EQ(weft_worker_count(r.t.a, "rma.messages"), 0);
    gpu.release(out);
    rma_down(&r);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

enum { TAIL = 1000 };

/* Blocks on a device, and a piece of the host. */
static void pieces_of(weft_local_t local[2], char *device, char *tail) {
    local[0] = (weft_local_t){.base = device, .len = BLOCK, .stride = STRIDE, .count = COUNT};
    local[1] = (weft_local_t){.base = tail, .len = TAIL};
}

TEST_WAYS(a_worker_goes_on_while_pieces_of_a_device_are_put_and_got) {
    struct rma r;
    weft_completion_t put = {0}, again = {0};
    struct tally put_done = {0}, get_done = {0};
    static char tail[TAIL], back[TAIL];
    weft_local_t local[2];
    gpu_load();
    rma_up(&r, transport, messages, ROOM, WEFT_MEM_ALL, (weft_setting_t[]){{"cuda.chunk", "64k"}},
           1);
    char *out = new_pattern(31), *in = new_pattern(31);
    weft_remote_t remote = {.base = rma_at(&r, 64), .len = ALL + TAIL, .rkey = r.rkey};
    pattern(tail, TAIL, 5);
    pieces_of(local, out, tail);
    put.done = again.done = tally;
    put.arg = &put_done, again.arg = &get_done;
    if (gpu.hold) gpu.hold(true);
    weft_op_t op = {.completion = &put, .flags = WEFT_RMA_REMOTE};
    CHECK_EQ(weft_put_pieces(r.t.ep, local, 2, &remote, 1, &op), WEFT_IN_PROGRESS);
    held_turns(&r.t, &put_done);
    UNTIL(&r.t, put_done.calls);
    CHECK_EQ(put_done.status, WEFT_OK);
    memcpy(got, r.target, ROOM);
    CHECK(has_blocks(64));
    CHECK(memcmp(r.target + 64 + ALL, tail, TAIL) == 0);
    pattern(r.target + 64, ALL + TAIL, 33);
    pieces_of(local, in, back);
    if (gpu.hold) gpu.hold(true);
    op = (weft_op_t){.completion = &again};
    CHECK_EQ(weft_get_pieces(r.t.ep, local, 2, &remote, 1, &op), WEFT_IN_PROGRESS);
    held_turns(&r.t, &get_done);
    UNTIL(&r.t, get_done.calls);
    CHECK_EQ(get_done.status, WEFT_OK);
    for (size_t i = 0; i < COUNT; i++)
        memcpy(expected + i * STRIDE, r.target + 64 + i * BLOCK, BLOCK);
    gpu.read(got, in, ROOM);
    CHECK(memcmp(got, expected, ROOM) == 0);
    CHECK(memcmp(back, r.target + 64 + ALL, TAIL) == 0);
    CHECK(gpu_context_is_as_before());
    gpu.release(out);
    gpu.release(in);
    rma_down(&r);
}

/* One piece of a device, and blocks of the peer: few, and more than are operations of their own. */
TEST_WAYS(many_blocks_of_the_peer_take_one_copy_of_the_device) {
    enum { FEW = 8, MANY = 200, EACH = 100, APART = 150 };
    struct rma r;
    struct tally t;
    gpu_load();
    rma_up(&r, transport, messages, ROOM, WEFT_MEM_ALL, NULL, 0);
    char *out = new_pattern(31), *in = new_pattern(32);
    for (size_t count = FEW; count <= MANY; count += MANY - FEW) {
        weft_local_t local = {.base = out, .len = EACH * count};
        weft_remote_t remote = {
            .base = rma_at(&r, 0), .len = EACH, .stride = APART, .count = count, .rkey = r.rkey};
        memset(r.target, 0, ROOM);
        pattern(expected, ROOM, 31);
        CHECK_EQ(RMA_WAIT(&r, &t, weft_put_pieces(r.t.ep, &local, 1, &remote, 1, RMA_REMOTE(&t))),
                 0);
        for (size_t i = 0; i < count; i++)
            CHECK(memcmp(r.target + i * APART, expected + i * EACH, EACH) == 0 &&
                  r.target[i * APART + EACH] == 0);
        local.base = in;
        CHECK_EQ(RMA_WAIT(&r, &t, weft_get_pieces(r.t.ep, &local, 1, &remote, 1, OP(&t))), 0);
        gpu.read(got, in, ROOM);
        CHECK(memcmp(got, expected, EACH * count) == 0);
    }
    weft_completion_t counted = {.count = 1};
    weft_local_t local = {.base = in, .len = EACH * MANY};
    weft_remote_t remote = {
        .base = rma_at(&r, 0), .len = EACH, .stride = APART, .count = MANY, .rkey = r.rkey};
    CHECK_EQ(weft_get_pieces(r.t.ep, &local, 1, &remote, 1, &(weft_op_t){.completion = &counted}),
             WEFT_ERR_UNSUPPORTED);
    CHECK(gpu_context_is_as_before());
    gpu.release(out);
    gpu.release(in);
    rma_down(&r);
}

/* ---- order ----------------------------------------------------------------------------------- */

/* Where a key keeps puts in order, one that passes a buffer of the host does not lose its place. */
TEST(a_put_behind_one_of_device_memory_through_the_host_waits_for_it) {
    struct rma r;
    struct tally t[3] = {{0}};
    weft_local_t local[2];
    static char tail[TAIL];
    gpu_load();
    if (!gpu.hold) SKIP("only the double of the CUDA driver holds streams");
    rma_up(&r, "self", false, ROOM, WEFT_MEM_ALL, NULL, 0);
    char *out = new_pattern(1);
    static const char flag[8] = "arrived";
    for (int pieces = 0; pieces < 2; pieces++) {
        weft_remote_t remote = {.base = rma_at(&r, 0), .len = ALL + TAIL, .rkey = r.rkey};
        memset(t, 0, sizeof t);
        memset(r.target, 0, ROOM);
        pieces_of(local, out, tail);
        gpu.hold(true);
        weft_status_t first = pieces ? weft_put_pieces(r.t.ep, local, 2, &remote, 1, OP(&t[0]))
                                     : weft_put(r.t.ep, out, ALL, rma_at(&r, 0), r.rkey, OP(&t[0]));
        CHECK_EQ(first, WEFT_IN_PROGRESS);
        weft_status_t st =
            weft_put(r.t.ep, flag, sizeof flag, rma_at(&r, ALL + TAIL), r.rkey, OP(&t[1]));
        for (int i = 0; i < 20; i++) two_turn(&r.t);
        CHECK(st == WEFT_IN_PROGRESS && t[1].calls == 0 && r.target[ALL + TAIL] == 0);
        gpu.hold(false);
        UNTIL(&r.t, t[1].calls);
        CHECK(t[0].calls && memcmp(r.target + ALL + TAIL, flag, sizeof flag) == 0);
        pattern(expected, ROOM, 1);
        memcpy(got, r.target, ROOM);
        CHECK(pieces ? has_blocks(0) : memcmp(got, expected, ALL) == 0);
    }
    gpu.release(out);
    rma_down(&r);
}

/* ---- pinned memory --------------------------------------------------------------------------- */

/* The driver reads and writes it itself: one copy, however long, and none by the processor. */
TEST(pinned_memory_of_the_host_needs_no_staging_buffers) {
    struct rma r;
    weft_mem_t *mem;
    struct tally t, sent = {0}, received = {0};
    weft_mem_params_t params = {.rights = WEFT_MEM_READ | WEFT_MEM_WRITE};
    static _Alignas(4096) char host[(ROOM + 4095) / 4096 * 4096];
    gpu_load();
    rma_up(&r, "shm", false, ROOM, WEFT_MEM_ALL, (weft_setting_t[]){{"cuda.chunk", "64k"}}, 1);
    char *target = new_pattern(3), *out = new_pattern(5);
    CHECK_EQ(weft_mem_register(two_b(&r.t), target, ROOM, &params, &mem), 0);
    weft_rkey_t *key = rma_key(&r, mem);
    UNTIL(&r.t, key->key->status != WEFT_NO_RESOURCE);
    uint64_t at = (uint64_t)(uintptr_t)target;
    CHECK_EQ(gpu.set_current(gpu.context), 0);
    CHECK_EQ(gpu.host_register(host, sizeof host, 1), 0);
    unsigned copies = copies_so_far();
    pattern(host, ROOM, 4);
    CHECK_EQ(RMA_WAIT(&r, &t, weft_put(r.t.ep, host, ROOM, at, key, RMA_REMOTE(&t))), 0);
    pattern(expected, ROOM, 4);
    gpu.read(got, target, ROOM);
    CHECK(memcmp(got, expected, ROOM) == 0);
    memset(host, 0, ROOM);
    CHECK_EQ(RMA_WAIT(&r, &t, weft_get(r.t.ep, host, ROOM, at, key, OP(&t))), 0);
    CHECK(memcmp(host, expected, ROOM) == 0);
    memset(host, 0, ROOM);
    weft_status_t recv_st =
        weft_tag_recv(two_b(&r.t), 1, ~0ull, &(weft_iov_t){host, ROOM}, 1, NULL, OP(&received));
    weft_status_t st = weft_tag_send(r.t.ep, 1, &(weft_iov_t){out, ROOM}, 1, OP(&sent));
    CHECK(st >= 0 && recv_st == WEFT_IN_PROGRESS);
    UNTIL(&r.t, received.calls && (st == WEFT_OK || sent.calls));
    pattern(expected, ROOM, 5);
    CHECK(received.status == WEFT_OK && memcmp(host, expected, ROOM) == 0);
    CHECK_EQ(weft_worker_count(two_b(&r.t), "cuda.fetched"), 1);
    if (gpu.copies) CHECK_EQ(copies_so_far() - copies, 3);
    CHECK_EQ(gpu.host_unregister(host), 0);
    if (gpu.context_create) CHECK_EQ(gpu.set_current(NULL), 0);
    weft_rkey_release(key);
    rma_down(&r);
    gpu.release(out);
    gpu.release(target);
}
