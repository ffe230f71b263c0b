/* The log: whole lines with a level and a room, to the program's sink or to standard error. */
#ifndef WEFT_BASE_LOG_H
#define WEFT_BASE_LOG_H

#include <stdbool.h>
#include <weft/context.h>

void weft__log(weft_context_t *context, weft_log_level_t level, const char *room,
               const char *format, ...) __attribute__((format(printf, 4, 5)));
bool weft__log_wants(const weft_context_t *context, weft_log_level_t level);
/* As weft__log, at most ten lines a second from this place in the code (distinguished by its
 * format). */
void weft__log_limited(weft_context_t *context, weft_log_level_t level, const char *room,
                       const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
