/* Copies that nothing waits for (transports/cuda/copies.h), while others on their stream fail. */
#include <base/alloc.h>
#include <reactor/reactor.h>
#include <tests/cuda/device.h>
#include <transports/cuda/copies.h>
#include <transports/cuda/stream_gate.h>
#include <weft/weft.h>

enum { N = 3, LEN = 4096 };
static struct {
    weft_context_t *context;
    struct reactor *reactor;
    struct cuda_copies *copies;
    char *device;
    struct cuda_copy copy[N];
    int done[N];
    weft_status_t status[N];
    struct cuda_copy *stop; /* by the first that is done */
} bed;
/* Pinned: copies of other memory end within their calls. */
static GPU_PAGES char host[N][LEN];

static void load(void) {
    gpu_load();
    gpu_pin(host, sizeof host);
}

static void copy_done(struct cuda_copy *copy, weft_status_t status) {
    int i = (int)(copy - bed.copy);
    bed.done[i]++;
    bed.status[i] = status;
    if (bed.stop) weft__cuda_copy_stop(bed.stop);
    bed.stop = NULL;
}

static void begin_batch(void *context, struct cuda_batch *batch) {
    CHECK_EQ(weft__cuda_batch_begin(batch, (struct cuda_place){.context = context}, CUDA_READS), 0);
}
static void begin(void *context) {
    memset(&bed, 0, sizeof bed);
    CHECK_EQ(weft_context_create(NULL, &bed.context), 0);
    CHECK_EQ(weft__reactor_create(bed.context, &(struct reactor_params){.seed = 1}, &bed.reactor),
             0);
    CHECK_EQ(weft__cuda_copies_open(bed.reactor, LEN, LEN, &bed.copies), 0);
    bed.device = gpu.alloc(context, LEN, false);
    for (int i = 0; i < N; i++) {
        struct cuda_batch batch;
        bed.copy[i].done = copy_done;
        begin_batch(context, &batch);
        CHECK_EQ(weft__cuda_batch_read(&batch, host[i], bed.device, LEN), 0);
        CHECK_EQ(weft__cuda_copy_start(bed.copies, &batch, &bed.copy[i]), 0);
    }
}
static void turns(int n) {
    for (int i = 0; i < n; i++) {
        weft__reactor_progress(bed.reactor, 0);
        usleep(1000);
    }
}
static void end(void) {
    weft__cuda_copies_close(bed.copies);
    weft__reactor_destroy(bed.reactor);
    CHECK_EQ(weft_context_destroy(bed.context), 0);
    gpu.release(bed.device);
}

/* All of a context fail together. One of them ends another, which is not notified. The driver,
 * which was only slow, reports all of them later. */
TEST(a_copy_may_be_stopped_while_it_fails_with_others) {
    load();
    if (!gpu.hold) SKIP("only the double of the CUDA driver fails at will");
    bool *fail_query = dlsym(RTLD_DEFAULT, "double_fail_query");
    CHECK(fail_query != NULL);
    for (int stopped = 1; stopped < N; stopped++) {
        void *context = gpu.context_create();
        gpu.hold(true);
        begin(context);
        bed.stop = &bed.copy[stopped];
        *fail_query = true;
        for (int i = 0; i < 1000 && !bed.done[0]; i++) turns(1);
        *fail_query = false;
        for (int i = 0; i < N; i++) CHECK_EQ(bed.done[i], i != stopped);
        for (int i = 0; i < N; i++) CHECK_EQ(bed.status[i], i == stopped ? WEFT_OK : WEFT_ERR_IO);
        gpu.hold(false);
        turns(20);
        for (int i = 0; i < N; i++) CHECK_EQ(bed.done[i], i != stopped);
        end();
    }
}

/* The program replaces a broken context by another, which has its address, before Weft has asked
 * for the error: the streams at the old addresses have none, and nothing to do. */
