/* An endpoint to a worker that a link leads to takes that link, and asks no file for the way. */
#include <sys/wait.h>
#include <tests/support/call_filter.h>
#include <tests/support/worker_pair.h>
#include <unistd.h>

enum { FAILED = 1, NO_FILTERS = 3 };

/* In a process of its own, for the filter stays. */
static int connect_twice(const char *transports) {
    struct two t;
    if (setjmp(test_out)) return FAILED;
    two_up(&t, transports);
    if (!filter_refuse(SYS_newfstatat, EACCES)) return NO_FILTERS;
    two_dial(&t);
    UNTIL(&t, t.ready == 2);
    weft_ep_info_t info;
    CHECK_EQ(weft_ep_describe(t.ep, &info), 0);
    CHECK_EQ(info.n_endpoints, 2);
    return 0;
}

TEST(a_second_endpoint_over_shared_memory_looks_for_no_socket) {
    static const char *const transports[] = {"shm", "self,shm", "self,shm,tcp"};
    for (int i = 0; i < 3; i++) {
        int status;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            int outcome = connect_twice(transports[i]);
            fflush(stdout);
            _exit(outcome);
        }
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK(WIFEXITED(status));
        if (WEXITSTATUS(status) == NO_FILTERS) SKIP("no seccomp filters here");
        CHECK_EQ(WEXITSTATUS(status), 0);
    }
}

struct lost {
    int calls;
    weft_status_t status;
    char text[1024];
};
static void on_lost(weft_ep_t *ep, weft_status_t status, void *arg) {
    struct lost *lost = arg;
    lost->calls++;
    lost->status = status;
    weft_status_describe(status, lost->text, sizeof lost->text);
}

/* The endpoint has asked over a link that the other worker closed. It looks for another way. */
TEST(an_endpoint_that_finds_no_other_way_to_a_worker_that_closes_reports_both) {
    static const char *const transports[] = {"shm", "tcp"};
    static const weft_status_t outcome[] = {WEFT_ERR_UNREACHABLE, WEFT_ERR_REFUSED};
    static const char *const why[] = {"its socket cannot be seen from here", "Connection refused"};
    for (int i = 0; i < 2; i++) {
        struct two t;
        struct lost lost = {0};
        char address[256];
        size_t len = sizeof address;
        weft_ep_params_t params = {.on_error = on_lost, .arg = &lost};
        two_workers(&t, transports[i], &(weft_setting_t){"close.timeout", "1"}, 1);
        two_dial(&t);
        UNTIL(&t, t.ready && t.back);
        CHECK_EQ(weft_worker_address(t.b, address, &len), 0);
        CHECK_EQ(weft_worker_close(t.b, &(weft_op_t){.done = two_gone, .arg = &t.b}),
                 WEFT_IN_PROGRESS);
        double end = test_now() + test_timeout(60);
        while (t.b && test_now() < end) test_idle(weft_worker_progress(t.b, 0) > 0);
        CHECK(!t.b);
        CHECK_EQ(weft_connect_address(t.a, address, len, &params, &t.ep), 0);
        UNTIL(&t, lost.calls == 1);
        CHECK_EQ(lost.status, outcome[i]);
        CHECK(strstr(lost.text, why[i]));
        two_down(&t);
    }
}
