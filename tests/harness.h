/* A test is a function; a file of them is a program. `TEST(name)` declares, `CHECK` ends the
 * test when it fails. */
#ifndef WEFT_TESTS_HARNESS_H
#define WEFT_TESTS_HARNESS_H

#include <fcntl.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

struct test {
    const char *name;
    void (*run)(void);
    struct test *next;
};
static struct test *test_first, **test_last = &test_first;
static jmp_buf test_out;
static int test_result; /* 0 ok, 1 failed, 2 skipped */

#define TEST(name_)                                                   \
    static void name_(void);                                          \
    static struct test test_##name_ = {#name_, name_, NULL};          \
    __attribute__((constructor)) static void test_add_##name_(void) { \
        *test_last = &test_##name_;                                   \
        test_last = &test_##name_.next;                               \
    }                                                                 \
    static void name_(void)

#define CHECK(cond)                                             \
    do {                                                        \
        if (!(cond)) {                                          \
            printf("  %s:%d: %s\n", __FILE__, __LINE__, #cond); \
            test_result = 1;                                    \
            longjmp(test_out, 1);                               \
        }                                                       \
    } while (0)
#define CHECK_EQ(a, b)                                                                          \
    do {                                                                                        \
        long long check_a = (long long)(a), check_b = (long long)(b);                           \
        if (check_a != check_b) {                                                               \
            printf("  %s:%d: %s is %lld, not %s (%lld)\n", __FILE__, __LINE__, #a, check_a, #b, \
                   check_b);                                                                    \
            test_result = 1;                                                                    \
            longjmp(test_out, 1);                                                               \
        }                                                                                       \
    } while (0)
/* The reason must stand in tests/skips.txt. */
#define SKIP(reason)                       \
    do {                                   \
        printf("  skipped: %s\n", reason); \
        test_result = 2;                   \
        longjmp(test_out, 1);              \
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

/* Runs all tests, or those whose names contain argv[1]. A line per test: "ok NAME", "not ok
 * NAME", "skip NAME". */
int main(int argc, char **argv) {
    volatile int failed = 0, index = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    test_permit_descriptors();
    for (struct test *volatile t = test_first; t; t = t->next) {
        if (argc > 1 && !strstr(t->name, argv[1])) continue;
        if (!test_is_of_this_shard(index++)) continue;
        test_result = 0;
        if (setjmp(test_out) == 0) t->run();
        printf("%s %s\n", test_result == 1 ? "not ok" : test_result == 2 ? "skip" : "ok", t->name);
        failed += test_result == 1;
    }
    return failed != 0;
}
#endif
