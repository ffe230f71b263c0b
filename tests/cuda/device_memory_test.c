/* Operations on device memory, over a double of the driver whose memory the host cannot touch. */
#include <tests/cuda/device.h>
#include <tests/support/rma_peers.h>
#include <transports/cuda/dmabuf.h>
#include <weft/layout.h>

enum { ROOM = 1 << 20 };
static char expected[ROOM], got[ROOM];

static const size_t sizes[] = {1, 8, 200, 5000, 65536, 70001, ROOM};
#define N_SIZES (sizeof sizes / sizeof *sizes)

static bool gpu_equals(const char *device, const char *bytes, size_t len) {
    static char read[ROOM];
    gpu.read(read, device, len);
    return memcmp(read, bytes, len) == 0;
}

/* Device memory that holds a pattern. */
static char *gpu_filled(size_t len, int seed) {
    char *device = gpu_alloc(len);
    pattern(expected, len, (unsigned)seed);
    gpu.write(device, expected, len);
    return device;
}
static bool gpu_holds(const char *device, size_t len, int seed) {
    pattern(expected, len, (unsigned)seed);
    return gpu_equals(device, expected, len);
}

static weft_status_t outcome(weft_status_t st, const struct tally *t) {
    return st == WEFT_IN_PROGRESS ? t->status : st;
}
static bool ended(weft_status_t st, const struct tally *t) {
    return st != WEFT_IN_PROGRESS || t->calls == 1;
}

/* ---- what a pointer points to ---------------------------------------------------------------- */

TEST(kinds_of_memory_are_distinguished) {
    weft_mem_info_t info;
    char host = 0;
    char *device = gpu_alloc(1000), *managed = gpu.alloc(gpu.context, 5000, true);
    CHECK_EQ(weft_mem_detect(device + 10, &info), WEFT_OK);
    CHECK_EQ(info.type, WEFT_MEMORY_CUDA);
    CHECK(info.base == device && info.len == 1000 && info.numa_node == -1);
    CHECK_EQ(weft_mem_detect(managed + 4999, &info), WEFT_OK);
    CHECK_EQ(info.type, WEFT_MEMORY_CUDA_MANAGED);
    CHECK(info.base == managed);
    CHECK_EQ(weft_mem_detect(&host, &info), WEFT_OK);
    CHECK_EQ(info.type, WEFT_MEMORY_HOST);
    static char page[8192] __attribute__((aligned(4096)));
    if (gpu.context_create) CHECK_EQ(gpu.set_current(gpu.context), 0);
    CHECK_EQ(gpu.host_register(page, sizeof page, 1), 0);
    CHECK_EQ(weft_mem_detect(page + 5000, &info), WEFT_OK);
    CHECK_EQ(info.type, WEFT_MEMORY_CUDA_HOST);
    CHECK(info.base == page && info.len == sizeof page);
    CHECK_EQ(gpu.host_unregister(page), 0);
    CHECK_EQ(weft_mem_detect(page + 5000, &info), WEFT_OK);
    CHECK_EQ(info.type, WEFT_MEMORY_HOST);
    if (gpu.context_create) CHECK_EQ(gpu.set_current(NULL), 0);
    gpu.release(device);
    gpu.release(managed);
}

/* Memory that is freed and allocated again at one address has another number of the driver. */
TEST(answers_are_kept_until_the_allocation_is_another) {
    weft_mem_info_t info;
    gpu_load();
    if (!gpu.asked) SKIP("only the double of the CUDA driver fails at will");
    char *device = gpu_alloc(5000);
    CHECK_EQ(weft_mem_detect(device, &info), WEFT_OK);
    unsigned asked = *gpu.asked;
    for (int i = 0; i < 5; i++) CHECK_EQ(weft_mem_detect(device + i, &info), WEFT_OK);
    CHECK_EQ(*gpu.asked, asked);
    gpu.release(device);
    CHECK_EQ(weft_mem_detect(device, &info), WEFT_ERR_NOT_FOUND);
    char *again = gpu_alloc(9000);
    CHECK_EQ(weft_mem_detect(again, &info), WEFT_OK);
    CHECK(info.base == again && info.len == 9000);
    gpu.release(again);
}

/* ---- messages -------------------------------------------------------------------------------- */

