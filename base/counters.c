/* The names and help texts of a worker's counters, and lookup by name. */
#include <base/counters.h>
#include <string.h>

static const struct {
    const char *name, *help;
    size_t at;
} table[] = {
#define COUNTER(field, name, help) {name, help, offsetof(struct counters, field)},
#include <base/counters.def>
#undef COUNTER
};
enum { N_COUNTERS = sizeof table / sizeof *table };

static uint64_t value_of(const struct counters *counters, size_t index) {
    return *(const uint64_t *)((const char *)counters + table[index].at);
}

bool weft__counter_at(const struct counters *counters, size_t index, const char **name_p,
                      const char **help_p, uint64_t *value_p) {
    if (index >= N_COUNTERS) return false;
    if (name_p) *name_p = table[index].name;
    if (help_p) *help_p = table[index].help;
    if (value_p) *value_p = value_of(counters, index);
    return true;
}

uint64_t weft__counter_named(const struct counters *counters, const char *name) {
    for (size_t i = 0; i < N_COUNTERS; i++)
        if (!strcmp(table[i].name, name)) return value_of(counters, i);
    return 0;
}
