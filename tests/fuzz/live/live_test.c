/*
 * The live fuzzer: raw peers that hold the key against real workers that do real work, each run
 * from a seed. In the ordinary run the seeds are the same each time. More of them, and one of them
 * again:
 *
 *     WEFT_FUZZ_SEED=1000 WEFT_FUZZ_SECONDS=3600 live_test [TEST]
 *     WEFT_FUZZ_SEED=1234 WEFT_FUZZ_KEEP=3,17,20 WEFT_FUZZ_TRACE=1 live_test TEST
 *
 * A run is a process of its own, so a crash or a hang is a finding and not the end. A seed that
 * fails is run again with fewer of its actions, until none can be left out, and the line that
 * replays what is left is printed with the report of that run.
 */
#include <tests/harness.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "world.h"

enum { RUN_CPU_S = 20, RUN_S = 120, SHRINKS = 300, SHRINK_S = 60, MOST_FAILED = 5 };

struct progress {
    uint64_t seed; /* under way */
    uint64_t runs;
    uint64_t reached[REACHED];
};

struct attempt {
    enum scenario scenario; /* SCENARIOS: each seed has one of them, and its allocations fail */
    uint64_t seed;
    bool keep[ACTIONS_MAX];
};

static double seconds_now(void) {
    struct timeval t;
    gettimeofday(&t, NULL);
    return (double)t.tv_sec + (double)t.tv_usec * 1e-6;
}

static uint64_t number_of(const char *name, uint64_t otherwise) {
    const char *set = getenv(name);
    return set ? strtoull(set, NULL, 0) : otherwise;
}

/* ---- one process */

/* Of processor time, so that a loaded machine is no hang; and of real time, for one that sleeps. */
static void bound_run(void) {
    setitimer(ITIMER_PROF, &(struct itimerval){.it_value = {.tv_sec = RUN_CPU_S}}, NULL);
    alarm(RUN_S);
}

static void to_log(const char *path) {
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    if (fd < 0) abort();
    dup2(fd, 1);
    dup2(fd, 2);
    close(fd);
}

/* Waits for its end. False: it failed, and the log says how, also where a signal ended it. */
static bool ends_well(pid_t child, const char *log) {
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) abort();
    FILE *f = log && WIFSIGNALED(status) ? fopen(log, "a") : NULL;
    if (f) {
        fprintf(f, "  wrong: %s\n", strsignal(WTERMSIG(status)));
        fclose(f);
    }
    return status == 0;
}

static bool run_one(const struct attempt *a, const char *log, uint64_t reached[REACHED]) {
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) abort();
    if (child == 0) {
        if (log) to_log(log);
        bound_run();
        bool starves = a->scenario == SCENARIOS;
        enum scenario scenario = starves ? a->seed % SCENARIOS : a->scenario;
        world_run(a->seed, scenario, starves, a->keep, reached);
        fflush(stdout);
        _exit(0);
    }
    return ends_well(child, log);
}

/* Seeds from p->seed on, each in a process of its own, until one fails. True: none did. */
static bool run_some(struct progress *p, uint64_t end, double late, const struct attempt *of,
                     const char *log) {
    struct attempt a = *of;
    for (bool first = true; p->seed < end && (first || seconds_now() < late); first = false) {
        a.seed = p->seed;
        if (!run_one(&a, fuzz_traces ? NULL : log, p->reached)) return false;
        p->seed++;
        p->runs++;
    }
    return true;
}

/* ---- what failed: two runs fail alike if these lines are the same, up to a number */

static void read_finding(const char *log, char *to, size_t size) {
    char line[1000];
    FILE *f = fopen(log, "r");
    snprintf(to, size, "a process that ended without a word");
    while (f && fgets(line, sizeof line, f)) {
        char *at = strstr(line, "  wrong: ");
        if (!at) at = strstr(line, "SUMMARY: ");
        if (!at) at = strstr(line, "runtime error: ");
        if (!at) at = strstr(line, "Assertion ");
        if (!at) continue;
        at[strcspn(at, "\n")] = 0;
        snprintf(to, size, "%s", at);
        break;
    }
    if (f) fclose(f);
}

static bool alike(const char *a, const char *b) {
    size_t n = strncmp(a, "  wrong: ", 9) == 0 ? strcspn(a + 9, "0123456789") + 9 : strlen(a);
    return strncmp(a, b, n) == 0;
}

/* ---- fewer actions */

static bool fails_alike(const struct attempt *a, const char *log, const char *finding) {
    char other[300];
    if (run_one(a, log, (uint64_t[REACHED]){0})) return false;
    read_finding(log, other, sizeof other);
    return alike(finding, other);
}

/* Leaves out ranges of actions, of half of what there is and less, as long as the rest fails in
 * the same way. */
