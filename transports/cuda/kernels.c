/* Loads the kernels into a context, and queues reductions, packing and copies on its stream. */
#include "kernels.h"

#include <base/status.h>
#include <pthread.h>
#include <string.h>

/* ---- what a context has ---------------------------------------------------------------------- */

enum {
    MOST_QUEUES = 32,
    PACK_KERNEL = KERNEL_N_TYPES,
    N_KERNELS,
    THREADS = 256,
    BLOCKS_PER_SM = 8
};

static const char *const kernel_name[N_KERNELS] = {
#define KERNEL_NAME(number, name, class) [number] = "weft_reduce_" #name,
    REDUCE_KERNELS(KERNEL_NAME)
#undef KERNEL_NAME
        [PACK_KERNEL] = "weft_pack",
};

struct queue {
    cuda_context context;
    unsigned long long number; /* the context's: a later one may have its address */
    cuda_stream stream;        /* NULL: its device has no kernels */
    cuda_function kernel[N_KERNELS];
    unsigned most_blocks;
};
static struct queue queues[MOST_QUEUES];
static unsigned n_queues;
static pthread_mutex_t queues_mutex = PTHREAD_MUTEX_INITIALIZER;

static bool driver_has_all(const struct cuda_driver *driver) {
    return driver->module_load && driver->module_unload && driver->module_function &&
           driver->launch && driver->context_device && driver->device_attribute &&
           driver->stream_query && driver->copy_within;
}

/* What the driver has no memory for now may be had later. */
static weft_status_t loaded(cuda_result result, const char *what) {
    if (result == 0) return WEFT_OK;
    if (result == CUDA_OUT_OF_MEMORY) return weft__cuda_status(result, what);
    return weft__fail(WEFT_ERR_UNSUPPORTED, "%s: this device has none", what);
}

static weft_status_t find_kernels(const struct cuda_driver *driver, cuda_module module,
                                  struct queue *queue) {
    weft_status_t st = WEFT_OK;
    for (unsigned i = 0; i < N_KERNELS && st == WEFT_OK; i++)
        if (kernel_name[i])
            st = loaded(driver->module_function(&queue->kernel[i], module, kernel_name[i]),
                        kernel_name[i]);
    return st;
}

/* The context is current. */
static weft_status_t make_queue(const struct cuda_driver *driver, struct queue *queue) {
    int device = 0, processors = 1;
    (void)driver->context_device(&device);
    (void)driver->device_attribute(&processors, CUDA_DEVICE_MULTIPROCESSORS, device);
    queue->most_blocks = (unsigned)(processors < 1 ? 1 : processors) * BLOCKS_PER_SM;
    cuda_module module;
    weft_status_t st =
        loaded(driver->module_load(&module, weft__cuda_image), "could not load kernels");
    if (st < 0) return st;
    st = find_kernels(driver, module, queue);
    if (st == WEFT_OK)
        st = weft__cuda_status(driver->stream_create(&queue->stream, CUDA_NON_BLOCKING),
                               "could not create a stream");
    if (st < 0) (void)driver->module_unload(module); /* nothing runs in it */
    return st;
}

static struct queue *find_queue(cuda_context context) {
    for (unsigned i = 0; i < n_queues; i++)
        if (queues[i].context == context) return &queues[i];
    return NULL;
}

static weft_status_t take_queue(const struct cuda_driver *driver, cuda_context context,
                                struct queue *queue_p) {
    weft_status_t st = WEFT_OK;
    pthread_mutex_lock(&queues_mutex);
    unsigned long long number = weft__cuda_context_number(context);
    struct queue *found = find_queue(context);
    if (found && found->number != number) { /* it went with its context */
        *found = queues[--n_queues];
        found = NULL;
    }
    if (!found && n_queues < MOST_QUEUES) {
        struct queue queue = {.context = context, .number = number};
        st = make_queue(driver, &queue);
        if (st == WEFT_OK || st == WEFT_ERR_UNSUPPORTED) *(found = &queues[n_queues++]) = queue;
    }
    if (found) *queue_p = *found;
    if (found && !found->stream && st == WEFT_OK)
        st = weft__fail(WEFT_ERR_UNSUPPORTED, "no kernels for this device");
    pthread_mutex_unlock(&queues_mutex);
    if (st == WEFT_OK && !found)
        st = weft__fail(WEFT_ERR_UNSUPPORTED, "more than %d contexts", MOST_QUEUES);
    return st;
}

/* Does the driver still know the stream, and no error of its context? */
static bool is_usable(const struct queue *queue) {
    const struct cuda_driver *driver = weft__cuda_driver();
    struct cuda_visit visit;
    if (!driver || !queue->stream || weft__cuda_enter(queue->context, &visit) != 0) return false;
    bool is_there = weft__cuda_context_number(queue->context) == queue->number;
    cuda_result r = is_there ? driver->stream_query(queue->stream) : CUDA_NOT_SUPPORTED;
    weft__cuda_leave(&visit);
    return r == 0 || r == CUDA_NOT_READY;
}

void weft__cuda_queue_drop(cuda_context context) {
    pthread_mutex_lock(&queues_mutex);
    struct queue *found = find_queue(context);
    if (found && !is_usable(found)) *found = queues[--n_queues];
    pthread_mutex_unlock(&queues_mutex);
}

/* ---- within a context ------------------------------------------------------------------------ */

typedef weft_status_t (*queue_fn)(const struct cuda_driver *driver, const struct queue *queue,
                                  void *arg);

