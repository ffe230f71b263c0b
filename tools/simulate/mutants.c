/* The mutation gate: a simulator that is never red proves nothing. */
#include <inttypes.h>
#include <reactor/mutant.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "apart.h"

#ifdef WEFT_MUTANTS

static const char *const name[] = {
    "none",
#define MUTANT(id, text) #id,
#include <reactor/mutants.def>
#undef MUTANT
};
static const char *const text[] = {
    "",
#define MUTANT(id, text) text,
#include <reactor/mutants.def>
#undef MUTANT
};
enum { N = sizeof name / sizeof *name, A_HANG_S = 20, SAMPLE = 4 };

bool mutants_plant(const char *wanted) {
    for (int i = 1; i < N; i++)
        if (strcmp(wanted, name[i]) == 0) weft__mutant = (enum mutant)i;
    return weft__mutant != MUTANT_none;
}

struct finding {
    uint64_t seed; /* the last that was begun */
    bool found;
    char what[160];
};

static void look_for(int mutant, uint64_t limit, struct finding *finding) {
    weft__mutant = (enum mutant)mutant;
    for (uint64_t seed = 1; seed <= limit; seed++) {
        struct plan plan;
        struct verdict verdict;
        finding->seed = seed;
        apart_alarm(A_HANG_S);
        plan_draw(&plan, seed);
        world_run(&plan, &verdict, NULL);
        plan_free(&plan);
        if (!verdict.failed) continue;
        finding->found = true;
        snprintf(finding->what, sizeof finding->what, "%.*s", (int)sizeof finding->what - 1, verdict.what);
        return;
    }
}

static pid_t begin(int mutant, uint64_t limit, struct finding *finding) {
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) abort();
    if (child) return child;
    if (!freopen("/dev/null", "w", stderr)) abort(); /* assertions say much */
    look_for(mutant, limit, finding);
    _exit(0);
}

static bool tell(int mutant, const struct finding *finding, int status) {
    const char *how = apart_end(status);
    bool found = finding->found || how[0];
    printf("%s %-28s %s", found ? "ok" : "not ok", name[mutant], found ? "found" : "was not found");
    if (found) printf(" by seed %" PRIu64 ": %s", finding->seed, finding->found ? finding->what : how);
    printf("  (%s)\n", text[mutant]);
    return found;
}

static bool is_meant(int mutant, const char *only, bool sample) {
    if (only) return strcmp(only, name[mutant]) == 0;
    return !sample || mutant % SAMPLE == 1;
}

int mutants_run(const char *only, uint64_t limit, unsigned jobs, bool sample) {
    struct finding *finding = apart_shared(N * sizeof *finding);
    pid_t child[N] = {0};
    int left = 0, missed = 0, tried = 0, next = 1;
    while (next < N || left) {
        for (; next < N && left < (int)jobs; next++) {
            if (!is_meant(next, only, sample)) continue;
            child[next] = begin(next, limit, &finding[next]);
            left++;
            tried++;
        }
        int status;
        pid_t gone = left ? wait(&status) : 0;
        for (int i = 1; i < N && gone; i++)
            if (child[i] == gone) {
                missed += !tell(i, &finding[i], status);
                left--;
            }
    }
    printf("%d of %d planted bugs were found within %" PRIu64 " seeds\n", tried - missed, tried, limit);
    return missed + (tried == 0);
}

#else

bool mutants_plant(const char *wanted) {
    return false;
}

int mutants_run(const char *only, uint64_t limit, unsigned jobs, bool sample) {
    fprintf(stderr, "sim: built without planted bugs; tools/sim --mutants builds it with them\n");
    return 1;
}

#endif