static void tag_crosses(struct two *t, size_t len, bool from_device, bool to_device, bool early) {
    struct tally sent = {0}, received = {0};
    char *out = from_device ? gpu_filled(len, 3) : got, *in = to_device ? gpu_alloc(len) : got;
    if (!from_device) pattern(out = expected, len, 3);
    weft_iov_t from = {out, len}, to = {in, len};
    weft_status_t recv_st = WEFT_OK, send_st;
    if (early) recv_st = weft_tag_recv(two_b(t), 7, UINT64_MAX, &to, 1, NULL, OP(&received));
    send_st = weft_tag_send(t->ep, 7, &from, 1, OP(&sent));
    if (!early) {
        for (int i = 0; i < 20; i++) two_turn(t);
        recv_st = weft_tag_recv(two_b(t), 7, UINT64_MAX, &to, 1, NULL, OP(&received));
    }
    CHECK(send_st >= 0 && recv_st >= 0);
    UNTIL(t, ended(send_st, &sent) && ended(recv_st, &received));
    CHECK_EQ(outcome(send_st, &sent), WEFT_OK);
    CHECK_EQ(outcome(recv_st, &received), WEFT_OK);
    pattern(expected, len, 3);
    CHECK(to_device ? gpu_equals(in, expected, len) : memcmp(in, expected, len) == 0);
    if (from_device) gpu.release(out);
    if (to_device) gpu.release(in);
}

TEST_EACH(tagged_messages_cross_between_device_and_host) {
    struct two t;
    gpu_load();
    two_up(&t, transport);
    for (size_t i = 0; i < N_SIZES; i++)
        for (int form = 0; form < 6; form++)
            tag_crosses(&t, sizes[i], form % 3 != 1, form % 3 != 2, form < 3);
    CHECK(gpu_context_is_as_before());
    two_down(&t);
}

/* Messages keep their order, whatever memory each comes from. */
TEST_EACH(a_message_from_a_device_is_not_overtaken) {
    struct two t;
    struct tally sent[2] = {{0}}, received[2] = {{0}};
    gpu_load();
    two_up(&t, transport);
    for (size_t i = 0; i < N_SIZES; i++) {
        size_t len = sizes[i];
        char *device = gpu_filled(len, 5), *in[2] = {gpu_alloc(len), gpu_alloc(len)};
        memset(sent, 0, sizeof sent);
        memset(received, 0, sizeof received);
        pattern(got, len, 6);
        weft_iov_t from[2] = {{device, len}, {got, len}};
        weft_status_t st[4];
        for (int k = 0; k < 2; k++) st[k] = weft_tag_send(t.ep, 9, &from[k], 1, OP(&sent[k]));
        for (int k = 0; k < 2; k++)
            st[2 + k] = weft_tag_recv(two_b(&t), 9, UINT64_MAX, &(weft_iov_t){in[k], len}, 1, NULL,
                                      OP(&received[k]));
        UNTIL(&t, ended(st[0], &sent[0]) && ended(st[1], &sent[1]) && ended(st[2], &received[0]) &&
                      ended(st[3], &received[1]));
        CHECK(gpu_holds(in[0], len, 5));
        CHECK(gpu_holds(in[1], len, 6));
        gpu.release(device);
        gpu.release(in[0]);
        gpu.release(in[1]);
    }
    two_down(&t);
}

struct am_in {
    char *device;
    size_t len;
    struct tally done;
    weft_status_t st;
    bool called;
};
static void on_am(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct am_in *in = arg;
    in->called = true;
    in->len = am->len;
    in->st = weft_am_recv(am, &(weft_iov_t){in->device, am->len}, 1, OP(&in->done));
}

TEST_EACH(active_messages_cross_from_device_to_device) {
    struct two t;
    gpu_load();
    two_up(&t, transport);
    for (size_t i = 0; i < N_SIZES; i++) {
        struct tally sent = {0};
        struct am_in in = {.device = gpu_alloc(sizes[i])};
        char *out = gpu_filled(sizes[i], 8);
        CHECK_EQ(weft_am_handler_set(two_b(&t), 4, on_am, &in), WEFT_OK);
        weft_status_t st =
            weft_am_send(t.ep, 4, "head", 4, &(weft_iov_t){out, sizes[i]}, 1, OP(&sent));
        CHECK(st >= 0);
        UNTIL(&t, ended(st, &sent) && in.called && ended(in.st, &in.done));
        CHECK_EQ(outcome(st, &sent), WEFT_OK);
        CHECK_EQ(outcome(in.st, &in.done), WEFT_OK);
        CHECK(in.len == sizes[i] && gpu_holds(in.device, in.len, 8));
        gpu.release(out);
        gpu.release(in.device);
    }
    two_down(&t);
}

