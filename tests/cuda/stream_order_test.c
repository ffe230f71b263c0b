/* Operations that take their turn in a CUDA stream of the program (weft_op_t.stream). */
#include <tests/cuda/device.h>
#include <tests/support/rma_peers.h>
#include <tests/support/threads.h>
#include <transports/cuda/stream_gate.h>

enum { LEN = 100000 };
static GPU_PAGES char first[LEN], second[LEN], got[LEN];

#define OF_STREAM(stream_, tally_p) \
    (&(weft_op_t){.done = tally, .arg = (tally_p), .stream = (stream_)})

static void some_turns(struct two *t) {
    for (int i = 0; i < 30; i++) two_turn(t);
}

/* The work that is on the stream when it is posted comes first. */
TEST_EACH(a_send_begins_when_the_work_before_it_has_ended) {
    struct two t;
    struct tally sent = {0}, received = {0};
    int go;
    two_up(&t, transport);
    char *device = gpu_alloc(LEN);
    void *stream = gpu_stream();
    pattern(first, LEN, 1);
    pattern(second, LEN, 2);
    gpu.write(device, first, LEN);
    gpu_pin(second, LEN);
    gpu_block(stream, &go);
    gpu_copy(device, second, LEN, stream);
    CHECK(weft_tag_recv(two_b(&t), 1, ~0ull, &(weft_iov_t){got, LEN}, 1, NULL, OP(&received)) ==
          WEFT_IN_PROGRESS);
    CHECK(weft_tag_send(t.ep, 1, &(weft_iov_t){device, LEN}, 1, OF_STREAM(stream, &sent)) ==
          WEFT_IN_PROGRESS);
    some_turns(&t);
    CHECK(sent.calls == 0 && received.calls == 0);
    gpu_unblock(&go);
    UNTIL(&t, sent.calls && received.calls);
    CHECK(sent.status == WEFT_OK && received.status == WEFT_OK);
    CHECK(memcmp(got, second, LEN) == 0);
    CHECK(gpu_context_is_as_before());
    CHECK_EQ(gpu.stream_wait(stream), 0);
    CHECK_EQ(gpu.stream_destroy(stream), 0);
    gpu.release(device);
    two_down(&t);
}

/* Work that is added after the call sees what the operation received. */
TEST_EACH(later_work_waits_for_a_receive) {
    struct two t;
    struct tally sent = {0}, received = {0};
    two_up(&t, transport);
    char *device = gpu_alloc(LEN);
    void *stream = gpu_stream();
    pattern(first, LEN, 3);
    memset(got, 0, LEN);
    gpu_pin(got, LEN);
    CHECK(weft_tag_recv(two_b(&t), 1, ~0ull, &(weft_iov_t){device, LEN}, 1, NULL,
                        OF_STREAM(stream, &received)) == WEFT_IN_PROGRESS);
    gpu_copy(got, device, LEN, stream);
    some_turns(&t);
    CHECK(received.calls == 0);
    weft_status_t st = weft_tag_send(t.ep, 1, &(weft_iov_t){first, LEN}, 1, OP(&sent));
    UNTIL(&t, received.calls && (st == WEFT_OK || sent.calls));
    CHECK_EQ(received.status, WEFT_OK);
    CHECK_EQ(gpu.stream_wait(stream), 0);
    CHECK(memcmp(got, first, LEN) == 0);
    CHECK_EQ(gpu.stream_destroy(stream), 0);
    gpu.release(device);
    two_down(&t);
}

/* A hundred messages of one stream, which no thread waits for in between. */
TEST_EACH(operations_of_a_stream_keep_their_order) {
    enum { N = 100 };
    struct two t;
    struct tally sent = {0};
    static uint32_t in[N];
    int go;
    two_up(&t, transport);
    uint32_t *device = (uint32_t *)(void *)gpu_alloc(sizeof *device);
    void *stream = gpu_stream();
    static GPU_PAGES uint32_t numbers[N];
    gpu_pin(numbers, sizeof numbers);
    gpu_block(stream, &go);
    for (uint32_t i = 0; i < N; i++) {
        numbers[i] = i + 1;
        gpu_copy(device, &numbers[i], sizeof *device, stream);
        CHECK(weft_tag_send(t.ep, 5, &(weft_iov_t){device, sizeof *device}, 1,
                            OF_STREAM(stream, &sent)) == WEFT_IN_PROGRESS);
    }
    gpu_unblock(&go);
    for (uint32_t i = 0; i < N; i++) {
        struct tally received = {0};
        weft_status_t st = weft_tag_recv(two_b(&t), 5, ~0ull, &(weft_iov_t){&in[i], sizeof in[i]},
                                         1, NULL, OP(&received));
        UNTIL(&t, st == WEFT_OK || received.calls);
        CHECK_EQ(in[i], i + 1);
    }
    UNTIL(&t, sent.calls == N);
    CHECK_EQ(sent.status, WEFT_OK);
    CHECK_EQ(gpu.stream_wait(stream), 0);
    CHECK_EQ(gpu.stream_destroy(stream), 0);
    gpu.release((char *)device);
    two_down(&t);
}

