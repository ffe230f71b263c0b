/*
 * The first call of each function that asks the kernel for something fails in a life of two workers
 * (FAILING_ALL: each call, one in each life).
 */
#include <tests/support/failing_life.h>
#include <tests/support/failing_system.h>

static const weft_setting_t settings[] = {{"connect.timeout", "10s"}};
static const struct failing_calls calls = {
    .n = N_CALLS, .name = call_name, .settings = {settings, settings}, .n_settings = 1};

static void each_call_fails(const char *transports) {
    each_fails_once(&calls, transports, getenv("FAILING_ALL"), false);
}

TEST(each_call_fails_once_over_shm) {
    each_call_fails("shm");
}
TEST(each_call_fails_once_over_tcp) {
    each_call_fails("tcp");
}
TEST(each_call_fails_once_over_all) {
    each_call_fails("self,shm,tcp");
}
