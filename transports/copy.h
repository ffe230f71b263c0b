/* Copying bytes: few, or many that another core has written or is about to read. */
#ifndef WEFT_TRANSPORTS_COPY_H
#define WEFT_TRANSPORTS_COPY_H

#include <stddef.h>
#include <string.h>

/*
 * From some KiB on memcpy mostly is the processor's string instruction. It starts slowly, and where the copy begins 1 to 31 bytes further
 * in its page than what it is made of, as behind a short header, it takes twenty times as long on some processors
 * (docs/performance.md, "What a copy takes").
 */
enum { COPY_WORD = 8, COPY_WIDE_FROM = 4 << 10 };

/* Of so many bytes, which do not overlap, by wide loads and stores. */
void weft__copy_wide(void *to, const void *from, size_t len);

static inline void weft__copy(void *to, const void *from, size_t len) {
    if (len < COPY_WIDE_FROM)
        memcpy(to, from, len);
    else
        weft__copy_wide(to, from, len);
}

/* Of a few bytes, mostly a word: a call costs more than that. Of none the places may be NULL. */
static inline void weft__copy_short(void *to, const void *from, size_t len) {
    if (len == COPY_WORD)
        memcpy(to, from, COPY_WORD);
    else if (len)
        memcpy(to, from, len);
}

#endif
