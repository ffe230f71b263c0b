/* Copying bytes that another core has written, or is about to read. */
#ifndef WEFT_TRANSPORTS_COPY_H
#define WEFT_TRANSPORTS_COPY_H

#include <stddef.h>
#include <string.h>

/*
 * From some KiB on memcpy mostly is the processor's string instruction, which starts slowly; over parts of this size, whose lines
 * come from and go to another core's cache, wide loads and stores are faster (docs/performance.md). Beyond, the string
 * instruction pays, since it need not read what it overwrites.
 */
enum { COPY_WIDE_FROM = 4 << 10, COPY_WIDE_TO = 32 << 10 };

/* Of so many bytes. */
void weft__copy_wide(void *to, const void *from, size_t len);

static inline void weft__copy(void *to, const void *from, size_t len) {
    if (len < COPY_WIDE_FROM || len > COPY_WIDE_TO)
        memcpy(to, from, len);
    else
        weft__copy_wide(to, from, len);
}

#endif