static void shrink(struct attempt *a, const char *log, const char *finding) {
    double late = seconds_now() + (double)number_of("WEFT_FUZZ_SHRINK_SECONDS", SHRINK_S);
    unsigned tries = 0;
    for (unsigned width = ACTIONS_MAX / 2; width > 0; width /= 2) {
        bool shorter = true;
        while (shorter) {
            shorter = false;
            for (unsigned at = 0; at < ACTIONS_MAX; at += width) {
                struct attempt less = *a;
                bool any = false;
                for (unsigned i = at; i < at + width && i < ACTIONS_MAX; i++)
                    any |= less.keep[i], less.keep[i] = false;
                if (!any) continue;
                if (tries++ == SHRINKS || seconds_now() > late) return;
                if (!fails_alike(&less, log, finding)) continue;
                *a = less;
                shorter = width == 1;
            }
        }
    }
}

static void print_log(const char *log) {
    char line[400];
    FILE *f = fopen(log, "r");
    for (int n = 0; f && n < 60 && fgets(line, sizeof line, f); n++) printf("  | %s", line);
    if (f) fclose(f);
}

static void report(struct attempt *a, const char *test, const char *log) {
    char finding[300], path[400] = "live_test";
    if (readlink("/proc/self/exe", path, sizeof path - 1) < 0) abort();
    read_finding(log, finding, sizeof finding);
    printf("  seed %llu failed: %s\n", (unsigned long long)a->seed, finding);
    bool again = fails_alike(a, log, finding);
    if (!again) printf("  it did not when it was run again, alone\n");
    if (again) {
        shrink(a, log, finding);
        (void)run_one(a, log, (uint64_t[REACHED]){0});
    }
    print_log(log);
    printf("  again: WEFT_FUZZ_SEED=%llu WEFT_FUZZ_KEEP=", (unsigned long long)a->seed);
    const char *comma = "";
    for (unsigned i = 0; i < ACTIONS_MAX; i++)
        if (a->keep[i]) printf("%s%u", comma, i), comma = ",";
    printf(" WEFT_FUZZ_TRACE=1 %s %s\n", path, test);
}

/* The actions that WEFT_FUZZ_KEEP names, or all. */
static void keep_named(bool keep[ACTIONS_MAX]) {
    const char *at = getenv("WEFT_FUZZ_KEEP");
    memset(keep, !at, ACTIONS_MAX);
    while (at && *at) {
        char *after;
        unsigned long i = strtoul(at, &after, 10);
        if (after == at) break;
        if (i < ACTIONS_MAX) keep[i] = true;
        at = *after == ',' ? after + 1 : after;
    }
}

/* ---- the tests */

/* Memory is shared between threads that are processes here. */
static struct progress *shared_progress(void) {
    void *memory = mmap(NULL, sizeof(struct progress), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) abort();
    return memory;
}

static void replay(struct attempt *a, const char *test) {
    keep_named(a->keep);
    CHECK(run_one(a, NULL, (uint64_t[REACHED]){0}));
}

static void fuzz(const char *test, enum scenario scenario, uint64_t n) {
    char log[64];
    struct attempt a = {.scenario = scenario, .seed = number_of("WEFT_FUZZ_SEED", 1)};
    uint64_t seconds = number_of("WEFT_FUZZ_SECONDS", 0);
    fuzz_traces = getenv("WEFT_FUZZ_TRACE") != NULL;
    if (getenv("WEFT_FUZZ_KEEP")) {
        replay(&a, test);
        return;
    }
    struct progress *p = shared_progress();
    unsigned failed = 0;
    snprintf(log, sizeof log, "/tmp/weft-fuzz-%d.log", (int)getpid());
    p->seed = a.seed;
    uint64_t end = seconds ? UINT64_MAX : getenv("WEFT_FUZZ_SEED") ? a.seed + 1 : 1 + n;
    double begun = seconds_now(), late = seconds ? begun + (double)seconds : 1e18;
    while (p->seed < end && seconds_now() < late && failed < MOST_FAILED) {
        memset(a.keep, true, sizeof a.keep);
        if (run_some(p, end, late, &a, log)) break;
        a.seed = p->seed++;
        report(&a, test, log);
        failed++;
    }
    printf("  %llu runs, %.1f s; the victim's", (unsigned long long)p->runs, seconds_now() - begun);
    for (unsigned i = 0; i < REACHED; i++)
        printf(" %s %llu", reached_name[i], (unsigned long long)p->reached[i]);
    printf("\n");
    munmap(p, sizeof *p);
    unlink(log);
    CHECK_EQ(failed, 0);
}

#define FUZZ(name, scenario, n)       \
    TEST(name) {                      \
        fuzz(#name, (scenario), (n)); \
    }

FUZZ(who_holds_the_key_harms_no_other_over_tcp, OVER_TCP, 400)
FUZZ(who_holds_the_key_harms_no_other_over_shm, OVER_SHM, 250)
FUZZ(links_that_survive_are_safe_from_their_peers, SURVIVAL, 400)
FUZZ(messages_placed_in_parts_are_whole_or_not_there, PLACEMENT, 350)
FUZZ(lanes_and_rails_are_safe_from_their_peers, LANES, 250)
FUZZ(workers_without_memory_are_safe_from_their_peers, SCENARIOS, 300)
