/*
 * Loggers of a program: one voice for all its processes, or one for each. Logging is never
 * collective.
 */
#ifndef WEFT_LOGGER_H
#define WEFT_LOGGER_H

#include <weft/view.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_logger weft_logger_t;

typedef enum weft_logger_scope {
    WEFT_LOGGER_PROGRAM, /* only rank `speaker` writes; the others' lines are dropped */
    WEFT_LOGGER_PROCESS, /* each process writes its own */
    WEFT_LOGGER_NULL     /* nothing is written */
} weft_logger_scope_t;

typedef enum weft_logger_sink {
    WEFT_LOGGER_STDOUT,
    WEFT_LOGGER_FILE,    /* `path`, appended to */
    WEFT_LOGGER_FN,      /* `fn` */
    WEFT_LOGGER_JOURNALD /* the socket of systemd-journald */
} weft_logger_sink_t;

typedef struct weft_logger_params {
    weft_logger_scope_t scope;
    weft_logger_sink_t sink;
    weft_log_level_t level; /* what is less important than this is dropped; 0: info */
    uint32_t speaker;       /* a rank of the view, for WEFT_LOGGER_PROGRAM */
    const char *path;
    weft_log_fn fn; /* `room` is the logger's name */
    void *arg;
    /* stands in each line; 31 bytes of it are copied; NULL: the program's name */
    const char *name;
} weft_logger_params_t;

/*
 * Creates a logger. The null view has one process. `params` may be NULL: the program's logger to
 * standard output. The logger does not need the view afterwards.
 *
 * Errors: INVALID_PARAM, also in a process that would write nothing. Where the process writes: IO
 * if the file cannot be opened, or there is no standard output; NOT_FOUND if there is no journald;
 * NO_FDS.
 */
#define weft_logger_create(...) weft_logger_create_sized(sizeof(weft_logger_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_logger_create_sized(size_t params_size, const weft_view_t *view,
                                                const weft_logger_params_t *params,
                                                weft_logger_t **logger_p);
/* Writes a line, by one write(2) of at most PIPE_BUF bytes, so that lines are whole, also of
 * several processes in one file or pipe. A text of more than 4,000 bytes is cut. journald gets a
 * text of several lines as one message. A NULL logger writes nothing. Any thread. */
WEFT_API void weft_logger_write(weft_logger_t *logger, weft_log_level_t level, const char *format,
                                ...) __attribute__((format(printf, 3, 4)));
/* Whether a line of this level would be written by this process. Any thread. */
WEFT_API bool weft_logger_writes(const weft_logger_t *logger, weft_log_level_t level);
WEFT_API void weft_logger_destroy(weft_logger_t *logger);

#ifdef __cplusplus
}
#endif
#endif