static void on_am(weft_ep_t *ep, weft_am_t *am, void *arg) {
    ++*(int *)arg;
}

/* Each kind of operation that moves bytes. */
TEST_WAYS(active_messages_streams_puts_gets_and_atomics_take_a_stream) {
    struct rma r;
    struct tally t[6] = {{0}};
    int go, handled = 0;
    uint64_t old = 1;
    size_t n = 0;
    char byte = 0;
    gpu_load();
    rma_up(&r, transport, messages, 4096, WEFT_MEM_ALL, NULL, 0);
    CHECK_EQ(weft_am_handler_set(two_b(&r.t), 3, on_am, &handled), 0);
    void *stream = gpu_stream();
    gpu_block(stream, &go);
    memset(r.target, 0, 4096);
    memset(got, 7, 64);
    weft_ep_t *ep = r.t.ep;
    weft_status_t st[] = {
        weft_put(ep, got, 64, rma_at(&r, 64), r.rkey, OF_STREAM(stream, &t[0])),
        weft_get(ep, got + 64, 8, rma_at(&r, 8), r.rkey, OF_STREAM(stream, &t[1])),
        weft_atomic_fetch(ep, WEFT_ATOMIC_ADD, 8, 5, 0, &old, rma_at(&r, 0), r.rkey,
                          OF_STREAM(stream, &t[2])),
        weft_am_send(ep, 3, "h", 1, &(weft_iov_t){got, 8}, 1, OF_STREAM(stream, &t[3])),
        weft_stream_send(ep, &(weft_iov_t){got, 1}, 1, OF_STREAM(stream, &t[4])),
        weft_stream_recv(r.t.back, &(weft_iov_t){&byte, 1}, 1, &n, OF_STREAM(stream, &t[5])),
    };
    some_turns(&r.t);
    for (int i = 0; i < 6; i++) CHECK(st[i] == WEFT_IN_PROGRESS && t[i].calls == 0);
    CHECK(r.target[64] == 0 && old == 1 && !handled && n == 0);
    gpu_unblock(&go);
    for (int i = 0; i < 6; i++) {
        UNTIL(&r.t, t[i].calls == 1);
        CHECK_EQ(t[i].status, WEFT_OK);
    }
    UNTIL(&r.t, r.target[64] == 7 && handled);
    CHECK(old == 0 && n == 1 && byte == 7);
    CHECK_EQ(gpu.stream_wait(stream), 0);
    CHECK_EQ(gpu.stream_destroy(stream), 0);
    rma_down(&r);
}

/* ---- receives of active messages ------------------------------------------------------------- */

struct late {
    weft_op_t op;
    weft_request_t *request;
    char *to;
    size_t n;
    struct tally done;
    weft_status_t st;
};

static void receive_behind_a_stream(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct late *late = arg;
    late->n++;
    late->st = weft_am_recv(am, &(weft_iov_t){late->to, LEN}, 1, &late->op);
}

static void late_up(struct two *t, const char *transport, struct late *late, void *stream,
                    char *to) {
    two_up(t, transport);
    *late = (struct late){.to = to};
    late->op = (weft_op_t){
        .done = tally, .arg = &late->done, .request_p = &late->request, .stream = stream};
    CHECK_EQ(weft_am_handler_set(two_b(t), 5, receive_behind_a_stream, late), WEFT_OK);
}