TEST_EACH(streams_cross_from_device_to_device) {
    struct two t;
    gpu_load();
    two_up(&t, transport);
    for (size_t i = 0; i < N_SIZES; i++) {
        struct tally sent = {0}, received = {0};
        size_t len = 0;
        char *out = gpu_filled(sizes[i], 2), *in = gpu_alloc(sizes[i]);
        weft_op_t all = {.done = tally, .arg = &received, .flags = WEFT_STREAM_WAIT_ALL};
        weft_status_t recv_st =
            weft_stream_recv(t.back, &(weft_iov_t){in, sizes[i]}, 1, &len, &all);
        weft_status_t st = weft_stream_send(t.ep, &(weft_iov_t){out, sizes[i]}, 1, OP(&sent));
        CHECK(st >= 0 && recv_st >= 0);
        UNTIL(&t, ended(st, &sent) && ended(recv_st, &received));
        CHECK_EQ(outcome(recv_st, &received), WEFT_OK);
        CHECK(len == sizes[i] && gpu_holds(in, len, 2));
        gpu.release(out);
        gpu.release(in);
    }
    two_down(&t);
}

TEST_EACH(pieces_of_both_memories_are_one_message) {
    enum { PART = 30000 };
    struct two t;
    struct tally sent = {0}, received = {0};
    gpu_load();
    two_up(&t, transport);
    char *device = gpu_filled(PART, 11), *in = gpu_alloc(3 * PART);
    pattern(got, 2 * PART, 12);
    weft_iov_t from[] = {{got, PART}, {device, PART}, {got + PART, PART}};
    weft_iov_t to[] = {{in, PART + 100}, {in + PART + 100, 2 * PART - 100}};
    weft_status_t recv_st = weft_tag_recv(two_b(&t), 1, UINT64_MAX, to, 2, NULL, OP(&received));
    weft_status_t st = weft_tag_send(t.ep, 1, from, 3, OP(&sent));
    UNTIL(&t, ended(st, &sent) && ended(recv_st, &received));
    CHECK_EQ(outcome(recv_st, &received), WEFT_OK);
    CHECK(gpu_equals(in, got, PART));
    CHECK(gpu_holds(in + PART, PART, 11));
    CHECK(gpu_equals(in + 2 * PART, got + PART, PART));
    gpu.release(device);
    gpu.release(in);
    two_down(&t);
}

TEST_EACH(blocks_at_a_stride_cross_between_devices) {
    static const size_t shape[][3] = {
        {8, 24, 1000}, {1000, 1024, 3}, {300, 300, 50}, {4096, 5000, 100}};
    struct two t;
    gpu_load();
    two_up(&t, transport);
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        struct tally sent = {0}, received = {0};
        weft_layout_t blocks = {WEFT_LAYOUT_STRIDED, shape[i][0], shape[i][1],
                                shape[i][2],         NULL,        {0}};
        size_t room = blocks.stride * blocks.count;
        char *out = gpu_filled(room, 1), *in = gpu_alloc(room);
        memset(got, 0x5a, room);
        gpu.write(in, got, room);
        weft_op_t send_op = {.done = tally, .arg = &sent, .layout = &blocks};
        weft_op_t recv_op = {.done = tally, .arg = &received, .layout = &blocks};
        weft_status_t recv_st =
            weft_tag_recv(two_b(&t), 1, UINT64_MAX, &(weft_iov_t){in, 0}, 1, NULL, &recv_op);
        weft_status_t st = weft_tag_send(t.ep, 1, &(weft_iov_t){out, 0}, 1, &send_op);
        CHECK(st >= 0 && recv_st >= 0);
        UNTIL(&t, ended(st, &sent) && ended(recv_st, &received));
        CHECK_EQ(outcome(recv_st, &received), WEFT_OK);
        for (size_t k = 0; k < blocks.count; k++)
            memcpy(got + k * blocks.stride, expected + k * blocks.stride, blocks.block);
        CHECK(gpu_equals(in, got, room));

        gpu.release(out);
        gpu.release(in);
    }
    two_down(&t);
}

/* ---- one-sided operations -------------------------------------------------------------------- */