static weft_status_t in_context(cuda_context context, bool needs_queue, queue_fn fn, void *arg) {
    const struct cuda_driver *driver = weft__cuda_driver();
    struct queue queue = {0};
    struct cuda_visit visit;
    if (!driver || !context) return weft__fail(WEFT_ERR_UNSUPPORTED, "no context of CUDA");
    if (!driver_has_all(driver))
        return weft__fail(WEFT_ERR_UNSUPPORTED, "the CUDA driver is too old");
    weft_status_t st = weft__cuda_status(weft__cuda_enter(context, &visit),
                                         "could not enter the memory's context");
    if (st < 0) return st;
    if (needs_queue) st = take_queue(driver, context, &queue);
    if (st == WEFT_OK) st = fn(driver, &queue, arg);
    weft__cuda_leave(&visit);
    return st;
}

static weft_status_t only_open(const struct cuda_driver *driver, const struct queue *queue,
                               void *arg) {
    (void)driver, (void)queue, (void)arg;
    return WEFT_OK;
}
weft_status_t weft__cuda_queue_open(cuda_context context) {
    return in_context(context, true, only_open, NULL);
}

struct launch {
    unsigned kernel;
    uint64_t threads; /* that have something to do */
    const void *args;
};
static weft_status_t launch_in(const struct cuda_driver *driver, const struct queue *queue,
                               const struct launch *l, cuda_stream stream) {
    uint64_t blocks = l->threads / THREADS + 1;
    if (blocks > queue->most_blocks) blocks = queue->most_blocks;
    void *args[] = {(void *)(uintptr_t)l->args};
    cuda_result r = driver->launch(queue->kernel[l->kernel], (unsigned)blocks, 1, 1, THREADS, 1, 1,
                                   0, stream, args, NULL);
    return weft__cuda_status(r, "could not start a kernel");
}
static weft_status_t launch(const struct cuda_driver *driver, const struct queue *queue,
                            void *arg) {
    return launch_in(driver, queue, arg, queue->stream);
}

bool weft__cuda_reduces(unsigned type, unsigned reduction) {
    enum { FLOAT16 = 8, FLOAT64 = 11, COMPLEX64 = 14 };
    if (type >= KERNEL_N_TYPES || !kernel_name[type]) return false;
    bool sum = reduction == KERNEL_SUM || reduction == KERNEL_PROD;
    if (type < FLOAT16) return reduction <= KERNEL_LXOR;
    if (type <= FLOAT64) return reduction <= KERNEL_MAX || reduction == KERNEL_AVG;
    if (type <= COMPLEX64) return sum || reduction == KERNEL_AVG;
    return reduction == KERNEL_MINLOC || reduction == KERNEL_MAXLOC;
}

weft_status_t weft__cuda_reduce(cuda_context context, unsigned type,
                                const struct reduce_arguments *args) {
    if (args->n == 0 || args->n > KERNEL_MOST_INPUTS || !weft__cuda_reduces(type, args->reduction))
        return weft__fail(WEFT_ERR_UNSUPPORTED, "no such kernel");
    if (args->count == 0) return WEFT_OK;
    struct launch l = {type, args->count, args};
    return in_context(context, true, launch, &l);
}

static weft_status_t take_a_copy(const struct cuda_driver *driver, const struct queue *queue,
                                 void *arg) {
    (void)driver;
    *(struct queue *)arg = *queue;
    return WEFT_OK;
}

weft_status_t weft__cuda_batch_pack(struct cuda_batch *batch, const struct cuda_blocks *blocks,
                                    bool unpacks) {
    const struct cuda_driver *driver = batch->driver;
    size_t planes = blocks->planes ? blocks->planes : 1;
    cuda_pointer packed = 0;
    struct queue queue = {0};
    if (!driver->host_device_pointer ||
        driver->host_device_pointer(&packed, blocks->host, 0) != 0 ||
        in_context(batch->place.context, true, take_a_copy, &queue) < 0)
        return WEFT_ERR_UNSUPPORTED;
    const struct pack_arguments args = {.packed = packed,
                                        .laid_out = (uintptr_t)blocks->device,
                                        .count = planes,
                                        .extent = blocks->plane_pitch,
                                        .rows = blocks->rows,
                                        .stride = blocks->pitch,
                                        .block = blocks->width,
                                        .unpacks = unpacks};
    struct launch l = {PACK_KERNEL, planes * blocks->rows * blocks->width, &args};
    weft_status_t st = l.threads ? launch_in(driver, &queue, &l, batch->stream) : WEFT_OK;
    return st < 0 ? weft__cuda_batch_fail(batch, st) : st;
}

struct span {
    uint64_t to, from;
    size_t len;
};
static weft_status_t copy(const struct cuda_driver *driver, const struct queue *queue, void *arg) {
    const struct span *s = arg;
    return weft__cuda_status(driver->copy_within(s->to, s->from, s->len, queue->stream),
                             "could not copy device memory");
}
weft_status_t weft__cuda_copy(cuda_context context, uint64_t to, uint64_t from, size_t len) {
    struct span s = {to, from, len};
    return len && to != from ? in_context(context, true, copy, &s) : WEFT_OK;
}

static weft_status_t kernel_ask(const struct cuda_driver *driver, const struct queue *queue,
                                void *arg) {
    (void)arg;
    cuda_result r = driver->stream_query(queue->stream);
    if (r == CUDA_NOT_READY) return WEFT_IN_PROGRESS;
    return weft__cuda_status(r, "work on a device failed");
}
weft_status_t weft__cuda_queue_state(cuda_context context) {
    return in_context(context, true, kernel_ask, NULL);
}

static weft_status_t name_stream(const struct cuda_driver *driver, const struct queue *queue,
                                 void *arg) {
    (void)driver;
    *(cuda_stream *)arg = queue->stream;
    return WEFT_OK;
}
weft_status_t weft__cuda_queue_stream(cuda_context context, cuda_stream *stream_p) {
    return in_context(context, true, name_stream, stream_p);
}