/* The handler has returned by then; what was in the memory before is what the stream reads. */
static void is_received_in_its_turn(const char *transport, size_t len, uint32_t flags) {
    struct two t;
    struct late late;
    struct tally sent = {0};
    int go;
    gpu_load();
    void *stream = gpu_stream();
    char *device = gpu_alloc(LEN);
    late_up(&t, transport, &late, stream, device);
    pattern(first, LEN, 1);
    pattern(second, len, 2);
    gpu.write(device, first, LEN);
    memset(got, 0, LEN);
    gpu_pin(got, LEN);
    gpu_block(stream, &go);
    gpu_copy(got, device, LEN, stream);
    weft_op_t op = {.done = tally, .arg = &sent, .flags = flags};
    weft_status_t st = weft_am_send(t.ep, 5, "h", 1, &(weft_iov_t){second, len}, 1, &op);
    UNTIL(&t, late.n == 1);
    CHECK_EQ(late.st, WEFT_IN_PROGRESS);
    some_turns(&t);
    CHECK_EQ(late.done.calls, 0);
    gpu_unblock(&go);
    UNTIL(&t, late.done.calls && (st == WEFT_OK || sent.calls));
    CHECK(late.done.status == WEFT_OK && sent.status == WEFT_OK);
    CHECK_EQ(gpu.stream_wait(stream), 0);
    CHECK(memcmp(got, first, LEN) == 0);
    gpu.read(got, device, len);
    CHECK(memcmp(got, second, len) == 0);
    CHECK_EQ(gpu.stream_destroy(stream), 0);
    gpu.release(device);
    two_down(&t);
}
TEST_EACH(an_active_message_is_received_behind_the_work_of_a_stream) {
    is_received_in_its_turn(transport, 0, 0);
    is_received_in_its_turn(transport, 100, 0);
    is_received_in_its_turn(transport, 6000, WEFT_AM_EAGER);
    is_received_in_its_turn(transport, LEN, WEFT_AM_RENDEZVOUS);
}

enum early { CANCELLED, WITHDRAWN, CLOSED };

/* An offer that waits for the stream, and either side ends it. */
static void ends_before_its_turn(const char *transport, enum early how) {
    struct two t;
    struct late late;
    struct tally sent = {0};
    weft_request_t *sending = NULL;
    int go;
    gpu_load();
    void *stream = gpu_stream();
    late_up(&t, transport, &late, stream, got);
    pattern(second, LEN, 2);
    memset(got, 7, LEN);
    gpu_block(stream, &go);
    weft_op_t op = {
        .done = tally, .arg = &sent, .request_p = &sending, .flags = WEFT_AM_RENDEZVOUS};
    CHECK_EQ(weft_am_send(t.ep, 5, NULL, 0, &(weft_iov_t){second, LEN}, 1, &op), WEFT_IN_PROGRESS);
    UNTIL(&t, late.n == 1);
    CHECK_EQ(late.st, WEFT_IN_PROGRESS);
    if (how == CANCELLED) weft_request_cancel(late.request);
    if (how == WITHDRAWN) weft_request_cancel(sending);
    if (how == CLOSED) CHECK(weft_ep_close(t.back, WEFT_CLOSE_ABORT, NULL) >= 0);
    if (how == CLOSED) t.back = NULL;
    UNTIL(&t, sent.calls);
    if (how == WITHDRAWN) some_turns(&t);
    CHECK(how != WITHDRAWN || late.done.calls == 0);
    gpu_unblock(&go);
    UNTIL(&t, late.done.calls);
    CHECK_EQ(late.done.calls, 1);
    if (how == CLOSED) {
        CHECK(sent.status < 0 && late.done.status < 0);
    } else {
        CHECK_EQ(sent.status, WEFT_ERR_CANCELLED);
        CHECK_EQ(late.done.status, WEFT_ERR_CANCELLED);
    }
    CHECK(got[0] == 7 && got[LEN - 1] == 7);
    CHECK_EQ(gpu.stream_wait(stream), 0);
    CHECK_EQ(gpu.stream_destroy(stream), 0);
    two_down(&t);
}
TEST_EACH(a_receive_that_waits_for_a_stream_ends_by_either_side) {
    ends_before_its_turn(transport, CANCELLED);
    ends_before_its_turn(transport, WITHDRAWN);
    ends_before_its_turn(transport, CLOSED);
}

/* ---- flushes, early ends -------------------------------------------------------------------- */

