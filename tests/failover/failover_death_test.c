/* Endpoints that survive connections, and a peer whose process dies: no operation waits for one
 * that cannot come. */
#include <tests/support/kill_child.h>

#include <signal.h>
#include <sys/wait.h>

/* Longer than a test may take: only the end of the process can be reported. */
static const weft_setting_t patient[] = {{"failover.timeout", "600s"}};

static const char *transports; /* NULL: the network */

static weft_worker_t *open_worker(struct two *t) {
    weft_worker_t *worker = NULL;
    if (weft_context_create(&(weft_context_params_t){.settings = patient, .n_settings = 1},
                            &t->context))
        _exit(1);
    weft_worker_params_t params = {.transports = transports ? transports : test_network(),
                                   .on_endpoint = two_on_endpoint,
                                   .on_error = two_on_back_error,
                                   .arg = t};
    if (weft_worker_create(t->context, &params, &worker)) _exit(1);
    return worker;
}

static void dial(struct two *t, const char *address, size_t len) {
    weft_ep_params_t params = {.on_ready = two_on_ready,
                               .on_error = two_on_error,
                               .arg = t,
                               .error_mode = WEFT_ERRORS_FAILOVER};
    if (weft_connect_address(t->a, address, len, &params, &t->ep)) _exit(1);
}

/* In a process of its own: a worker that dials the address that it reads, or says its own. */
static pid_t start(bool dials, int in, int out) {
    pid_t pid = fork();
    if (pid != 0) return pid;
    struct two t = {0};
    char address[256];
    size_t len = sizeof address;
    t.a = open_worker(&t);
    if (dials) {
        ssize_t got = read(in, address, sizeof address);
        if (got > 0) dial(&t, address, (size_t)got);
    } else if (weft_worker_address(t.a, address, &len) ||
               write(out, address, len) != (ssize_t)len) {
        _exit(1);
    }
    for (;;) weft_worker_wait(t.a, 1000);
}

/* A worker here, and a child that has dialed it. */
static pid_t dialed_by_child(struct two *t) {
    char address[256];
    size_t len = sizeof address;
    int to[2];
    *t = (struct two){0};
    CHECK_EQ(pipe(to), 0);
    pid_t pid = start(true, to[0], -1);
    t->a = open_worker(t);
    CHECK_EQ(weft_worker_address(t->a, address, &len), 0);
    CHECK_EQ(write(to[1], address, len), len);
    close(to[0]);
    close(to[1]);
    UNTIL(t, t->back);
    return pid;
}

static void free_later(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

TEST(a_dialer_that_is_killed_is_not_waited_for) {
    struct two t;
    pid_t pid = dialed_by_child(&t);
    for (double end = test_now() + 0.05; test_now() < end;) weft_worker_progress(t.a, 0);
    kill(pid, SIGKILL);
    UNTIL(&t, t.back_errors);
    CHECK_EQ(t.back_error, WEFT_ERR_PEER_FAILED);
    /* Datagrams have nothing that would be lost. */
    CHECK_EQ(weft_worker_count(t.a, "lanes.lost"), strcmp(test_network(), "rdma_ud") != 0);
    free_later(pid);
    two_down(&t);
}

/* By its lane, as without failover. */
TEST(one_over_shared_memory_that_is_killed_is_lost_at_once) {
    struct two t;
    struct tally sent = {0};
    static char bytes[300000];
    transports = "shm";
    pid_t pid = dialed_by_child(&t);
    transports = NULL;
    kill(pid, SIGSTOP);
    CHECK_EQ(weft_am_send(t.back, 1, NULL, 0, &(weft_iov_t){bytes, sizeof bytes}, 1, OP(&sent)),
             WEFT_IN_PROGRESS);
    kill(pid, SIGKILL);
    UNTIL(&t, t.back_errors && sent.calls);
    CHECK_EQ(t.back_error, WEFT_ERR_PEER_FAILED);
    CHECK_EQ(sent.status, WEFT_ERR_PEER_FAILED);
    CHECK_EQ(weft_worker_count(t.a, "lanes.lost"), 0);
    free_later(pid);
    two_down(&t);
}

TEST(one_that_was_killed_and_reaped_before_we_looked_is_not_waited_for) {
    struct two t;
    pid_t pid = dialed_by_child(&t);
    for (double end = test_now() + 0.05; test_now() < end;) weft_worker_progress(t.a, 0);
    free_later(pid);
    UNTIL(&t, t.back_errors);
    CHECK_EQ(t.back_error, WEFT_ERR_PEER_FAILED);
    two_down(&t);
}

TEST(one_that_was_dialed_and_is_killed_is_not_waited_for) {
    struct two t = {0};
    char address[256];
    int from[2];
    CHECK_EQ(pipe(from), 0);
    pid_t pid = start(false, -1, from[1]);
    ssize_t len = read(from[0], address, sizeof address);
    CHECK(len > 0);
    t.a = open_worker(&t);
    dial(&t, address, (size_t)len);
    UNTIL(&t, t.ready);
    kill(pid, SIGKILL);
    UNTIL(&t, t.errors);
    CHECK_EQ(t.error, WEFT_ERR_PEER_FAILED);
    free_later(pid);
    two_down(&t);
    close(from[0]);
    close(from[1]);
}

/* A process that stands still is not dead: its connection is there, and goes on with it. */
TEST(one_that_stands_still_is_waited_for) {
    struct two t;
    pid_t pid = dialed_by_child(&t);
    transports = NULL;
    kill(pid, SIGSTOP);
    kill_all();
    for (double end = test_now() + 0.3; test_now() < end;) weft_worker_progress(t.a, 0);
    CHECK_EQ(t.back_errors, 0);
    kill(pid, SIGCONT);
    UNTIL(&t, weft_worker_count(t.a, "lanes.resumed") == 1);
    CHECK_EQ(t.back_errors, 0);
    free_later(pid);
    UNTIL(&t, t.back_errors);
    two_down(&t);
}
