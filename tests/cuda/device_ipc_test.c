/* Messages that are copied from the sender's device memory by their receiver: within a process, and
 * between two (CUDA IPC). */
#include <tests/cuda/ipc_child.h>
#include <tests/cuda/patterns.h>
#include <weft/layout.h>

enum { LEN = 1500007, ROUNDS = 4 };
static char host[LEN], got[LEN];

/* ---- within a process ------------------------------------------------------------------------ */

#define TEST_ON_THIS_HOST(name)              \
    static void name(const char *transport); \
    TEST(name##_self) {                      \
        name("self");                        \
    }                                        \
    TEST(name##_shm) {                       \
        name("shm");                         \
    }                                        \
    static void name(const char *transport)

static uint64_t fetched(struct two *t) {
    return weft_worker_count(two_b(t), "cuda.fetched");
}

TEST_ON_THIS_HOST(a_receiver_copies_from_device_to_device) {
    struct two t;
    two_up(&t, transport);
    for (int early = 0; early < 2; early++) {
        struct tally sent = {0}, received = {0};
        char *from = filled(LEN, 3), *to = gpu_alloc(LEN);
        weft_iov_t out = {from, LEN}, in[2] = {{to, 1000}, {to + 1000, LEN - 1000}};
        if (early) CHECK(weft_tag_recv(two_b(&t), 1, ~0ull, in, 2, NULL, OP(&received)) >= 0);
        CHECK_EQ(weft_tag_send(t.ep, 1, &out, 1, OP(&sent)), WEFT_IN_PROGRESS);
        for (int i = 0; i < 20; i++) two_turn(&t);
        if (!early) CHECK(weft_tag_recv(two_b(&t), 1, ~0ull, in, 2, NULL, OP(&received)) >= 0);
        UNTIL(&t, sent.calls && received.calls);
        CHECK(sent.status == WEFT_OK && received.status == WEFT_OK);
        CHECK(holds(to, LEN, 3));
        CHECK_EQ(fetched(&t), 1 + (uint64_t)early);
        gpu.release(from);
        gpu.release(to);
    }
    CHECK(gpu_context_is_as_before());
    two_down(&t);
}

/* It is the sender's for as long as its allocation is the same. */
TEST(a_handle_is_made_once_for_an_allocation) {
    struct two t;
    gpu_load();
    if (!gpu.exported) SKIP("only the double of the CUDA driver fails at will");
    two_up(&t, "self");
    char *to = gpu_alloc(LEN);
    for (unsigned allocation = 0; allocation < 2; allocation++) {
        char *from = filled(LEN, allocation);
        unsigned before = *gpu.exported;
        for (int i = 0; i < 3; i++) {
            struct tally sent = {0}, received = {0};
            CHECK(weft_tag_send(t.ep, 1, &(weft_iov_t){from, LEN}, 1, OP(&sent)) >= 0);
            CHECK(weft_tag_recv(two_b(&t), 1, ~0ull, &(weft_iov_t){to, LEN}, 1, NULL,
                                OP(&received)) >= 0);
            UNTIL(&t, sent.calls && received.calls);
            CHECK(holds(to, LEN, allocation));
        }
        CHECK_EQ(*gpu.exported - before, 1);
        gpu.release(from);
    }
    gpu.release(to);
    two_down(&t);
}

/* The receiver's memory of the host is filled chunk by chunk, in a context that it has. */
TEST_ON_THIS_HOST(a_receiver_copies_from_device_to_host) {
    struct two t;
    struct tally sent = {0}, received = {0};
    gpu_load();
    two_workers(&t, transport, (weft_setting_t[]){{"cuda.chunk", "64k"}}, 1);
    two_dial(&t);
    UNTIL(&t, t.ready && t.back);
    char *from = filled(LEN, 3);
    memset(got, 0, LEN);
    CHECK_EQ(gpu.set_current(gpu.context), 0);
    CHECK_EQ(weft_tag_recv(two_b(&t), 1, ~0ull, &(weft_iov_t){got, LEN}, 1, NULL, OP(&received)),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(t.ep, 1, &(weft_iov_t){from, LEN}, 1, OP(&sent)), WEFT_IN_PROGRESS);
    UNTIL(&t, sent.calls && received.calls);
    CHECK(sent.status == WEFT_OK && received.status == WEFT_OK);
    CHECK(is_pattern(got, LEN, 3));
    CHECK_EQ(fetched(&t), 1);
    if (gpu.context_create) CHECK_EQ(gpu.set_current(NULL), 0);
    gpu.release(from);
    two_down(&t);
}