/* What the stream put before it is at the peer when later work of the stream goes on. */
TEST_WAYS(a_flush_takes_its_turn_in_a_stream) {
    struct rma r;
    struct tally put = {0}, flushed[2] = {{0}};
    int go;
    gpu_load();
    rma_up(&r, transport, messages, LEN, WEFT_MEM_ALL, NULL, 0);
    void *stream = gpu_stream();
    pattern(first, LEN, 9);
    gpu_block(stream, &go);
    CHECK_EQ(weft_put(r.t.ep, first, LEN, rma_at(&r, 0), r.rkey, OF_STREAM(stream, &put)),
             WEFT_IN_PROGRESS);
    weft_op_t op = *OF_STREAM(stream, &flushed[0]);
    op.flags = WEFT_FLUSH_REMOTE;
    CHECK_EQ(weft_ep_flush(r.t.ep, &op), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_worker_flush(r.t.a, OF_STREAM(stream, &flushed[1])), WEFT_IN_PROGRESS);
    some_turns(&r.t);
    CHECK(put.calls == 0 && flushed[0].calls == 0 && flushed[1].calls == 0);
    gpu_unblock(&go);
    UNTIL(&r.t, flushed[0].calls);
    CHECK(put.calls == 1 && memcmp(r.target, first, LEN) == 0);
    UNTIL(&r.t, flushed[1].calls);
    CHECK(flushed[0].status == WEFT_OK && flushed[1].status == WEFT_OK);
    CHECK_EQ(gpu.stream_wait(stream), 0);
    CHECK_EQ(gpu.stream_destroy(stream), 0);
    rma_down(&r);
}

/* Whatever ends an operation, its stream goes on. */
TEST_EACH(an_operation_that_ends_early_releases_its_stream) {
    struct two t;
    struct tally done[3] = {{0}};
    weft_request_t *request = NULL;
    int go;
    two_up(&t, transport);
    void *stream = gpu_stream();
    weft_iov_t to = {got, 8};
    gpu_block(stream, &go);
    weft_op_t cancelled = {.done = tally, .arg = &done[0], .request_p = &request, .stream = stream};
    weft_op_t late = {.done = tally, .arg = &done[1], .deadline_ms = 5, .stream = stream};
    CHECK_EQ(weft_tag_recv(two_b(&t), 1, ~0ull, &to, 1, NULL, &cancelled), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_recv(two_b(&t), 2, ~0ull, &to, 1, NULL, &late), WEFT_IN_PROGRESS);
    weft_request_cancel(request);
    UNTIL(&t, done[0].calls && done[1].calls);
    CHECK(done[0].status == WEFT_ERR_CANCELLED && done[1].status == WEFT_ERR_TIMED_OUT);
    gpu_unblock(&go);
    CHECK_EQ(gpu.stream_wait(stream), 0);
    /* one that has begun, and waits for its message */
    late.arg = &done[2];
    CHECK_EQ(weft_tag_recv(two_b(&t), 3, ~0ull, &to, 1, NULL, &late), WEFT_IN_PROGRESS);
    UNTIL(&t, done[2].calls);
    CHECK_EQ(done[2].status, WEFT_ERR_TIMED_OUT);
    CHECK_EQ(gpu.stream_wait(stream), 0);
    CHECK(done[0].calls == 1 && done[1].calls == 1 && done[2].calls == 1);
    CHECK_EQ(gpu.stream_destroy(stream), 0);
    two_down(&t);
}

TEST_EACH(closing_a_worker_ends_what_waits_for_a_stream) {
    struct two t;
    struct tally done = {0};
    int go;
    two_up(&t, transport);
    void *stream = gpu_stream();
    gpu_block(stream, &go);
    CHECK_EQ(weft_tag_recv(two_b(&t), 1, ~0ull, &(weft_iov_t){got, 8}, 1, NULL,
                           OF_STREAM(stream, &done)),
             WEFT_IN_PROGRESS);
    two_down(&t);
    CHECK_EQ(done.calls, 1);
    CHECK_EQ(done.status, WEFT_ERR_CLOSED);
    gpu_unblock(&go);
    CHECK_EQ(gpu.stream_wait(stream), 0);
    CHECK_EQ(gpu.stream_destroy(stream), 0);
}

