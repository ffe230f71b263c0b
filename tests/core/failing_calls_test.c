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
    each_call_fails_in_a_life(&calls, transports, getenv("FAILING_ALL"), false);
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

/* ---- what failed once works the next time ---- */

TEST(a_listener_whose_address_the_kernel_does_not_report_is_refused) {
    struct two t;
    weft_listener_t *listener;
    two_workers(&t, "tcp", NULL, 0);
    fail_next(CALL_getsockname);
    CHECK(weft_listen(t.b, "tcp://127.0.0.1:0", NULL, &listener) < 0);
    CHECK(failing->failed);
    CHECK_EQ(weft_listen(t.b, "tcp://127.0.0.1:0", NULL, &listener), 0);
    two_down(&t);
}
TEST(a_name_that_could_not_be_listened_on_is_free_again) {
    struct two t;
    char address[256];
    size_t len = sizeof address;
    two_workers(&t, "shm", NULL, 0);
    fail_next(CALL_listen);
    weft_worker_address(t.b, address, &len); /* without shm */
    CHECK(failing->failed);
    two_dial(&t);
    UNTIL(&t, t.ready && t.back);
    two_down(&t);
}
TEST(a_listener_that_epoll_did_not_take_accepts) {
    struct two t;
    weft_listener_t *listener;
    two_workers(&t, "tcp", NULL, 0);
    CHECK_EQ(weft_listen(t.b, "tcp://127.0.0.1:0", NULL, &listener), 0);
    fail_next(CALL_epoll_ctl);
    for (int i = 0; i < 1000 && !failing->failed; i++) weft_worker_progress(t.b, 0);
    CHECK(failing->failed);
    weft_ep_params_t params = {.on_ready = two_on_ready, .on_error = two_on_error, .arg = &t};
    CHECK_EQ(weft_connect(t.a, weft_listener_uri(listener), &params, &t.ep), 0);
    UNTIL(&t, t.ready);
    two_down(&t);
}
