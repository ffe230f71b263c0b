/*
 * The first of many worlds that fails. A world runs in a process apart, so that a crash or a hang
 * is a failure too.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "apart.h"

struct finding {
    uint64_t seed; /* the last that was begun */
    bool failed;
    char what[160];
};

static void look_for(uint64_t from, uint64_t n, struct finding *finding) {
    for (uint64_t seed = from; seed < from + n && !finding->failed; seed++) {
        struct plan plan;
        struct verdict verdict;
        finding->seed = seed;
        apart_alarm(A_HANG_S);
        plan_draw(&plan, seed);
        world_run(&plan, &verdict, NULL);
        plan_free(&plan);
        finding->failed = verdict.failed;
        snprintf(finding->what, sizeof finding->what, "%.*s", (int)sizeof finding->what - 1,
                 verdict.what);
    }
}

bool find_first(uint64_t from, uint64_t n) {
    struct finding *finding = apart_shared(sizeof *finding);
    int status;
    pid_t child = apart_fork();
    if (!child) {
        if (!freopen("/dev/null", "w", stderr)) abort(); /* assertions print much */
        look_for(from, n, finding);
        _exit(0);
    }
    if (waitpid(child, &status, 0) != child) abort();
    const char *how = apart_end(status);
    if (finding->failed || how[0])
        printf("seed %" PRIu64 ": failed: %s\n", finding->seed,
               finding->failed ? finding->what : how);
    else
        printf("none of %" PRIu64 " seeds failed\n", n);
    return finding->failed || how[0];
}
