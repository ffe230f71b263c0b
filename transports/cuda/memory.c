/* Asks the driver what a pointer points to, and copies between device and host in batches. */
#include "memory.h"

#include "thread_cache.h"
#include <base/compiler.h>
#include <base/status.h>
#include <pthread.h>
#include <stdint.h>

static cuda_pointer pointer_of(const void *at) {
    return (cuda_pointer)(uintptr_t)at;
}

/* ---- what a pointer points to */

static bool number_of(const struct cuda_driver *driver, const void *at,
                      unsigned long long *buffer_p) {
    return driver->pointer_attribute &&
           driver->pointer_attribute(buffer_p, CUDA_POINTER_BUFFER, pointer_of(at)) == 0;
}

static const struct cuda_answer *find_answer(const struct cuda_driver *driver, const void *at) {
    const struct cuda_thread_cache *cache = weft__cuda_thread_cache();
    for (unsigned i = 0; cache && i < N_CUDA_ANSWERS; i++) {
        const struct cuda_answer *known = &cache->answer[i];
        unsigned long long buffer;
        uintptr_t base = (uintptr_t)known->memory.base;
        if ((uintptr_t)at - base >= known->memory.len) continue;
        return number_of(driver, at, &buffer) && buffer == known->buffer ? known : NULL;
    }
    return NULL;
}

static void keep_answer(const struct cuda_driver *driver, const struct cuda_memory *memory) {
    struct cuda_thread_cache *cache = weft__cuda_thread_cache();
    struct cuda_answer new = {.memory = *memory};
    if (!cache || !memory->len || !number_of(driver, memory->base, &new.buffer)) return;
    for (unsigned i = 0; i < N_CUDA_ANSWERS; i++) /* one that is gone, where this one begins */
        if (cache->answer[i].memory.base == memory->base) cache->next_answer = i;
    cache->answer[cache->next_answer] = new;
    cache->next_answer = (cache->next_answer + 1) % N_CUDA_ANSWERS;
}

static bool cuda_memory_ask(const struct cuda_driver *driver, const void *at,
                            struct cuda_memory *memory_p) {
    struct cuda_memory memory = {.device = -1};
    unsigned kind = 0, managed = 0;
    cuda_attribute asked[] = {CUDA_POINTER_KIND,        CUDA_POINTER_CONTEXT,
                              CUDA_POINTER_DEVICE,      CUDA_POINTER_MANAGED,
                              CUDA_POINTER_RANGE_BEGIN, CUDA_POINTER_RANGE_LEN};
    void *answers[] = {&kind, &memory.context, &memory.device, &managed, &memory.base, &memory.len};
    enum { N_ASKED = sizeof asked / sizeof *asked };
    if (driver->pointer_attributes(N_ASKED, asked, answers, pointer_of(at)) != 0 || kind == 0)
        return false;
    memory.managed = managed != 0;
    memory.on_host = kind == CUDA_KIND_HOST && !memory.managed;
    *memory_p = memory;
    return true;
}

bool weft__cuda_find_any(const void *at, struct cuda_memory *memory_p) {
    const struct cuda_driver *driver = weft__cuda_driver();
    if (!driver) return false;
    const struct cuda_answer *known = find_answer(driver, at);
    if (known) {
        *memory_p = known->memory;
    } else {
        if (!cuda_memory_ask(driver, at, memory_p)) return false;
        keep_answer(driver, memory_p);
    }
    memory_p->at = at;
    return true;
}

bool weft__cuda_find(const void *at, struct cuda_memory *memory_p) {
    struct cuda_memory memory;
    if (!weft__cuda_find_any(at, &memory) || memory.on_host) return false;
    *memory_p = memory;
    return true;
}

bool weft__cuda_is_device(const void *at) {
    struct cuda_memory memory;
    return at && weft__cuda_find(at, &memory) && !memory.managed;
}

