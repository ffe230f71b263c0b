/* Memory that is kept for later and must not be used until then: AddressSanitizer reports a use.
 * Without it, nothing. */
#ifndef WEFT_BASE_POISON_H
#define WEFT_BASE_POISON_H

#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__)
#define WEFT_POISONS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WEFT_POISONS 1
#endif
#endif

#ifdef WEFT_POISONS
void __asan_poison_memory_region(const volatile void *at, size_t size);
void __asan_unpoison_memory_region(const volatile void *at, size_t size);
#endif

static inline void poison(void *at, size_t size) {
#ifdef WEFT_POISONS
    __asan_poison_memory_region(at, size);
#endif
}
static inline void unpoison(void *at, size_t size) {
#ifdef WEFT_POISONS
    __asan_unpoison_memory_region(at, size);
#endif
}

#endif
