/* Large messages of device memory: through staging buffers, while the worker goes on. */
#include <tests/cuda/patterns.h>
#include <tests/support/rma_peers.h>
#include <weft/layout.h>

enum { LEN = 3 * 1000 * 1000 + 13 };
static char out[LEN], in[LEN], in_host[LEN];

static const weft_setting_t small_chunks[] = {
    {"cuda.chunk", "64k"}, {"cuda.depth", "2"}, {"close.timeout", "4ms"}, {"cuda.ipc", "off"}};

static void staged_up(struct two *t, const char *transport, const weft_setting_t *settings,
                      size_t n) {
    gpu_load();
    two_workers(t, transport, settings, n);
    two_dial(t);
    UNTIL(t, t->ready && t->back);
}

/* ---- the bytes ------------------------------------------------------------------------------- */

static void cross(struct two *t, size_t len, unsigned seed) {
    struct tally sent = {0}, received = {0};
    char *from = filled(len, seed), *to = gpu_alloc(len);
    CHECK_EQ(weft_tag_recv(two_b(t), 1, ~0ull, &(weft_iov_t){to, len}, 1, NULL, OP(&received)),
             WEFT_IN_PROGRESS);
    CHECK(weft_tag_send(t->ep, 1, &(weft_iov_t){from, len}, 1, OP(&sent)) == WEFT_IN_PROGRESS);
    UNTIL(t, sent.calls && received.calls);
    CHECK(sent.status == WEFT_OK && received.status == WEFT_OK);
    CHECK(holds(to, len, seed));
    gpu.release(from);
    gpu.release(to);
}

TEST_EACH(a_message_of_many_chunks_arrives_whole) {
    static const size_t sizes[] = {8193, 65536, 65537, 131072, 300001, LEN};
    struct two t;
    staged_up(&t, transport, small_chunks, 4);
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) cross(&t, sizes[i], i);
    CHECK(gpu_context_is_as_before());
    two_down(&t);
}

/* With the settings as they are. */
TEST_EACH(messages_are_staged_side_by_side) {
    enum { N = 6 };
    struct two t;
    struct tally sent = {0}, received = {0};
    char *from[N], *to[N];
    staged_up(&t, transport, NULL, 0);
    for (unsigned i = 0; i < N; i++) {
        from[i] = filled(LEN / 2, i);
        to[i] = gpu_alloc(LEN / 2);
        CHECK_EQ(weft_tag_recv(two_b(&t), i, ~0ull, &(weft_iov_t){to[i], LEN / 2}, 1, NULL,
                               OP(&received)),
                 WEFT_IN_PROGRESS);
    }
    for (unsigned i = 0; i < N; i++)
        CHECK(weft_tag_send(t.ep, i, &(weft_iov_t){from[i], LEN / 2}, 1, OP(&sent)) >= 0);
    UNTIL(&t, sent.calls == N && received.calls == N);
    CHECK(sent.status == WEFT_OK && received.status == WEFT_OK);
    for (unsigned i = 0; i < N; i++) {
        CHECK(holds(to[i], LEN / 2, i));
        gpu.release(from[i]);
        gpu.release(to[i]);
    }
    two_down(&t);
}