bool weft__cuda_is_pinned(const void *at, size_t len) {
    struct cuda_memory memory;
    if (!weft__cuda_find_any(at, &memory) || !memory.on_host) return false;
    size_t before = (uintptr_t)at - (uintptr_t)memory.base;
    return before <= memory.len && len <= memory.len - before;
}

cuda_context weft__cuda_current(void) {
    const struct cuda_driver *driver = weft__cuda_driver();
    cuda_context context = NULL;
    if (!driver || !driver->context_current || driver->context_current(&context) != 0) return NULL;
    return context;
}

/* ---- streams of the library's own, for each context and use */

enum { MOST_STREAMS = 96 };
static struct own_stream {
    cuda_context context;
    unsigned long long number; /* the context's: a later one may have its address */
    enum cuda_use use;
    cuda_stream stream;
    unsigned batches; /* that have it, of all threads */
    bool is_failed;   /* no further batch gets it, and the last one that has it destroys it */
} streams[MOST_STREAMS];
static unsigned n_streams;
static pthread_mutex_t streams_mutex = PTHREAD_MUTEX_INITIALIZER;

static struct own_stream *find_stream(const struct cuda_batch *batch) {
    for (unsigned i = 0; i < n_streams; i++) {
        const struct own_stream *own = &streams[i];
        if (own->context == batch->place.context && own->number == batch->number &&
            own->use == batch->use && !own->is_failed)
            return &streams[i];
    }
    return NULL;
}

/* Those of an earlier context at this one's address went with it. */
static void forget_streams(const struct cuda_batch *batch) {
    for (unsigned i = n_streams; i-- > 0;)
        if (streams[i].context == batch->place.context && streams[i].number != batch->number &&
            streams[i].batches == 0)
            streams[i] = streams[--n_streams];
}

static struct own_stream *stream_of(const struct cuda_batch *batch) {
    for (unsigned i = 0; i < n_streams; i++)
        if (streams[i].context == batch->place.context && streams[i].number == batch->number &&
            streams[i].stream == batch->stream)
            return &streams[i];
    return NULL;
}

/* The context is current. Beyond MOST_STREAMS, a batch has a stream of its own. The default stream
 * would not do: it waits for streams of the program, which may wait for this batch. */
static weft_status_t take_stream(struct cuda_batch *batch) {
    weft_status_t st = WEFT_OK;
    pthread_mutex_lock(&streams_mutex);
    struct own_stream *found = find_stream(batch);
    if (!found) forget_streams(batch);
    if (!found)
        st = weft__cuda_status(batch->driver->stream_create(&batch->stream, CUDA_NON_BLOCKING),
                               "could not create a stream");
    if (!found && st == WEFT_OK && n_streams < MOST_STREAMS) {
        found = &streams[n_streams++];
        *found = (struct own_stream){.context = batch->place.context,
                                     .number = batch->number,
                                     .use = batch->use,
                                     .stream = batch->stream};
    }
    if (found) {
        found->batches++;
        batch->stream = found->stream;
    }
    pthread_mutex_unlock(&streams_mutex);
    return st;
}

/* A stream whose context cannot be entered, or is another one by now, went with it. */
static void destroy_stream(const struct cuda_batch *batch) {
    struct cuda_visit visit;
    if (weft__cuda_enter(batch->place.context, &visit) != 0) return;
    if (weft__cuda_context_number(batch->place.context) == batch->number)
        (void)batch->driver->stream_destroy(batch->stream);
    weft__cuda_leave(&visit);
}

/* After a failure its context may have been destroyed, and another created at the same address: the
 * next batch gets a new stream. Batches of other threads that have the failed one keep it. */
