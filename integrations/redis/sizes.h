/* Which keys had a short value, or none, when they were read last, and have not changed since. */
#ifndef WEFT_REDIS_SIZES_H
#define WEFT_REDIS_SIZES_H

#include <stdbool.h>
#include <stddef.h>

/* A key that is not known to be short may have any value. */
bool sizes_is_short(const void *key, size_t key_len);
/* The key was read (is_short: its value is short, or there is none), or it has changed (false). */
void sizes_note(const void *key, size_t key_len, bool is_short);
/* Any key may have changed. */
void sizes_forget(void);

#endif