/* Without the setting, or a context, the bytes come in pieces. */
TEST_ON_THIS_HOST(a_receiver_that_cannot_copy_asks_for_the_bytes) {
    struct two t;
    struct tally sent = {0}, received = {0};
    gpu_load();
    two_workers(&t, transport, (weft_setting_t[]){{"cuda.ipc", "off"}}, 1);
    two_dial(&t);
    UNTIL(&t, t.ready && t.back);
    char *from = filled(LEN, 3), *to = gpu_alloc(LEN);
    CHECK_EQ(weft_tag_recv(two_b(&t), 1, ~0ull, &(weft_iov_t){to, LEN}, 1, NULL, OP(&received)),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(t.ep, 1, &(weft_iov_t){from, LEN}, 1, OP(&sent)), WEFT_IN_PROGRESS);
    UNTIL(&t, sent.calls && received.calls);
    CHECK(holds(to, LEN, 3));
    CHECK_EQ(fetched(&t), 0);
    gpu.release(from);
    gpu.release(to);
    two_down(&t);
}

/* A copy that fails is no failure of the message: the bytes are asked for. */
TEST_ON_THIS_HOST(a_copy_that_fails_is_made_up_for_by_messages) {
    struct two t;
    struct tally sent = {0}, received = {0};
    gpu_load();
    if (!gpu.fail_copy) SKIP("only the double of the CUDA driver fails at will");
    two_up(&t, transport);
    char *from = filled(LEN, 3), *to = gpu_alloc(LEN);
    *gpu.fail_copy = 1;
    CHECK_EQ(weft_tag_recv(two_b(&t), 1, ~0ull, &(weft_iov_t){to, LEN}, 1, NULL, OP(&received)),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(t.ep, 1, &(weft_iov_t){from, LEN}, 1, OP(&sent)), WEFT_IN_PROGRESS);
    UNTIL(&t, sent.calls && received.calls);
    CHECK(sent.status == WEFT_OK && received.status == WEFT_OK && *gpu.fail_copy == 0);
    CHECK(holds(to, LEN, 3));
    gpu.release(from);
    gpu.release(to);
    two_down(&t);
}

TEST_ON_THIS_HOST(memory_is_in_use_until_a_cancelled_copy_has_ended) {
    struct two t;
    struct tally sent = {0}, received = {0};
    weft_request_t *request = NULL;
    gpu_load();
    if (!gpu.hold) SKIP("only the double of the CUDA driver fails at will");
    two_up(&t, transport);
    char *from = filled(LEN, 3), *to = gpu_alloc(LEN);
    weft_op_t op = {.done = tally, .arg = &received, .request_p = &request};
    gpu.hold(true);
    CHECK_EQ(weft_tag_recv(two_b(&t), 1, ~0ull, &(weft_iov_t){to, LEN}, 1, NULL, &op),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(t.ep, 1, &(weft_iov_t){from, LEN}, 1, OP(&sent)), WEFT_IN_PROGRESS);
    for (int i = 0; i < 50; i++) two_turn(&t);
    weft_request_cancel(request);
    for (int i = 0; i < 50; i++) two_turn(&t);
    CHECK(received.calls == 0 && sent.calls == 0);
    gpu.hold(false);
    UNTIL(&t, sent.calls && received.calls);
    CHECK(sent.status == WEFT_ERR_CANCELLED && received.status == WEFT_ERR_CANCELLED);
    gpu.release(from);
    gpu.release(to);
    two_down(&t);
}

/* ---- the receiver learns the kind of memory -------------------------------------------------- */

struct choice {
    char *device;
    uint32_t memory;
    struct tally done;
    weft_status_t st;
    int calls;
};
static void choose(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct choice *choice = arg;
    choice->memory = am->memory;
    choice->calls++;
    void *to = am->memory == WEFT_MEMORY_CUDA ? choice->device : got;
    choice->st = weft_am_recv(am, &(weft_iov_t){to, am->len}, 1, OP(&choice->done));
}

