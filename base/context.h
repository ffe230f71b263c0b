/* The context: settings, the log, and how many reactors live. A talloc tree of its own; after
 * its creation only atomics change. */
#ifndef WEFT_BASE_CONTEXT_H
#define WEFT_BASE_CONTEXT_H

#include <base/settings.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <weft/context.h>

struct stubs;

/* context.c, log.c */
void weft__context_hold(weft_context_t *context);
void weft__context_release(weft_context_t *context);

/* config.c */
struct setting_value {
    char *text; /* talloc */
    uint64_t number;
    weft_origin_t origin;
};
weft_status_t weft__config_read(weft_context_t *context, const weft_context_params_t *params);
void weft__config_warn_unknown(weft_context_t *context, const weft_context_params_t *params);

/* One place in the code that logs with a limit. */
struct log_place {
    _Atomic(const char *) format;
    _Atomic uint64_t state; /* log.c's */
};
enum { LOG_PLACES = 64 };

struct weft_context {
    weft_log_fn log;
    void *log_arg;
    weft_log_level_t log_level;
    atomic_uint n_reactors;
    struct stubs *stubs; /* stub.h; NULL: not in associated mode */
    struct log_place log_place[LOG_PLACES];
    struct setting_value setting[N_SETTINGS];
};
bool weft__log_level_parse(const char *text, weft_log_level_t *level_p);

#endif
