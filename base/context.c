/* The context: settings, the log, and how many reactors live. */
#include "context.h"

#include "alloc.h"
#include "check.h"
#include "status.h"
#include "stub.h"
#include <string.h>

weft_status_t weft__params_read(void *params, size_t known, const void *given, size_t size) {
    memset(params, 0, known);
    if (!given) return WEFT_OK;
    for (size_t i = known; i < size; i++)
        if (((const char *)given)[i])
            return weft__fail(WEFT_ERR_INVALID_PARAM,
                              "params: a field that this version does not know is not zero");
    memcpy(params, given, size < known ? size : known);
    return WEFT_OK;
}

void weft__info_write(void *given, size_t size, const void *info, size_t known) {
    memcpy(given, info, size < known ? size : known);
    if (size > known) memset((char *)given + known, 0, size - known);
}

static weft_status_t copy_params(size_t size, const weft_context_params_t *given,
                                 weft_context_params_t *params) {
    weft_status_t st = weft__params_read(params, sizeof *params, given, size);
    if (st < 0) return st;
    if (params->n_settings && !params->settings)
        return weft__fail(WEFT_ERR_INVALID_PARAM,
                          "params.settings is NULL, params.n_settings is %zu", params->n_settings);
    return WEFT_OK;
}

static weft_status_t set_up(weft_context_t *context, const weft_context_params_t *params) {
    context->log = params->log;
    context->log_arg = params->log_arg;
    context->log_level = WEFT_LOG_WARN;
    weft_status_t st = weft__config_read(context, params);
    if (st < 0) return st;
    weft__config_warn_unknown(context, params);
    return WEFT_OK;
}

weft_status_t weft_context_create_sized(size_t params_size, const weft_context_params_t *given,
                                        weft_context_t **context_p) {
    weft_context_params_t params;
    if (!context_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "context_p is NULL");
    weft_status_t st = copy_params(params_size, given, &params);
    if (st < 0) return st;
    weft_context_t *context = weft__new(NULL, weft_context_t);
    if (!context) return WEFT_ERR_NO_MEMORY;
    st = set_up(context, &params);
    if (st == WEFT_OK && params.associated) st = weft__stubs_open(context);
    if (st < 0)
        weft_context_destroy(context);
    else
        *context_p = context;
    return st;
}

weft_status_t weft_context_destroy(weft_context_t *context) {
    if (!context) return weft__fail(WEFT_ERR_INVALID_PARAM, "context is NULL");
    unsigned n = atomic_load(&context->n_reactors);
    if (n)
        return weft__fail(WEFT_ERR_BUSY, "%u worker%s still open in this context", n,
                          n == 1 ? " is" : "s are");
    weft_status_t st = weft__stubs_close(context);
    if (st < 0) return st;
    talloc_free(context);
    return WEFT_OK;
}

void weft__context_hold(weft_context_t *context) {
    atomic_fetch_add(&context->n_reactors, 1);
}
void weft__context_release(weft_context_t *context) {
    atomic_fetch_sub(&context->n_reactors, 1);
}