TEST_EACH(a_receiver_learns_the_senders_memory_before_the_bytes_come) {
    struct two t;
    two_up(&t, transport);
    char *from = filled(LEN, 6);
    struct choice choice = {.device = gpu_alloc(LEN)};
    struct tally sent[3] = {{0}};
    weft_tag_info_t info;
    CHECK_EQ(weft_am_handler_set(two_b(&t), 1, choose, &choice), 0);
    CHECK(weft_am_send(t.ep, 1, NULL, 0, &(weft_iov_t){from, LEN}, 1, OP(&sent[0])) >= 0);
    UNTIL(&t, sent[0].calls && choice.calls && (choice.st == WEFT_OK || choice.done.calls));
    CHECK_EQ(choice.memory, WEFT_MEMORY_CUDA);
    CHECK(holds(choice.device, LEN, 6));
    weft_op_t offered = {.done = tally, .arg = &sent[1], .flags = WEFT_AM_RENDEZVOUS};
    choice.calls = choice.done.calls = 0;
    pattern(host, LEN, 7);
    CHECK(weft_am_send(t.ep, 1, NULL, 0, &(weft_iov_t){host, LEN}, 1, &offered) >= 0);
    UNTIL(&t, sent[1].calls && choice.calls && (choice.st == WEFT_OK || choice.done.calls));
    CHECK(choice.memory == WEFT_MEMORY_HOST && is_pattern(got, LEN, 7));
    CHECK(weft_tag_send(t.ep, 9, &(weft_iov_t){from, LEN}, 1, OP(&sent[2])) >= 0);
    UNTIL(&t, weft_tag_probe(two_b(&t), 9, ~0ull, &info) == WEFT_OK);
    CHECK(info.memory == WEFT_MEMORY_CUDA && info.len == LEN);
    struct tally received = {0};
    CHECK(weft_tag_recv(two_b(&t), 9, ~0ull, &(weft_iov_t){choice.device, LEN}, 1, &info,
                        OP(&received)) >= 0);
    UNTIL(&t, sent[2].calls && received.calls);
    CHECK_EQ(info.memory, WEFT_MEMORY_CUDA);
    gpu.release(from);
    gpu.release(choice.device);
    two_down(&t);
}

/* ---- between two processes ------------------------------------------------------------------- */

/* The child sends each message twice from one allocation, and receives what the parent sends. */
static void child_serves(weft_worker_t *worker, const struct child *child) {
    char *device = filled(LEN, 40), *in = gpu_alloc(LEN);
    for (int i = 0; i < ROUNDS && !child->lost; i++) {
        struct tally sent = {0}, received = {0};
        if (weft_tag_send(child->ep, 1, &(weft_iov_t){device, LEN}, 1, OP(&sent)) < 0) return;
        child_waits(worker, child, &sent);
        if (weft_tag_recv(worker, 2, ~0ull, &(weft_iov_t){in, LEN}, 1, NULL, OP(&received)) < 0)
            return;
        child_waits(worker, child, &received);
        if (!child->lost && !holds(in, LEN, 50 + (unsigned)i)) _exit(3);
    }
    while (!child->lost) weft_worker_wait(worker, 20);
}

TEST(a_handle_is_opened_once_and_closed_with_the_worker) {
    struct ipc p;
    ipc_up(&p);
    char *to = gpu_alloc(LEN);
    for (int i = 0; i < ROUNDS; i++) {
        struct tally sent = {0}, received = {0};
        char *from = filled(LEN, 50 + (unsigned)i);
        CHECK_EQ(weft_tag_recv(p.worker, 1, ~0ull, &(weft_iov_t){to, LEN}, 1, NULL, OP(&received)),
                 WEFT_IN_PROGRESS);
        IPC_UNTIL(&p, received.calls);
        CHECK_EQ(received.status, WEFT_OK);
        CHECK(holds(to, LEN, 40));
        CHECK_EQ(weft_worker_count(p.worker, "cuda.fetched"), (uint64_t)i + 1);
        if (gpu.opened) CHECK_EQ(*gpu.opened, 1);
        CHECK_EQ(weft_tag_send(p.ep, 2, &(weft_iov_t){from, LEN}, 1, OP(&sent)), WEFT_IN_PROGRESS);
        IPC_UNTIL(&p, sent.calls);
        CHECK_EQ(sent.status, WEFT_OK);
        gpu.release(from);
    }
    CHECK_EQ(ipc_down(&p), 0);
    if (gpu.opened) CHECK_EQ(*gpu.opened, 0);
    gpu.release(to);
}

