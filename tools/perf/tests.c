/* All tests, by number. */
#include "perf.h"

extern const struct perf_family perf_messages, perf_onesided, perf_stream, perf_connect,
    perf_server, perf_collectives;

const struct perf_kind perf_tests[N_TESTS] = {
#define TEST(id, name, family, shown, flags) {name, &perf_##family, PERF_##shown, flags},
#include "tests.def"
#undef TEST
};

const char *const perf_mode_names[] = {"poll", "sleep", "wait", NULL};

void perf_prepare(struct perf *p) {
    perf_control_prepare(p);
    const struct perf_family *last = NULL;
    for (int i = 0; i < N_TESTS; i++) { /* a family's tests stand together */
        const struct perf_family *family = perf_tests[i].family;
        if (family != last && family->prepare) family->prepare(p);
        last = family;
    }
}
