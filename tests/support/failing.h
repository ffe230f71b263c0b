/* One call, of many that may fail, fails once. With FAILING_TWICE in the environment the call that
 * comes behind it fails, too, whichever it is. */
#ifndef WEFT_TESTS_SUPPORT_FAILING_H
#define WEFT_TESTS_SUPPORT_FAILING_H

#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <tests/harness.h>
#include <tests/network.h>

enum { MOST_CALLS = 64 }; /* functions that may fail */

/* Shared with the process in which it fails. NULL: none fails. */
static struct failing {
    bool armed;    /* calls are counted */
    unsigned call; /* the one that fails */
    unsigned at;   /* at its call of this number, from 1; 0: none fails */
    bool failed;
    unsigned n_more; /* calls that fail behind it */
    unsigned n_calls[MOST_CALLS];
} * failing;

/* The begin of each function that may fail: whether it is to fail now, with `error`. */
static bool fails_now(unsigned call, int error) {
    if (!failing || !failing->armed) return false;
    failing->n_calls[call]++;
    if (failing->failed && failing->n_more > 0)
        failing->n_more--;
    else if (call != failing->call || failing->n_calls[call] != failing->at)
        return false;
    failing->failed = true;
    errno = error;
    return true;
}

/* The next call of that function fails, in this process. */
static inline void fail_next(unsigned call) {
    static struct failing own;
    own = (struct failing){.armed = true, .call = call, .at = 1};
    failing = &own;
}

static inline void *shared_memory(size_t len) {
    void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

/* Runs `life` in a process of its own, with that call to fail. Returns whether it ended well. */
static inline bool life_ends_well(void (*life)(void *arg), void *arg, unsigned call, unsigned at) {
    int status;
    static struct failing *shared;
    if (!shared) shared = shared_memory(sizeof *shared);
    failing = shared;
    *failing = (struct failing){.call = call, .at = at, .n_more = getenv("FAILING_TWICE") != NULL};
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm((unsigned)test_timeout(60));
        if (setjmp(test_out) == 0) life(arg);
        exit(test_result);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    return status == 0;
}

/* The first call of each of `n` functions fails (`every`: each call), one in each life. `ends_well`
 * plays a life. A life without any of them fails the test: they are not called by these names. */
static inline void each_fails_once(unsigned n, bool every,
                                   bool (*ends_well)(void *arg, unsigned call, unsigned at),
                                   void *arg) {
    unsigned n_calls[MOST_CALLS], n_lives = 0, n_bad = 0;
    CHECK(ends_well(arg, 0, 0));
    memcpy(n_calls, failing->n_calls, sizeof n_calls);
    for (unsigned call = 0; call < n; call++) {
        const unsigned last = every ? n_calls[call] : n_calls[call] > 0;
        for (unsigned at = 1; at <= last; at++, n_lives++) n_bad += !ends_well(arg, call, at);
    }
    CHECK(n_lives > 0);
    CHECK_EQ(n_bad, 0);
}

#endif