static void give_stream(const struct cuda_batch *batch, bool has_failed) {
    if (batch->place.stream) return; /* it is not Weft's */
    pthread_mutex_lock(&streams_mutex);
    struct own_stream *own = stream_of(batch);
    if (own && has_failed) own->is_failed = true;
    bool is_over = !own || (--own->batches == 0 && own->is_failed);
    if (own && is_over) *own = streams[--n_streams];
    pthread_mutex_unlock(&streams_mutex);
    if (is_over) destroy_stream(batch);
}

/* ---- batches of copies */

/* Copies would become part of the graph that is captured. */
static weft_status_t check_given(const struct cuda_driver *driver, cuda_stream stream) {
    cuda_capture capture = 0;
    if (!driver->stream_is_capturing) return WEFT_OK;
    weft_status_t st = weft__cuda_status(driver->stream_is_capturing(stream, &capture),
                                         "the worker's stream cannot be used");
    if (st < 0 || !capture) return st;
    return weft__fail(WEFT_ERR_UNSUPPORTED, "the worker's stream is being captured");
}

static bool is_captured(const struct cuda_driver *driver, cuda_stream stream) {
    cuda_capture capture = 0;
    return driver->stream_is_capturing && driver->stream_is_capturing(stream, &capture) == 0 &&
           capture;
}

static weft_status_t enter_context(const struct cuda_batch *batch, struct cuda_visit *visit_p) {
    return weft__cuda_status(weft__cuda_enter(batch->place.context, visit_p),
                             "could not enter the memory's context");
}

weft_status_t weft__cuda_batch_begin(struct cuda_batch *batch, struct cuda_place place,
                                     enum cuda_use use) {
    *batch = (struct cuda_batch){
        .driver = weft__cuda_driver(), .place = place, .use = use, .stream = place.stream};
    if (!batch->driver) return weft__fail(WEFT_ERR_IO, "the CUDA driver is not loaded");
    if (!place.context) batch->place.context = weft__cuda_current();
    weft_status_t st = enter_context(batch, &batch->visit);
    if (st < 0) return st;
    batch->number = weft__cuda_context_number(batch->place.context);
    st = place.stream ? check_given(batch->driver, place.stream) : take_stream(batch);
    if (st < 0) weft__cuda_leave(&batch->visit);
    return st;
}

weft_status_t weft__cuda_batch_fail(struct cuda_batch *batch, weft_status_t status) {
    (void)batch->driver->stream_wait(batch->stream);
    weft__cuda_leave(&batch->visit);
    give_stream(batch, true);
    return status;
}

static const char could_not_copy[] = "could not copy device memory";
static const char copy_failed[] = "a copy of device memory failed";

static weft_status_t added(struct cuda_batch *batch, cuda_result result) {
    if (LIKELY(result == 0)) return WEFT_OK;
    return weft__cuda_batch_fail(batch, weft__cuda_status(result, could_not_copy));
}

weft_status_t weft__cuda_batch_read(struct cuda_batch *batch, void *to, const void *device,
                                    size_t len) {
    return added(batch, batch->driver->copy_to_host(to, pointer_of(device), len, batch->stream));
}
weft_status_t weft__cuda_batch_write(struct cuda_batch *batch, void *device, const void *from,
                                     size_t len) {
    return added(batch,
                 batch->driver->copy_to_device(pointer_of(device), from, len, batch->stream));
}
weft_status_t weft__cuda_batch_copy(struct cuda_batch *batch, void *to, const void *from,
                                    size_t len) {
    if (!batch->driver->copy_within)
        return weft__cuda_batch_fail(batch,
                                     weft__fail(WEFT_ERR_UNSUPPORTED, "no copies between devices"));
    return added(batch,
                 batch->driver->copy_within(pointer_of(to), pointer_of(from), len, batch->stream));
}

/* The driver takes no other pitch, whatever the number of rows. */
static bool is_pitch(size_t pitch, size_t width) {
    return width > 0 && width <= pitch && pitch <= CUDA_MOST_PITCH;
}

