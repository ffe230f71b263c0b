/* The context: the configuration, the log, and the parent of all workers. */
#ifndef WEFT_CONTEXT_H
#define WEFT_CONTEXT_H

#include <weft/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_context weft_context_t;

/* One setting. `weft-info --config` lists the names ("tcp.bind", "log.level"). */
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

/*
 * Receives the log: one whole line a call, without a newline. It may be called from several threads
 * at once and from within any call, and must not call the library. `room` (the part of the library)
 * and `line` are valid until it returns.
 *
 * At level info the log has one line for each connection that is made and for each lane switch.
 * Each new lane of an endpoint with failover also has one. At level warn it has one line for each
 * connection that is lost, with the peer and the cause.
 */
typedef void (*weft_log_fn)(weft_log_level_t level, const char *room, const char *line, void *arg);

typedef struct weft_context_params {
    const weft_setting_t *settings; /* override the environment, which overrides the file; copied */
    size_t n_settings;
    const char *file; /* NULL: $WEFT_CONFIG, else ~/.config/weft.conf if it exists */
    weft_log_fn log;  /* NULL: standard error */
    void *log_arg;
    /*
     * Not 0: associated mode (weft/resource.h). Workers in associated mode need such a context.
     * Other workers cannot be created in it (NOT_ASSOCIATED) before a resource is associated with
     * the context.
     */
    int associated;
} weft_context_params_t;

/*
 * Creates a context and reads the configuration: the defaults, then the file, then the environment
 * (WEFT_TCP_BIND for "tcp.bind"), then `params`. A later source replaces the value of an earlier
 * one. The file has lines of `name = value`, and comments with #. `params` may be NULL. An unknown
 * name is logged as a warning, with a known name if one is near.
 *
 * Any thread. Several threads may use one context. Each worker belongs to one thread.
 *
 * Errors: INVALID_PARAM for a value or line that does not parse, and for a number outside its
 * setting's range (weft_context_setting; weft_status_describe names it); NOT_FOUND if `file`, or
 * else $WEFT_CONFIG, names a file that does not exist; IO if it cannot be read, and NO_FDS or
 * NO_MEMORY if the process lacks what that takes. Every function with a params struct returns
 * INVALID_PARAM for a non-zero field that this version does not know.
 */
#define weft_context_create(...) \
    weft_context_create_sized(sizeof(weft_context_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_context_create_sized(size_t params_size,
                                                 const weft_context_params_t *params,
                                                 weft_context_t **context_p);

/* Destroys a context. Any thread, when no other uses it. Errors: BUSY while it has workers or
 * objects in associated mode, or is associated with a resource. */
WEFT_API weft_status_t weft_context_destroy(weft_context_t *context);

/* The source of a setting's value. */
typedef enum weft_origin {
    WEFT_ORIGIN_DEFAULT,
    WEFT_ORIGIN_FILE,
    WEFT_ORIGIN_ENVIRONMENT,
    WEFT_ORIGIN_PARAMS
} weft_origin_t;

typedef struct weft_setting_info {
    const char *name, *value, *unit, *help; /* valid as long as the context */
    weft_origin_t origin;
    const char *range; /* of a number, as "1..4", "128.." or "..1m"; "" if it has no limits */
} weft_setting_info_t;

/* Describes setting number `index`, from 0. Any thread. Errors: NOT_FOUND past the last. */
#define weft_context_setting(...) \
    weft_context_setting_sized(sizeof(weft_setting_info_t), __VA_ARGS__)
WEFT_API weft_status_t weft_context_setting_sized(size_t info_size, const weft_context_t *context,
                                                  size_t index, weft_setting_info_t *info_p);

#ifdef __cplusplus
}
#endif
#endif
