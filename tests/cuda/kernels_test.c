/* The kernels for device memory against the processor's reductions, bit by bit; with the double of
 * the driver it is their build for the host that runs. */
#include <collectives/reductions.h>
#include <math.h>
#include <tests/cuda/device.h>
#include <tests/support/clock.h>
#include <transports/cuda/kernels.h>
#include <transports/cuda/memory.h>

enum { MOST_BYTES = 3 * 5000 * 16, MOST_OPERANDS = 8 };
static unsigned char host[MOST_OPERANDS][MOST_BYTES], expected[MOST_BYTES], got[MOST_BYTES];

static uint64_t seed = 7;
static uint64_t next_random(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

static void wait_for_work(void) {
    weft_status_t st;
    while ((st = weft__cuda_queue_state(gpu.context)) == WEFT_IN_PROGRESS) continue;
    CHECK_EQ(st, WEFT_OK);
}

/* Values among which there are equal ones, zeros of both signs, NaN and infinity. */
static void fill(unsigned char *at, weft_datatype_t type, size_t count) {
    size_t width = weft_datatype_size(type);
    for (size_t i = 0; i < count * width; i++) at[i] = (unsigned char)next_random();
    for (size_t i = 0; i < count; i++) {
        uint64_t r = next_random() % 8;
        if (type == WEFT_FLOAT32_INT32 || type == WEFT_INT32_INT32 || type == WEFT_FLOAT64_INT32 ||
            type == WEFT_INT64_INT32)
            memset(at + i * width, 0, width);
        if (type == WEFT_FLOAT32_INT32)
            memcpy(at + i * width, &(weft_float32_int32_t){(float)r, (int32_t)(r * 5 % 7)}, width);
        if (type == WEFT_INT32_INT32)
            memcpy(at + i * width, &(weft_int32_int32_t){(int32_t)r, (int32_t)(r * 5 % 7)}, width);
        if (type == WEFT_FLOAT64_INT32) {
            weft_float64_int32_t v;
            memset(&v, 0, sizeof v);
            v.value = r ? (double)r : NAN;
            v.index = (int32_t)next_random() % 5;
            memcpy(at + i * width, &v, width);
        }
        if (type == WEFT_INT64_INT32) {
            weft_int64_int32_t v;
            memset(&v, 0, sizeof v);
            v.value = (int64_t)r;
            v.index = (int32_t)next_random() % 5;
            memcpy(at + i * width, &v, width);
        }
    }
}

static bool is_nan_at(const unsigned char *at, weft_datatype_t type) {
    float f;
    double d;
    uint16_t h;
    switch (type) {
    case WEFT_FLOAT16: memcpy(&h, at, 2); return (h & 0x7fff) > 0x7c00;
    case WEFT_BFLOAT16: memcpy(&h, at, 2); return (h & 0x7fff) > 0x7f80;
    case WEFT_FLOAT32: memcpy(&f, at, sizeof f); return isnan(f);
    case WEFT_FLOAT64: memcpy(&d, at, sizeof d); return isnan(d);
    default: return false;
    }
}

/* Equal bit by bit; of a NaN only that it is one. */
static bool same_elements(const unsigned char *a, const unsigned char *b, weft_datatype_t type,
                          size_t count) {
    size_t width = weft_datatype_size(type), each = width;
    weft_datatype_t part = type;
    if (type == WEFT_COMPLEX_FLOAT32) each = 4, part = WEFT_FLOAT32;
    if (type == WEFT_COMPLEX_FLOAT64) each = 8, part = WEFT_FLOAT64;
    size_t used = type == WEFT_FLOAT64_INT32 || type == WEFT_INT64_INT32 ? 12 : each; /* padding */
    for (size_t i = 0; i < count * width; i += each)
        if (memcmp(a + i, b + i, used) != 0 && !(is_nan_at(a + i, part) && is_nan_at(b + i, part)))
            return false;
    return true;
}

/* The fold of the processor, from the left. */
static void fold(weft_datatype_t type, weft_reduction_t reduction, unsigned n, size_t count) {
    reduce_fn reduce = weft__reduction(type, reduction);
    size_t bytes = count * weft_datatype_size(type);
    memcpy(expected, host[0], bytes);
    for (unsigned k = 1; k < n; k++) reduce(expected, expected, host[k], count);
    if (reduction == WEFT_AVG) weft__scale(type)(expected, count, n);
}

struct shape {
    unsigned n;
    size_t count;
    unsigned to_shift, from_shift; /* bytes from a boundary of 16 */
    bool in_place;
};

static void reduces(weft_datatype_t type, weft_reduction_t reduction, const struct shape *s,
                    char *device) {
    size_t bytes = s->count * weft_datatype_size(type), room = MOST_BYTES + 64;
    struct reduce_arguments args = {.count = s->count,
                                    .n = s->n,
                                    .reduction = reduction,
                                    .divisor = reduction == WEFT_AVG ? s->n : 0,
                                    .rounds = true};
    for (unsigned k = 0; k < s->n; k++) {
        char *at = device + (k + 1) * room + s->from_shift;
        fill(host[k], type, s->count);
        gpu.write(at, host[k], bytes);
        args.from[k] = (uintptr_t)at;
    }
    char *to = s->in_place ? device + s->n * room + s->from_shift : device + s->to_shift;
    args.to = (uintptr_t)to;
    fold(type, reduction, s->n, s->count);
    CHECK_EQ(weft__cuda_reduce(gpu.context, type, &args), WEFT_OK);
    wait_for_work();
    gpu.read(got, to, bytes);
    bool same = same_elements(got, expected, type, s->count);
    if (!same) printf("  type %d, reduction %d, shape of %u\n", (int)type, (int)reduction, s->n);
    CHECK(same);
}

static const struct shape shapes[] = {
    {2, 1, 0, 0, false},    {2, 4999, 0, 0, false},  {3, 1000, 0, 0, true}, {8, 333, 8, 8, false},
    {2, 1000, 0, 4, false}, {2, 1001, 12, 4, false}, {2, 500, 1, 3, false}, {1, 77, 16, 0, false},
};

TEST(every_kernel_gives_what_the_processor_gives) {
    if (!gpu_has_kernels()) SKIP("the library has no kernels");
    char *device = gpu_alloc((MOST_OPERANDS + 1) * (MOST_BYTES + 64));
    unsigned kernels = 0;
    for (int type = 0; type < WEFT_N_DATATYPES; type++)
        for (int reduction = 0; reduction < WEFT_N_REDUCTIONS; reduction++) {
            bool known = weft__reduction(type, reduction) != NULL && type != WEFT_LONG_DOUBLE;
            CHECK_EQ(weft__cuda_reduces((unsigned)type, (unsigned)reduction), known);
            kernels += known;
            for (size_t i = 0; known && i < sizeof shapes / sizeof *shapes; i++)
                reduces(type, reduction, &shapes[i], device);
        }
    CHECK_EQ(kernels, 8 * 10 + 4 * 5 + 2 * 3 + 4 * 2);
    CHECK(gpu_context_is_as_before());
    gpu.release(device);
}

/* Without `rounds` a sum of halves is rounded once: 1 + 2^-11 + 2^-11 is above 1 then. */
TEST(halves_are_summed_in_float32) {
    static const struct {
        weft_datatype_t type;
        uint16_t one, tiny, above;
    } halves[] = {{WEFT_FLOAT16, 0x3c00, 0x1000, 0x3c01}, {WEFT_BFLOAT16, 0x3f80, 0x3b80, 0x3f81}};
    if (!gpu_has_kernels()) SKIP("the library has no kernels");
    char *device = gpu_alloc(1024);
    for (unsigned i = 0; i < 2; i++) {
        struct reduce_arguments args = {.to = (uintptr_t)device, .count = 1, .n = 3};
        uint16_t value[3] = {halves[i].one, halves[i].tiny, halves[i].tiny}, sum = 0;
        for (unsigned k = 0; k < 3; k++) args.from[k] = (uintptr_t)device + 64 * (k + 1);
        for (unsigned k = 0; k < 3; k++) gpu.write(device + 64 * (k + 1), &value[k], 2);
        for (args.rounds = 0; args.rounds < 2; args.rounds++) {
            CHECK_EQ(weft__cuda_reduce(gpu.context, halves[i].type, &args), WEFT_OK);
            wait_for_work();
            gpu.read(&sum, device, 2);
            CHECK_EQ(sum, args.rounds ? halves[i].one : halves[i].above);
        }
    }
    gpu.release(device);
}

/* ---- packing --------------------------------------------------------------------------------- */

static void pack_in_a_batch(const struct cuda_blocks *blocks, bool unpacks) {
    struct cuda_batch batch;
    CHECK_EQ(
        weft__cuda_batch_begin(&batch, (struct cuda_place){.context = gpu.context}, CUDA_BLOCKING),
        WEFT_OK);
    CHECK_EQ(weft__cuda_batch_pack(&batch, blocks, unpacks), WEFT_OK);
    CHECK_EQ(weft__cuda_batch_wait(&batch), WEFT_OK);
}

/* `packed` is memory of the host that is registered. */
static void packs(const struct pack_arguments *shape, char *packed, char *laid_out) {
    const struct cuda_blocks blocks = {.device = laid_out,
                                       .host = packed,
                                       .width = shape->block,
                                       .pitch = shape->stride,
                                       .rows = shape->rows,
                                       .planes = shape->count,
                                       .plane_pitch = shape->extent};
    size_t all = shape->count * shape->rows * shape->block;
    size_t reach = shape->count * shape->extent + shape->rows * shape->stride;
    for (size_t i = 0; i < reach; i++) host[0][i] = (unsigned char)next_random();
    unsigned char *at = expected;
    for (size_t e = 0; e < shape->count; e++)
        for (size_t r = 0; r < shape->rows; r++, at += shape->block)
            memcpy(at, host[0] + e * shape->extent + r * shape->stride, shape->block);
    gpu.write(laid_out, host[0], reach);
    pack_in_a_batch(&blocks, false);
    CHECK(memcmp(packed, expected, all) == 0);
    memset(host[1], 0xee, reach);
    gpu.write(laid_out, host[1], reach);
    pack_in_a_batch(&blocks, true);
    gpu.read(got, laid_out, reach);
    for (size_t e = 0; e < shape->count; e++)
        for (size_t r = 0; r < shape->rows; r++)
            memcpy(host[1] + e * shape->extent + r * shape->stride,
                   host[0] + e * shape->extent + r * shape->stride, shape->block);
    CHECK(memcmp(got, host[1], reach) == 0);
}

TEST(strided_blocks_are_packed_and_unpacked) {
    static const struct pack_arguments args[] = {
        {.count = 1, .extent = 0, .rows = 100, .stride = 64, .block = 32},
        {.count = 10, .extent = 400, .rows = 7, .stride = 24, .block = 8},
        {.count = 5, .extent = 100, .rows = 3, .stride = 20, .block = 12},
        {.count = 9, .extent = 30, .rows = 3, .stride = 8, .block = 6},
        {.count = 4, .extent = 77, .rows = 5, .stride = 13, .block = 3},
    };
    if (!gpu_has_kernels()) SKIP("the library has no kernels");
    static char packed[MOST_BYTES];
    char *laid_out = gpu_alloc(MOST_BYTES);
    CHECK_EQ(weft__cuda_pin(gpu.context, packed, sizeof packed), WEFT_OK);
    for (size_t i = 0; i < sizeof args / sizeof *args; i++)
        for (unsigned shift = 0; shift < 3; shift++) packs(&args[i], packed + shift, laid_out);
    CHECK(weft__cuda_unpin(gpu.context, packed));
    gpu.release(laid_out);
}

/* Memory that no kernel can reach is left to the driver's copies, and the batch goes on. */
TEST(memory_that_is_not_registered_is_not_packed) {
    static char host_rows[10 * 8];
    struct cuda_batch batch;
    char *laid_out = gpu_alloc(10 * 16);
    const struct cuda_blocks blocks = {
        .device = laid_out, .host = host_rows, .width = 8, .pitch = 16, .rows = 10};
    gpu.write(laid_out, host[0], 160);
    CHECK_EQ(
        weft__cuda_batch_begin(&batch, (struct cuda_place){.context = gpu.context}, CUDA_BLOCKING),
        WEFT_OK);
    CHECK_EQ(weft__cuda_batch_pack(&batch, &blocks, false), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft__cuda_batch_read_blocks(&batch, &blocks), WEFT_OK);
    CHECK_EQ(weft__cuda_batch_wait(&batch), WEFT_OK);
    for (size_t i = 0; i < 10; i++) CHECK(memcmp(host_rows + i * 8, host[0] + i * 16, 8) == 0);
    gpu.release(laid_out);
}

/* ---- how fast -------------------------------------------------------------------------------- */

/* Bytes read and written per second, in GB/s, the best of ten. */
static double rate(bool folds, char *device, size_t len, unsigned n) {
    struct reduce_arguments args = {.to = (uintptr_t)device, .count = len / 4, .n = n};
    double best = 0;
    for (unsigned k = 0; k < n; k++) args.from[k] = args.to + (k + 1) * len;
    for (int i = 0; i < 10; i++) {
        double begun = test_now();
        CHECK_EQ(folds ? weft__cuda_reduce(gpu.context, WEFT_FLOAT32, &args)
                       : weft__cuda_copy(gpu.context, args.to, args.from[0], len),
                 WEFT_OK);
        wait_for_work();
        double took = test_now() - begun;
        double now = (folds ? n + 1 : 2) * (double)len / took * 1e-9;
        best = now > best ? now : best;
    }
    return best;
}

/* Printed, for tests/cuda/run; the double has no speed. */
TEST(reductions_of_64_mib_are_as_fast_as_copies) {
    enum { LEN = 64 << 20, N = 4 };
    if (!gpu_has_kernels()) SKIP("the library has no kernels");
    if (gpu.fail_copy) SKIP("the double of the CUDA driver has no speed");
    char *device = gpu_alloc((size_t)(N + 1) * LEN);
    double copy = rate(false, device, LEN, 1);
    for (unsigned n = 2; n <= N; n++) {
        double fold = rate(true, device, LEN, n);
        printf("  64 MiB, %u operands: %.0f GB/s, a copy %.0f GB/s: %.2f of it\n", n, fold, copy,
               fold / copy);
        CHECK(fold > 0);
    }
    gpu.release(device);
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

/* What the driver has of the library, in all contexts. */
struct objects {
    unsigned streams, modules;
};
static struct objects driver_objects(void) {
    const unsigned *streams = dlsym(RTLD_DEFAULT, "double_streams");
    const unsigned *modules = dlsym(RTLD_DEFAULT, "double_modules");
    CHECK(streams && modules);
    return (struct objects){*streams, *modules};
}
/* A context that is destroyed takes its queue's along. */
static void end_context(void *context) {
    gpu.context_destroy(context);
    weft__cuda_queue_drop(context);
}

TEST(what_the_driver_has_no_memory_for_once_is_loaded_later) {
    enum { MOST_CALLS = 30 };
    if (!gpu_has_kernels()) SKIP("the library has no kernels");
    if (!gpu.fail_call) SKIP("only the double of the CUDA driver fails at will");
    for (unsigned k = 1; k <= MOST_CALLS; k++) {
        void *context = gpu.context_create();
        struct objects before = driver_objects();
        *gpu.fail_call = k;
        weft_status_t st = weft__cuda_queue_open(context);
        CHECK(st == WEFT_OK || st == WEFT_ERR_NO_MEMORY);
        *gpu.fail_call = 0;
        CHECK_EQ(weft__cuda_queue_open(context), WEFT_OK);
        struct objects now = driver_objects(); /* nothing is left of the first try */
        CHECK(now.streams == before.streams + 1 && now.modules == before.modules + 1);
        end_context(context);
    }
}

TEST(an_error_that_breaks_no_context_leaves_its_stream_and_kernels_in_use) {
    if (!gpu_has_kernels()) SKIP("the library has no kernels");
    if (!gpu.fail_call) SKIP("only the double of the CUDA driver fails at will");
    void *context = gpu.context_create();
    CHECK_EQ(weft__cuda_queue_open(context), WEFT_OK);
    struct objects before = driver_objects();
    for (int i = 0; i < 5; i++) {
        weft__cuda_queue_drop(context);
        CHECK_EQ(weft__cuda_queue_open(context), WEFT_OK);
    }
    struct objects now = driver_objects();
    CHECK(now.streams == before.streams && now.modules == before.modules);
    end_context(context);
}

TEST(an_access_outside_of_an_allocation_is_an_error) {
    if (!gpu_has_kernels()) SKIP("the library has no kernels");
    if (!gpu.fail_copy) SKIP("an illegal access ends the context of the driver");
    char *device = gpu_alloc(4096);
    struct reduce_arguments args = {.to = (uintptr_t)device, .count = 1025, .n = 1};
    args.from[0] = args.to;
    CHECK_EQ(weft__cuda_reduce(gpu.context, WEFT_INT32, &args), WEFT_ERR_IO);
    args.count = 1024;
    CHECK_EQ(weft__cuda_reduce(gpu.context, WEFT_INT32, &args), WEFT_OK);
    CHECK(gpu_context_is_as_before());
    gpu.release(device);
}
