#!/bin/bash
# tests/harness.h: what a test program says of its cases, and how it ends.
. tests/check.sh

# program BODY: compiles a test program of these cases
program() {
    printf '#include <tests/harness.h>\n%s\n' "$1" >"$scratch/a_test.c"
    ${CC:-cc} -std=gnu11 -D_GNU_SOURCE= -I. -pthread -o "$scratch/a_test" "$scratch/a_test.c"
}

# says CODE OUTPUT ARGUMENT…
says() {
    local code=0
    "$scratch/a_test" "${@:3}" >"$scratch/out" || code=$?
    expect "output of ${*:3}" "$(cat "$scratch/out")" "$2"
    expect "code of ${*:3}" $code "$1"
}

test_each_case_has_a_line_and_a_failed_one_fails_the_program() {
    program 'TEST(good) { CHECK(1); CHECK_EQ(2, 1 + 1); }
TEST(bad) { CHECK_EQ(2, 3); }
TEST(left_out) { SKIP("it rains"); }'
    says 1 "$(printf '%s\n' 'ok good' "  $scratch/a_test.c:3: 2 is 2, not 3 (3)" 'not ok bad' '  skipped: it rains' 'skip left_out')"
    says 0 'ok good' good
    says 0 $'  skipped: it rains\nskip left_out' out
}

test_a_check_that_fails_on_another_thread_ends_the_program() {
    program '#include <pthread.h>
static void *check(void *arg) { CHECK(arg); return NULL; }
TEST(good) {}
TEST(bad) { pthread_t t; pthread_create(&t, NULL, check, NULL); pthread_join(t, NULL); }'
    says 134 "$(printf '%s\n' 'ok good' "  $scratch/a_test.c:3: arg")"
}

test_a_name_that_no_case_has_is_a_failure() {
    program 'TEST(good) {}'
    says 1 'no test has "goood" in its name' goood
}

# As Bazel runs it: a shard may be left without a case.
test_shards_have_all_cases_once() {
    program 'TEST(one) {}
TEST(two) {}
TEST(three) {}'
    export TEST_TOTAL_SHARDS=2
    TEST_SHARD_INDEX=0 says 0 $'ok one\nok three'
    TEST_SHARD_INDEX=1 says 0 'ok two'
    TEST_SHARD_INDEX=1 says 0 '' three
}

run_tests