static weft_status_t copy_each_row(struct cuda_batch *batch, const struct cuda_rows *rows) {
    cuda_pointer to = pointer_of(rows->to), from = pointer_of(rows->from);
    cuda_result result = batch->driver->copy_within ? 0 : CUDA_NOT_SUPPORTED;
    for (size_t i = 0; i < rows->rows && result == 0; i++)
        result = batch->driver->copy_within(to + i * rows->to_pitch, from + i * rows->from_pitch,
                                            rows->width, batch->stream);
    return added(batch, result);
}

weft_status_t weft__cuda_batch_copy_rows(struct cuda_batch *batch, const struct cuda_rows *rows) {
    if (!is_pitch(rows->to_pitch, rows->width) || !is_pitch(rows->from_pitch, rows->width))
        return copy_each_row(batch, rows);
    struct CUDA_MEMCPY2D_st copy = {.srcMemoryType = CUDA_KIND_DEVICE,
                                    .srcDevice = pointer_of(rows->from),
                                    .srcPitch = rows->from_pitch,
                                    .dstMemoryType = CUDA_KIND_DEVICE,
                                    .dstDevice = pointer_of(rows->to),
                                    .dstPitch = rows->to_pitch,
                                    .WidthInBytes = rows->width,
                                    .Height = rows->rows};
    return added(batch, batch->driver->copy_blocks(&copy, batch->stream));
}

/* Copies of blocks, between device and host, are one of the driver's: 3D where the planes are a
 * whole number of rows apart, else 2D for each; or one a block, where the driver takes no such
 * pitch. */
enum blocks_way { BLOCKS_READ, BLOCKS_WRITE };

static bool is_copied_in_3d(const struct cuda_driver *driver, const struct cuda_blocks *blocks) {
    return driver->copy_planes && is_pitch(blocks->pitch, blocks->width) &&
           blocks->plane_pitch % blocks->pitch == 0 &&
           blocks->plane_pitch / blocks->pitch >= blocks->rows;
}

static cuda_result copy_in_3d(const struct cuda_batch *batch, const struct cuda_blocks *blocks,
                              enum blocks_way way) {
    size_t height = blocks->plane_pitch / blocks->pitch;
    struct CUDA_MEMCPY3D_st copy = {
        .WidthInBytes = blocks->width, .Height = blocks->rows, .Depth = blocks->planes};
    if (way == BLOCKS_READ) {
        copy.srcMemoryType = CUDA_KIND_DEVICE, copy.dstMemoryType = CUDA_KIND_HOST;
        copy.srcDevice = pointer_of(blocks->device), copy.dstHost = blocks->host;
        copy.srcPitch = blocks->pitch, copy.srcHeight = height;
        copy.dstPitch = blocks->width, copy.dstHeight = blocks->rows;
    } else {
        copy.srcMemoryType = CUDA_KIND_HOST, copy.dstMemoryType = CUDA_KIND_DEVICE;
        copy.srcHost = blocks->host, copy.dstDevice = pointer_of(blocks->device);
        copy.srcPitch = blocks->width, copy.srcHeight = blocks->rows;
        copy.dstPitch = blocks->pitch, copy.dstHeight = height;
    }
    return batch->driver->copy_planes(&copy, batch->stream);
}

static cuda_result copy_each_block(const struct cuda_batch *batch, const struct cuda_blocks *blocks,
                                   size_t plane, enum blocks_way way) {
    cuda_pointer device = pointer_of(blocks->device) + plane * blocks->plane_pitch;
    char *host = (char *)blocks->host + plane * blocks->rows * blocks->width;
    cuda_result result = 0;
    for (size_t i = 0; i < blocks->rows && result == 0; i++) {
        cuda_pointer at = device + i * blocks->pitch;
        char *to = host + i * blocks->width;
        result = way == BLOCKS_READ
                     ? batch->driver->copy_to_host(to, at, blocks->width, batch->stream)
                     : batch->driver->copy_to_device(at, to, blocks->width, batch->stream);
    }
    return result;
}