TEST_WAYS(puts_and_gets_of_device_memory_on_this_side) {
    struct rma r;
    struct tally t;
    gpu_load();
    rma_up(&r, transport, messages, ROOM, WEFT_MEM_ALL, NULL, 0);
    for (size_t i = 0; i < N_SIZES; i++) {
        char *out = gpu_filled(sizes[i], 21), *in = gpu_alloc(sizes[i]);
        CHECK_EQ(RMA_WAIT(&r, &t,
                          weft_put(r.t.ep, out, sizes[i], rma_at(&r, 0), r.rkey, RMA_REMOTE(&t))),
                 0);
        CHECK(memcmp(r.target, expected, sizes[i]) == 0);
        CHECK_EQ(RMA_WAIT(&r, &t, weft_get(r.t.ep, in, sizes[i], rma_at(&r, 0), r.rkey, OP(&t))),
                 0);
        CHECK(gpu_holds(in, sizes[i], 21));
        gpu.release(out);
        gpu.release(in);
    }
    char *device = gpu_alloc(8);
    weft_layout_t unknown = {.block = 8, .count = 1};
    unknown.kind = 77;
    CHECK_EQ(weft_put(r.t.ep, device, 0, rma_at(&r, 0), r.rkey, &(weft_op_t){.layout = &unknown}),
             WEFT_ERR_INVALID_PARAM);
    gpu.release(device);
    CHECK(gpu_context_is_as_before());
    rma_down(&r);
}

/* Scatter and gather: blocks at a stride on the device, and a piece of the host. */
TEST_WAYS(pieces_of_device_memory_are_put_and_got) {
    enum { BLOCK = 300, STRIDE = 500, COUNT = 20, ALL = BLOCK * COUNT };
    struct rma r;
    struct tally t;
    gpu_load();
    rma_up(&r, transport, messages, ROOM, WEFT_MEM_ALL, NULL, 0);
    char *out = gpu_filled(STRIDE * COUNT, 21), *in = gpu_alloc(STRIDE * COUNT);
    static char tail[1000], back[1000];
    pattern(tail, sizeof tail, 5);
    weft_local_t local[] = {{.base = out, .len = BLOCK, .stride = STRIDE, .count = COUNT},
                            {.base = tail, .len = sizeof tail}};
    weft_remote_t remote = {.base = rma_at(&r, 64), .len = ALL + sizeof tail, .rkey = r.rkey};
    CHECK_EQ(RMA_WAIT(&r, &t, weft_put_pieces(r.t.ep, local, 2, &remote, 1, RMA_REMOTE(&t))), 0);
    pattern(expected, STRIDE * COUNT, 21);
    for (size_t i = 0; i < COUNT; i++)
        CHECK(memcmp(r.target + 64 + i * BLOCK, expected + i * STRIDE, BLOCK) == 0);
    CHECK(memcmp(r.target + 64 + ALL, tail, sizeof tail) == 0);
    memset(got, 0x5a, STRIDE * COUNT);
    gpu.write(in, got, STRIDE * COUNT);
    local[0].base = in;
    local[1].base = back;
    CHECK_EQ(RMA_WAIT(&r, &t, weft_get_pieces(r.t.ep, local, 2, &remote, 1, OP(&t))), 0);
    for (size_t i = 0; i < COUNT; i++) memcpy(got + i * STRIDE, expected + i * STRIDE, BLOCK);
    CHECK(gpu_equals(in, got, STRIDE * COUNT));
    CHECK(memcmp(back, tail, sizeof tail) == 0);
    CHECK(gpu_context_is_as_before());
    gpu.release(out);
    gpu.release(in);
    rma_down(&r);
}

TEST_WAYS(a_region_of_device_memory_is_served_by_messages) {
    struct rma r;
    struct tally t;
    weft_mem_t *mem;
    weft_mem_info_t info;
    uint64_t old;
    char *device = gpu_alloc(ROOM);
    rma_up(&r, transport, messages, 4096, WEFT_MEM_ALL, NULL, 0);
    CHECK_EQ(weft_mem_register(two_b(&r.t), device, ROOM,
                               &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &mem),
             0);
    CHECK_EQ(weft_mem_describe(mem, &info), WEFT_OK);
    CHECK_EQ(info.type, WEFT_MEMORY_CUDA);
    weft_rkey_t *key = rma_key(&r, mem);
    uint64_t at = (uint64_t)(uintptr_t)device;
    for (size_t i = 0; i < N_SIZES; i++) {
        pattern(got, sizes[i], 31);
        CHECK_EQ(RMA_WAIT(&r, &t, weft_put(r.t.ep, got, sizes[i], at, key, RMA_REMOTE(&t))), 0);
        CHECK(gpu_holds(device, sizes[i], 31));
        memset(got, 0, sizes[i]);
        CHECK_EQ(RMA_WAIT(&r, &t, weft_get(r.t.ep, got, sizes[i], at, key, OP(&t))), 0);
        CHECK(gpu_equals(device, got, sizes[i]));
        CHECK(gpu_holds(device, sizes[i], 31));
    }
    uint64_t word = 40;
    gpu.write(device + 8, &word, 8);
    CHECK_EQ(
        RMA_WAIT(&r, &t,
                 weft_atomic_fetch(r.t.ep, WEFT_ATOMIC_ADD, 8, 2, 0, &old, at + 8, key, OP(&t))),
        0);
    CHECK_EQ(old, 40);
    CHECK_EQ(RMA_WAIT(&r, &t,
                      weft_atomic_post(r.t.ep, WEFT_ATOMIC_ADD, 4, 8, at + 8, key, RMA_REMOTE(&t))),
             0);
    gpu.read(&word, device + 8, 8);
    CHECK_EQ(word, 50);
    CHECK_EQ(weft_mem_advise(mem, 0, 4096, WEFT_ADVISE_WILL_NEED), WEFT_ERR_UNSUPPORTED);
    weft_rkey_release(key);
    rma_down(&r);
    gpu.release(device);
}

