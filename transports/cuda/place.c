/* Checks and opens the context and stream in which copies run. */
#include "place.h"

#include <base/status.h>
#include <transports/given.h>

static const char other_context[] =
    "the memory or stream belongs to another CUDA context than the worker's";

weft_status_t weft__cuda_place(const struct given *given, cuda_context context,
                               struct cuda_place *place_p) {
    struct cuda_place place = {.context = context};
    if (given && given->cuda_context) {
        if (context && context != given->cuda_context)
            return weft__fail(WEFT_ERR_UNSUPPORTED, other_context);
        place = (struct cuda_place){given->cuda_context, given->cuda_stream};
    }
    *place_p = place;
    return WEFT_OK;
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
