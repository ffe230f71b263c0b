/* Copies of a few bytes, and of large blocks that another core has written or will read. */
#ifndef WEFT_TRANSPORTS_COPY_H
#define WEFT_TRANSPORTS_COPY_H

#include <stddef.h>
#include <string.h>

/*
 * For some KiB and more, memcpy usually is the processor's string instruction, which starts slowly.
 * On some processors it takes twenty times as long if the destination's page offset exceeds the
 * source's by 1 to 31 bytes, as it does behind a short header (docs/performance/messages.md, "What
 * a copy takes").
 */
enum { COPY_WORD = 8, COPY_WIDE_FROM = 4 << 10 };

/* Copies `len` bytes by wide loads and stores; source and destination do not overlap. */
void weft__copy_wide(void *to, const void *from, size_t len);

static inline void weft__copy(void *to, const void *from, size_t len) {
    if (len < COPY_WIDE_FROM)
        memcpy(to, from, len);
    else
        weft__copy_wide(to, from, len);
}

/* Copies a few bytes, usually one word, without a call. The pointers may be NULL if there are
 * none. */
static inline void weft__copy_short(void *to, const void *from, size_t len) {
    if (len == COPY_WORD)
        memcpy(to, from, COPY_WORD);
    else if (len)
        memcpy(to, from, len);
}

#endif
