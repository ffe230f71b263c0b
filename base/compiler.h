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

#endif
