/* A CUDA context and stream of the program, in which a worker copies device memory
 * (weft/resource.h). */
#include <endpoints/core/worker.h>
#include <tests/cuda/device.h>
#include <tests/support/ending_worker.h>
#include <tests/support/rma_peers.h>
#include <weft/resource.h>

enum { LEN = 1000003 };
static char out[LEN], in[LEN];

static struct {
    unsigned (*pushes)(void *context);
    unsigned (*copies_in)(void *stream);
    unsigned *streams;
} count;

/* A worker that works by the context, and one of the host beside it. */
struct scene {
    struct two t;
    weft_context_t *context;
    weft_resource_t *resource;
    void *stream;
    int lost;
};

static void on_lost(void *object, weft_status_t status, void *arg) {
    ((struct scene *)arg)->lost += status == WEFT_ERR_RESOURCE_LOST;
}

static void load_counters(void) {
    gpu_load();
    *(void **)&count.pushes = gpu_symbol(RTLD_DEFAULT, "double_pushes");
    *(void **)&count.copies_in = gpu_symbol(RTLD_DEFAULT, "double_copies_in");
    count.streams = gpu_symbol(RTLD_DEFAULT, "double_streams");
}
#define WANTS_THE_DOUBLE()                                                         \
    do {                                                                           \
        gpu_load();                                                                \
        if (!gpu.copies) SKIP("only the double of the CUDA driver fails at will"); \
        load_counters();                                                           \
    } while (0)

static weft_resource_t *describe_cuda(void *context, void *stream) {
    weft_resource_value_t values[] = {{WEFT_RES_WORKER_CUDA_CONTEXT, &context, sizeof context},
                                      {WEFT_RES_WORKER_CUDA_STREAM, &stream, sizeof stream}};
    weft_resource_params_t params = {
        .kind = WEFT_RESOURCE_CUDA, .values = values, .n_values = stream ? 2 : 1};
    weft_resource_t *resource;
    CHECK_EQ(weft_resource_describe(&params, &resource), 0);
    return resource;
}

static const char *ipc = "off"; /* most tests count each copy of the worker */

static weft_worker_t *stub_worker(struct scene *g, const char *transport) {
    weft_setting_t setting = {"cuda.ipc", ipc};
    weft_context_params_t of_context = {.settings = &setting, .n_settings = 1, .associated = 1};
    weft_worker_params_t of_worker = {.transports = transport, .associated = 1};
    weft_worker_t *worker;
    CHECK_EQ(weft_context_create(&of_context, &g->context), 0);
    CHECK_EQ(weft_worker_create(g->context, &of_worker, &worker), 0);
    return worker;
}

static void given_up(struct scene *g, const char *transport, void *stream) {
    memset(g, 0, sizeof *g);
    g->stream = stream;
    two_workers(&g->t, transport, (weft_setting_t[]){{"cuda.ipc", ipc}}, 1);
    weft_worker_destroy(g->t.a);
    g->t.a = stub_worker(g, transport);
    g->resource = describe_cuda(gpu.context, stream);
    weft_associate_params_t with = {.resource = g->resource, .on_lost = on_lost, .arg = g};
    CHECK_EQ(weft_associate_resources(g->context, WEFT_OBJECT_WORKER, &with, g->t.a), 0);
    two_dial(&g->t);
    UNTIL(&g->t, g->t.ready && g->t.back);
}

static void take_back(struct scene *g) {
    struct tally done = {0};
    CHECK_EQ(weft_disassociate_resources(g->resource, g->t.a, OP(&done)), WEFT_IN_PROGRESS);
    UNTIL(&g->t, done.calls);
    CHECK_EQ(done.status, WEFT_OK);
}

static void given_down(struct scene *g) {
    CHECK_EQ(weft_resource_release(g->resource), 0);
    weft_worker_destroy(g->t.a);
    CHECK_EQ(weft_context_destroy(g->context), 0);
    g->t.a = NULL;
    two_down(&g->t);
}

/* A message from device memory, and one into it; the peer's memory is the host's. */
static void cross(struct scene *g, size_t len) {
    struct two *t = &g->t;
    struct tally done = {0};
    char *device = gpu_alloc(len);
    pattern(out, len, (unsigned)len);
    gpu.write(device, out, len);
    CHECK(weft_tag_recv(two_b(t), 1, ~0ull, &(weft_iov_t){in, len}, 1, NULL, OP(&done)) >= 0);
    weft_status_t st = weft_tag_send(t->ep, 1, &(weft_iov_t){device, len}, 1, OP(&done));
    CHECK(st >= 0);
    done.calls += st == WEFT_OK;
    UNTIL(t, done.calls == 2);
    CHECK(done.status == WEFT_OK && memcmp(in, out, len) == 0);
    memset(&done, 0, sizeof done);
    pattern(out, len, (unsigned)len + 1);
    CHECK(weft_tag_recv(t->a, 2, ~0ull, &(weft_iov_t){device, len}, 1, NULL, OP(&done)) >= 0);
    st = weft_tag_send(t->back, 2, &(weft_iov_t){out, len}, 1, OP(&done));
    CHECK(st >= 0);
    done.calls += st == WEFT_OK;
    UNTIL(t, done.calls == 2);
    gpu.read(in, device, len);
    CHECK(done.status == WEFT_OK && memcmp(in, out, len) == 0);
    gpu.release(device);
}

