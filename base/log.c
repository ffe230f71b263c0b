/* The log: whole lines with a level and a room, to the program's sink or to standard error. */
#include "log.h"

#include "clock.h"
#include "context.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { LINE_SIZE = 1024, LINES_PER_SECOND = 10 };

static const char *const level_name[] = {"none", "error", "warn", "info", "debug", "trace"};
enum { N_LEVELS = sizeof level_name / sizeof *level_name };

bool weft__log_level_parse(const char *text, weft_log_level_t *level_p) {
    for (unsigned i = 0; i < N_LEVELS; i++) {
        if (strcasecmp(text, level_name[i])) continue;
        *level_p = (weft_log_level_t)i;
        return true;
    }
    return false;
}

bool weft__log_wants(const weft_context_t *context, weft_log_level_t level) {
    return level <= (context ? context->log_level : WEFT_LOG_WARN);
}

/* One write, so that lines of several processes do not mix. */
static void to_stderr(weft_log_level_t level, const char *room, const char *line) {
    char text[LINE_SIZE + 64];
    int len = snprintf(text, sizeof text, "weft: %s: %s: %s\n", level_name[level], room, line);
    if (len >= (int)sizeof text) len = (int)sizeof text - 1;
    ssize_t n = write(STDERR_FILENO, text, (size_t)len);
    (void)n; /* a failed write to the log cannot be reported */
}

static void write_line(weft_context_t *context, weft_log_level_t level, const char *room,
                       const char *line) {
    if (context && context->log)
        context->log(level, room, line, context->log_arg);
    else
        to_stderr(level, room, line);
}

void weft__log(weft_context_t *context, weft_log_level_t level, const char *room,
               const char *format, ...) {
    if (!weft__log_wants(context, level)) return;
    char line[LINE_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    write_line(context, level, room, line);
}

/* Its own place by open addressing; when all are taken, it shares one. */
static struct log_place *place_of(weft_context_t *context, const char *format) {
    unsigned first = (unsigned)((uintptr_t)format >> 3) % LOG_PLACES;
    for (unsigned i = 0; i < LOG_PLACES; i++) {
        struct log_place *place = &context->log_place[(first + i) % LOG_PLACES];
        const char *owner = NULL;
        if (atomic_compare_exchange_strong(&place->format, &owner, format) || owner == format)
            return place;
    }
    return &context->log_place[first];
}

/* A place's state is one word: the second, how many lines were said in it, and how many were
 * kept back since the last one. So there is no lock: a fork's child might inherit it from a
 * thread that did not come with it. */
enum { KEPT_BITS = 24, KEPT_MOST = (1 << KEPT_BITS) - 1, LOGGED_MOST = 255 };
static uint64_t state_of(uint32_t second, unsigned logged, unsigned kept_back) {
    return (uint64_t)second << 32 | (uint64_t)logged << KEPT_BITS | kept_back;
}

/* False: not now. Else `*kept_back_p` lines from here were kept back since the last one. */
static bool admit_line(weft_context_t *context, const char *format, unsigned *kept_back_p) {
    uint32_t second = (uint32_t)(weft__real_now() / NS_PER_S);
    struct log_place *place = place_of(context, format);
    uint64_t before = atomic_load(&place->state), after;
    unsigned logged, kept_back;
    do {
        logged = before >> 32 == second ? before >> KEPT_BITS & LOGGED_MOST : 0;
        kept_back = before & KEPT_MOST;
        after = logged < LINES_PER_SECOND
                    ? state_of(second, logged + 1, 0)
                    : state_of(second, logged, kept_back + (kept_back < KEPT_MOST));
    } while (!atomic_compare_exchange_weak(&place->state, &before, after));
    *kept_back_p = kept_back;
    return logged < LINES_PER_SECOND;
}

void weft__log_limited(weft_context_t *context, weft_log_level_t level, const char *room,
                       const char *format, ...) {
    unsigned kept_back = 0;
    if (!weft__log_wants(context, level) || (context && !admit_line(context, format, &kept_back)))
        return;
    char line[LINE_SIZE];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (kept_back && len >= 0 && len < LINE_SIZE)
        snprintf(line + len, sizeof line - (size_t)len, " (and %u lines like it)", kept_back);
    write_line(context, level, room, line);
}
