/* Checks and opens the context and stream in which copies run. */
#include "place.h"

#include "memory.h"
#include <base/status.h>
#include <stdint.h>
#include <transports/given.h>

static const char other_context[] =
    "the memory or stream belongs to another CUDA context than the worker's";

bool weft__cuda_has_access(cuda_context context, const struct cuda_memory *memory) {
    const struct cuda_driver *driver = weft__cuda_driver();
    struct cuda_visit visit;
    unsigned access = 0;
    if (!driver->pointer_attribute || weft__cuda_enter(context, &visit) != 0) return false;
    cuda_result result = driver->pointer_attribute(&access, CUDA_POINTER_ACCESS,
                                                   (cuda_pointer)(uintptr_t)memory->at);
    weft__cuda_leave(&visit);
    return result != 0 || access != 0;
}

/* The program holds it, for as long as it uses it. NULL: it has made none. */
static cuda_context primary_of(int device) {
    const struct cuda_driver *driver = weft__cuda_driver();
    cuda_context context = NULL;
    unsigned flags;
    int is_active = 0;
    if (!driver->primary_state || !driver->primary_retain || !driver->primary_release ||
        driver->primary_state(device, &flags, &is_active) != 0 || !is_active ||
        driver->primary_retain(&context, device) != 0)
        return NULL;
    (void)driver->primary_release(device);
    return context;
}

static weft_status_t find_context(const struct cuda_memory *memory, cuda_context *context_p) {
    cuda_context current = weft__cuda_current(), context = current;
    bool has_access = context && weft__cuda_has_access(NULL, memory);
    if (!has_access) {
        context = primary_of(memory->device);
        has_access = context && weft__cuda_has_access(context, memory);
    }
    if (!has_access && (current || context))
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "the memory is of no CUDA context, and neither the current one nor the "
                          "primary one of device %d has access to it",
                          memory->device);
    *context_p = context;
    return WEFT_OK;
}

static bool fits_given(const struct given *given, const struct cuda_memory *memory) {
    if (!memory) return true;
    return memory->context ? memory->context == given->cuda_context
                           : weft__cuda_has_access(given->cuda_context, memory);
}

weft_status_t weft__cuda_place(const struct given *given, const struct cuda_memory *memory,
                               struct cuda_place *place_p) {
    struct cuda_place place = {.context = memory ? memory->context : NULL};
    weft_status_t st = WEFT_OK;
    if (given && given->cuda_context) {
        if (!fits_given(given, memory)) return weft__fail(WEFT_ERR_UNSUPPORTED, other_context);
        place = (struct cuda_place){given->cuda_context, given->cuda_stream};
    } else if (memory && !memory->context) {
        st = find_context(memory, &place.context);
    }
    if (st == WEFT_OK) *place_p = place;
    return st;
}

weft_status_t weft__cuda_place_admits(const struct given *given, void *stream) {
    const struct cuda_driver *driver = weft__cuda_driver();
    cuda_context context = NULL;
    if (!given || !given->cuda_context) return WEFT_OK;
    if (stream == given->cuda_stream)
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "op->stream is the worker's own: its copies are in that order already");
    if (driver && driver->stream_context &&
        driver->stream_context((cuda_stream)stream, &context) == 0 &&
        context != given->cuda_context)
        return weft__fail(WEFT_ERR_UNSUPPORTED, other_context);
    return WEFT_OK;
}

weft_status_t weft__cuda_given_check(void *context, void *stream) {
    cuda_context own = context, of = own;
    struct cuda_visit visit;
    weft__cuda_look();
    const struct cuda_driver *driver = weft__cuda_driver();
    if (!driver) return weft__fail(WEFT_ERR_UNSUPPORTED, "the CUDA driver is not loaded");
    if (!own || weft__cuda_enter(own, &visit) != 0)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "no CUDA context that can be entered");
    cuda_result result = 0;
    if (stream && driver->stream_context) result = driver->stream_context(stream, &of);
    weft__cuda_leave(&visit);
    if (result != 0 || of != own)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "the stream is not of the CUDA context");
    return WEFT_OK;
}

weft_status_t weft__cuda_stream_open(void *context, void **stream_p) {
    const struct cuda_driver *driver = weft__cuda_driver();
    struct cuda_visit visit;
    cuda_stream stream;
    weft_status_t st = weft__cuda_status(weft__cuda_enter(context, &visit),
                                         "could not enter the worker's context");
    if (st < 0) return st;
    st = weft__cuda_status(driver->stream_create(&stream, CUDA_NON_BLOCKING),
                           "could not create a stream");
    weft__cuda_leave(&visit);
    if (st == WEFT_OK) *stream_p = stream;
    return st;
}

void weft__cuda_stream_close(void *context, void *stream) {
    const struct cuda_driver *driver = weft__cuda_driver();
    struct cuda_visit visit;
    if (weft__cuda_enter(context, &visit) != 0) return; /* it went with its context */
    (void)driver->stream_destroy(stream);
    weft__cuda_leave(&visit);
}
