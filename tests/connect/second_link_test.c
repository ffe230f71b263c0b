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
