/* What compilers offer beyond C11. */
#ifndef WEFT_BASE_COMPILER_H
#define WEFT_BASE_COMPILER_H

#include <stddef.h>

#define LIKELY(x)   __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define NOINLINE    __attribute__((noinline))
/* Data of the library's own that fast paths read: it is not looked up in the table of offsets. */
#define HIDDEN __attribute__((visibility("hidden")))

/* The object whose member `member` lies at `pointer`. */
#define container_of(pointer, type, member) \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

/* Fetches a line that is written soon, in exclusive state. The compiler's builtin only fetches
 * it. */
static inline void prefetch_to_write(const void *line) {
#ifdef __x86_64__
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)line));
#else
    __builtin_prefetch(line, 1);
#endif
}

#endif