static cuda_result copy_in_2d(const struct cuda_batch *batch, const struct cuda_blocks *blocks,
                              size_t plane, enum blocks_way way) {
    if (!is_pitch(blocks->pitch, blocks->width)) return copy_each_block(batch, blocks, plane, way);
    char *device = (char *)blocks->device + plane * blocks->plane_pitch;
    char *host = (char *)blocks->host + plane * blocks->rows * blocks->width;
    struct CUDA_MEMCPY2D_st copy = {.WidthInBytes = blocks->width, .Height = blocks->rows};
    if (way == BLOCKS_READ) {
        copy.srcMemoryType = CUDA_KIND_DEVICE, copy.dstMemoryType = CUDA_KIND_HOST;
        copy.srcDevice = pointer_of(device), copy.dstHost = host;
        copy.srcPitch = blocks->pitch, copy.dstPitch = blocks->width;
    } else {
        copy.srcMemoryType = CUDA_KIND_HOST, copy.dstMemoryType = CUDA_KIND_DEVICE;
        copy.srcHost = host, copy.dstDevice = pointer_of(device);
        copy.srcPitch = blocks->width, copy.dstPitch = blocks->pitch;
    }
    return batch->driver->copy_blocks(&copy, batch->stream);
}

static weft_status_t add_blocks(struct cuda_batch *batch, const struct cuda_blocks *blocks,
                                enum blocks_way way) {
    size_t planes = blocks->planes ? blocks->planes : 1;
    cuda_result result = 0;
    if (planes > 1 && is_copied_in_3d(batch->driver, blocks))
        return added(batch, copy_in_3d(batch, blocks, way));
    for (size_t i = 0; i < planes && result == 0; i++) result = copy_in_2d(batch, blocks, i, way);
    return added(batch, result);
}

weft_status_t weft__cuda_batch_read_blocks(struct cuda_batch *batch,
                                           const struct cuda_blocks *blocks) {
    return add_blocks(batch, blocks, BLOCKS_READ);
}
weft_status_t weft__cuda_batch_write_blocks(struct cuda_batch *batch,
                                            const struct cuda_blocks *blocks) {
    return add_blocks(batch, blocks, BLOCKS_WRITE);
}

weft_status_t weft__cuda_batch_wait(struct cuda_batch *batch) {
    cuda_result result = batch->driver->stream_wait(batch->stream);
    if (result != 0) return weft__cuda_batch_fail(batch, weft__cuda_status(result, copy_failed));
    weft__cuda_leave(&batch->visit);
    give_stream(batch, false);
    return WEFT_OK;
}

weft_status_t weft__cuda_batch_then(struct cuda_batch *batch, cuda_host_fn fn, void *arg) {
    cuda_result result = batch->driver->host_call ? batch->driver->host_call(batch->stream, fn, arg)
                                                  : batch->driver->stream_wait(batch->stream);
    if (result != 0) return weft__cuda_batch_fail(batch, weft__cuda_status(result, could_not_copy));
    weft__cuda_leave(&batch->visit);
    if (!batch->driver->host_call) fn(arg);
    return WEFT_OK;
}

weft_status_t weft__cuda_batch_check(const struct cuda_batch *batch) {
    struct cuda_visit visit;
    weft_status_t st = enter_context(batch, &visit);
    if (st == WEFT_ERR_NO_MEMORY) return WEFT_IN_PROGRESS; /* to ask: it goes on */
    if (st < 0) return weft__fail(WEFT_ERR_IO, "the context of a copy is gone");
    if (weft__cuda_context_number(batch->place.context) != batch->number) {
        weft__cuda_leave(&visit);
        return weft__fail(WEFT_ERR_IO, "the context of a copy is another one by now");
    }
    /* A question for a stream that the program captures would make the capture invalid. */
    bool can_ask = batch->driver->stream_query &&
                   (!batch->place.stream || !is_captured(batch->driver, batch->stream));
    cuda_result result = can_ask ? batch->driver->stream_query(batch->stream) : CUDA_NOT_READY;
    weft__cuda_leave(&visit);
    return result == CUDA_NOT_READY ? WEFT_IN_PROGRESS : weft__cuda_status(result, copy_failed);
}

