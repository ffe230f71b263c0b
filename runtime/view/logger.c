/* Loggers: who writes, and where to. */
#define _GNU_SOURCE /* program_invocation_short_name */
#include <base/alloc.h>
#include <base/check.h>
#include <base/status.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <talloc.h>
#include <unistd.h>
#include <weft/logger.h>

/* Of a text, with its end. A line has at most PIPE_BUF bytes then, so that those of several
 * processes in one pipe are whole. */
enum { LINE = 4000 + 1 };

struct weft_logger {
    weft_logger_sink_t sink;
    weft_log_level_t level;
    bool writes; /* this process is one that writes */
    uint32_t rank, size;
    int fd; /* -1: none */
    weft_log_fn fn;
    void *arg;
    char name[32];
};

/* ---- sinks --------------------------------------------------------------------------------- */

/* What the program executes does not get the duplicate. */
static weft_status_t open_stdout(weft_logger_t *logger) {
    logger->fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (logger->fd >= 0) return WEFT_OK;
    return weft__fail(errno == EBADF ? WEFT_ERR_IO : WEFT_ERR_NO_FDS, "standard output: %s",
                      strerror(errno));
}

static weft_status_t open_file(weft_logger_t *logger, const char *path) {
    logger->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (logger->fd < 0)
        return weft__fail(weft__file_status(errno), "%s: %s", path, strerror(errno));
    return WEFT_OK;
}

static weft_status_t open_journald(weft_logger_t *logger) {
    const struct sockaddr_un at = {.sun_family = AF_UNIX,
                                   .sun_path = "/run/systemd/journal/socket"};
    logger->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (logger->fd < 0) return weft__fail(WEFT_ERR_NO_FDS, "%s", strerror(errno));
    if (connect(logger->fd, (const struct sockaddr *)&at, sizeof at) == 0) return WEFT_OK;
    return weft__fail(WEFT_ERR_NOT_FOUND, "%s: %s", at.sun_path, strerror(errno));
}

/* Of a process that writes nothing too: the same call is refused in all processes or in none. */
static weft_status_t check_sink(const weft_logger_params_t *params) {
    if (params->scope == WEFT_LOGGER_NULL) return WEFT_OK;
    if (params->sink > WEFT_LOGGER_JOURNALD) REFUSE("params->sink", "not a sink");
    if (params->sink == WEFT_LOGGER_FILE && !params->path) REFUSE("params->path", "NULL");
    if (params->sink == WEFT_LOGGER_FN && !params->fn) REFUSE("params->fn", "NULL");
    return WEFT_OK;
}

static weft_status_t open_sink(weft_logger_t *logger, const weft_logger_params_t *params) {
    switch (params->sink) {
    case WEFT_LOGGER_STDOUT: return open_stdout(logger);
    case WEFT_LOGGER_FILE: return open_file(logger, params->path);
    case WEFT_LOGGER_FN: return WEFT_OK;
    case WEFT_LOGGER_JOURNALD: return open_journald(logger);
    }
    return WEFT_OK; /* check_sink refuses others */
}

static void write_whole(int fd, const char *line, size_t len) {
    while (write(fd, line, len) < 0 && errno == EINTR) continue;
}

/* A value with a newline has its length before it: it would else end there, and another field
 * begin. Returns the end. */
static char *put_field(char *at, const char *name, const char *value) {
    uint64_t len = strlen(value); /* little-endian, as all of Weft's hosts */
    bool is_line = !memchr(value, '\n', len);
    at = stpcpy(at, name);
    *at++ = is_line ? '=' : '\n';
    if (!is_line) at = mempcpy(at, &len, sizeof len);
    at = mempcpy(at, value, len);
    *at++ = '\n';
    return at;
}

/* Its priorities are those of syslog. */
static void write_journald(const weft_logger_t *logger, weft_log_level_t level, const char *text) {
    static const char *const priority[] = {"7", "3", "4", "6", "7", "7"};
    char entry[LINE + 128], *end = entry; /* a text of LINE, a name of 32 and what is around them */
    size_t of = (size_t)level < sizeof priority / sizeof *priority ? (size_t)level : 0;
    end = put_field(end, "PRIORITY", priority[of]);
    end = put_field(end, "SYSLOG_IDENTIFIER", logger->name);
    end = put_field(end, "MESSAGE", text);
    write_whole(logger->fd, entry, (size_t)(end - entry));
}

static void write_line(const weft_logger_t *logger, weft_log_level_t level, const char *text) {
    static const char *const names[] = {"", "error", "warn", "info", "debug", "trace"};
    char line[LINE + 128];
    size_t of = (size_t)level < sizeof names / sizeof *names ? (size_t)level : 0;
    int len = snprintf(line, sizeof line, "%s[%u/%u] %s: %s\n", logger->name, logger->rank,
                       logger->size, names[of], text);
    write_whole(logger->fd, line, (size_t)len < sizeof line ? (size_t)len : sizeof line);
}

/* ---- the public functions ------------------------------------------------------------------ */

static bool is_writer(const weft_logger_params_t *params, const weft_view_t *view) {
    if (params->scope == WEFT_LOGGER_NULL) return false;
    return params->scope == WEFT_LOGGER_PROCESS || params->speaker == weft_view_rank(view);
}

weft_status_t weft_logger_create_sized(size_t params_size, const weft_view_t *view,
                                       const weft_logger_params_t *params,
                                       weft_logger_t **logger_p) {
    weft_logger_params_t known = {0};
    if (!logger_p) REFUSE("logger_p", "NULL");
    weft_status_t st =
        params ? weft__params_read(&known, sizeof known, params, params_size) : WEFT_OK;
    if (st < 0) return st;
    if (known.scope > WEFT_LOGGER_NULL) REFUSE("params->scope", "not a scope");
    uint32_t size = view ? weft_view_size(view) : 1;
    if (known.scope == WEFT_LOGGER_PROGRAM && known.speaker >= size)
        REFUSE("params->speaker", "not a rank of the view");
    if (known.level > WEFT_LOG_TRACE) REFUSE("params->level", "not a level");
    st = check_sink(&known);
    if (st < 0) return st;
    weft_logger_t *logger = weft__new(NULL, weft_logger_t);
    if (!logger) return WEFT_ERR_NO_MEMORY;
    logger->sink = known.sink;
    logger->level = known.level ? known.level : WEFT_LOG_INFO;
    logger->writes = is_writer(&known, view);
    logger->rank = weft_view_rank(view);
    logger->size = size;
    logger->fd = -1;
    logger->fn = known.fn;
    logger->arg = known.arg;
    snprintf(logger->name, sizeof logger->name, "%s",
             known.name ? known.name : program_invocation_short_name);
    st = logger->writes ? open_sink(logger, &known) : WEFT_OK;
    if (st == WEFT_OK)
        *logger_p = logger;
    else
        weft_logger_destroy(logger);
    return st;
}

bool weft_logger_writes(const weft_logger_t *logger, weft_log_level_t level) {
    return logger && logger->writes && level <= logger->level;
}

void weft_logger_write(weft_logger_t *logger, weft_log_level_t level, const char *format, ...) {
    char text[LINE];
    va_list args;
    if (!weft_logger_writes(logger, level)) return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (logger->sink == WEFT_LOGGER_FN)
        logger->fn(level, logger->name, text, logger->arg);
    else if (logger->sink == WEFT_LOGGER_JOURNALD)
        write_journald(logger, level, text);
    else
        write_line(logger, level, text);
}

void weft_logger_destroy(weft_logger_t *logger) {
    if (!logger) return;
    if (logger->fd >= 0) close(logger->fd);
    talloc_free(logger);
}
