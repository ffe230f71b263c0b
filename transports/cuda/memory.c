#include "memory.h"

#include <base/status.h>
#include <pthread.h>
#include <stdint.h>

static cuda_pointer pointer_of(const void *at) {
    return (cuda_pointer)(uintptr_t)at;
}

/* ---- what a pointer points to */

bool weft__cuda_find(const void *at, struct cuda_memory *memory_p) {
    const struct cuda_driver *driver = weft__cuda_driver();
    struct cuda_memory memory = {.device = -1};
    unsigned kind = 0, managed = 0;
    cuda_attribute asked[] = {CUDA_POINTER_KIND,        CUDA_POINTER_CONTEXT,
                              CUDA_POINTER_DEVICE,      CUDA_POINTER_MANAGED,
                              CUDA_POINTER_RANGE_BEGIN, CUDA_POINTER_RANGE_LEN};
    void *answers[] = {&kind, &memory.context, &memory.device, &managed, &memory.base, &memory.len};
    enum { N_ASKED = sizeof asked / sizeof *asked };
    if (!driver || driver->pointer_attributes(N_ASKED, asked, answers, pointer_of(at)) != 0)
        return false;
    memory.managed = managed != 0;
    if (kind != CUDA_KIND_DEVICE && !memory.managed) return false;
    *memory_p = memory;
    return true;
}

bool weft__cuda_is_device(const void *at) {
    struct cuda_memory memory;
    return at && weft__cuda_find(at, &memory) && !memory.managed;
}

/* ---- a stream for each context */

enum { MOST_CONTEXTS = 32 };
static struct stream_of_context {
    cuda_context context;
    cuda_stream stream;
} streams[MOST_CONTEXTS];
static unsigned n_streams;
static pthread_mutex_t streams_mutex = PTHREAD_MUTEX_INITIALIZER;

static struct stream_of_context *find_stream(cuda_context context) {
    for (unsigned i = 0; i < n_streams; i++)
        if (streams[i].context == context) return &streams[i];
    return NULL;
}

/* The context is current. Beyond MOST_CONTEXTS, the default stream (NULL) serves. */
static weft_status_t stream_for(const struct cuda_driver *driver, cuda_context context,
                                cuda_stream *stream_p) {
    weft_status_t st = WEFT_OK;
    pthread_mutex_lock(&streams_mutex);
    struct stream_of_context *found = find_stream(context);
    if (!found && n_streams < MOST_CONTEXTS) {
        cuda_stream stream;
        st = weft__cuda_status(driver->stream_create(&stream, CUDA_NON_BLOCKING),
                               "could not create a stream");
        if (st == WEFT_OK) {
            found = &streams[n_streams++];
            *found = (struct stream_of_context){context, stream};
        }
    }
    *stream_p = found ? found->stream : NULL;
    pthread_mutex_unlock(&streams_mutex);
    return st;
}

/* Its context may have been destroyed, and another created at the same address: the next copy gets
 * a new stream. */
static void drop_stream(const struct cuda_driver *driver, cuda_context context) {
    pthread_mutex_lock(&streams_mutex);
    struct stream_of_context *found = find_stream(context);
    if (found) {
        (void)driver->stream_destroy(found->stream);
        *found = streams[--n_streams];
    }
    pthread_mutex_unlock(&streams_mutex);
}

/* ---- copies */

typedef cuda_result (*copy_fn)(const struct cuda_driver *driver, const void *args,
                               cuda_stream stream);

static weft_status_t copy_in_context(const struct cuda_driver *driver, cuda_context context,
                                     copy_fn copy, const void *args) {
    cuda_stream stream;
    weft_status_t st = stream_for(driver, context, &stream);
    if (st < 0) return st;
    st = weft__cuda_status(copy(driver, args, stream), "could not copy device memory");
    if (st == WEFT_OK)
        st = weft__cuda_status(driver->stream_wait(stream), "a copy of device memory failed");
    if (st < 0) drop_stream(driver, context);
    return st;
}

static weft_status_t copy_with(cuda_context context, copy_fn copy, const void *args) {
    const struct cuda_driver *driver = weft__cuda_driver();
    cuda_context popped;
    if (!driver) return weft__fail(WEFT_ERR_IO, "the CUDA driver is not loaded");
    if (!context) return copy_in_context(driver, NULL, copy, args);
    weft_status_t st =
        weft__cuda_status(driver->context_push(context), "could not enter the memory's context");
    if (st < 0) return st;
    st = copy_in_context(driver, context, copy, args);
    (void)driver->context_pop(&popped);
    return st;
}

struct line {
    void *to;
    const void *from;
    size_t len;
};
static cuda_result read_line(const struct cuda_driver *driver, const void *args,
                             cuda_stream stream) {
    const struct line *l = args;
    return driver->copy_to_host(l->to, pointer_of(l->from), l->len, stream);
}
static cuda_result write_line(const struct cuda_driver *driver, const void *args,
                              cuda_stream stream) {
    const struct line *l = args;
    return driver->copy_to_device(pointer_of(l->to), l->from, l->len, stream);
}
static cuda_result copy_blocks(const struct cuda_driver *driver, const void *args,
                               cuda_stream stream) {
    return driver->copy_blocks(args, stream);
}

weft_status_t weft__cuda_read(cuda_context context, void *to, const void *device, size_t len) {
    return copy_with(context, read_line, &(struct line){to, device, len});
}

weft_status_t weft__cuda_write(cuda_context context, void *device, const void *from, size_t len) {
    return copy_with(context, write_line, &(struct line){device, from, len});
}

weft_status_t weft__cuda_read_blocks(cuda_context context, const struct cuda_blocks *blocks) {
    const struct CUDA_MEMCPY2D_st copy = {.srcMemoryType = CUDA_KIND_DEVICE,
                                          .srcDevice = pointer_of(blocks->device),
                                          .srcPitch = blocks->pitch,
                                          .dstMemoryType = CUDA_KIND_HOST,
                                          .dstHost = blocks->host,
                                          .dstPitch = blocks->width,
                                          .WidthInBytes = blocks->width,
                                          .Height = blocks->rows};
    return copy_with(context, copy_blocks, &copy);
}

weft_status_t weft__cuda_write_blocks(cuda_context context, const struct cuda_blocks *blocks) {
    const struct CUDA_MEMCPY2D_st copy = {.srcMemoryType = CUDA_KIND_HOST,
                                          .srcHost = blocks->host,
                                          .srcPitch = blocks->width,
                                          .dstMemoryType = CUDA_KIND_DEVICE,
                                          .dstDevice = pointer_of(blocks->device),
                                          .dstPitch = blocks->pitch,
                                          .WidthInBytes = blocks->width,
                                          .Height = blocks->rows};
    return copy_with(context, copy_blocks, &copy);
}