/* What a network device registers: the pages that hold the range, and its place in them. */
TEST(a_range_of_device_memory_is_a_dmabuf) {
    uint64_t offset = 0;
    int fd = -1;
    char *device = gpu_alloc(3 * 4096);
    pattern(expected, 3 * 4096, 17);
    gpu.write(device, expected, 3 * 4096);
    weft_status_t st = weft__cuda_dmabuf(device + 5000, 3000, &fd, &offset);
    if (st == WEFT_ERR_UNSUPPORTED) SKIP("the GPU exports no dma-buf");
    CHECK_EQ(st, WEFT_OK);
    CHECK(fd >= 0 && offset == 5000 - 4096);
    close(fd);
    char host = 0;
    CHECK_EQ(weft__cuda_dmabuf(&host, 1, &fd, &offset), WEFT_ERR_UNSUPPORTED);
    gpu.release(device);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* The copy with each number fails in turn: the operation that needs it ends as IO, at one side or
 * the other, and the next one works. */
TEST_EACH(a_copy_that_fails_ends_its_operation_alone) {
    struct two t;
    gpu_load();
    if (!gpu.fail_copy) SKIP("only the double of the CUDA driver fails at will");
    two_workers(&t, transport, (weft_setting_t[]){{"cuda.ipc", "off"}}, 1);
    two_dial(&t);
    UNTIL(&t, t.ready && t.back);
    for (unsigned nth = 1; nth <= 3; nth++) {
        struct tally sent = {0}, received = {0};
        char *out = gpu_filled(200000, 3), *in = gpu_alloc(200000);
        *gpu.fail_copy = nth;
        weft_request_t *request = NULL;
        weft_op_t recv_op = {.done = tally, .arg = &received, .request_p = &request};
        weft_status_t recv_st =
            weft_tag_recv(two_b(&t), 7, UINT64_MAX, &(weft_iov_t){in, 200000}, 1, NULL, &recv_op);
        weft_status_t st = weft_tag_send(t.ep, 7, &(weft_iov_t){out, 200000}, 1, OP(&sent));
        UNTIL(&t, ended(st, &sent));
        if (outcome(st, &sent) < 0 && !ended(recv_st, &received))
            weft_request_cancel(request); /* nothing may come */
        UNTIL(&t, ended(recv_st, &received));
        CHECK_EQ(*gpu.fail_copy, 0);
        CHECK(outcome(st, &sent) == WEFT_ERR_IO || outcome(recv_st, &received) == WEFT_ERR_IO);
        CHECK(gpu_context_is_as_before());
        tag_crosses(&t, 200000, true, true, true);
        gpu.release(out);
        gpu.release(in);
    }
    two_down(&t);
}

TEST_EACH(memory_of_a_destroyed_context_fails_what_uses_it) {
    struct two t;
    struct tally sent = {0};
    gpu_load();
    if (!gpu.fail_copy) SKIP("only the double of the CUDA driver fails at will");
    two_up(&t, transport);
    void *context = gpu.context_create();
    char *device = gpu.alloc(context, 1000, false);
    gpu.context_destroy(context);
    weft_status_t st = weft_tag_send(t.ep, 7, &(weft_iov_t){device, 1000}, 1, OP(&sent));
    UNTIL(&t, ended(st, &sent));
    CHECK_EQ(outcome(st, &sent), WEFT_ERR_IO);
    gpu.release(device);
    tag_crosses(&t, 1000, true, true, true);
    two_down(&t);
}
