/* The context: one table of settings, and the root of what belongs to no single worker. */
#ifndef WEFT_CONTEXT_H
#define WEFT_CONTEXT_H

#include <weft/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_context weft_context_t;

/* One setting, by the name that `weft-info --config` lists ("tcp.bind", "log.level"). */
typedef struct weft_setting {
    const char *name;
    const char *value;
} weft_setting_t;

typedef enum weft_log_level {
    WEFT_LOG_NONE,
    WEFT_LOG_ERROR,
    WEFT_LOG_WARN,
    WEFT_LOG_INFO,
    WEFT_LOG_DEBUG,
    WEFT_LOG_TRACE
} weft_log_level_t;

/* Receives whole lines, without a newline, possibly from several threads at once, and from within any call: it calls nothing of the
 * library. `room` and `line` are valid until it returns. */
typedef void (*weft_log_fn)(weft_log_level_t level, const char *room, const char *line, void *arg);

typedef struct weft_context_params {
    const weft_setting_t *settings; /* win over the environment, which wins over the file; copied */
    size_t n_settings;
    const char *file; /* NULL: $WEFT_CONFIG, else ~/.config/weft.conf if it is there */
    weft_log_fn log;  /* NULL: standard error */
    void *log_arg;
} weft_context_params_t;

/*
 * Reads the configuration: defaults, then the file (`name = value` lines, # comments), then the
 * environment (WEFT_TCP_BIND for "tcp.bind"), then `params`. `params` may be NULL. An unknown name is
 * logged as a warning with the nearest known one; a value or a line that does not parse is
 * WEFT_ERR_INVALID_PARAM, and so is a number out of its setting's range (weft_context_setting; weft_status_describe names it), and,
 * of each struct of parameters, a field beyond this version that is not zero; a file
 * that was named and is not there is NOT_FOUND, one that cannot be read IO. A context may be used by several threads;
 * each worker belongs to one.
 */
#define weft_context_create(...) weft_context_create_sized(sizeof(weft_context_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_context_create_sized(size_t params_size, const weft_context_params_t *params,
                                                 weft_context_t **context_p);

/* WEFT_ERR_BUSY while a worker of it lives. */
WEFT_API weft_status_t weft_context_destroy(weft_context_t *context);

/* Where a setting's value came from. */
typedef enum weft_origin {
    WEFT_ORIGIN_DEFAULT,
    WEFT_ORIGIN_FILE,
    WEFT_ORIGIN_ENVIRONMENT,
    WEFT_ORIGIN_PARAMS
} weft_origin_t;

typedef struct weft_setting_info {
    const char *name, *value, *unit, *help; /* live as long as the context */
    weft_origin_t origin;
    const char *range; /* of a number, as "1..4", "128.." or "..1m"; "": any */
} weft_setting_info_t;

/* Setting number `index`, from 0; WEFT_ERR_NOT_FOUND past the last. From any thread. */
WEFT_API weft_status_t weft_context_setting(const weft_context_t *context, size_t index,
                                            weft_setting_info_t *info_p);

#ifdef __cplusplus
}
#endif
#endif