/* Its close waits for nothing of the stream's. */
TEST_EACH(closing_an_endpoint_ends_what_waits_for_a_stream) {
    struct two t;
    struct tally sent = {0}, closed = {0};
    int go;
    two_up(&t, transport);
    void *stream = gpu_stream();
    gpu_block(stream, &go);
    CHECK_EQ(weft_tag_send(t.ep, 1, &(weft_iov_t){got, 8}, 1, OF_STREAM(stream, &sent)),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_ABORT, OP(&closed)), WEFT_IN_PROGRESS);
    UNTIL(&t, closed.calls);
    CHECK_EQ(sent.calls, 1);
    CHECK_EQ(sent.status, WEFT_ERR_CLOSED);
    t.ep = NULL;
    gpu_unblock(&go);
    CHECK_EQ(gpu.stream_wait(stream), 0);
    CHECK_EQ(gpu.stream_destroy(stream), 0);
    two_down(&t);
}

static void note_that_it_went_on(void *arg) {
    __atomic_store_n((int *)arg, 1, __ATOMIC_RELEASE);
}

/* The worker's own thread receives; the program has not polled for the callback yet. */
TEST(a_stream_does_not_wait_for_a_callback_that_is_polled) {
    struct pair p;
    struct tally received = {0};
    int went_on = 0;
    gpu_load();
    pair_make(&p, "shm", NULL, 0);
    void *stream = gpu_stream();
    CHECK_EQ(
        weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
        0);
    CHECK_EQ(
        weft_tag_recv(p.b, 1, ~0ull, &(weft_iov_t){got, 8}, 1, NULL, OF_STREAM(stream, &received)),
        WEFT_IN_PROGRESS);
    CHECK_EQ(gpu.host_call(stream, note_that_it_went_on, &went_on), 0);
    CHECK(weft_tag_send(p.to_b, 1, &(weft_iov_t){"8 bytes.", 8}, 1, NULL) >= 0);
    double end = test_now() + test_timeout(60);
    while (!__atomic_load_n(&went_on, __ATOMIC_ACQUIRE) && test_now() < end) {
        weft_worker_progress(p.a, 0);
        usleep(100);
    }
    CHECK(went_on);
    CHECK_EQ(received.calls, 0);
    while (!received.calls && test_now() < end) (void)weft_worker_wait(p.b, 10);
    CHECK(received.calls == 1 && received.status == WEFT_OK);
    CHECK(memcmp(got, "8 bytes.", 8) == 0);
    pair_end(&p);
    CHECK_EQ(gpu.stream_destroy(stream), 0);
}

/* The stream gets to the operation, which ends, before the driver has answered about the wait. */
static void ends_while_it_is_placed(bool refused) {
    struct pair p;
    struct tally received = {0};
    gpu_load();
    if (!gpu.wait_delay_us) SKIP("only the double of the CUDA driver fails at will");
    pair_make(&p, "shm", NULL, 0);
    void *stream = gpu_stream();
    CHECK_EQ(
        weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
        0);
    CHECK(weft_tag_send(p.to_b, 1, &(weft_iov_t){"8 bytes.", 8}, 1, NULL) >= 0);
    weft_worker_progress(p.a, 0);
    *gpu.wait_delay_us = 300000;
    *gpu.fail_wait = refused;
    CHECK_EQ(
        weft_tag_recv(p.b, 1, ~0ull, &(weft_iov_t){got, 8}, 1, NULL, OF_STREAM(stream, &received)),
        WEFT_IN_PROGRESS);
    *gpu.wait_delay_us = 0;
    *gpu.fail_wait = false;
    double end = test_now() + test_timeout(60);
    while (!received.calls && test_now() < end) {
        weft_worker_progress(p.a, 0);
        (void)weft_worker_wait(p.b, 10);
    }
    CHECK(received.calls == 1 && received.status == WEFT_OK);
    CHECK(memcmp(got, "8 bytes.", 8) == 0);
    CHECK_EQ(gpu.stream_wait(stream), 0);
    pair_end(&p);
    CHECK_EQ(gpu.stream_destroy(stream), 0);
}
TEST(an_operation_may_end_while_its_wait_is_added) {
    ends_while_it_is_placed(false);
}
TEST(an_operation_may_end_before_its_wait_is_refused) {
    ends_while_it_is_placed(true);
}

static void count_down(weft_status_t status, void *arg) {
    tally(status, arg);
}