TEST(copies_fail_whose_context_was_replaced_by_another_at_its_address) {
    load();
    if (!gpu.hold) SKIP("only the double of the CUDA driver fails at will");
    void *context = gpu.context_create();
    gpu.hold(true);
    begin(context);
    gpu.context_break(context);
    gpu.hold(false);
    gpu.context_mend(context);
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < 20000 && !bed.done[i]; k++) turns(1);
        CHECK_EQ(bed.done[i], 1);
        CHECK_EQ(bed.status[i], WEFT_ERR_IO);
    }
    end();
}

/* Their stream has nothing left to do, and their context breaks; the worker is late. */
TEST(copies_that_were_reported_do_not_fail_with_others) {
    enum { LATE_US = 50000 }; /* beyond the time after which the worker asks for errors */
    load();
    if (!gpu.hold) SKIP("only the double of the CUDA driver fails at will");
    for (int breaks = 0; breaks < 2; breaks++) {
        void *context = gpu.context_create();
        begin(context);
        for (int i = 0; i < N; i++) CHECK_EQ(gpu.stream_wait(bed.copy[i].batch.stream), 0);
        if (breaks) gpu.context_break(context);
        usleep(LATE_US);
        turns(20);
        for (int i = 0; i < N; i++) CHECK_EQ(bed.done[i], 1);
        for (int i = 0; i < N; i++) CHECK_EQ(bed.status[i], WEFT_OK);
        gpu.context_mend(context);
        end();
    }
}

/* The driver is asked about copies under way, and may have no memory for that. */
TEST(a_question_that_fails_for_want_of_memory_ends_no_copy) {
    load();
    if (!gpu.hold) SKIP("only the double of the CUDA driver fails at will");
    gpu.hold(true);
    begin(gpu.context_create());
    *gpu.fail_call = 1;
    for (int i = 0; i < 20000 && *gpu.fail_call; i++) turns(1);
    CHECK_EQ(*gpu.fail_call, 0);
    for (int i = 0; i < N; i++) CHECK_EQ(bed.done[i], 0);
    gpu.hold(false);
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < 20000 && !bed.done[i]; k++) turns(1);
        CHECK_EQ(bed.done[i], 1);
        CHECK_EQ(bed.status[i], WEFT_OK);
    }
    end();
}

/* CUDA's default mode of a capture, which forbids unsafe calls of every thread. */
enum { CAPTURE_GLOBAL = 0 };

static void *begin_capture(void *context) {
    void *stream = NULL;
    CHECK_EQ(gpu.set_current(context), 0);
    CHECK_EQ(gpu.stream_create(&stream, 1), 0);
    CHECK_EQ(gpu.capture_begin(stream, CAPTURE_GLOBAL), 0);
    return stream;
}
static void end_capture(void *stream) {
    void *graph = NULL;
    CHECK_EQ(gpu.capture_end(stream, &graph), 0);
    CHECK(graph != NULL);
    CHECK_EQ(gpu.set_current(NULL), 0);
    CHECK_EQ(gpu.stream_destroy(stream), 0);
}

/* Their context is a new one: streams are made, memory is pinned, and the driver is asked. */
TEST(copies_do_not_invalidate_a_capture_of_the_program) {
    load();
    if (!gpu.hold) SKIP("only the double of the CUDA driver fails at will");
    const unsigned *queries = dlsym(RTLD_DEFAULT, "double_queries");
    void *context = gpu.context_create(), *stream = begin_capture(context);
    unsigned before = *queries;
    gpu.hold(true);
    begin(context);
    struct cuda_chunk *chunk = weft__cuda_chunk_take(bed.copies, context);
    CHECK(chunk && chunk->is_pinned);
    weft__cuda_chunk_give(bed.copies, chunk);
    for (int k = 0; k < 20000 && *queries == before; k++) turns(1);
    CHECK(*queries > before);
    gpu.hold(false);
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < 20000 && !bed.done[i]; k++) turns(1);
        CHECK_EQ(bed.status[i], WEFT_OK);
    }
    end();
    end_capture(stream);
}

