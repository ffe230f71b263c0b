/*
 * Random programs over the public interface and the real transports, each from a seed. In the
 * ordinary run they are the same few each time. More of them, for as long as one likes, and one of
 * them again:
 *
 *     WEFT_RANDOM_SEED=1000 WEFT_RANDOM_SECONDS=3600 programs_test [TEST]
 *     WEFT_RANDOM_SEED=1234 WEFT_RANDOM_TRACE=1 programs_test TEST
 *
 * A seed says what is done, and in which order it is asked; the kernel and other threads say when
 * the rest comes. So a failure of one seed may take a few runs to come again.
 */
#include "../harness.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "world.h"

enum { A_HANG_S = 150 };

/* What a process that runs programs reports to its parent. */
struct progress {
    uint64_t seed; /* under way */
    uint64_t runs, asked, checked;
};

static uint64_t number_of(const char *name, uint64_t otherwise) {
    const char *set = getenv(name);
    return set ? strtoull(set, NULL, 0) : otherwise;
}

static struct progress *shared_progress(void) {
    void *memory = mmap(NULL, sizeof(struct progress), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) abort();
    return memory;
}

/* Some of what it may, by the seed: always what is asked for. */
static unsigned may_of(uint64_t seed, unsigned always, unsigned perhaps) {
    return always | (perhaps & (unsigned)chance_mix(seed));
}

static void run_some(struct progress *p, uint64_t end, double late, unsigned always,
                     unsigned perhaps) {
    struct verdict verdict;
    for (; p->seed < end && (p->runs == 0 || test_now() < late); p->seed++, p->runs++) {
        alarm(A_HANG_S);
        world_run(p->seed, may_of(p->seed, always, perhaps), &verdict);
        p->asked += verdict.asked;
        p->checked += verdict.checked;
    }
}

/* A crash or a hang is a finding, and not an end: another process goes on behind it. */
static bool run_apart(struct progress *p, uint64_t end, double late, unsigned always,
                      unsigned perhaps) {
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) abort();
    if (child == 0) {
        run_some(p, end, late, always, perhaps);
        exit(0);
    }
    if (waitpid(child, &status, 0) < 0) abort();
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
    if (WIFSIGNALED(status))
        printf("  %s\n", WTERMSIG(status) == SIGALRM ? "hung" : strsignal(WTERMSIG(status)));
    return false;
}

#ifdef __SANITIZE_THREAD__
enum { FEWER = 5 }; /* each takes ten times as long there */
#else
enum { FEWER = 1 };
#endif

/* `n` seeds from 1 on; `test` is what runs one of them again. */
static void programs(const char *test, uint64_t n, unsigned always, unsigned perhaps) {
    char path[400] = "programs_test";
    struct progress *p = shared_progress();
    uint64_t seconds = number_of("WEFT_RANDOM_SECONDS", 0), failed = 0;
    if (readlink("/proc/self/exe", path, sizeof path - 1) < 0) abort();
    world_traces = getenv("WEFT_RANDOM_TRACE") != NULL;
    p->seed = number_of("WEFT_RANDOM_SEED", 1);
    uint64_t end = seconds ? UINT64_MAX : getenv("WEFT_RANDOM_SEED") ? p->seed + 1 : 1 + n / FEWER;
    double begun = test_now(), late = seconds ? begun + (double)seconds : 1e18;
    while (p->seed < end && test_now() < late && failed < 20) {
        if (run_apart(p, end, late, always, perhaps)) break;
        printf("  seed %llu failed; again: WEFT_RANDOM_SEED=%llu %s %s\n",
               (unsigned long long)p->seed, (unsigned long long)p->seed, path, test);
        p->seed++;
        failed++;
    }
    printf("  %llu programs: %llu operations, %.1f MB compared, %.1f s\n",
           (unsigned long long)p->runs, (unsigned long long)p->asked, (double)p->checked / 1e6,
           test_now() - begun);
    munmap(p, sizeof *p);
    CHECK_EQ(failed, 0);
}

#define PROGRAMS(name, n, always, perhaps)     \
    TEST(name) {                               \
        programs(#name, (n), always, perhaps); \
    }

enum { MAY_ANYTHING = MAY_ALL & ~MAY_THREAD };

PROGRAMS(what_is_sent_comes_once_and_in_order, 60, 0, 0)
PROGRAMS(what_is_closed_or_revoked_is_notified_once, 40, MAY_CLOSE, MAY_REVOKE | MAY_ERR)
PROGRAMS(what_survives_its_socket_loses_nothing, 40, MAY_KILL, 0)
PROGRAMS(what_is_cancelled_or_refused_is_notified_once, 40, MAY_CANCEL, MAY_REFUSE | MAY_ERR)
PROGRAMS(what_is_sent_by_threads_comes_once, 30, MAY_THREAD, 0)
PROGRAMS(what_threads_send_or_cancel_is_notified_once, 20, MAY_THREAD | MAY_CANCEL, 0)
PROGRAMS(what_libraries_do_on_a_shared_worker_is_notified_once, 40, MAY_ASSOCIATE,
         MAY_CLOSE | MAY_KILL | MAY_CANCEL)
PROGRAMS(what_threads_send_or_close_is_notified_once, 20, MAY_THREAD | MAY_CLOSE, MAY_CANCEL)
PROGRAMS(anything_may_be_asked_in_any_order, 60, 0, MAY_ANYTHING)
