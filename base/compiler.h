/* What compilers offer beyond C11. */
#ifndef WEFT_BASE_COMPILER_H
#define WEFT_BASE_COMPILER_H

#include <stddef.h>

#define LIKELY(x)   __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define NOINLINE    __attribute__((noinline))

/* The object whose member `member` lies at `pointer`. */
#define container_of(pointer, type, member) \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

#endif