/* A peer writes to a region on the device, and adds to a word of it. */
static void one_sided(struct scene *g) {
    struct two *t = &g->t;
    struct tally done = {0};
    char *device = gpu_alloc(8192);
    weft_mem_t *mem;
    weft_rkey_t *rkey;
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    uint64_t word = 0;
    weft_mem_params_t rights = {.rights = WEFT_MEM_ALL};
    CHECK_EQ(weft_mem_register(t->a, device, 8192, &rights, &mem), 0);
    CHECK_EQ(weft_mem_pack(mem, key, &len), 0);
    CHECK_EQ(weft_rkey_unpack(t->back, key, len, &rkey), 0);
    memset(out, 0, 8192);
    uint64_t at = (uint64_t)(uintptr_t)device;
    CHECK(weft_put(t->back, out, 8192, at, rkey, OP(&done)) >= 0);
    CHECK_EQ(weft_ep_flush(t->back, OP(&done)), WEFT_IN_PROGRESS);
    UNTIL(t, done.calls >= 1);
    CHECK(weft_get(t->back, in, 8192, at, rkey, OP(&done)) >= 0);
    UNTIL(t, done.calls >= 2);
    gpu.read(&word, device, 8);
    CHECK(done.status == WEFT_OK && word == 0);
    weft_rkey_release(rkey);
    CHECK(weft_mem_release(mem, NULL) >= 0);
    for (int i = 0; i < 200; i++) two_turn(t);
    gpu.release(device);
}

/* ---- workers in two contexts ----------------------------------------------------------------- */

TEST_WIRES(a_worker_copies_in_the_context_and_stream_that_it_was_given) {
    struct scene g;
    WANTS_THE_DOUBLE();
    void *other = gpu.context_create(), *stream = gpu_stream();
    unsigned copies = *gpu.copies, streams = *count.streams;
    CHECK_EQ(count.copies_in(stream), 0);
    given_up(&g, transport, stream);
    cross(&g, 8);
    cross(&g, 5000);
    cross(&g, LEN);
    one_sided(&g);
    CHECK(*gpu.copies - copies > 10);
    CHECK_EQ(count.copies_in(stream), *gpu.copies - copies); /* all of them */
    CHECK_EQ(*count.streams, streams);                       /* none was made */
    CHECK_EQ(count.pushes(other), 0);
    CHECK(gpu_context_is_as_before());
    take_back(&g);
    CHECK_EQ(weft_worker_flush(g.t.a, NULL), WEFT_ERR_DISASSOCIATED);
    CHECK_EQ(gpu.stream_destroy(stream), 0); /* it is the program's again */
    given_down(&g);
}

/* What the stream's earlier work writes is what is sent. */
static void read_behind_work(const char *transport) {
    struct scene g;
    struct tally done = {0};
    int go;
    void *stream = gpu_stream();
    char *device = gpu_alloc(LEN), *from = gpu_alloc(LEN);
    given_up(&g, transport, stream);
    pattern(out, LEN, 3);
    gpu.write(from, out, LEN);
    gpu_block(stream, &go);
    gpu_copy(device, from, LEN, stream);
    CHECK_EQ(gpu.set_current(gpu.context), 0); /* the receiver could copy in it */
    CHECK(weft_tag_recv(g.t.b, 1, ~0ull, &(weft_iov_t){in, LEN}, 1, NULL, OP(&done)) >= 0);
    CHECK_EQ(weft_tag_send(g.t.ep, 1, &(weft_iov_t){device, LEN}, 1, OP(&done)), WEFT_IN_PROGRESS);
    /* one that copied by itself has time to */
    for (double end = test_now() + 0.1; test_now() < end;) two_turn(&g.t);
    CHECK_EQ(done.calls, 0);
    gpu_unblock(&go);
    UNTIL(&g.t, done.calls == 2);
    CHECK(done.status == WEFT_OK && memcmp(in, out, LEN) == 0);
    CHECK_EQ(gpu.set_current(NULL), 0);
    take_back(&g);
    gpu.release(device);
    gpu.release(from);
    CHECK_EQ(gpu.stream_destroy(stream), 0);
    given_down(&g);
}
TEST_WIRES(a_message_is_read_behind_the_work_of_the_given_stream) {
    WANTS_THE_DOUBLE();
    read_behind_work(transport);
}
/* The receiver could copy it by itself (CUDA IPC), but not in the stream. */
TEST_WIRES(a_receiver_on_this_host_does_not_read_before_the_work_of_the_given_stream) {
    WANTS_THE_DOUBLE();
    ipc = "on";
    read_behind_work(transport);
    ipc = "off";
}

