/* Many seeds, in several processes. */
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "apart.h"

enum { TWICE = 100 };

/* What a process reports to its parent. */
struct tally {
    uint64_t seed; /* under way */
    uint64_t runs, failed, events, asked, virtual_ns, twice;
};

extern char **environ;

uint64_t batch_hash_elsewhere(uint64_t seed) {
    char number[32], answer[64] = "";
    char *argv[] = {"sim", "--hash", number, NULL};
    int ends[2], status;
    pid_t child;
    posix_spawn_file_actions_t actions;
    snprintf(number, sizeof number, "%" PRIu64, seed);
    if (pipe2(ends, O_CLOEXEC) < 0) abort();
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    int failed = posix_spawn(&child, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    ssize_t got = failed ? 0 : read(ends[0], answer, sizeof answer - 1);
    close(ends[0]);
    if (!failed) waitpid(child, &status, 0);
    return got > 0 ? strtoull(answer, NULL, 16) : 0;
}

static void run_one(uint64_t seed, struct tally *tally) {
    struct plan plan;
    struct verdict verdict;
    tally->seed = seed;
    apart_alarm(A_HANG_S);
    plan_draw(&plan, seed);
    world_run(&plan, &verdict, NULL);
    plan_free(&plan);
    if (!verdict.failed && seed % TWICE == 0) {
        verdict.failed = batch_hash_elsewhere(seed) != verdict.hash;
        if (verdict.failed)
            snprintf(verdict.what, sizeof verdict.what, "another process runs it otherwise");
        tally->twice++;
    }
    if (verdict.failed) printf("seed %" PRIu64 " failed: %s\n", seed, verdict.what);
    fflush(stdout);
    tally->failed += verdict.failed;
    tally->events += verdict.events;
    tally->asked += verdict.asked;
    tally->virtual_ns += verdict.virtual_ns;
    tally->runs++;
}

static pid_t begin_batch(const struct batch *batch, unsigned job, uint64_t from,
                         struct tally *tally) {
    pid_t child = apart_fork();
    if (child) return child;
    for (uint64_t seed = from; seed < batch->from + batch->n; seed += batch->jobs)
        run_one(seed, tally);
    _exit(0);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* A process that ended before its time is followed by another, behind the seed that it died of. */
static bool follow(const struct batch *batch, unsigned job, pid_t *child, struct tally *tally,
                   int status) {
    const char *how = apart_end(status);
    if (!how[0]) return false;
    printf("seed %" PRIu64 " failed: %s\n", tally->seed, how);
    tally->failed++;
    tally->runs++;
    *child = begin_batch(batch, job, tally->seed + batch->jobs, tally);
    return true;
}

uint64_t batch_run(const struct batch *batch) {
    struct tally *tally = apart_shared(BATCH_JOBS * sizeof *tally), sum = {0};
    pid_t child[BATCH_JOBS];
    double began = seconds();
    unsigned jobs = batch->jobs < BATCH_JOBS ? batch->jobs : BATCH_JOBS, left = jobs;
    for (unsigned i = 0; i < jobs; i++)
        child[i] = begin_batch(batch, i, batch->from + i, &tally[i]);
    while (left) {
        int status;
        pid_t gone = wait(&status);
        for (unsigned i = 0; i < jobs; i++)
            if (child[i] == gone && !follow(batch, i, &child[i], &tally[i], status)) left--;
    }
    double took = seconds() - began;
    for (unsigned i = 0; i < jobs; i++) {
        sum.runs += tally[i].runs;
        sum.failed += tally[i].failed;
        sum.events += tally[i].events;
        sum.asked += tally[i].asked;
        sum.twice += tally[i].twice;
        sum.virtual_ns += tally[i].virtual_ns;
    }
    if (!batch->quiet)
        printf("%" PRIu64 " seeds, %" PRIu64 " failed; %" PRIu64
               " run twice; %.0f operations and %.0f packets a seed; "
               "%.0f s of virtual time; %.0f seeds a minute in %u processes\n",
               sum.runs, sum.failed, sum.twice, (double)sum.asked / (double)(sum.runs + !sum.runs),
               (double)sum.events / (double)(sum.runs + !sum.runs), (double)sum.virtual_ns / 1e9,
               (double)sum.runs * 60 / took, jobs);
    return sum.failed;
}