TEST(a_completion_counts_operations_of_streams) {
    struct two t;
    struct tally done = {0};
    static char in[2][8];
    two_up(&t, "self");
    void *stream = gpu_stream();
    weft_completion_t both = {.done = count_down, .arg = &done, .count = 1};
    weft_op_t op = {.completion = &both, .stream = stream};
    for (int i = 0; i < 2; i++)
        CHECK_EQ(weft_tag_recv(two_b(&t), 1, ~0ull, &(weft_iov_t){in[i], 8}, 1, NULL, &op),
                 WEFT_IN_PROGRESS);
    CHECK_EQ(both.count, 3);
    weft_completion_release(&both);
    for (int i = 0; i < 2; i++)
        CHECK(weft_tag_send(t.ep, 1, &(weft_iov_t){"12345678", 8}, 1, NULL) >= 0);
    UNTIL(&t, done.calls);
    CHECK_EQ(done.status, WEFT_OK);
    CHECK(memcmp(in[1], "12345678", 8) == 0);
    CHECK_EQ(gpu.stream_wait(stream), 0);
    CHECK_EQ(gpu.stream_destroy(stream), 0);
    two_down(&t);
}

/* ---- refusals -------------------------------------------------------------------------------- */

TEST(an_operation_that_takes_no_stream_refuses_one) {
    struct two t;
    two_up(&t, "self");
    void *stream = gpu_stream();
    weft_op_t op = {.stream = stream};
    weft_mem_t *mem;
    CHECK_EQ(weft_mem_alloc(t.a, 8, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &mem), 0);
    CHECK_EQ(weft_mem_revoke(mem, &op), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(gpu.stream_wait(stream), 0);
    CHECK_EQ(gpu.stream_destroy(stream), 0);
    two_down(&t);
}

TEST(a_stream_that_is_being_captured_is_refused) {
    struct two t;
    gpu_load();
    if (!gpu.capturing) SKIP("only the double of the CUDA driver fails at will");
    two_up(&t, "self");
    void *stream = gpu_stream();
    weft_op_t op = {.stream = stream};
    *gpu.capturing = true;
    weft_status_t st = weft_tag_send(t.ep, 1, &(weft_iov_t){got, 8}, 1, &op);
    *gpu.capturing = false;
    CHECK_EQ(st, WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(gpu.stream_destroy(stream), 0);
    two_down(&t);
}

/* The words that streams wait for are made for the first operation of a context, behind the stream
 * of its kernels. */
TEST(without_memory_for_its_word_an_operation_is_refused) {
    struct two t;
    struct tally done = {0};
    gpu_load();
    if (!gpu.context_create) SKIP("only the double of the CUDA driver fails at will");
    two_up(&t, "self");
    void *stream = NULL, *context = gpu.context_create();
    CHECK_EQ(gpu.set_current(context), 0);
    CHECK_EQ(gpu.stream_create(&stream, 1), 0);
    CHECK_EQ(gpu.set_current(NULL), 0);
    *gpu.fail_alloc = 2;
    CHECK_EQ(weft_tag_recv(two_b(&t), 1, ~0ull, &(weft_iov_t){got, 8}, 1, NULL,
                           OF_STREAM(stream, &done)),
             WEFT_ERR_NO_MEMORY);
    CHECK_EQ(*gpu.fail_alloc, 0);
    CHECK_EQ(weft_tag_recv(two_b(&t), 1, ~0ull, &(weft_iov_t){got, 8}, 1, NULL,
                           OF_STREAM(stream, &done)),
             WEFT_IN_PROGRESS);
    CHECK(weft_tag_send(t.ep, 1, &(weft_iov_t){first, 8}, 1, NULL) >= 0);
    UNTIL(&t, done.calls);
    gpu.context_destroy(context);
    CHECK_EQ(weft_tag_send(t.ep, 1, &(weft_iov_t){got, 8}, 1, OF_STREAM(stream, &done)),
             WEFT_ERR_IO);
    CHECK(gpu_context_is_as_before());
    two_down(&t);
}

static void never_reached(void *arg) {
    CHECK(!"no gate was placed");
}

static size_t pages_mapped(void) {
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f && fscanf(f, "%lu", &pages) == 1);
    fclose(f);
    return pages;
}

/* The pages that `n` calls of refused(arg) leave mapped, the least of four times: a thread that
 * starts during one of them maps its stack once, and a sanitizer maps more memory now and then. */
static size_t pages_left_by(void (*refused)(void *arg), void *arg, unsigned n) {
    size_t least = SIZE_MAX;
    for (int times = 0; times < 4; times++) {
        size_t before = pages_mapped();
        for (unsigned i = 0; i < n; i++) refused(arg);
        size_t now = pages_mapped(), more = now > before ? now - before : 0;
        if (more < least) least = more;
    }
    return least;
}

struct refused_send {
    struct two t;
    struct tally done;
    void *stream;
};

/* A device without waits for values refuses each operation of a stream. */
static void send_without_waits(void *arg) {
    struct refused_send *r = arg;
    *gpu.fail_wait = true;
    gpu.hold(true); /* the stream does not get to it first */
    weft_status_t st =
        weft_tag_send(r->t.ep, 1, &(weft_iov_t){got, 8}, 1, OF_STREAM(r->stream, &r->done));
    gpu.hold(false);
    *gpu.fail_wait = false;
    CHECK_EQ(st, WEFT_ERR_UNSUPPORTED);
}

TEST(operations_that_a_device_cannot_order_are_refused_and_leave_no_memory) {
    enum { REFUSED = 50 };
    struct refused_send r = {0};
    gpu_load();
    if (!gpu.fail_wait) SKIP("only the double of the CUDA driver fails at will");
    two_up(&r.t, "self");
    r.stream = gpu_stream();
    CHECK(pages_left_by(send_without_waits, &r, REFUSED) < REFUSED / 2);
    CHECK_EQ(r.done.calls, 0);
    CHECK_EQ(gpu.stream_wait(r.stream), 0);
    CHECK_EQ(gpu.stream_destroy(r.stream), 0);
    two_down(&r.t);
}

/* CUDA's default mode of a capture forbids unsafe calls of every thread. The context is new: words
 * for its streams are made, and registered. */
TEST(an_operation_is_recorded_in_a_capture_of_the_default_mode) {
    enum { GLOBAL = 0 };
    static int owner;
    struct cuda_gate *gate;
    gpu_load();
    if (!gpu.context_create) SKIP("only the double of the CUDA driver has a new context");
    void *stream = NULL, *graph = NULL, *context = gpu.context_create();
    CHECK_EQ(gpu.set_current(context), 0);
    CHECK_EQ(gpu.stream_create(&stream, 1), 0);
    CHECK_EQ(gpu.capture_begin(stream, GLOBAL), 0);
    CHECK_EQ(weft__cuda_gate_record(stream, &owner, never_reached, NULL, &gate), WEFT_OK);
    CHECK_EQ(gpu.capture_end(stream, &graph), 0);
    CHECK(graph != NULL);
    weft__cuda_gates_leave(&owner, NULL, NULL);
    CHECK_EQ(gpu.stream_destroy(stream), 0);
    CHECK_EQ(gpu.set_current(NULL), 0);
}

/* ---- as many as there may be ----------------------------------------------------------------- */

static void gate_beyond_the_most(void *stream) {
    struct cuda_gate *none;
    CHECK_EQ(weft__cuda_gate_new(stream, &none, never_reached, NULL, &none), WEFT_ERR_QUOTA);
}

TEST(operations_of_streams_beyond_the_most_are_refused_and_leave_no_memory) {
    enum { MOST = 64 * 64, REFUSED = 500 };
    static struct cuda_gate *gate[MOST], *none;
    unsigned n = 0;
    gpu_load();
    void *stream = gpu_stream();
    while (n < MOST && weft__cuda_gate_new(stream, &none, never_reached, NULL, &gate[n]) == WEFT_OK)
        n++;
    CHECK(n >= MOST - 2 * 64); /* other tests may have made words of other contexts */
    CHECK(pages_left_by(gate_beyond_the_most, stream, REFUSED) < REFUSED / 2);
    for (unsigned i = 0; i < n; i++) weft__cuda_gate_free(gate[i]);
    CHECK_EQ(weft__cuda_gate_new(stream, &none, never_reached, NULL, &gate[0]), WEFT_OK);
    weft__cuda_gate_free(gate[0]);
    CHECK(gpu_context_is_as_before());
    CHECK_EQ(gpu.stream_destroy(stream), 0);
}
