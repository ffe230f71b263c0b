/* A copy of large blocks by AVX where the processor has it, otherwise by memcpy. */
#include <stdbool.h>
#include <stdint.h>
#include <transports/copy.h>

#if defined(__x86_64__)

enum { LINE = 64, BLOCK = 2 * LINE };
typedef long long wide __attribute__((vector_size(32), aligned(1), may_alias));

/* The number of cache lines that a processor's store queue holds with these words; half as wide
 * words would halve it. */
static __attribute__((target("avx"))) void copy_avx(char *to, const char *from, size_t len) {
    memcpy(to, from, LINE);
    size_t at = LINE - ((uintptr_t)to & (LINE - 1)); /* from here on, writes whole lines */
    for (; at + BLOCK <= len; at += BLOCK) {
        const wide *in = (const wide *)(from + at);
        wide *out = (wide *)(to + at);
        wide a = in[0], b = in[1], c = in[2], d = in[3];
        out[0] = a, out[1] = b, out[2] = c, out[3] = d;
    }
    memcpy(to + at, from + at, len - at);
}

enum { STRING_FROM = 64 << 10 };

/* If both start at the same offset in a line and are long, the string instruction is slightly
 * faster. */
static bool suits_string(const void *to, const void *from, size_t len) {
    return len >= STRING_FROM && (((uintptr_t)to ^ (uintptr_t)from) & (LINE - 1)) == 0;
}

void weft__copy_wide(void *to, const void *from, size_t len) {
    if (!suits_string(to, from, len) && __builtin_cpu_supports("avx"))
        copy_avx(to, from, len);
    else
        memcpy(to, from, len);
}

#else

void weft__copy_wide(void *to, const void *from, size_t len) {
    memcpy(to, from, len);
}

#endif