TEST(memory_is_unpinned_where_no_context_is_current) {
    load();
    if (!gpu.hold) SKIP("the driver has a context in this thread");
    CHECK_EQ(gpu.set_current(NULL), 0);
    begin(gpu.context_create());
    struct cuda_chunk *chunk = weft__cuda_chunk_take(bed.copies, bed.copy[0].batch.place.context);
    CHECK(chunk && chunk->is_pinned);
    const char *at = chunk->at;
    weft__cuda_chunk_give(bed.copies, chunk);
    end();
    CHECK(!weft__cuda_is_pinned(at, LEN));
}

/* Of three batches, as of three threads, the first fails, so that the third gets another stream.
 * The second keeps the stream that it has; as it fails too, the third keeps its own. */
TEST(a_batch_that_fails_takes_no_stream_away_from_others) {
    load();
    const unsigned *streams = dlsym(RTLD_DEFAULT, "double_streams");
    if (!gpu.context_create) SKIP("only the double of the CUDA driver fails at will");
    void *context = gpu.context_create();
    char *device = gpu.alloc(context, LEN, false);
    struct cuda_batch first, second, third;
    unsigned before = *streams;
    begin_batch(context, &first);
    begin_batch(context, &second);
    *gpu.fail_copy = 1;
    CHECK_EQ(weft__cuda_batch_read(&first, host[0], device, LEN), WEFT_ERR_IO);
    begin_batch(context, &third);
    CHECK_EQ(weft__cuda_batch_read(&second, host[0], device, LEN), WEFT_OK);
    *gpu.fail_copy = 1;
    CHECK_EQ(weft__cuda_batch_read(&second, host[0], device, LEN), WEFT_ERR_IO);
    CHECK_EQ(weft__cuda_batch_read(&third, host[0], device, LEN), WEFT_OK);
    CHECK_EQ(weft__cuda_batch_wait(&third), WEFT_OK);
    CHECK_EQ(*streams, before + 1); /* the third's, for the next batch */
    gpu.release(device);
}

/* Distances beyond those that the driver takes in a 2D or 3D copy: two planes of two blocks. */
TEST(blocks_may_be_further_apart_than_the_driver_takes) {
    enum { BLOCK = 100, PLANES = 2, ROWS = 2, ALL = PLANES * ROWS * BLOCK };
    static char filled[ALL], got[ALL];
    load();
    if (!gpu.hold) SKIP("only the double of the CUDA driver has so much memory");
    const size_t pitch = ((size_t)1 << 31) + 512, plane = ROWS * pitch, len = PLANES * plane;
    char *device = gpu.alloc(gpu.context, len, false), *dense = gpu.alloc(gpu.context, ALL, false);
    struct cuda_place place = {.context = gpu.context};
    struct cuda_blocks blocks = {device, filled, BLOCK, pitch, ROWS, PLANES, plane};
    struct cuda_batch batch;
    for (int i = 0; i < ALL; i++) filled[i] = (char)(i * 7);
    CHECK_EQ(weft__cuda_write_blocks(place, &blocks), WEFT_OK);
    gpu.read(got, device + plane + pitch, BLOCK);
    CHECK(memcmp(got, filled + 3 * BLOCK, BLOCK) == 0);
    blocks.host = got;
    memset(got, 0, sizeof got);
    CHECK_EQ(weft__cuda_read_blocks(place, &blocks), WEFT_OK);
    CHECK(memcmp(got, filled, ALL) == 0);
    struct cuda_rows rows = {dense, device, BLOCK, PLANES * ROWS, BLOCK, pitch};
    begin_batch(gpu.context, &batch);
    CHECK_EQ(weft__cuda_batch_copy_rows(&batch, &rows), WEFT_OK);
    CHECK_EQ(weft__cuda_batch_wait(&batch), WEFT_OK);
    gpu.read(got, dense, ALL);
    CHECK(memcmp(got, filled, ALL) == 0);
    gpu.release(dense);
    gpu.release(device);
}

