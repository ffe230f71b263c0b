/* A test is a function; a file of them is a program. `TEST(name)` declares, `CHECK` ends the
 * test when it fails. */
#ifndef WEFT_TESTS_HARNESS_H
#define WEFT_TESTS_HARNESS_H

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { TEST_OK, TEST_FAILED, TEST_SKIPPED, TEST_LEFT_OUT };

struct test {
    const char *name;
    void (*run)(void);
    struct test *next;
    int result;
};
static struct test *test_first, **test_last = &test_first;
static jmp_buf test_out;
static int test_result;
static _Thread_local bool test_runs_here; /* this thread runs the tests */

/* There is no way out for a thread that a test started: it ends the program. */
static inline _Noreturn void test_end(int result) {
    if (!test_runs_here) abort();
    test_result = result;
    longjmp(test_out, 1);
}

#define TEST(name_)                                                   \
    static void name_(void);                                          \
    static struct test test_##name_ = {.name = #name_, .run = name_}; \
    __attribute__((constructor)) static void test_add_##name_(void) { \
        *test_last = &test_##name_;                                   \
        test_last = &test_##name_.next;                               \
    }                                                                 \
    static void name_(void)

#define CHECK(cond)                                             \
    do {                                                        \
        if (!(cond)) {                                          \
            printf("  %s:%d: %s\n", __FILE__, __LINE__, #cond); \
            test_end(TEST_FAILED);                              \
        }                                                       \
    } while (0)
#define CHECK_EQ(a, b)                                                                          \
    do {                                                                                        \
        long long check_a = (long long)(a), check_b = (long long)(b);                           \
        if (check_a != check_b) {                                                               \
            printf("  %s:%d: %s is %lld, not %s (%lld)\n", __FILE__, __LINE__, #a, check_a, #b, \
                   check_b);                                                                    \
            test_end(TEST_FAILED);                                                              \
        }                                                                                       \
    } while (0)
/* The reason must stand in tests/skips.txt. */
#define SKIP(reason)                       \
    do {                                   \
        printf("  skipped: %s\n", reason); \
        test_end(TEST_SKIPPED);            \
    } while (0)

enum { TEST_DESCRIPTORS = 16384 };

/* Many systems begin with 1,024 descriptors and permit more. A test of thousands of connections
 * needs them. */
static void test_permit_descriptors(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= TEST_DESCRIPTORS) return;
    limit.rlim_cur = limit.rlim_max < TEST_DESCRIPTORS ? limit.rlim_max : TEST_DESCRIPTORS;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static int test_number(const char *variable, int otherwise) {
    const char *set = getenv(variable);
    return set ? atoi(set) : otherwise;
}

/* Bazel runs a program with a shard_count once for each shard, which is a part of its tests. The
 * program touches a file, by which Bazel learns that it knows of shards. */
static bool test_is_of_this_shard(int index) {
    const char *known = getenv("TEST_SHARD_STATUS_FILE");
    if (known) close(open(known, O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
    return index % test_number("TEST_TOTAL_SHARDS", 1) == test_number("TEST_SHARD_INDEX", 0);
}

/* The cases as Bazel and others read them. Bazel makes a file without cases, by a shell and ten
 * more processes, where a program writes none. */
static void test_report(const char *path) {
    static const char *const ended[] = {"", "<failure/>", "<skipped/>"};
    FILE *out = path ? fopen(path, "we") : NULL;
    if (!out) return;
    fprintf(out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"%s\">\n",
            program_invocation_short_name);
    for (struct test *t = test_first; t; t = t->next) {
        if (t->result == TEST_LEFT_OUT) continue;
        fprintf(out, "    <testcase name=\"%s\">%s</testcase>\n", t->name, ended[t->result]);
    }
    fprintf(out, "  </testsuite>\n</testsuites>\n");
    fclose(out);
}

/* Runs all tests, or those whose names contain argv[1], of which there must be one. A line per
 * test: "ok NAME", "not ok NAME", "skip NAME". */
int main(int argc, char **argv) {
    static const char *const outcome[] = {"ok", "not ok", "skip"};
    volatile int failed = 0, index = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    test_runs_here = true;
    test_permit_descriptors();
    for (struct test *volatile t = test_first; t; t = t->next) {
        t->result = TEST_LEFT_OUT;
        if (argc > 1 && !strstr(t->name, argv[1])) continue;
        if (!test_is_of_this_shard(index++)) continue;
        test_result = TEST_OK;
        if (setjmp(test_out) == 0) t->run();
        t->result = test_result;
        printf("%s %s\n", outcome[test_result], t->name);
        failed += test_result == TEST_FAILED;
    }
    test_report(getenv("XML_OUTPUT_FILE"));
    if (index == 0) printf("no test has \"%s\" in its name\n", argc > 1 ? argv[1] : "");
    return failed != 0 || index == 0;
}
#endif