/* Out of memory when the handle is opened: the bytes come as messages. */
TEST(without_memory_for_a_handle_the_bytes_are_asked_for) {
    struct ipc p;
    struct tally received = {0};
    gpu_load();
    if (!gpu.fail_alloc) SKIP("only the double of the CUDA driver fails at will");
    ipc_up(&p);
    char *to = gpu_alloc(LEN);
    *gpu.fail_alloc = 1;
    CHECK_EQ(weft_tag_recv(p.worker, 1, ~0ull, &(weft_iov_t){to, LEN}, 1, NULL, OP(&received)),
             WEFT_IN_PROGRESS);
    IPC_UNTIL(&p, received.calls);
    CHECK_EQ(received.status, WEFT_OK);
    CHECK_EQ(*gpu.fail_alloc, 0);
    CHECK(holds(to, LEN, 40));
    CHECK_EQ(weft_worker_count(p.worker, "cuda.fetched"), 0);
    CHECK_EQ(ipc_down(&p), 0);
    gpu.release(to);
}

/* It dies while its memory is copied from: the copy ends, and so does the message. */
TEST(a_peer_that_dies_ends_its_messages_and_nothing_else) {
    struct ipc p;
    struct tally received = {0};
    gpu_load();
    if (!gpu.hold) SKIP("only the double of the CUDA driver fails at will");
    ipc_up(&p);
    char *to = gpu_alloc(LEN);
    gpu.hold(true);
    CHECK_EQ(weft_tag_recv(p.worker, 1, ~0ull, &(weft_iov_t){to, LEN}, 1, NULL, OP(&received)),
             WEFT_IN_PROGRESS);
    IPC_UNTIL(&p, weft_worker_count(p.worker, "cuda.fetched") == 1);
    CHECK_EQ(kill(p.child, SIGKILL), 0);
    IPC_UNTIL(&p, p.lost);
    CHECK_EQ(received.calls, 0);
    gpu.hold(false);
    IPC_UNTIL(&p, received.calls);
    CHECK(received.status < 0);
    CHECK(WIFSIGNALED(ipc_down(&p)));
    gpu.release(to);
}

static void one_round(struct ipc *p, unsigned i, char *to) {
    struct tally sent = {0}, received = {0};
    char *from = filled(LEN, 50 + i);
    CHECK_EQ(weft_tag_recv(p->worker, 1, ~0ull, &(weft_iov_t){to, LEN}, 1, NULL, OP(&received)),
             WEFT_IN_PROGRESS);
    IPC_UNTIL(p, received.calls);
    CHECK_EQ(received.status, WEFT_OK);
    CHECK(holds(to, LEN, 40));
    CHECK_EQ(weft_tag_send(p->ep, 2, &(weft_iov_t){from, LEN}, 1, OP(&sent)), WEFT_IN_PROGRESS);
    IPC_UNTIL(p, sent.calls);
    CHECK_EQ(sent.status, WEFT_OK);
    gpu.release(from);
}

/* What it had opened went with it. */
TEST(a_context_at_the_address_of_one_that_was_destroyed_opens_handles_again) {
    void (*renew)(void *context);
    struct ipc p;
    gpu_load();
    *(void **)&renew = dlsym(RTLD_DEFAULT, "double_context_renew");
    if (!renew) SKIP("only the double of the CUDA driver fails at will");
    void *mine = gpu.context, *context = gpu.context_create();
    char *to = gpu.alloc(context, LEN, false);
    ipc_up(&p);
    for (unsigned i = 0; i < ROUNDS; i++) {
        one_round(&p, i, to);
        CHECK_EQ(weft_worker_count(p.worker, "cuda.fetched"), i + 1);
        CHECK_EQ(*gpu.opened, 1);
        gpu.context_destroy(context);
        CHECK_EQ(*gpu.opened, 0);
        renew(context);
    }
    CHECK_EQ(ipc_down(&p), 0);
    CHECK_EQ(*gpu.opened, 0);
    CHECK(gpu.context == mine);
    gpu.release(to);
}

/* CUDA: a peer's memory of a device is opened in one context of each device. */
TEST(a_second_context_of_a_device_gets_the_bytes) {
    struct ipc p;
    gpu_load();
    if (!gpu.opened) SKIP("only the double of the CUDA driver fails at will");
    char *first = gpu_alloc(LEN), *second = gpu.alloc(gpu.context_create(), LEN, false);
    ipc_up(&p);
    for (unsigned i = 0; i < ROUNDS; i++) {
        one_round(&p, i, i % 2 ? second : first);
        CHECK_EQ(weft_worker_count(p.worker, "cuda.fetched"), i / 2 + 1);
    }
    CHECK_EQ(ipc_down(&p), 0);
    CHECK_EQ(*gpu.opened, 0);
    gpu.release(first);
    gpu.release(second);
}