void weft__cuda_batch_end(struct cuda_batch *batch, weft_status_t status) {
    give_stream(batch, status < 0);
}

void weft__cuda_batch_stop(struct cuda_batch *batch) {
    struct cuda_visit visit;
    weft_status_t st = enter_context(batch, &visit);
    if (st == WEFT_OK) {
        bool is_there = weft__cuda_context_number(batch->place.context) == batch->number;
        if (is_there && batch->place.stream) st = check_given(batch->driver, batch->place.stream);
        if (is_there && st == WEFT_OK)
            st = weft__cuda_status(batch->driver->stream_wait(batch->stream), copy_failed);
        weft__cuda_leave(&visit);
    }
    give_stream(batch, st < 0);
}

weft_status_t weft__cuda_pin(cuda_context context, void *at, size_t len) {
    const struct cuda_driver *driver = weft__cuda_driver();
    struct cuda_visit visit;
    if (!driver || !driver->host_register) return WEFT_ERR_UNSUPPORTED;
    weft_status_t st =
        weft__cuda_status(weft__cuda_enter(context, &visit), "could not enter a context");
    if (st < 0) return st;
    st = weft__cuda_status(driver->host_register(at, len, CUDA_PORTABLE | CUDA_MAPPED),
                           "could not pin memory of the host");
    weft__cuda_leave(&visit);
    return st;
}

bool weft__cuda_unpin(cuda_context context, void *at) {
    const struct cuda_driver *driver = weft__cuda_driver();
    struct cuda_visit visit;
    if (!driver || !driver->host_unregister) return true;
    cuda_result result = weft__cuda_enter(context, &visit);
    if (result != 0) return result != CUDA_OUT_OF_MEMORY;
    (void)driver->host_unregister(at);
    weft__cuda_leave(&visit);
    return true;
}

/* ---- copies that the call waits for */

weft_status_t weft__cuda_read(struct cuda_place place, void *to, const void *device, size_t len) {
    struct cuda_batch batch;
    weft_status_t st = weft__cuda_batch_begin(&batch, place, CUDA_BLOCKING);
    if (st == WEFT_OK) st = weft__cuda_batch_read(&batch, to, device, len);
    return st < 0 ? st : weft__cuda_batch_wait(&batch);
}

weft_status_t weft__cuda_write(struct cuda_place place, void *device, const void *from,
                               size_t len) {
    struct cuda_batch batch;
    weft_status_t st = weft__cuda_batch_begin(&batch, place, CUDA_BLOCKING);
    if (st == WEFT_OK) st = weft__cuda_batch_write(&batch, device, from, len);
    return st < 0 ? st : weft__cuda_batch_wait(&batch);
}

weft_status_t weft__cuda_read_blocks(struct cuda_place place, const struct cuda_blocks *blocks) {
    struct cuda_batch batch;
    weft_status_t st = weft__cuda_batch_begin(&batch, place, CUDA_BLOCKING);
    if (st == WEFT_OK) st = weft__cuda_batch_read_blocks(&batch, blocks);
    return st < 0 ? st : weft__cuda_batch_wait(&batch);
}

weft_status_t weft__cuda_write_blocks(struct cuda_place place, const struct cuda_blocks *blocks) {
    struct cuda_batch batch;
    weft_status_t st = weft__cuda_batch_begin(&batch, place, CUDA_BLOCKING);
    if (st == WEFT_OK) st = weft__cuda_batch_write_blocks(&batch, blocks);
    return st < 0 ? st : weft__cuda_batch_wait(&batch);
}
