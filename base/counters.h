/* The always-on counters of one worker: base/counters.def is the one list. */
#ifndef WEFT_BASE_COUNTERS_H
#define WEFT_BASE_COUNTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct counters {
#define COUNTER(field, name, help) uint64_t field;
#include <base/counters.def>
#undef COUNTER
};

/* Counter number `index`, from 0; false past the last. `value_p` and `help_p` may be NULL. */
bool weft__counter_at(const struct counters *counters, size_t index, const char **name_p,
                      const char **help_p, uint64_t *value_p);
/* By name; 0 for a name there is not. */
uint64_t weft__counter_named(const struct counters *counters, const char *name);

#endif