TEST(a_context_without_a_stream_gets_one_that_goes_with_the_association) {
    struct scene g;
    WANTS_THE_DOUBLE();
    unsigned streams = *count.streams;
    given_up(&g, "shm", NULL);
    CHECK_EQ(*count.streams, streams + 1);
    cross(&g, LEN);
    CHECK_EQ(*count.streams, streams + 1);
    take_back(&g);
    CHECK_EQ(*count.streams, streams);
    given_down(&g);
}

TEST(memory_and_streams_of_other_contexts_are_refused) {
    struct scene g;
    weft_mem_t *mem;
    WANTS_THE_DOUBLE();
    void *other = gpu.context_create(), *stream = gpu_stream();
    char *there = gpu.alloc(other, 8192, false), *here = gpu_alloc(8192);
    unsigned pushed = count.pushes(other);
    given_up(&g, "shm", stream);
    weft_iov_t iov = {there, 8192};
    CHECK_EQ(weft_tag_send(g.t.ep, 1, &iov, 1, NULL), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_tag_recv(g.t.a, 1, ~0ull, &iov, 1, NULL, NULL), WEFT_ERR_UNSUPPORTED);
    weft_mem_params_t rights = {.rights = WEFT_MEM_ALL};
    CHECK_EQ(weft_mem_register(g.t.a, there, 8192, &rights, &mem), WEFT_ERR_UNSUPPORTED);
    weft_op_t op = {.stream = stream};
    CHECK_EQ(weft_tag_send(g.t.ep, 1, &(weft_iov_t){here, 8}, 1, &op), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(count.pushes(other), pushed);
    gpu.release(there);
    gpu.release(here);
    take_back(&g);
    given_down(&g);
}

TEST(a_context_or_stream_that_does_not_fit_leaves_the_worker_as_it_was) {
    struct scene g = {.lost = 0};
    WANTS_THE_DOUBLE();
    void *other = gpu.context_create(), *gone = gpu.context_create(), *stream = gpu_stream();
    gpu.context_destroy(gone);
    weft_worker_t *worker = stub_worker(&g, "self");
    weft_resource_t *wrong[] = {describe_cuda(other, stream), describe_cuda(gone, NULL),
                                describe_cuda(NULL, NULL)};
    for (int i = 0; i < 3; i++) {
        weft_associate_params_t with = {.resource = wrong[i]};
        CHECK_EQ(weft_associate_resources(g.context, WEFT_OBJECT_WORKER, &with, worker),
                 WEFT_ERR_INVALID_PARAM);
        CHECK_EQ(weft_worker_flush(worker, NULL), WEFT_ERR_NOT_ASSOCIATED);
        CHECK_EQ(weft_resource_release(wrong[i]), 0);
    }
    weft_worker_destroy(worker);
    CHECK_EQ(weft_context_destroy(g.context), 0);
}

/* The stream stands still, and goes on after the end was asked for. A large message that the worker
 * has not sent is closed. */
TEST(operations_of_a_given_stream_end_before_it_is_taken_back) {
    struct scene g;
    struct tally sent = {0}, received = {0}, done = {0};
    int go;
    WANTS_THE_DOUBLE();
    void *stream = gpu_stream();
    char *device = gpu_alloc(LEN);
    given_up(&g, "shm", stream);
    pattern(out, LEN, 9);
    gpu.write(device, out, LEN);
    gpu_block(stream, &go);
    CHECK(weft_tag_recv(g.t.b, 1, ~0ull, &(weft_iov_t){in, LEN}, 1, NULL, OP(&received)) >= 0);
    CHECK_EQ(weft_tag_send(g.t.ep, 1, &(weft_iov_t){device, LEN}, 1, OP(&sent)), WEFT_IN_PROGRESS);
    for (int i = 0; i < 200; i++) two_turn(&g.t);
    CHECK(count.copies_in(stream) > 0);
    CHECK_EQ(weft_disassociate_resources(g.resource, g.t.a, OP(&done)), WEFT_IN_PROGRESS);
    for (int i = 0; i < 100; i++) two_turn(&g.t);
    CHECK_EQ(done.calls, 0); /* a copy is under way */
    gpu_unblock(&go);
    UNTIL(&g.t, done.calls);
    CHECK_EQ(done.status, WEFT_OK);
    CHECK_EQ(sent.calls, 1);
    CHECK(sent.status == WEFT_OK || sent.status == WEFT_ERR_DISASSOCIATED);
    CHECK_EQ(gpu.stream_destroy(stream), 0); /* nothing of the library is left in it */
    gpu.release(device);
    given_down(&g);
}

TEST(a_worker_that_returns_its_context_is_disassociated_for_each_call_and_operation) {
    static struct ending ending;
    struct scene g;
    struct tally done = {0};
    WANTS_THE_DOUBLE();
    given_up(&g, "shm", NULL);
    ending_begin(&ending, g.t.a, g.t.ep);
    for (int i = 0; i < 100; i++) two_turn(&g.t);
    CHECK_EQ(weft_disassociate_resources(g.resource, g.t.a, OP(&done)), WEFT_IN_PROGRESS);
    ending_calls_return(&ending, WEFT_ERR_DISASSOCIATED);
    UNTIL(&g.t, done.calls);
    CHECK_EQ(done.status, WEFT_OK);
    ending_ended(&ending, WEFT_ERR_DISASSOCIATED);
    CHECK_EQ(weft_worker_progress(g.t.a, 0), WEFT_ERR_DISASSOCIATED);
    given_down(&g);
}

TEST(a_context_that_is_lost_ends_its_operations_once) {
    struct scene g;
    struct tally sent = {0}, received = {0};
    WANTS_THE_DOUBLE();
    void *mine = gpu.context, *context = gpu.context = gpu.context_create();
    char *device = gpu_alloc(LEN), *to = gpu_alloc(8192);
    given_up(&g, "shm", NULL);
    CHECK_EQ(weft_tag_recv(g.t.a, 7, ~0ull, &(weft_iov_t){to, 8192}, 1, NULL, OP(&received)),
             WEFT_IN_PROGRESS);
    gpu.hold(true);
    CHECK_EQ(weft_tag_send(g.t.ep, 1, &(weft_iov_t){device, LEN}, 1, OP(&sent)), WEFT_IN_PROGRESS);
    for (int i = 0; i < 50; i++) two_turn(&g.t);
    gpu.context_destroy(context);
    weft_resource_lose(g.resource);
    gpu.hold(false);
    weft_resource_info_t info = {.n_users = 1};
    UNTIL(&g.t, weft_resource_info(g.resource, &info) == 0 && info.n_users == 0);
    CHECK(sent.calls == 1 && received.calls == 1 && g.lost == 1);
    CHECK(sent.status < 0);
    CHECK_EQ(received.status, WEFT_ERR_RESOURCE_LOST);
    CHECK_EQ(weft_worker_flush(g.t.a, NULL), WEFT_ERR_RESOURCE_LOST);
    gpu.context = mine;
    gpu.release(device);
    gpu.release(to);
    given_down(&g);
}

/* The worker asks for an error of its copies now and then; the stream may not be asked then. */
TEST(the_given_stream_may_be_captured_while_a_copy_is_under_way) {
    enum { RELAXED = 2 };
    struct scene g;
    struct tally sent = {0}, received = {0};
    void *graph = NULL;
    int go;
    WANTS_THE_DOUBLE();
    void *stream = gpu_stream();
    char *device = gpu_alloc(LEN);
    given_up(&g, "shm", stream);
    pattern(out, LEN, 4);
    gpu.write(device, out, LEN);
    gpu_block(stream, &go);
    CHECK(weft_tag_recv(g.t.b, 1, ~0ull, &(weft_iov_t){in, LEN}, 1, NULL, OP(&received)) >= 0);
    CHECK_EQ(weft_tag_send(g.t.ep, 1, &(weft_iov_t){device, LEN}, 1, OP(&sent)), WEFT_IN_PROGRESS);
    UNTIL(&g.t, count.copies_in(stream) > 0);
    CHECK_EQ(gpu.capture_begin(stream, RELAXED), 0);
    for (double end = test_now() + 0.2; test_now() < end;) two_turn(&g.t); /* it could ask */
    CHECK_EQ(gpu.capture_end(stream, &graph), 0);
    CHECK(graph != NULL);
    gpu_unblock(&go);
    UNTIL(&g.t, sent.calls && received.calls);
    CHECK(sent.status == WEFT_OK && received.status == WEFT_OK && memcmp(in, out, LEN) == 0);
    take_back(&g);
    gpu.release(device);
    CHECK_EQ(gpu.stream_destroy(stream), 0);
    given_down(&g);
}