/* A kernel has an address of it. */
TEST(pinned_memory_is_mapped_for_kernels) {
    static GPU_PAGES char page[GPU_PAGE];
    unsigned long long device = 0;
    load();
    CHECK_EQ(weft__cuda_pin(gpu.context, page, sizeof page), WEFT_OK);
    if (gpu.context_create) CHECK_EQ(gpu.set_current(gpu.context), 0);
    CHECK_EQ(gpu.host_device_pointer(&device, page, 0), 0);
    if (gpu.context_create) CHECK_EQ(gpu.set_current(NULL), 0);
    CHECK(device != 0);
    CHECK(weft__cuda_unpin(gpu.context, page));
}

/* A blocking stream stands still, and so does the default stream of its context. */
TEST(copies_of_many_contexts_wait_for_no_other_stream) {
    enum { CONTEXTS = 100 };
    char bytes[64] = "through a stream of its own", back[64] = "";
    void *mine = gpu.context, *stream = NULL;
    int go = 0;
    load();
    const unsigned *streams = dlsym(RTLD_DEFAULT, "double_streams");
    if (!streams) SKIP("only the double of the CUDA driver fails at will");
    mine = gpu.context;
    for (int i = 0; i < CONTEXTS; i++) {
        struct cuda_place place = {.context = gpu.context = gpu.context_create()};
        char *device = gpu_alloc(sizeof bytes);
        if (i == CONTEXTS - 1) {
            CHECK_EQ(gpu.set_current(gpu.context), 0);
            CHECK_EQ(gpu.stream_create(&stream, 0), 0);
            CHECK_EQ(gpu.set_current(NULL), 0);
            gpu_block(stream, &go);
        }
        unsigned before = *streams;
        CHECK_EQ(weft__cuda_write(place, device, bytes, sizeof bytes), 0);
        CHECK_EQ(weft__cuda_read(place, back, device, sizeof back), 0);
        CHECK(memcmp(bytes, back, sizeof bytes) == 0);
        if (i == CONTEXTS - 1) CHECK_EQ(*streams, before);
        memset(back, 0, sizeof back);
        if (i < CONTEXTS - 1) gpu.release(device);
    }
    gpu_unblock(&go);
    CHECK_EQ(gpu.stream_destroy(stream), 0);
    gpu.context = mine;
}

/* ---- the end of staging buffers -------------------------------------------------------------- */

static void reached(void *arg) {
    __atomic_store_n((int *)arg, 1, __ATOMIC_RELEASE);
}

static char *pinned_chunk(struct cuda_copies *copies) {
    struct cuda_chunk *chunk = weft__cuda_chunk_take(copies, gpu.context);
    CHECK(chunk && chunk->is_pinned && weft__cuda_is_pinned(chunk->at, LEN));
    weft__cuda_chunk_give(copies, chunk);
    return chunk->at;
}

/* The driver waits for the stream where it unpins memory, and the stream for this thread. */
TEST(staging_memory_stays_pinned_while_an_operation_holds_back_a_stream) {
    struct cuda_copies *copies;
    struct cuda_gate *gate;
    int there = 0;
    load();
    void *stream = gpu_stream();
    begin(gpu.context);
    CHECK_EQ(weft__cuda_copies_open(bed.reactor, LEN, LEN, &copies), 0);
    char *chunk = pinned_chunk(copies);
    CHECK_EQ(weft__cuda_gate_new(stream, &there, reached, &there, &gate), 0);
    CHECK_EQ(weft__cuda_gate_place(gate), 0);
    while (!__atomic_load_n(&there, __ATOMIC_ACQUIRE)) usleep(100);
    weft__cuda_copies_close(copies);
    CHECK(weft__cuda_is_pinned(chunk, LEN));
    weft__cuda_gate_open(gate);
    CHECK_EQ(gpu.stream_wait(stream), 0);
    CHECK_EQ(weft__cuda_copies_open(bed.reactor, LEN, LEN, &copies), 0);
    weft__cuda_copies_close(copies);
    CHECK(!weft__cuda_is_pinned(chunk, LEN));
    turns(20);
    end();
    CHECK_EQ(gpu.stream_destroy(stream), 0);
}