TEST_EACH(a_stream_of_bytes_is_read_ahead) {
    struct two t;
    struct tally sent = {0}, received = {0};
    size_t len = 0;
    staged_up(&t, transport, small_chunks, 4);
    char *from = filled(LEN, 5);
    char *tail = "and host memory behind it";
    struct tally sent_tail = {0};
    weft_op_t all = {.done = tally, .arg = &received, .flags = WEFT_STREAM_WAIT_ALL};
    static char got[LEN + 25];
    CHECK_EQ(weft_stream_recv(t.back, &(weft_iov_t){got, LEN + 25}, 1, &len, &all),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_stream_send(t.ep, &(weft_iov_t){from, LEN}, 1, OP(&sent)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_stream_send(t.ep, &(weft_iov_t){tail, 25}, 1, OP(&sent_tail)), WEFT_IN_PROGRESS);
    UNTIL(&t, sent.calls && received.calls && sent_tail.calls);
    pattern(out, LEN, 5);
    CHECK(received.status == WEFT_OK && len == LEN + 25);
    CHECK(memcmp(got, out, LEN) == 0 && memcmp(got + LEN, tail, 25) == 0);
    gpu.release(from);
    two_down(&t);
}

TEST_EACH(strides_and_mixed_pieces_are_staged) {
    struct two t;
    struct tally sent = {0}, received = {0};
    enum { BLOCK = 1000, STRIDE = 1100, COUNT = 500 };
    staged_up(&t, transport, small_chunks, 4);
    char *from = filled(STRIDE * COUNT, 9), *to = gpu_alloc(BLOCK * COUNT);
    static char host[BLOCK * COUNT / 2];
    weft_layout_t blocks = {WEFT_LAYOUT_STRIDED, BLOCK, STRIDE, COUNT, NULL, {0}};
    weft_op_t send_op = {.done = tally, .arg = &sent, .layout = &blocks};
    weft_iov_t two_pieces[] = {{to, BLOCK * COUNT / 2}, {host, BLOCK * COUNT / 2}};
    CHECK_EQ(weft_tag_recv(two_b(&t), 1, ~0ull, two_pieces, 2, NULL, OP(&received)),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(t.ep, 1, &(weft_iov_t){from, 0}, 1, &send_op), WEFT_IN_PROGRESS);
    UNTIL(&t, sent.calls && received.calls);
    CHECK(sent.status == WEFT_OK && received.status == WEFT_OK);
    gpu.read(in, to, BLOCK * COUNT / 2);
    memcpy(in + BLOCK * COUNT / 2, host, sizeof host);
    pattern(out, STRIDE * COUNT, 9);
    for (size_t i = 0; i < COUNT; i++) CHECK(memcmp(in + i * BLOCK, out + i * STRIDE, BLOCK) == 0);
    gpu.release(from);
    gpu.release(to);
    two_down(&t);
}

/* Short blocks are packed and unpacked by kernels, longer ones are copied by the driver. */
static void crosses_in_blocks(const char *transport, size_t block, bool by_kernel) {
    enum { STRIDE = 1600, COUNT = 400 };
    struct two t;
    struct tally sent = {0}, received = {0};
    const unsigned *packed = dlsym(RTLD_DEFAULT, "double_packed");
    staged_up(&t, transport, small_chunks, 4);
    unsigned before = packed ? *packed : 0;
    char *to = filled(STRIDE * COUNT, 4), *from = filled(STRIDE * COUNT, 9);
    weft_layout_t blocks = {WEFT_LAYOUT_STRIDED, block, STRIDE, COUNT, NULL, {0}};
    weft_op_t send_op = {.done = tally, .arg = &sent, .layout = &blocks};
    weft_op_t recv_op = {.done = tally, .arg = &received, .layout = &blocks};
    CHECK_EQ(weft_tag_recv(two_b(&t), 1, ~0ull, &(weft_iov_t){to, 0}, 1, NULL, &recv_op),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(t.ep, 1, &(weft_iov_t){from, 0}, 1, &send_op), WEFT_IN_PROGRESS);
    UNTIL(&t, sent.calls && received.calls);
    CHECK(sent.status == WEFT_OK && received.status == WEFT_OK);
    gpu.read(in, to, STRIDE * COUNT);
    pattern(in_host, STRIDE * COUNT, 4);
    pattern(out, STRIDE * COUNT, 9);
    for (size_t i = 0; i < COUNT; i++) memcpy(in_host + i * STRIDE, out + i * STRIDE, block);
    CHECK(memcmp(in, in_host, STRIDE * COUNT) == 0);
    if (packed) CHECK_EQ(*packed > before, by_kernel);
    gpu.release(from);
    gpu.release(to);
    two_down(&t);
}

TEST_EACH(short_blocks_are_packed_by_kernels) {
    crosses_in_blocks(transport, 300, true);
    crosses_in_blocks(transport, 700, false);
}

/* ---- the worker ------------------------------------------------------------------------------ */

/* While the device copies, the worker takes part in a conversation of host memory. */
TEST_EACH(the_worker_goes_on_while_a_copy_is_under_way) {
    struct two t;
    struct tally sent = {0}, received = {0}, other[2] = {{0}};
    gpu_load();
    if (!gpu.hold) SKIP("only the double of the CUDA driver fails at will");
    staged_up(&t, transport, small_chunks, 4);
    char *from = filled(LEN, 1), *to = gpu_alloc(LEN), word[8] = "";
    gpu.hold(true);
    CHECK_EQ(weft_tag_recv(two_b(&t), 1, ~0ull, &(weft_iov_t){to, LEN}, 1, NULL, OP(&received)),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(t.ep, 1, &(weft_iov_t){from, LEN}, 1, OP(&sent)), WEFT_IN_PROGRESS);
    for (int i = 0; i < 20; i++) two_turn(&t);
    CHECK(sent.calls == 0 && received.calls == 0);
    weft_status_t st[] = {
        weft_tag_recv(two_b(&t), 2, ~0ull, &(weft_iov_t){word, 8}, 1, NULL, OP(&other[0])),
        weft_tag_send(t.ep, 2, &(weft_iov_t){"a word.", 8}, 1, OP(&other[1]))};
    UNTIL(&t, (st[0] == WEFT_OK || other[0].calls) && (st[1] == WEFT_OK || other[1].calls));
    CHECK(memcmp(word, "a word.", 8) == 0);
    CHECK(sent.calls == 0 && received.calls == 0);
    gpu.hold(false);
    UNTIL(&t, sent.calls && received.calls);
    CHECK(holds(to, LEN, 1));
    gpu.release(from);
    gpu.release(to);
    two_down(&t);
}

/* Messages of a host that come whole, to receives that are posted, or not yet. */
TEST_EACH(a_short_message_is_written_to_the_device_while_the_worker_goes_on) {
    enum { SHORT = 6000 };
    static const weft_setting_t settings[] = {{"cuda.blocking", "1k"}, {"close.timeout", "4ms"}};
    struct two t;
    gpu_load();
    if (!gpu.hold) SKIP("only the double of the CUDA driver fails at will");
    staged_up(&t, transport, settings, 2);
    for (int early = 0; early < 2; early++) {
        struct tally sent = {0}, received = {0};
        weft_status_t recv_st = WEFT_IN_PROGRESS;
        char *to = gpu_alloc(LEN);
        weft_iov_t in = {to, SHORT + 5};
        pattern(in_host, SHORT, 3);
        gpu.hold(true);
        if (early) recv_st = weft_tag_recv(two_b(&t), 1, ~0ull, &in, 1, NULL, OP(&received));
        weft_status_t st = weft_tag_send(t.ep, 1, &(weft_iov_t){in_host, SHORT}, 1, OP(&sent));
        for (int i = 0; i < 20; i++) two_turn(&t);
        if (!early) recv_st = weft_tag_recv(two_b(&t), 1, ~0ull, &in, 1, NULL, OP(&received));
        for (int i = 0; i < 20; i++) two_turn(&t);
        CHECK_EQ(recv_st, WEFT_IN_PROGRESS);
        CHECK_EQ(received.calls, 0);
        gpu.hold(false);
        UNTIL(&t, received.calls && (st == WEFT_OK || sent.calls));
        CHECK_EQ(received.status, WEFT_OK);
        CHECK(holds(to, SHORT, 3));
        gpu.release(to);
    }
    two_down(&t);
}

/* Messages match in the order sent, though the bytes of the first come last. */
TEST_EACH(a_staged_message_is_not_overtaken) {
    struct two t;
    struct tally sent[2] = {{0}}, received[2] = {{0}};
    weft_tag_info_t info[2];
    static char host[100], got[100];
    staged_up(&t, transport, small_chunks, 4);
    char *from = filled(LEN, 4), *to = gpu_alloc(LEN);
    pattern(host, sizeof host, 6);
    CHECK(weft_tag_send(t.ep, 7, &(weft_iov_t){from, LEN}, 1, OP(&sent[0])) >= 0);
    weft_status_t st = weft_tag_send(t.ep, 7, &(weft_iov_t){host, 100}, 1, OP(&sent[1]));
    CHECK(st >= 0);
    for (int i = 0; i < 20; i++) two_turn(&t);
    weft_status_t first =
        weft_tag_recv(two_b(&t), 7, ~0ull, &(weft_iov_t){to, LEN}, 1, &info[0], OP(&received[0]));
    weft_status_t second =
        weft_tag_recv(two_b(&t), 7, ~0ull, &(weft_iov_t){got, 100}, 1, &info[1], OP(&received[1]));
    UNTIL(&t, sent[0].calls && (first == WEFT_OK || received[0].calls) &&
                  (second == WEFT_OK || received[1].calls));
    CHECK(memcmp(got, host, 100) == 0);
    CHECK(holds(to, LEN, 4));
    gpu.release(from);
    gpu.release(to);
    two_down(&t);
}

/* Its copies wait in the call, and all arrives. */
TEST_EACH(without_staging_memory_copies_are_waited_for) {
    static const weft_setting_t none[] = {
        {"cuda.staging", "0"}, {"close.timeout", "4ms"}, {"cuda.ipc", "off"}};
    struct two t;
    staged_up(&t, transport, none, 3);
    cross(&t, LEN, 8);
    two_down(&t);
}

/* ---- early ends ------------------------------------------------------------------------------ */

/* The operation ends when the copies that were under way have, and not before. */
TEST_EACH(a_cancelled_message_keeps_its_memory_until_no_copy_touches_it) {
    struct two t;
    gpu_load();
    if (!gpu.hold) SKIP("only the double of the CUDA driver fails at will");
    staged_up(&t, transport, small_chunks, 4);
    for (int receives = 0; receives < 2; receives++) {
        struct tally sent = {0}, received = {0};
        weft_request_t *request = NULL;
        static char host[LEN];
        char *device = filled(LEN, 1);
        weft_op_t op = {.done = tally, .arg = receives ? &received : &sent, .request_p = &request};
        weft_iov_t from = {receives ? host : device, LEN}, to = {receives ? device : host, LEN};
        gpu.hold(true);
        CHECK_EQ(weft_tag_recv(two_b(&t), 1, ~0ull, &to, 1, NULL, receives ? &op : OP(&received)),
                 WEFT_IN_PROGRESS);
        weft_status_t st = weft_tag_send(t.ep, 1, &from, 1, receives ? OP(&sent) : &op);
        CHECK(st >= 0);
        for (int i = 0; i < 50; i++) two_turn(&t);
        weft_request_cancel(request);
        for (int i = 0; i < 20; i++) two_turn(&t);
        CHECK_EQ(receives ? received.calls : sent.calls, 0);
        gpu.hold(false);
        UNTIL(&t, receives ? received.calls : sent.calls && received.calls);
        CHECK_EQ(receives ? received.status : sent.status, WEFT_ERR_CANCELLED);
        CHECK(receives || received.status == WEFT_ERR_CANCELLED);
        UNTIL(&t, st == WEFT_OK || sent.calls);
        gpu.release(device);
        cross(&t, 200000, 3);
    }
    two_down(&t);
}

TEST_EACH(closing_waits_for_copies_that_are_under_way) {
    struct two t;
    struct tally sent = {0}, received = {0};
    gpu_load();
    if (!gpu.copy_delay_us) SKIP("only the double of the CUDA driver fails at will");
    staged_up(&t, transport, small_chunks, 4);
    char *from = filled(LEN, 1), *to = gpu_alloc(LEN);
    *gpu.copy_delay_us = 500;
    CHECK_EQ(weft_tag_recv(two_b(&t), 1, ~0ull, &(weft_iov_t){to, LEN}, 1, NULL, OP(&received)),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(t.ep, 1, &(weft_iov_t){from, LEN}, 1, OP(&sent)), WEFT_IN_PROGRESS);
    for (int i = 0; i < 10; i++) two_turn(&t);
    two_down(&t);
    CHECK(sent.calls == 1 && received.calls == 1);
    *gpu.copy_delay_us = 0;
    gpu.release(from);
    gpu.release(to);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* A copy that fails in its stream breaks the context, and the driver calls no host function. */
TEST_EACH(a_sticky_error_ends_what_used_the_context_and_nothing_else) {
    struct two t;
    gpu_load();
    if (!gpu.fail_late) SKIP("only the double of the CUDA driver fails at will");
    staged_up(&t, transport, small_chunks, 4);
    for (int receives = 0; receives < 2; receives++) {
        struct tally sent = {0}, received = {0};
        static char host[LEN];
        void *context = gpu.context_create();
        char *device = gpu.alloc(context, LEN, false);
        weft_iov_t from = {receives ? host : device, LEN}, to = {receives ? device : host, LEN};
        *gpu.fail_late = true;
        *gpu.fail_copy = 3;
        weft_status_t recv_st = weft_tag_recv(two_b(&t), 1, ~0ull, &to, 1, NULL, OP(&received));
        weft_status_t st = weft_tag_send(t.ep, 1, &from, 1, OP(&sent));
        CHECK(st >= 0 && recv_st >= 0);
        UNTIL(&t, receives ? received.calls : sent.calls && received.calls);
        CHECK_EQ(receives ? received.status : sent.status, WEFT_ERR_IO);
        CHECK_EQ(received.status, WEFT_ERR_IO); /* either end has the cause */
        UNTIL(&t, st == WEFT_OK || sent.calls);
        *gpu.fail_late = false;
        *gpu.fail_copy = 0;
        gpu.release(device);
        cross(&t, LEN, 7); /* of another context */
    }
    CHECK(gpu_context_is_as_before());
    two_down(&t);
}

/* Each of the first allocations of the driver fails in turn: streams, and pinned memory, without
 * which copies work too. */
TEST_EACH(out_of_device_memory_is_one_error_or_none) {
    struct two t;
    gpu_load();
    if (!gpu.fail_alloc) SKIP("only the double of the CUDA driver fails at will");
    for (unsigned k = 1; k <= 6; k++) {
        struct tally sent = {0}, received = {0};
        staged_up(&t, transport, small_chunks, 4);
        void *context = gpu.context_create();
        char *from = gpu.alloc(context, 300000, false), *to = gpu.alloc(context, 300000, false);
        pattern(out, 300000, k);
        gpu.write(from, out, 300000);
        *gpu.fail_alloc = k;
        weft_request_t *request = NULL;
        weft_op_t recv_op = {.done = tally, .arg = &received, .request_p = &request};
        CHECK_EQ(weft_tag_recv(two_b(&t), 1, ~0ull, &(weft_iov_t){to, 300000}, 1, NULL, &recv_op),
                 WEFT_IN_PROGRESS);
        weft_status_t st = weft_tag_send(t.ep, 1, &(weft_iov_t){from, 300000}, 1, OP(&sent));
        UNTIL(&t, st != WEFT_IN_PROGRESS || sent.calls);
        if (sent.calls) st = sent.status;
        if (st < 0 && !received.calls) weft_request_cancel(request); /* nothing may come */
        UNTIL(&t, received.calls);
        if (received.status == WEFT_OK)
            CHECK(holds(to, 300000, k));
        else
            CHECK(received.status == WEFT_ERR_NO_MEMORY || st == WEFT_ERR_NO_MEMORY);
        *gpu.fail_alloc = 0;
        gpu.release(from);
        gpu.release(to);
        cross(&t, 300000, k);
        two_down(&t);
    }
}
